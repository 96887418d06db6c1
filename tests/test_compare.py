"""``captionbench compare``: honest verdicts, exact counts, nothing wrong timed, no traces."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import records
from benchmarks.cli.main import main
from benchmarks.errors import InputError
from benchmarks.perf.compare import measurement, worker_process
from benchmarks.perf.compare.benchmarks import BENCHMARKS
from benchmarks.perf.compare.checkout import (
    Revision,
    Tree,
    checked_out,
    order,
    resolve,
)
from benchmarks.perf.compare.outcome import Settings
from benchmarks.perf.compare.worker import ForeignCodeError, Worker
from benchmarks.perf.compare.worker_process import WorkerError, WorkerProcess
from benchmarks.records import ROOT
from tests.support.records import from_json
from tests.support.regressions import Repository, git, repository
from tests.support.tolerances import SIMULATED

__all__ = ["repository"]


def test_both_revisions_are_timed_and_a_slower_one_exits_with_1(repository, capsys, tmp_path):
    repository.commit(SECONDS=0.001)
    repository.commit(SECONDS=0.0012)
    before = (
        git(repository.folder, "status", "--porcelain"),
        git(repository.folder, "rev-parse", "HEAD"),
    )
    out = tmp_path / "records.jsonl"
    words = ["--only", "reward", "--seconds", "0.3", "--processes", "3", "--out", str(out)]
    assert main(["compare", "HEAD~1", "HEAD", *words]) == 1
    said = capsys.readouterr().out
    assert "reward (tensors): slower" in said
    assert "A/A floor" in said
    assert main(["compare", "HEAD", "HEAD~1", *words]) == 0
    assert "reward (tensors): faster" in capsys.readouterr().out
    assert main(["compare", "HEAD", *words, "--json"]) == 0
    (printed,) = from_json(json.loads(capsys.readouterr().out))
    kept = records.read(out)
    assert [r.details.verdict for r in kept] == [
        "slower",
        "faster",
        printed.details.verdict,
    ]
    assert printed.details.verdict in ("same", "not settled")
    ratio = kept[0].values["ratio"]
    assert ratio == pytest.approx(1 / 1.2, **SIMULATED)
    assert ratio * kept[1].values["ratio"] == pytest.approx(1, **SIMULATED)
    after = (
        git(repository.folder, "status", "--porcelain"),
        git(repository.folder, "rev-parse", "HEAD"),
    )
    assert after == before


def test_a_plant_is_found_again_and_repetitions_are_counted(repository, capsys):
    repository.commit(SECONDS=0.001)
    words = ["--only", "reward", "--seconds", "0.1", "--processes", "2", "--repeat", "2"]
    assert main(["compare", "HEAD", "HEAD", *words, "--plant", "1.5:reward"]) == 1
    said = capsys.readouterr().out
    assert "reward: 2 slower of 2\nslower in any benchmark: 2 of 2 comparisons" in said
    assert "0.66" in said or "0.67" in said


def test_more_of_what_is_counted_is_a_regression_without_a_clock(repository, capsys):
    repository.commit(SECONDS=1, COUNTS={"operators": 7, "flops": 100, "only before": 1})
    repository.commit(SECONDS=1, COUNTS={"operators": 9, "flops": 90, "only after": 1})
    assert main(["compare", "HEAD~1", "HEAD", "--counts-only", "--only", "reward"]) == 1
    said = capsys.readouterr().out
    assert "operators 9 (+2, more than before); flops 90 (-10); only after 1" in said
    assert "ms" not in said
    repository.commit(SECONDS=1, COUNTS={"operators": 9, "flops": 80})
    assert main(["compare", "HEAD~1", "HEAD", "--counts-only", "--only", "reward"]) == 0


NONDETERMINISTIC = {"operators": 7, "peak bytes": None}


def test_a_count_that_becomes_nondeterministic_is_a_regression(repository, capsys, tmp_path):
    repository.commit(SECONDS=1, COUNTS={"operators": 7, "peak bytes": 100, "graph breaks": 1})
    repository.commit(SECONDS=1, COUNTS=NONDETERMINISTIC)
    out = tmp_path / "records.jsonl"
    words = ["--counts-only", "--only", "reward", "--out", str(out)]
    assert main(["compare", "HEAD~1", "HEAD", *words]) == 1
    said = capsys.readouterr().out
    printed = "peak bytes nondeterministic (was deterministic: a regression)"
    assert f"operators 7; {printed}; graph breaks not" in said
    assert main(["compare", "HEAD", "HEAD", *words]) == 0
    assert "operators 7; peak bytes nondeterministic\n" in capsys.readouterr().out
    assert main(["compare", "HEAD", "HEAD~1", *words]) == 0
    assert "operators 7; peak bytes 100; graph breaks 1\n" in capsys.readouterr().out
    kept = records.read(out)
    assert [r.details.unsteady for r in kept] == [["peak bytes"], [], []]
    assert [r.values.get("peak bytes") for r in kept] == [None, None, 100]


def test_of_many_failures_the_first_are_printed(repository, capsys):
    repository.commit(SECONDS=1)
    repository.commit(SECONDS=1, WRONG=[f"property {i}: off" for i in range(9)])
    assert main(["compare", "HEAD~1", "HEAD", "--counts-only", "--only", "reward"]) == 1
    said = re.findall("fails verification: (.*); not timed", capsys.readouterr().out)
    assert said == ["property 0: off", "property 1: off", "property 2: off", "6 more"]


def test_what_is_wrong_is_not_timed(repository, capsys):
    repository.commit(SECONDS=0.001)
    repository.commit(SECONDS=0.0001, WRONG=["cider_d: equals_oracle: off"])
    words = ["--only", "reward", "--seconds", "0.1", "--processes", "2"]
    assert main(["compare", "HEAD~1", "HEAD", *words]) == 1
    said = capsys.readouterr().out
    assert "reward (tensors): wrong" in said
    assert "fails verification: cider_d: equals_oracle: off; not timed" in said
    assert "ms" not in said
    # a wrong baseline is no measure, and no regression
    assert main(["compare", "HEAD", "HEAD~1", *words]) == 2


def test_what_a_revision_lacks_takes_no_other_benchmark_with_it(repository, capsys):
    repository.commit(SECONDS=0.001)
    lacks = "def prepare(name, **what):\n    if name == 'reward':\n        import nowhere\n"
    repository.commit(SECONDS=0.001)
    with (repository.package / "__init__.py").open("a") as file:
        file.write(lacks)
    words = ["--only", "reward", "beam", "--seconds", "0.1", "--processes", "2", "--smallest", "20"]
    assert main(["compare", "HEAD", *words]) == 1
    said = capsys.readouterr().out
    assert (
        "the working tree lacks it, or predates the present module names "
        "(ModuleNotFoundError: No module named 'nowhere')" in said
    )
    assert "reward (tensors): unavailable in B: a regression" in said
    assert "beam-search (incremental): same" in said
    assert re.search(r"B: the working tree \([0-9a-f]{9}\+\)", said)
    assert main(["compare", "HEAD", *words[:2], "--counts-only"]) == 1
    # what only the newer revision has is no regression
    git(repository.folder, "commit", "-qam", "x")
    assert main(["compare", "HEAD", "HEAD~1", *words]) == 0
    said = capsys.readouterr().out
    assert "reward (tensors): not run" in said
    assert "a regression" not in said.partition("HEAD~1")[2]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("SECONDS = (", "cannot run it (SyntaxError: "),
        ("raise RuntimeError('no\\nway')", "cannot run it (RuntimeError: no)"),
        (
            "import nowhere",
            "lacks it, or predates the present module names (ModuleNotFoundError: ",
        ),
        ("import os; os._exit(3)", "cannot run: its process ended (exit code 3)"),
        ("import os; os.kill(os.getpid(), 9)", "its process ended (signal SIGKILL)"),
        ("import sys; print('Aborted', file=sys.stderr); sys.exit(4)", "(exit code 4: Aborted)"),
    ],
)
def test_a_revision_that_does_not_build_is_one_line(repository, capsys, code, said):
    repository.commit(SECONDS=0.001)
    repository.commit()
    (repository.package / "__init__.py").write_text(code)
    assert main(["compare", "HEAD~1", "--only", "reward"]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "nothing could be measured: reward: the working tree" in error


@pytest.mark.skipif(sys.platform != "linux", reason="by a signal of Linux")
def test_a_process_that_hangs_ends_with_the_command(tmp_path):
    package, hangs = tmp_path / "torch_impl", tmp_path / "hangs"
    package.mkdir()
    endless = f"import pathlib\npathlib.Path({str(hangs)!r}).touch()\nwhile True: pass\n"
    (package / "__init__.py").write_text(endless)
    code = (
        "import pathlib, time; from benchmarks.perf.compare.worker_process import WorkerProcess\n"
        "from benchmarks.perf.compare.checkout import Tree\n"
        f"process = WorkerProcess(Tree(None, pathlib.Path({str(tmp_path)!r})), 'cpu', 1)\n"
        "print(process.process.pid, flush=True); time.sleep(600)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    ) as command:
        assert command.stdout is not None
        pid = int(command.stdout.readline())
        until(hangs.exists)
        command.kill()
    until(lambda: not Path(f"/proc/{pid}").exists())


def until(true: Callable[[], bool]) -> None:
    """Wait for it, a minute at most."""
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_clock_that_jumps_settles_nothing(repository, capsys):
    repository.commit(SECONDS=0.001, JUMP=5.0)
    words = ["--only", "reward", "--seconds", "0.05", "--processes", "2"]
    assert main(["compare", "HEAD", "HEAD", *words]) == 2
    assert "the clock jumped: 5 of 5 rounds were discarded" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere"], "nowhere: no such revision"),
        (["--", "-x"], "-x: no such revision"),
        (["HEAD", "nowhere"], "nowhere: no such revision"),
        (["HEAD", "--only", "no"], "--only no: no such benchmark"),
        (["HEAD", "--implementation", "no"], "--implementation no: none of these"),
        (["HEAD", "--device", "nowhere"], "--device nowhere: PyTorch cannot use it"),
        (["HEAD", "--threads", "0"], "--threads: 0, expected at least 1"),
        (["HEAD", "--seconds", "nan"], "--seconds: nan, expected a finite number above 0"),
        (["HEAD", "--processes", "1"], "--processes: 1, expected at least 2"),
        (
            ["HEAD", "--smallest", "-1"],
            "--smallest -1.0: expected a percentage from 0 to below 100",
        ),
        (["HEAD", "--repeat", "0"], "--repeat: 0, expected at least 1"),
        (["HEAD", "--plant", "0.9:reward"], "--plant: 0.9:reward, expected a factor above 1"),
        (["HEAD", "--plant", "1.1:reward", "--counts-only"], "--plant: expected without"),
        (["HEAD", "--plant", "1.1:nothing"], "--plant: 1.1:nothing, expected a factor above 1"),
    ],
)
def test_bad_input_is_one_line(repository, capsys, words, said):
    repository.commit(SECONDS=0.001)
    assert main(["compare", *words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_no_git_and_no_checkout_are_said(repository, capsys, monkeypatch, tmp_path):
    shutil.move(repository.folder / ".git", tmp_path / "kept")
    assert main(["compare", "HEAD"]) == 2
    assert "not a git checkout, expected a clone" in capsys.readouterr().err
    shutil.move(tmp_path / "kept", repository.folder / ".git")
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(tmp_path))
        assert main(["compare", "HEAD"]) == 2
    assert "git: no such program" in capsys.readouterr().err


def test_a_repository_without_commits_or_package_is_said(repository, capsys):
    assert main(["compare", "HEAD"]) == 2
    assert "HEAD: no such revision" in capsys.readouterr().err
    (repository.folder / "readme").write_text("")
    git(repository.folder, "add", "-A")
    git(repository.folder, "commit", "-qm", "x")
    assert main(["compare", "HEAD", "HEAD"]) == 2
    assert "HEAD: has no torch_impl" in capsys.readouterr().err


@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit, InputError, ZeroDivisionError])
def test_scratch_folders_are_gone_whatever_happens(repository: Repository, raised):
    commits = [repository.commit(SECONDS=i) for i in range(2)]
    revisions = [resolve(repository.folder, name) for name in (*commits, None)]
    with pytest.raises(raised), checked_out(repository.folder, revisions) as trees:
        code = [(tree.folder / "torch_impl" / "__init__.py").read_text() for tree in trees]
        assert code == ["SECONDS = 0\n", "SECONDS = 1\n", "SECONDS = 1\n"]
        assert len({len(str(tree.folder)) for tree in trees}) == 1
        raise raised("x")


def test_the_working_tree_is_measured_as_it_was_at_the_start(repository: Repository):
    repository.commit(SECONDS=1)
    assert not resolve(repository.folder, None).dirty
    (repository.folder / "readme").write_text("not measured")
    assert not resolve(repository.folder, None).dirty
    repository.write(SECONDS=2)
    (repository.package / "new.py").write_text("untracked")
    revision = resolve(repository.folder, None)
    assert revision.label.endswith("+")
    with checked_out(repository.folder, [revision]) as (tree,):
        repository.write(SECONDS=3)
        assert (tree.folder / "torch_impl" / "__init__.py").read_text() == "SECONDS = 2\n"
        assert (tree.folder / "torch_impl" / "new.py").exists()


def test_hooks_do_not_run_and_another_repository_s_environment_does_not_count(
    repository: Repository, monkeypatch, tmp_path
):
    commit = repository.commit(SECONDS=1)
    hook = repository.folder / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    hook.chmod(0o755)
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    with checked_out(repository.folder, [resolve(repository.folder, "main")]):
        pass
    assert order(repository.folder) == [commit]
    monkeypatch.delenv("GIT_DIR")
    assert not (tmp_path / "ran").exists()


def test_a_process_that_does_not_answer_is_ended(repository, monkeypatch, tmp_path):
    monkeypatch.setattr(worker_process, "WORKER", ("-c", "import time; time.sleep(60)"))
    monkeypatch.setattr(worker_process, "PATIENCE", 0.1)
    process = WorkerProcess(Tree(Revision("x", "x"), tmp_path), "cpu", 1)
    repository.commit()
    with pytest.raises(WorkerError, match=r"no response within 0\.1 s"):
        process.receive()
    assert process.process.returncode == -signal.SIGKILL


@pytest.mark.skipif(sys.platform != "linux", reason="workers end with a killed command on Linux")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
def test_a_killed_comparison_leaves_nothing(repository: Repository, tmp_path, number):
    repository.commit(SECONDS=0.001)
    script = (
        "import sys, tempfile\n"
        "from pathlib import Path\n"
        "import signal\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from benchmarks import workers\n"
        "from benchmarks.perf.compare import checkout, worker_process\n"
        "folder, scratch, fake = map(Path, sys.argv[1:])\n"
        "tempfile.tempdir, worker_process.WORKER = str(scratch), (str(fake),)\n"
        "found = [checkout.resolve(folder, 'HEAD')] * 2\n"
        "with workers.unwound_by_signals(), checkout.checked_out(folder, found) as trees:\n"
        "    with worker_process.start_workers(trees, 'cpu', 1) as running:\n"
        "        print(*(p.process.pid for p in running), flush=True)\n"
        "        running[0].receive()\n"
    )
    arguments = [str(repository.folder), str(tmp_path / "scratch"), str(tmp_path / "fake.py")]
    command = [sys.executable, "-c", script, *arguments]
    child = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT
    )
    assert child.stdout is not None
    started = [int(pid) for pid in child.stdout.readline().split()]
    assert len(started) == 2
    with checked_out(repository.folder, []):  # leaves alone what another command uses
        assert len(list((tmp_path / "scratch").iterdir())) == 2
    child.send_signal(number)
    assert child.wait(timeout=30) != 0
    child.stdout.close()
    for pid in started:
        with pytest.raises(ProcessLookupError):
            for _ in range(100):
                os.kill(pid, 0)
                time.sleep(0.05)
    left = list((tmp_path / "scratch").iterdir())
    assert len(left) == (number == signal.SIGKILL)
    with checked_out(repository.folder, []) as trees:  # what a kill left goes with the next
        assert trees == [] and not any(folder.exists() for folder in left)


def test_real_revisions_are_verified_counted_and_kept_apart(tmp_path, monkeypatch):
    """Four trees: as it is, one operator more, another CIDEr-D, none at all."""
    monkeypatch.setattr(measurement, "REVISION_EXAMPLES", 1)
    sources = {
        "same": lambda text: text,
        "more": lambda text: text.replace(
            "    return torch.tensor(rows", "    torch.zeros(1)\n    return torch.tensor(rows"
        ),
        "wrong": lambda text: text.replace("sigma: float = 6.0", "sigma: float = 5.0"),
        "lacking": None,
    }
    trees = []
    for name, edit in sources.items():
        shutil.copytree(ROOT / "torch_impl", tmp_path / name / "torch_impl")
        path = tmp_path / name / "torch_impl" / "cider.py"
        if edit is None:
            path.unlink()
        else:
            text = path.read_text()
            path.write_text(edit(text))
            assert (path.read_text() == text) == (name == "same")
        trees.append(Tree(Revision(name, "x"), tmp_path / name))
    # a schema of its own changes nothing: its harness is not asked
    (tmp_path / "same" / "benchmarks").mkdir()
    (tmp_path / "same" / "benchmarks" / "__init__.py").write_text("raise ImportError")
    (outcome,) = measurement.verify_and_count(
        trees, [(BENCHMARKS["reward"], "tensors")], Settings(), lambda text: None
    )
    same, more, wrong, lacking = outcome.checked
    assert same.can_be_timed
    assert {"flops", "peak bytes", "operators", "graph breaks"} <= set(same.counts)
    assert replace(outcome, checked=[same, more]).count_changes["operators"] == 1
    assert wrong.wrong
    assert not wrong.counts
    assert (
        "lacks it, or predates the present module names (ModuleNotFoundError: " in lacking.refused
    )


def test_code_from_elsewhere_is_refused(tmp_path):
    worker = object.__new__(Worker)
    worker.tree = ROOT
    worker.check_origin()
    worker.tree = tmp_path
    with pytest.raises(ForeignCodeError, match=r"torch_impl.* is from .*, expected it from"):
        worker.check_origin()


def test_every_benchmark_is_a_subject_and_verified_by_an_operator():
    from benchmarks.verify.operators import OPERATORS

    for benchmark in BENCHMARKS.values():
        assert benchmark.implementation in benchmark.find().implementations
        assert benchmark.operators
        assert set(benchmark.operators) <= set(OPERATORS)
        assert set(benchmark.sizes) <= set(benchmark.find().sizes)
