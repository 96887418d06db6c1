"""Children end with the process that started them, however that ends, even while they load."""

import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from benchmarks import children, records

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="by a signal of Linux")

SCORERS = {
    "PTB": "java.ptb_tokenise(['a man'])",
    "METEOR": "running = java.meteor(['a man'], [['a dog']]); running.__enter__()",
    "SPICE": "java.missing_models = list; java.spice(['a man'], [['a dog']])",
}


@pytest.mark.parametrize("scorer", SCORERS)
def test_a_java_that_loads_ends_with_a_killed_parent(scorer, tmp_path):
    """Its stand-in loads for ever: it reads no input, so that no closed pipe ends it."""
    (tmp_path / "bin").mkdir()
    program, pid_file = tmp_path / "bin" / "java", tmp_path / "pid"
    program.write_text(f"#!/bin/sh\necho $$ > {pid_file}\nexec sleep 600\n")
    program.chmod(0o755)
    code = f"import time; from benchmarks.scoring import java; {SCORERS[scorer]}; time.sleep(600)"
    environment = {**os.environ, "JAVA_HOME": str(tmp_path), "PYTHONPATH": str(records.ROOT)}
    with subprocess.Popen([sys.executable, "-c", code], env=environment) as parent:
        try:
            until(lambda: pid_file.exists() and pid_file.read_text().endswith("\n"), 60)
        finally:
            parent.kill()
    child = Path("/proc", pid_file.read_text().strip())
    until(lambda: not child.exists(), 5)


def test_a_process_outlives_the_thread_that_started_it():
    started = []
    thread = threading.Thread(target=lambda: started.append(children.Popen(["sleep", "600"])))
    thread.start()
    thread.join()
    with started[0] as process, pytest.raises(subprocess.TimeoutExpired):
        try:
            process.wait(0.5)
        finally:
            process.kill()


def test_one_whose_parent_ended_before_it_could_ask_ends_at_once():
    """This process is the child's parent, the one that it names is not."""
    code = "from benchmarks.children import end_with_parent; end_with_parent(1); print('goes on')"
    environment = {**os.environ, "PYTHONPATH": str(records.ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True)
    assert (done.returncode, done.stdout) == (1, b"")


def test_the_workers_of_a_sweep_and_their_commands_end_with_it(tmp_path):
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    words = ["-m", "tests.every_option", "--processes", "1", "--only", "train"]
    with subprocess.Popen(
        [sys.executable, *words], cwd=records.ROOT, env=environment, stderr=subprocess.DEVNULL
    ) as sweep:
        try:
            until(lambda: len(descendants(sweep.pid)) >= 3, 120)  # a tracker, a worker, its command
            left = descendants(sweep.pid)
        finally:
            sweep.kill()
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in left), 5)


def descendants(pid):
    """The processes that it started, and those that they did."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == pid:
                found += [int(stat.parent.name), *descendants(int(stat.parent.name))]
    return found


def until(true, seconds):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)
