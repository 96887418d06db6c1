"""A candidate in its own worker process, with limits of time and memory.

The oracle, the expected values and all comparisons stay in this process. The worker receives
arguments and returns results, which are parsed as data (see ``wire``): a candidate cannot find
expected values, patch comparisons or hang the test.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import cloudpickle
from msgspec import Struct, ValidationError, convert

from benchmarks.errors import InputError
from benchmarks.verify import wire
from benchmarks.verify.candidate import (
    FILE_LIMIT,
    LARGEST_FILE,
    MEMORY_LIMIT,
    TIME_LIMIT,
    BaseCandidate,
    CandidateError,
    assert_unchanged,
)
from benchmarks.verify.cases import Place
from benchmarks.verify.layouts import AGAIN, CHAINED, COPIED, REFILLED
from benchmarks.verify.shared import Shared

CALL_TIMEOUT = 30.0
"""Default time limit of a call, in seconds."""

MEMORY = 4 * 2**30
"""Default memory limit of a worker in bytes, besides shared memory."""

START_TIMEOUT = 120.0
"""Seconds in which a worker must have been forked, and the fork server have imported PyTorch."""

ANSWERED = 5.0
"""Seconds for receiving an answer that came in time, while the test process was working."""

EXIT_TIMEOUT = 5.0
"""Seconds to wait for processes to exit before they are killed."""

INVALID = "sent an invalid response to the test process"
"""Of a worker that answers what it was not asked."""

RESULTS = 100
"""Maximum number of results of a request: of calls before a backward pass those that differ."""

SHOWN = 2000
"""Number of the last characters of a worker's output that are shown."""


@dataclass(frozen=True)
class Limits:
    """Limits of a worker process: seconds for each call, without those that it waits for a busy
    processor, and bytes of memory (None: no limit).
    """

    seconds: float = CALL_TIMEOUT
    memory: int | None = MEMORY


PATIENCE = 10
"""The longest that a call may take on a busy machine, as a multiple of the time limit."""

HASH_SEEDS = 46, 126
"""Seeds of Python's hashes of strings. One of them iterates over {"weight", "bias"}, and many more
sets of two names of arguments or parameters, in the other's reverse order.
"""


NO_CACHE = "glibc.malloc.tcache_count=0"
"""glibc fills no memory that it finds in this cache."""


