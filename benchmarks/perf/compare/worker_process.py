"""Processes that are asked: started afresh, answered in time or ended, never left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import Pipe
from types import FrameType
from typing import Any

from benchmarks.perf.compare.checkout import Tree
from benchmarks.records import ROOT

PATIENCE = 300.0
"""Seconds for one answer."""
WORKER = ("-P", "-m", "benchmarks.perf.compare.worker")
"""What Python runs, followed by the pipe's descriptor, the tree, the device and the threads."""
LACKING = ("ImportError", "ModuleNotFoundError", "AttributeError")
"""What a revision raises that has no such thing yet, or no longer."""


class ProcessError(Exception):
    """The process could not do what it was asked, or is no more: one line, why."""


class Process:
    """A process of one revision.

    Args:
        tree: whose ``torch_impl`` it has.
        device: where it computes.
        threads: of the CPU.
    """

    def __init__(self, tree: Tree, device: str, threads: int) -> None:
        self.tree = tree
        self.pipe, other = Pipe()
        # what it says on stderr, to be quoted if it dies
        self.said = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the process)
        arguments = [str(other.fileno()), str(tree.folder), device, str(threads)]
        self.process = subprocess.Popen(
            [sys.executable, *WORKER, *arguments],
            pass_fds=[other.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self.said,
            start_new_session=True,  # Ctrl-C is for the command, which then ends its processes
            env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": str(threads)},
        )
        other.close()

    def send(self, method: str, **arguments: Any) -> None:
        """Ask, without waiting for the answer; what is wrong shows when it is received."""
        with suppress(OSError):
            self.pipe.send((method, arguments))

    def receive(self) -> Any:
        """The next answer: the first is to being started.

        Raises:
            ProcessError: an exception there, no answer in time, or the process ended.
        """
        try:
            if not self.pipe.poll(PATIENCE):
                self.close()
                raise ProcessError(f"no answer within {PATIENCE:g} s")
            good, value = self.pipe.recv()
        except (EOFError, OSError):
            raise ProcessError(f"cannot run: its process ended ({self._ending()})") from None
        if good:
            return value
        kind, said = value
        lacking = "has no such benchmark" if kind in LACKING else "cannot run it"
        raise ProcessError(f"{lacking} ({kind}: {said})")

    def ask(self, method: str, **arguments: Any) -> Any:
        """`send` and `receive`."""
        self.send(method, **arguments)
        return self.receive()

    def _ending(self) -> str:
        try:
            code = self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            return "its pipe is closed"
        if code < 0:
            return f"signal {signal.Signals(-code).name}"
        self.said.seek(0)
        lines = self.said.read().decode(errors="replace").strip().splitlines()
        return f"exit code {code}" + (f": {lines[-1]}" if lines else "")

    def close(self) -> None:
        """End it."""
        self.pipe.close()
        self.process.kill()
        self.process.wait()
        self.said.close()


@contextmanager
def started(trees: Sequence[Tree], device: str, threads: int) -> Iterator[list[Process]]:
    """A fresh process for each of the trees, ended when the block ends.

    Raises:
        ProcessError: one cannot import its revision.
    """
    running: list[Process] = []
    try:
        for tree in trees:
            running.append(Process(tree, device, threads))
        for process in running:
            process.receive()
        yield running
    finally:
        for process in running:
            process.close()


@contextmanager
def ended_in_order() -> Iterator[None]:
    """Within, kill -TERM and a closed terminal unwind like Ctrl-C: nothing is left behind."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
