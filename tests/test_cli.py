"""The command line: exit codes, one-line errors, and files that are whole or not there."""

import json
import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import cli, files
from benchmarks.errors import InputError


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_every_command_has_help(command, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main([command, "--help"])
    assert ended.value.code == 0
    assert "usage: captionbench" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "required: COMMAND (see captionbench --help)"),
        (["no-such-command"], "invalid choice: 'no-such-command'"),
        (["equations", "--no-such-option"], "unrecognized arguments: --no-such-option"),
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
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_errors_become_one_line_and_an_exit_code(monkeypatch, capsys, raised, code, said):
    from benchmarks import equations

    def run(_):
        raise raised

    monkeypatch.setattr(equations, "run", run)
    assert cli.main(["equations"]) == code
    err = capsys.readouterr().err
    assert said in err
    assert len(err.strip().splitlines()) == 1


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
