"""Processes side by side: each job once, nothing lost, nothing left of what was interrupted."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import pytest
from tqdm import tqdm

from benchmarks import records
from benchmarks.errors import InputError
from benchmarks.files import locked
from benchmarks.kinds import Ablation
from benchmarks.workers import Job, named_lines, run_all
from tests.support.records import filled


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """What three jobs side by side gave, and the folder of their records."""
    folder = tmp_path_factory.mktemp("ended")
    planned = [Job(f"job {i}", f"key {i}", one_record, (i,)) for i in range(3)]
    return list(run_all(planned, folder / "r.jsonl")), folder


def test_jobs_with_a_record_are_not_run_again(ended):
    first, folder = ended
    assert {job.name for job, _ in first} == {"job 0", "job 1", "job 2"}
    assert len(records.load(folder)) == 3


def one_record(key, seed):
    what = {"paper": "all", "table": "t", "row": "r", "values": {"v": 1.0}, "status": "embedded"}
    return [records.make(filled(Ablation), **what, key=key, seeds=[seed])]


def failing(key):
    raise ValueError("this job fails")


def test_a_failing_job_keeps_what_had_ended(ended, tmp_path):
    _, folder = ended
    path = Path(shutil.copy(folder / "r.jsonl", tmp_path))
    with pytest.raises(ValueError, match="this job fails"):
        list(run_all([Job("bad", "b", failing)], path))
    assert records.read(path) == records.read(folder / "r.jsonl")


STARTED = """
import multiprocessing, os, sys
from pathlib import Path
from benchmarks.workers import Job, run_all
from tests.support.jobs import reports

for _ in range(int(sys.argv[1])):
    try:
        print("started", flush=True)
        list(run_all([Job(name, name, reports, (Path(name),)) for name in "ab"], Path("r.jsonl")))
    except KeyboardInterrupt:
        left = multiprocessing.active_children()
        try:
            ended, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:  # it was before the first one
            ended = 0
        print(left, ended, flush=True)
"""


def wait_until(true, seconds=60):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def begun(path):
    return path.exists() and path.read_text()


@pytest.mark.parametrize("moments", [[0.0], [0.05, 1.0, None]])
def test_ctrl_c_leaves_no_process_and_no_noise(moments, tmp_path):
    """At once; as the first processes begin, as some import, and as they work."""
    process = subprocess.Popen(
        [sys.executable, "-c", STARTED, str(len(moments))],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(records.ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # what a shell starts in the background ignores Ctrl-C
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
    places = [tmp_path / name for name in "ab"]
    for after in moments:
        assert process.stdout.readline() == "started\n"
        if after is None:
            wait_until(lambda: all(map(begun, places)))
        else:
            time.sleep(after)
        # as a terminal does, to all of them
        os.killpg(process.pid, signal.SIGINT)
        assert process.stdout.readline() == "[] 0\n"
        for place in places:
            place.unlink(missing_ok=True)
    out, err = process.communicate(timeout=50)
    assert (out, err, process.returncode) == ("", "", 0)


def environment(key, path):
    path.write_text(repr(dict(os.environ)))
    return []


def test_processes_have_the_environment_of_the_call(tmp_path, monkeypatch):
    for name in ("ONE", "OTHER"):
        with monkeypatch.context() as patch:
            patch.setenv(name, name)
            list(run_all([Job(name, name, environment, (tmp_path / name,))], tmp_path / "r.jsonl"))
            assert (tmp_path / name).read_text() == repr(dict(os.environ))


def killed(key):
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_process_that_is_killed_is_named(tmp_path):
    with pytest.raises(InputError, match="a hungry job, or what ran beside it, was killed"):
        list(run_all([Job("a hungry job", "k", killed)], tmp_path / "r.jsonl", 1))


def in_turn(key, folder):
    """Fails if another job is at the same place."""
    with locked(folder / "place"):
        mark = folder / "mark"
        mark.touch(exist_ok=False)
        time.sleep(0.2)
        mark.unlink()
    return []


def test_of_processes_that_want_one_place_each_waits_for_the_others(tmp_path):
    planned = [Job(f"job {i}", f"k{i}", in_turn, (tmp_path,)) for i in range(4)]
    assert len(list(run_all(planned, tmp_path / "r.jsonl", 2))) == 4


def test_a_place_is_free_again_after_a_failure(tmp_path):
    for _ in range(2):
        with pytest.raises(StopIteration), locked(tmp_path / "new" / "place"):
            raise StopIteration
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot be written"), locked(tmp_path / "file" / "place"):
        pass


def test_bars_side_by_side_are_whole_lines_now_and_then(capsys):
    for seconds, least in ((0, 3), (60, 0)):
        with named_lines("row", seconds):
            for _ in tqdm(range(3), "bar", mininterval=0):
                pass
            print("said once", file=sys.stderr)
        lines = capsys.readouterr().err.splitlines()
        assert lines.count("row: said once") == 1 and len(lines) > least
        assert all(line.startswith("row: ") for line in lines)
        assert len(lines) == 1 or any("bar: 100%" in line for line in lines)


ORPHANED = """
import sys
from pathlib import Path
from benchmarks.workers import Job, run_all
from tests.support.jobs import reports

folder = Path(sys.argv[1])
jobs = [Job(name, name, reports, (folder / name,)) for name in "ab"]
list(run_all(jobs, folder / "r.jsonl", 2))
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_processes_end_with_their_parent_however_that_ends(number, tmp_path, request):
    said = tmp_path / "said"
    # not under tmp_path: the address of a socket in it has at most 107 characters
    scratch = Path(tempfile.mkdtemp())
    request.addfinalizer(lambda: shutil.rmtree(scratch))
    with said.open("w") as stderr:
        parent = subprocess.Popen(
            [sys.executable, "-c", ORPHANED, tmp_path],
            env={**os.environ, "PYTHONPATH": str(records.ROOT), "TMPDIR": str(scratch)},
            stderr=stderr,
        )
    places = [tmp_path / name for name in "ab"]
    wait_until(lambda: all(map(begun, places)))
    parent.send_signal(number)
    parent.wait()
    left = [Path("/proc", place.read_text()) for place in places]
    wait_until(lambda: not any(each.exists() for each in left), seconds=30)
    wait_until(lambda: not list(scratch.iterdir()), seconds=5)
    if number == signal.SIGTERM:
        assert said.read_text() == ""
