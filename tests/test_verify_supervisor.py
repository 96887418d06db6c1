"""A candidate that kills: the test ends with a verdict, and no process of the candidate's stays."""

import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from benchmarks.errors import InputError
from benchmarks.verify import process
from benchmarks.verify.conformance import conformance_test
from benchmarks.verify.detection import resolve
from benchmarks.verify.operators import OPERATORS
from benchmarks.verify.supervisor import confines
from tests.support.strangers import failed, verdicts, written

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers have a parent on Linux")

STARTS = """
import ctypes, os, signal, time
def f(X, parameters):
    child = os.fork()
    if child == 0:
        os.setsid()
    open(f"{folder}/{{os.getpid()}}", "x").close()
    while child == 0 or not os.path.exists(f"{folder}/{{child}}"):
        time.sleep(0.01)
    {then}
    time.sleep(600)
"""
"""A candidate that starts a process in another session; both leave their ids in a folder."""


def all_ended(folder):
    """Whether these processes, two at least, have ended within 5 seconds."""
    pids, end = [path.name for path in folder.iterdir()], time.monotonic() + 5
    assert len(pids) >= 2
    while any(map(runs, pids)) and time.monotonic() < end:
        time.sleep(0.05)
    return not any(map(runs, pids))


def runs(pid):
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


@pytest.mark.parametrize(
    "kills",
    [
        "os.kill(os.getppid(), signal.SIGKILL)",
        "os.kill(os.getppid(), signal.SIGTERM)",
        "ctypes.CDLL(None).kill(os.getppid(), 9)",
        "os.killpg(os.getpgid(os.getppid()), signal.SIGKILL)",
        "os._exit(0)",
    ],
)
def test_who_kills_its_parent_ends_itself_and_nothing_stays(tmp_path, kills):
    pids = tmp_path / "pids"
    pids.mkdir()
    text = STARTS.format(folder=pids, then=kills)
    found = verdicts(tmp_path, "layer_norm", text, only=("equals_oracle",))
    said = "ended its worker process without a response"
    assert found["equals_oracle"].message == said
    assert all_ended(pids)


def test_what_crashes_prints_where(tmp_path):
    where = written(tmp_path, "import ctypes\ndef f(X, parameters):\n    ctypes.string_at(0)\n")
    operator = OPERATORS["layer_norm"]
    with resolve(f"{where}:f", operator, "numpy") as candidate:
        (found,) = conformance_test(operator, candidate, only=("equals_oracle",))
        assert found.message == "ended its worker process without a response"
        printed = candidate.printed()
    assert "Segmentation fault" in printed
    assert re.search(rf'File "{where}", line \d+ in f\n', printed)


def test_of_much_that_is_printed_the_last_lines_are_shown_whole(tmp_path):
    text = "def f(X, _):\n    for i in range(300_000): print('x' * 60, i)\n    return X\n"
    where = f"{written(tmp_path, text)}:f"
    with resolve(where, OPERATORS["layer_norm"], "numpy") as candidate:
        candidate(np.ones(2), {})
        *shown, last = candidate.printed().splitlines()
    assert last == f"{'x' * 60} 299999"
    assert len(shown) > 9
    assert {len(line) for line in shown} == {len(last)}


@pytest.mark.skipif(not confines(), reason="this Linux has no Landlock for signals")
@pytest.mark.parametrize(
    "reaches", ["os.kill(judge, signal.SIGTERM)", "open(f'/proc/{judge}/mem', 'rb')"]
)
def test_the_process_that_judges_is_out_of_reach(tmp_path, reaches):
    text = f"""
import os, signal
def f(X, parameters):
    judge = {os.getpid()}
    {reaches}
    return X
"""
    found = verdicts(tmp_path, "layer_norm", text, only=("equals_oracle",))
    assert "raised PermissionError: " in found["equals_oracle"].message