class _ForkServer:
    """The process that workers are forked from, with only PyTorch imported."""

    def __init__(self, hash_seed: int) -> None:
        ours, theirs = socket.socketpair()
        # glibc fills freed and uninitialised memory with a pattern, so that no old results remain
        environment = {"MALLOC_PERTURB_": "128", "GLIBC_TUNABLES": NO_CACHE, **os.environ}
        # threads that spin while they wait cost most of a small call on a busy machine
        environment.setdefault("OMP_WAIT_POLICY", "PASSIVE")
        environment["PYTHONHASHSEED"] = str(hash_seed)
        environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, sys.path)))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.verify.worker", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        theirs.close()
        self.control = ours

    def fork(self, output: int) -> tuple[int, socket.socket]:
        """Fork a worker; returns its process group, and the connection to it."""
        ours, theirs = socket.socketpair()
        socket.send_fds(self.control, [b"!"], [theirs.fileno(), output])
        theirs.close()
        self.control.settimeout(START_TIMEOUT)
        answer = self.control.recv(8)
        if len(answer) != 8:
            raise EOFError
        return int.from_bytes(answer, "big"), ours

    def close(self) -> None:
        """End the server, its workers, and the processes that they started."""
        self.control.close()
        try:
            self.process.wait(EXIT_TIMEOUT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@cache
def fork_server(hash_seed: int = HASH_SEEDS[0]) -> _ForkServer:
    """The fork server with this seed, which the first call starts without waiting."""
    server = _ForkServer(hash_seed)
    atexit.register(server.close)
    return server


def _forked(hash_seed: int, output: int) -> tuple[int, socket.socket]:
    try:
        return fork_server(hash_seed).fork(output)
    except (OSError, EOFError):  # a candidate has killed or stopped the fork server
        for each in HASH_SEEDS:
            fork_server(each).close()
        fork_server.cache_clear()
    try:
        return fork_server(hash_seed).fork(output)
    except (OSError, EOFError) as error:
        raise InputError(f"no worker process could be started: {error!r}") from error


class Isolated(BaseCandidate):
    """A candidate in a worker process, which is restarted after it has ended.

    Attributes:
        mentions: the frameworks that its module imports.
        is_apart: whether its module has a set, or starts processes, and may fail in a worker alone.
        hash_seed: of workers that are started from now on.
    """

    def __init__(
        self,
        source: str | Callable[..., Any],
        arguments: Sequence[str],
        *,
        framework: str = "numpy",
        device: str = "cpu",
        name: str | None = None,
        limits: Limits | None = None,
    ) -> None:
        """Start a worker and load the candidate, see ``detection.resolve``.

        Raises:
            InputError: it cannot be loaded, sent, or called with the operator's ``arguments``.
        """
        self.source, self.arguments, self.framework = source, list(arguments), framework
        self.device, self.limits = device, limits or Limits()
        described = source if isinstance(source, str) else getattr(source, "__name__", "candidate")
        self.name: str = name or described
        self._pickled = source if isinstance(source, str) else _pickled(source, self.name)
        self._connection: socket.socket | None = None
        self._output = tempfile.TemporaryFile()  # noqa: SIM115
        self._number = self.calls = 0
        self.hash_seed = HASH_SEEDS[0]
        self._given = self._request = Shared(None)
        about = self._start(asked=True)
        self.padding, self.mentions, self.is_apart = about.padding, about.mentions, about.apart

    def restart(self) -> None:
        self.close()
        self._start()

    @contextmanager
    def other_hashes(self) -> Iterator[None]:
        """Within, the worker has another hash seed; both times a new one is started."""
        self.hash_seed = HASH_SEEDS[1]
        try:
            self.restart()
            yield
        finally:
            self.hash_seed = HASH_SEEDS[0]
            self.restart()

    def apply(self, function: Callable[..., Any], *arguments: Any, returns: Any = Any) -> Any:
        """Run ``function(candidate, *arguments)`` in the worker; the function must be importable.

        Raises:
            CandidateError: the candidate raised, returned no array, or exceeded the time limit; or
                the answer is not of the type that the function ``returns``.
        """
        _, value = self._ask("apply", (function, *arguments))
        return _converted(value, returns)

    @property
    def shares_memory(self) -> bool:
        """Whether its arrays are in memory that ``overwrite`` reaches."""
        return self.framework in ("numpy", "torch") and self.device == "cpu"

    def overwrite(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Write the arrays of ``arguments`` over those of the last ``apply``, of equal shapes.

        Raises:
            ValueError: their sizes differ.
        """
        self._request.write(Shared(("apply", (function, arguments))))

    def close(self) -> None:
        """End the worker and the processes that it started."""
        if self._connection is None:
            return
        try:
            end = time.monotonic() + EXIT_TIMEOUT
            self._connection.settimeout(EXIT_TIMEOUT)
            self._connection.shutdown(socket.SHUT_WR)  # tells the supervisor to end the worker
            while self._connection.recv(1 << 20):  # until all processes at the other end have ended
                if time.monotonic() > end:
                    raise TimeoutError
        except OSError:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._group, signal.SIGKILL)
        self._connection.close()
        self._connection = None

    def printed(self) -> str:
        """The last ``SHOWN`` characters of the candidate's output."""
        end = self._output.seek(0, os.SEEK_END)
        self._output.seek(max(end - SHOWN, 0))
        shown = self._output.read().decode(errors="replace")
        if end > SHOWN:  # whole lines, if there are any
            shown = shown.partition("\n")[2] or shown
        return shown.strip()

    def __enter__(self) -> Isolated:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self._output.close()

    def _call(self, case: list[Any], layout: str, keyword: str, reuse: bool) -> Any:
        in_given = reuse and layout.partition(" ")[0] not in COPIED
        results, _ = self._ask("_call", (case, layout, keyword, reuse), in_given)
        if len(results) != 1:
            raise CandidateError(INVALID, "protocol")
        self._assert_unchanged(case, keyword)
        return results[0]

    def _gradient(
        self, arguments: list[Any], weights: Any, places: list[Place], keyword: str, *how: Any
    ) -> list[Any]:
        results, _ = self._ask("_gradient", (arguments, weights, places, keyword, *how))
        self._assert_unchanged(arguments, keyword)
        uses, layout, then = how
        if layout in AGAIN and self.framework == "torch":  # whose last call is after the passes
            results = [*results[-1:], *results[:-1]]
        outputs, passes = results[:-uses], results[-uses:]
        of_each = [len(found) if isinstance(found, list) else -1 for found in passes]
        if len(outputs) < uses + (then is not None) or of_each != [len(places)] * uses:
            raise CandidateError(INVALID, "protocol")
        if layout.startswith((REFILLED, CHAINED)):  # whose first call is on the others
            outputs = [*outputs[1:], outputs[0]]
        return [*chain.from_iterable(passes), outputs]

    def _assert_unchanged(self, arguments: list[Any], keyword: str) -> None:
        """Check in shared memory, since the worker's own check cannot be trusted."""
        if not self._given.holds(self._request):
            _, (after, *_) = self._given.now()
            assert_unchanged(after, arguments, keyword)

    def _start(self, asked: bool = False) -> Any:
        """Start a worker; returns what it says of the candidate if ``asked``, which takes time."""
        self._group, self._connection = _forked(self.hash_seed, self._output.fileno())
        self._worker = ""
        options = {
            "source": self._pickled,
            "name": self.name,
            "arguments": self.arguments,
            "framework": self.framework,
            "device": self.device,
            "path": sys.path,
            "folder": str(Path.cwd()),
            "memory": None if self.device.startswith("cuda") else self.limits.memory,
            "asked": asked,
        }
        try:
            about = _converted(self._ask("load", options)[1], _About if asked else dict)
        except CandidateError as error:
            self.close()
            raise InputError(f"candidate {self.name}: while it was loaded, it {error}") from None
        self.calls = 0
        with contextlib.suppress(OSError, ValueError):  # the supervisor's first child
            group = self._group
            children = Path(f"/proc/{group}/task/{group}/children").read_text()
            self._worker, *_ = children.split()
        return about

    def _waited(self) -> float:
        """Seconds that the worker has waited for a processor; 0 where the system does not say."""
        try:
            return int(Path(f"/proc/{self._worker}/schedstat").read_text().split()[1]) / 1e9
        except (OSError, IndexError):
            return 0.0

    def _ask(self, method: str, arguments: Any, reuse: bool = False) -> tuple[list[Any], Any]:
        """The results that were sent while the worker worked, and its answer."""
        if self._connection is None:
            self._start()
        connection = self._connection
        assert connection is not None
        self._number += 1
        self.calls += 1
        deadline = _Deadline(self.limits.seconds, self._waited)
        self._request = Shared((method, arguments))
        # else the arguments are in the last request's memory
        if not reuse or not self.shares_memory:
            self._given = self._request
        try:
            connection.settimeout(self.limits.seconds)
            wire.send(connection, self._number, self._request.data, self._request.descriptor)
            results: list[Any] = []
            while "result" in (response := self._response(connection, deadline)):
                results.append(response["result"])
                if len(results) > RESULTS:
                    raise ValueError(f"{len(results)} results")
            failed, wrong = response.get("failed"), response.get("input")
            if failed is None and wrong is None and "value" not in response:
                raise ValueError
        except TimeoutError:
            self.close()
            seconds = f"{self.limits.seconds:g}"
            raise CandidateError(f"did not answer within {seconds} seconds", TIME_LIMIT) from None
        except (EOFError, OSError):
            self.close()
            raise CandidateError("ended its worker process without a response", "exit") from None
        except ValueError:
            self.close()
            raise CandidateError(INVALID, "protocol") from None
        if wrong is not None:
            self.close()
            raise InputError(str(wrong))
        if failed is not None:
            kind = str(response.get("kind"))
            if kind == MEMORY_LIMIT and self.limits.memory:
                failed = f"{failed}; its limit is {self.limits.memory / 2**30:g} GiB of memory"
            if kind == FILE_LIMIT:
                most = f"{LARGEST_FILE / 2**30:g} GiB"
                failed = f"{failed}; its limit is {most} in a file, or printed in a call"
            raise CandidateError(_printable(str(failed)), kind)
        value = response.get("value")
        if any(map(wire.is_large, (value, *results))):
            most = f"more than {wire.MOST} items, or more than {wire.DEEPEST} within each other"
            raise CandidateError(f"returned lists of {most}", "not an array")
        return results, value

    def _response(self, connection: socket.socket, deadline: _Deadline) -> dict[str, Any]:
        """The next response, before which the test's own work goes on.

        Raises:
            ValueError: it is none, or one to another request: a candidate has sent it.
        """
        while (now := time.monotonic()) < deadline.end() and not _has_answered(connection):
            if next(self.meanwhile, self) is self:
                break
            if _has_answered(connection):
                deadline.excused += time.monotonic() - now
        while not _has_answered(connection, (end := deadline.end()) - time.monotonic()):
            if deadline.end() <= end:
                raise TimeoutError
        number, data = wire.receive(connection, max(end, time.monotonic() + ANSWERED))
        if number != self._number:
            raise ValueError(f"a response to {number}, expected one to {self._number}")
        response = wire.load(data)
        if not isinstance(response, dict):
            raise ValueError(f"a {type(response).__name__}, expected a mapping")
        return response


class _Deadline:
    """When a call must have answered: ``seconds`` after it is made, or later.

    Attributes:
        excused: the seconds in which it may have waited for its answer to be read. Those that it
            has ``waited`` for a processor are no more than ``PATIENCE`` allows.
    """

    def __init__(self, seconds: float, waited: Callable[[], float]) -> None:
        self.excused = 0.0
        self._seconds, self._waited = seconds, waited
        self._start, self._before = time.monotonic(), waited()

    def end(self) -> float:
        """The time, of ``time.monotonic``, as far as it is known."""
        busy = min(self._waited() - self._before, (PATIENCE - 1) * self._seconds)
        return self._start + self._seconds + busy + self.excused


def _has_answered(connection: socket.socket, within: float = 0.0) -> bool:
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(max(1000 * within, 0)))


class _About(Struct):
    """What the worker says of a candidate that it has loaded."""

    padding: str
    mentions: list[str]
    apart: bool


def _converted(value: Any, to: Any) -> Any:
    """A value that the worker has sent, if it is of that type."""
    if to is Any:
        return value
    try:
        return convert(value, to)
    except (ValidationError, AttributeError):  # the second of an array for a mapping
        raise CandidateError(INVALID, "protocol") from None


def _printable(text: str) -> str:
    """The text of a candidate with its control characters written out."""
    return "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)


def _pickled(function: Callable[..., Any], name: str) -> bytes:
    try:
        pickled: bytes = cloudpickle.dumps(function)
    except Exception as error:
        raise InputError(
            f"candidate {name}: it cannot be sent to another process: {error}; name it as "
            "package.module:callable or path/file.py:callable"
        ) from error
    return pickled
