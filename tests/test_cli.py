"""The command line: exit codes, one-line errors, and files that are whole or not there."""

import importlib
import json
import os
import resource
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import __version__, files
from benchmarks.cli import main as cli
from benchmarks.errors import InputError


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_every_command_has_help(command, capsys):
    assert cli.main([command, "--help"]) == 0
    said = capsys.readouterr().out
    assert "usage: captionbench" in said
    assert "--json" in said or command == "report"  # whose result is its pages


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "required: COMMAND (see captionbench --help)"),
        (["no-such-command"], "no-such-command: no such command (see captionbench --help)"),
        (["verfy"], "verfy: no such command, did you mean verify? (see captionbench --help)"),
        (["--verson"], "--verson: no such option, did you mean --version?"),
        (["equations", "--no-such-option"], "--no-such-option: no such option (see captionbench"),
        (["flops", "--d_model=3"], "--d_model: no such option, did you mean --d-model? (see"),
        (["flops", "--d-mod", "3"], "--d-mod: no such option, did you mean --d-model? (see"),
        (
            ["train", "--scenes", "--out", "x", "--d-model", "abc"],
            "(see captionbench train --help)",
        ),
    ],
)
def test_a_wrong_command_line_is_one_line_and_exits_with_2(words, said, capsys):
    assert cli.main(words) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.startswith("captionbench: error: ")
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        (InputError("file x: bad"), 2, "error: file x: bad"),
        (MemoryError(), 2, "error: not enough memory (out of memory), expected less of the input"),
        (
            RuntimeError("[enforce] DefaultCPUAllocator: can't allocate memory: you tried\nmore"),
            2,
            "can't allocate memory: you tried), expected less of the input",
        ),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_errors_become_one_line_and_an_exit_code(monkeypatch, capsys, raised, code, said):
    from benchmarks.cli import equations

    def run(_):
        raise raised

    monkeypatch.setattr(equations, "run", run)
    assert cli.main(["equations"]) == code
    err = capsys.readouterr().err
    assert said in err
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("command", "how", "said"),
    [
        ("report", (), "interrupted; the same command resumes"),
        ("report", ("--resume does",), "interrupted; --resume does"),
        ("equations", (), "interrupted"),
    ],
)
def test_ctrl_c_says_how_to_resume_where_one_can(monkeypatch, capsys, command, how, said):
    module = importlib.import_module(cli.module_of(command))
    monkeypatch.setattr(module, "run", lambda _: (_ for _ in ()).throw(KeyboardInterrupt(*how)))
    assert cli.main([command]) == cli.EXIT_INTERRUPTED
    assert capsys.readouterr().err == f"captionbench: {said}\n"


@pytest.fixture
def package(tmp_path, monkeypatch):
    """What writes a package of ours that has a command and a part: ``captionbench broken``."""
    folder = tmp_path / "ours"
    folder.mkdir()

    def write(command, part):
        (folder / "__init__.py").write_text("")
        (folder / "command.py").write_text(command)
        (folder / "part.py").write_text(part)
        importlib.invalidate_caches()

    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(cli, "ROOT", tmp_path)
    monkeypatch.setattr(cli, "PACKAGES", (folder,))
    monkeypatch.setattr(cli, "COMMANDS", {"broken": "is broken"})
    monkeypatch.setattr(cli, "module_of", lambda _: "ours.command")
    yield write
    for name in [name for name in sys.modules if name.partition(".")[0] == "ours"]:
        del sys.modules[name]


CONFIGURE = "def configure(parser): pass\n"
EAGER = f"import ours.part\n{CONFIGURE}def run(arguments): return 0\n"
LAZY = f"{CONFIGURE}def run(arguments):\n    import ours.part\n    return ours.part.run()\n"
BY_NAME = LAZY.replace("import ours.part", "__import__('importlib').import_module('ours.part')")