def test_a_judge_that_is_killed_leaves_nothing(tmp_path):
    pids = tmp_path / "pids"
    pids.mkdir()
    where = written(tmp_path, STARTS.format(folder=pids, then="pass"))
    words = ["verify", "--candidate", f"{where}:f", "--operator", "layer_norm"]
    command = [sys.executable, "-m", "benchmarks", *words, "--time-limit", "500"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as judge:
        while len(list(pids.iterdir())) < 2:
            assert judge.poll() is None
            time.sleep(0.05)
        judge.send_signal(signal.SIGKILL)
    assert all_ended(pids)


def test_a_judge_that_ends_before_the_answer_leaves_nothing_and_no_noise():
    """Closing a socket with an unread answer resets it."""
    ours, theirs = socket.socketpair()
    words = [sys.executable, "-m", "benchmarks.verify.worker", str(theirs.fileno())]
    with subprocess.Popen(words, pass_fds=[theirs.fileno()], stderr=subprocess.PIPE) as server:
        theirs.close()
        connection, other = socket.socketpair()
        with connection, other, tempfile.TemporaryFile() as output:
            socket.send_fds(ours, [b"!"], [other.fileno(), output.fileno()])
            assert select.select([ours], [], [], 60)[0]
            ours.close()
            assert (server.communicate(timeout=60)[1], server.returncode) == (b"", 0)


def test_a_stopped_fork_server_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(process, "START_TIMEOUT", 0.2)
    monkeypatch.setattr(process, "EXIT_TIMEOUT", 0.2)
    server = process._ForkServer(hash_seed=0)
    server.process.send_signal(signal.SIGSTOP)
    with tempfile.TemporaryFile() as output, pytest.raises(TimeoutError):
        server.fork(output.fileno())
    server.close()
    assert server.process.returncode == -signal.SIGKILL


@pytest.mark.skipif(not confines(), reason="this Linux has no Landlock for signals")
def test_what_its_supervisor_has_open_is_not_the_judge_s(tmp_path):
    """Neither its output, nor the socket by which workers are forked."""
    text = """
import os
def f(X, parameters):
    of = f"/proc/{os.getppid()}/fd"
    for descriptor in os.listdir(of):
        try:
            with open(f"{of}/{descriptor}", "w") as file:
                file.write("23 of 23 properties passed")
        except OSError:
            pass
    return 0 * X
"""
    where = written(tmp_path, text)
    words = ["verify", "--candidate", f"{where}:f", "--operator", "layer_norm", "--quick", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", *words], capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (1, b"")
    assert not json.loads(done.stdout)["passed"]


@pytest.mark.parametrize("then", ["raise RuntimeError('in use')", "import time; time.sleep(600)"])
def test_a_failure_is_kept_where_the_candidate_cannot_be_loaded_again(tmp_path, then):
    text = f"""
import os
marks = {str(tmp_path / "marks")!r}
if os.path.exists(marks) and os.path.getsize(marks) >= 20:
    {then}

def f(y_hat, y):
    with open(marks, "ab") as file:
        file.write(b"x")
        n = file.tell()
    return ((y_hat - y) ** 2).mean() + (n == 20)
"""
    limits, only = process.Limits(seconds=2), ("equals_oracle", "float32", "large")
    found = verdicts(tmp_path, "mse", text, only=only, framework="numpy", limits=limits)
    messages = {name: verdict.message for name, verdict in found.items()}
    failing, *others = failed(found)
    assert "failed once, before the candidate could not be loaded again" in messages[failing]
    assert not others


CONNECTION = """
import os, stat, struct
from msgspec import msgpack

def sent(*frames):
    one = next(filter(is_socket, range(3, 64)))
    for number, value in frames:
        data = msgpack.encode(value)
        os.write(one, struct.pack("!QQ", number, len(data)) + data)

def is_socket(fd):
    try:
        return stat.S_ISSOCK(os.fstat(fd).st_mode)
    except OSError:
        return False
"""


@pytest.mark.parametrize(
    "answer", [5, [], {}, {"value": 5}, {"value": {"padding": "", "mentions": [[1]], "apart": 0}}]
)
def test_what_a_worker_sends_is_typed(tmp_path, answer):
    """The module answers in the worker's place while it is loaded."""
    text = f"{CONNECTION}\nsent((1, {answer!r}))\n\ndef f(y_hat, y):\n    return 0.0\n"
    with pytest.raises(InputError, match="while it was loaded, it sent an invalid response"):
        verdicts(tmp_path, "mse", text)


@pytest.mark.parametrize("frame", ["(0, None)", '(number, {"result": 0.0})'])
def test_frames_without_an_end_are_refused(tmp_path, frame):
    text = f"""{CONNECTION}
import sys

def f(y_hat, y):
    frame = sys._getframe()
    while frame.f_code.co_name != "_worker":
        frame = frame.f_back
    number = frame.f_locals["number"]
    while True:
        sent(*[{frame}] * 64)
"""
    limits = process.Limits(seconds=1)
    found = verdicts(tmp_path, "mse", text, only=("equals_oracle",), limits=limits)
    assert "sent an invalid response" in found["equals_oracle"].message


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("[[1.0], [1.0, 2.0]]", "np.zeros(())"),
        ("{'a': 2.0}", "1.0"),
        ("[{'a': 2.0}]", "[1.0]"),
        ("np.array([True, False])", "np.array([True, True])"),
        ("[True, 'a']", "[False, 2.0]"),
        ("np.zeros(2)", "[[0.0], [1, 2]]"),
    ],
)
def test_answers_of_odd_types_that_differ_between_processes_are_a_failure(tmp_path, one, other):
    text = f"""
import os

def f(y_hat, y):
    return {one} if os.environ["PYTHONHASHSEED"] == "{process.HASH_SEEDS[0]}" else {other}
"""
    assert failed(verdicts(tmp_path, "mse", text, only=("equals_oracle",)))


def test_a_worker_that_sends_on_while_it_is_ended_is_killed(tmp_path, monkeypatch):
    """Its supervisor is stopped, if that is possible."""
    monkeypatch.setattr(process, "EXIT_TIMEOUT", 0.2)
    text = f"""{CONNECTION}
import signal
from contextlib import suppress

def f(y_hat, y):
    with suppress(PermissionError):
        os.kill(os.getppid(), signal.SIGSTOP)
    while True:
        sent(*[(0, None)] * 64)
"""
    limits = process.Limits(seconds=1)
    found = verdicts(tmp_path, "mse", text, only=("equals_oracle",), limits=limits)
    assert "sent an invalid response" in found["equals_oracle"].message


def test_the_kind_of_a_failure_is_text(tmp_path):
    """The name of an exception's type is an array."""
    text = """
class Name(type):
    __name__ = property(lambda cls: np.array([1, 2]))

class Odd(Exception, metaclass=Name):
    pass

def f(y_hat, y):
    raise Odd("odd")
"""
    assert failed(verdicts(tmp_path, "mse", text, only=("equals_oracle",)))
