"""The parent of a worker process: with it ends all that the worker has started, in any session.

It ends with the worker, or with the process that judges. If it is killed the worker ends too, so
that a candidate that kills its parent ends itself. Other processes are out of its reach where Linux
has Landlock for signals (6.12): it cannot signal them, nor open their memory. Elsewhere than on
Linux a worker has no such parent.
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

LINUX = sys.platform == "linux"

SET_SUBREAPER, SET_NO_NEW_PRIVILEGES = 36, 38
"""Of prctl."""

CREATE_RULESET, RESTRICT_SELF = 444, 446
"""Of syscall: Landlock's."""

SIGNALS = 2
"""A scope of Landlock, since version 6: no signal to a process outside."""

_libc = ctypes.CDLL(None)
_supervisors: set[int] = set()


def confines() -> bool:
    """Whether other processes are out of a candidate's reach here."""
    return LINUX and int(_libc.syscall(CREATE_RULESET, None, 0, 1)) >= 6  # the version


def _confine() -> None:
    """What this process and its children may signal, or whose memory open, is each other's."""
    rules = struct.pack("=QQQ", 0, 0, SIGNALS)
    ruleset = _libc.syscall(CREATE_RULESET, rules, len(rules), 0)
    _libc.prctl(SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0)  # Landlock asks for it
    _libc.syscall(RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def _adopt_orphans() -> None:
    """Be the parent of descendants whose parent has ended."""
    if LINUX:
        _libc.prctl(SET_SUBREAPER, 1, 0, 0, 0)


def end_orphans() -> None:
    """From now on, end what a supervisor leaves that is killed."""

    def end(*_: object) -> None:
        with suppress(ChildProcessError):
            while pid := os.waitpid(-1, os.WNOHANG)[0]:
                _supervisors.discard(pid)
        for pid in _children() - _supervisors:
            os.kill(pid, signal.SIGKILL)

    _adopt_orphans()
    signal.signal(signal.SIGCHLD, end)


def fork(connection: socket.socket, work: Callable[[Callable[[], object]], None]) -> int:
    """A supervisor, by its process id, of a worker, see ``end_orphans``.

    ``work`` is given a function to call before each answer: it returns if the supervisor lives.
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
            os.setsid()  # signals to its group are its own
            if LINUX:
                _supervise(connection, work)
            else:
                work(lambda: None)
        finally:
            os._exit(0)
    return pid


def _supervise(connection: socket.socket, work: Callable[[Callable[[], object]], None]) -> None:
    """Do the work in a child, until that ends or ``connection`` is closed at its other end."""
    _adopt_orphans()
    if confines():
        _confine()
    ours, theirs = socket.socketpair()
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
    while [(ours.fileno(), select.POLLIN)] == ends.poll():
        ours.send(ours.recv(1))
    end_children()


def end_children() -> None:
    """Kill all children, and theirs, which become children of this process."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with suppress(ChildProcessError):  # there is none left
        while True:
            for pid in _children():
                os.kill(pid, signal.SIGKILL)
            os.waitpid(-1, 0)


def _children() -> set[int]:
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            _, parent, *_ = path.read_text().rpartition(")")[2].split()
            if int(parent) == os.getpid():
                found.add(int(path.parent.name))
    return found