@pytest.mark.parametrize("command", [EAGER, LAZY, BY_NAME])
@pytest.mark.parametrize(
    ("part", "said"),
    [
        ("def broken(:", "line 1, cannot be imported (SyntaxError: "),
        ("x = 1\nx.y", "line 2, cannot be imported (AttributeError: 'int' object has no"),
        ("\nimport nowhere", "line 2, cannot be imported (ModuleNotFoundError: No module named"),
        ("import json\n\njson.loads('{')", "line 3, cannot be imported (JSONDecodeError: "),
        ("raise RuntimeError('no\\nway')", "line 1, cannot be imported (RuntimeError: no)"),
        ("raise RuntimeError", "line 1, cannot be imported (RuntimeError: no reason given)"),
    ],
)
def test_what_cannot_be_imported_is_one_line_wherever_it_is_imported(
    package, capsys, command, part, said
):
    package(command, part)
    assert cli.main(["broken"]) == cli.EXIT_BAD_INPUT
    error = capsys.readouterr().err
    assert error.startswith(f"captionbench: error: ours/part.py, {said}")
    assert error.count("\n") == 1


def test_a_name_that_a_module_lacks_is_said_of_who_asks(package, capsys):
    package(LAZY.replace("import ours.part", "from ours import lacking"), "")
    assert cli.main(["broken"]) == cli.EXIT_BAD_INPUT
    said = "ours/command.py, line 3, cannot be imported (ImportError: cannot import name 'lacking'"
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("part", "raised"),
    [
        ("def run(): return 1 / 0", ZeroDivisionError),
        ("def run(): compile('def (', 'given', 'exec')", SyntaxError),
        ("def run(): exec(compile('1 / 0', 'given', 'exec'))", ZeroDivisionError),
        ("import json\ndef run(): json.loads('{')", ValueError),
    ],
)
def test_what_fails_while_it_runs_is_no_import(package, part, raised):
    package(LAZY, part)
    with pytest.raises(raised):
        cli.main(["broken"])


TAKEN = {
    "dataset": ["--images", ".", "--captions", "x.csv", "--name", "own"],
    "features": ["--karpathy", "x.json"],
    "predict": ["--tiny", "--only", "reward"],
    "scale": ["--tiny", "--only", "static-batch"],
    "scenes": [],
    "time": ["--tiny", "--only", "reward"],
    "track": [],
    "train": ["--scenes", "12,4,3"],
}


@pytest.mark.parametrize("command", TAKEN)
def test_a_place_that_another_process_writes_is_refused(tmp_path, capsys, command):
    place = tmp_path / "out"
    with files.locked(place):
        assert cli.main([command, "--out", str(place), *TAKEN[command]]) == 2
    said = f"{place}: process {os.getpid()} works there, expected it to end first\n"
    assert capsys.readouterr().err == f"captionbench: error: {said}"


def test_too_wide_a_beam_is_refused_before_it_takes_the_memory(capsys):
    words = ["--checkpoint", "x", "--scenes", "--beam-size", "1000000"]
    for command in ("caption", "evaluate"):
        assert cli.main([command, *words]) == 2
        assert "--beam-size: 1000000, expected at least 1 and at most" in capsys.readouterr().err


@given(st.text(), st.text())
def test_a_file_is_replaced_whole_or_stays(tmp_path_factory, old, new):
    path = tmp_path_factory.mktemp("files") / "f.txt"
    with files.write_atomically(path) as file:
        file.write(old)
    kept = path.read_bytes()
    with pytest.raises(KeyboardInterrupt), files.write_atomically(path) as file:
        file.write(new)
        raise KeyboardInterrupt
    assert path.read_bytes() == kept
    with pytest.raises(InputError, match="No space left"), files.write_atomically(path) as file:
        file.write(new)
        raise OSError(28, "No space left on device")
    assert path.read_bytes() == kept
    assert [p.name for p in path.parent.iterdir()] == ["f.txt"]


@pytest.mark.parametrize(
    ("content", "word"),
    [(b'{"a": [1, 2', "line 1"), (b"\xff\xfe", "UTF-8"), (None, "no such file")],
)
def test_bad_json_is_named(tmp_path, content, word):
    path = tmp_path / "x.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=word) as error:
        files.read_json(path, "a thing")
    assert str(path) in str(error.value)
    assert "a thing" in str(error.value)


@given(st.recursive(st.none() | st.booleans() | st.text(), st.lists, max_leaves=5))
def test_json_is_read_as_written(tmp_path_factory, value):
    path = tmp_path_factory.mktemp("json") / "x.json"
    with files.write_atomically(path) as file:
        json.dump(value, file)
    assert files.read_json(path, "a value") == value


