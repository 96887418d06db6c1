"""The parent of a worker process, which ends all processes that the worker has started.

It exits when the worker or the testing process exits. If a candidate kills it, the worker exits
too. With Landlock for signals (Linux 6.12), a candidate cannot signal other processes or open their
memory. On other systems than Linux there is no supervisor.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import socket
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from benchmarks.verify.originals import own_builtins

own_builtins(globals())

LINUX = sys.platform == "linux"

SET_SUBREAPER, SET_NO_NEW_PRIVILEGES = 36, 38
"""Options of prctl."""

CREATE_RULESET, RESTRICT_SELF = 444, 446
"""System calls of Landlock."""

SIGNALS = 2
"""Landlock's scope for signals, since version 6: none to processes outside."""

_libc = ctypes.CDLL(None)
_supervisors: set[int] = set()


def confines() -> bool:
    """Whether this system can prevent candidates from signalling other processes."""
    return LINUX and int(_libc.syscall(CREATE_RULESET, None, 0, 1)) >= 6  # the version


def _confine() -> None:
    """Restrict this process and its children to signalling, and reading, each other."""
    rules = struct.pack("=QQQ", 0, 0, SIGNALS)
    ruleset = _libc.syscall(CREATE_RULESET, rules, len(rules), 0)
    _libc.prctl(SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0)  # required by Landlock
    _libc.syscall(RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def _adopt_orphans() -> None:
    """Become the parent of descendants whose parent has exited."""
    if LINUX:
        _libc.prctl(SET_SUBREAPER, 1, 0, 0, 0)


def end_orphans() -> None:
    """Kill processes that killed supervisors leave behind, from now on."""

    def end(*_: object) -> None:
        with suppress(ChildProcessError):
            while pid := os.waitpid(-1, os.WNOHANG)[0]:
                _supervisors.discard(pid)
        for pid in _children() - _supervisors:
            with suppress(ProcessLookupError):  # it has ended meanwhile
                os.kill(pid, signal.SIGKILL)

    _adopt_orphans()
    signal.signal(signal.SIGCHLD, end)


def fork(
    connection: socket.socket,
    enter: Callable[[], None],
    work: Callable[[Callable[[], object]], None],
) -> int:
    """Fork a supervisor, which forks a worker; returns its process id. See ``end_orphans``.

    The supervisor calls ``enter`` first. ``work`` receives a function to call before each response:
    it exits if the supervisor is dead.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    else:
        _supervisors.add(pid)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
    if pid == 0:
        try:
            os.setsid()  # signals to its group reach no other process
            enter()
            if LINUX:
                _supervise(connection, work)
            else:
                work(lambda: None)
        finally:
            os._exit(0)
    return pid


def _supervise(connection: socket.socket, work: Callable[[Callable[[], object]], None]) -> None:
    """Run ``work`` in a child, until it exits or the other end of ``connection`` is closed."""
    _adopt_orphans()
    if confines():
        _confine()
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    worker = os.fork()
    if worker == 0:
        ours.close()

        def await_supervisor() -> None:
            theirs.send(b"?")
            if not theirs.recv(1):
                os._exit(0)

        work(await_supervisor)
        return
    ends = select.poll()
    ends.register(os.pidfd_open(worker), select.POLLIN)
    ends.register(connection, select.POLLRDHUP)
    ends.register(ours, select.POLLIN)
    with suppress(BlockingIOError):  # a candidate has filled its end
        while [(ours.fileno(), select.POLLIN)] == ends.poll():
            ours.send(ours.recv(1))
    end_children()


def end_children() -> None:
    """Kill all descendants: children's children become children of this process."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with suppress(ChildProcessError):  # there is none left
        while True:
            for pid in _children():
                os.kill(pid, signal.SIGKILL)
            os.waitpid(-1, 0)


def _children() -> set[int]:
    found = set()
    for path in Path("/proc").iterdir():
        with suppress(OSError, ValueError):  # it has ended, or is no process
            pid = int(path.name)
            _, parent, *_ = (path / "stat").read_text().rpartition(")")[2].split()
            if int(parent) == os.getpid():
                found.add(pid)
    return found