def test_ctrl_c_waits_for_imports_and_then_counts(monkeypatch):
    # what a shell starts in the background ignores Ctrl-C
    monkeypatch.setattr(signal, "getsignal", lambda _: signal.default_int_handler)
    finished = False
    with pytest.raises(KeyboardInterrupt), cli._interruption_held():
        signal.raise_signal(signal.SIGINT)
        finished = True
    assert finished


def run_process(code, **keywords):
    """Run Python code in a process that heeds Ctrl-C, with the command line `main` in it."""
    heed = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    words = [sys.executable, "-c", f"{heed}from benchmarks.__main__ import main\n{code}"]
    keywords.setdefault("stdout", subprocess.PIPE)
    return subprocess.run(
        words, stderr=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1], **keywords
    )


EQUATIONS = "import sys\nsys.argv = ['captionbench', 'equations', '--errata']\nsys.exit(main())"
INTERRUPTED_IMPORT = """
import sys
class Interrupts:
    def find_spec(self, name, *_):
        if name == "{name}":
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Interrupts())
sys.argv = ["captionbench", "equations"]
sys.exit(main())
"""


@pytest.mark.parametrize("name", ["benchmarks.cli.main", "argparse", "benchmarks.cli.equations"])
def test_ctrl_c_while_it_starts_is_one_line(name):
    done = run_process(INTERRUPTED_IMPORT.format(name=name))
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "captionbench: interrupted\n"


def test_ctrl_c_in_a_finaliser_is_not_lost():
    done = run_process(
        "import sys, time\n"
        "class Finalised:\n"
        "    def __del__(self): signal.raise_signal(signal.SIGINT)\n"
        "from benchmarks.cli import equations\n"
        "equations.run = lambda _: [Finalised()].clear() or time.sleep(1) or 0\n" + EQUATIONS
    )
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "captionbench: interrupted\n"


def test_ctrl_c_in_generated_code_has_the_same_exit_code(tmp_path):
    """As of a dataclass that is being defined; only where Python runs a module."""
    (tmp_path / "generated.py").write_text(
        "import sys\nfrom benchmarks.__main__ import main\nfrom benchmarks.cli import equations\n"
        f"equations.run = lambda _: exec('raise KeyboardInterrupt')\n{EQUATIONS}"
    )
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[1])])
    words = [sys.executable, "-m", "generated"]
    done = subprocess.run(
        words, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (130, "captionbench: interrupted\n")


def test_ctrl_c_while_the_interpreter_ends_changes_nothing():
    done = run_process(
        "import atexit, sys\n"
        "sys.argv = ['captionbench', '--version']\n"
        "atexit.register(signal.raise_signal, signal.SIGINT)\n"
        "sys.exit(main())"
    )
    assert (done.returncode, done.stdout) == (0, f"captionbench {__version__}\n")
    assert done.stderr == ""


def test_a_closed_standard_output_takes_nothing():
    done = run_process(EQUATIONS, stdout=None, preexec_fn=partial(os.close, 1))
    assert (done.returncode, done.stderr) == (0, "")


def test_a_standard_output_that_may_not_grow_is_one_line(tmp_path):
    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))

    with (tmp_path / "x").open("w") as full:
        done = run_process(EQUATIONS, stdout=full, preexec_fn=limit)
    assert done.returncode == 2
    said = "standard output cannot be written (File too large)"
    assert done.stderr == f"captionbench: error: {said}\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_a_full_standard_output_is_one_line():
    with Path("/dev/full").open("w") as full:
        done = run_process(EQUATIONS, stdout=full)
    assert done.returncode == 2
    said = "standard output cannot be written (No space left on device)"
    assert done.stderr == f"captionbench: error: {said}\n"


def test_a_terminal_without_unicode_shows_escapes():
    prints = (
        "from benchmarks.cli import equations\nequations.run = lambda _: print('caf\\xe9') or 0\n"
    )
    done = run_process(prints + EQUATIONS, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stdout, done.stderr) == (0, "caf\\xe9\n", "")


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["verify", "--list"]])
def test_what_needs_no_pytorch_does_not_import_it(words):
    done = run_process(
        f"import sys\nsys.argv = ['captionbench', *{words}]\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert done.returncode == 0 and done.stdout
