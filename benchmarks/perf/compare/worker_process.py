"""Worker processes: requests and responses, with a time limit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import Pipe
from typing import Any

from benchmarks import children
from benchmarks.perf.compare.checkout import Tree
from benchmarks.records import ROOT

PATIENCE = 300.0
"""Seconds that a response may take."""
WORKER = ("-P", "-m", "benchmarks.perf.compare.worker")
"""Python's arguments; then come the pipe's descriptor, the tree, the device and the threads."""
MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(2**25), "MALLOC_TRIM_THRESHOLD_": str(2**40)}
"""Lets the C library keep freed memory. Otherwise some processes, by chance, request it from the
kernel in every call: hundreds of page faults, a tenth of the time, and most of the noise."""
LACKING = ("ImportError", "ModuleNotFoundError", "AttributeError")
"""What a revision raises if it lacks what was requested."""


class WorkerError(Exception):
    """A worker failed a request, or ended; the message is one line."""


class WorkerProcess:
    """A worker process with the ``torch_impl`` of one revision."""

    def __init__(self, tree: Tree, device: str, threads: int) -> None:
        self.tree = tree
        self.pipe, other = Pipe()
        # its stderr, to be quoted if it dies
        self.said = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the process)
        arguments = [str(other.fileno()), str(tree.folder), device, str(threads)]
        self.process = children.Popen(
            [sys.executable, *WORKER, *arguments],
            pass_fds=[other.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self.said,
            start_new_session=True,  # Ctrl-C is for the command, which then ends its processes
            env={
                **os.environ,
                **MALLOC,
                "PYTHONPATH": str(ROOT),
                "OMP_NUM_THREADS": str(threads),
            },
        )
        other.close()

    def send(self, method: str, **arguments: Any) -> None:
        """Send a request; `receive` raises its errors."""
        with suppress(OSError):
            self.pipe.send((method, arguments))

    def receive(self) -> Any:
        """The next response: the first says that the worker has started.

        Raises:
            WorkerError: the worker raised, did not respond in time, or ended.
        """
        try:
            end = time.monotonic() + PATIENCE
            # by the second: a signal that arrives just before the wait is handled after it
            while not self.pipe.poll(min(1.0, PATIENCE)):
                if time.monotonic() >= end:
                    self.close()
                    raise WorkerError(f"no response within {PATIENCE:g} s")
            good, value = self.pipe.recv()
        except (EOFError, OSError):
            raise WorkerError(f"cannot run: its process ended ({self._ending()})") from None
        if good:
            return value
        kind, said = value
        lacking = (
            "lacks it, or predates the present module names" if kind in LACKING else "cannot run it"
        )
        raise WorkerError(f"{lacking} ({kind}: {said})")

    def request(self, method: str, **arguments: Any) -> Any:
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
        """Kill the process."""
        self.pipe.close()
        self.process.kill()
        self.process.wait()
        self.said.close()


@contextmanager
def start_workers(
    trees: Sequence[Tree], device: str, threads: int
) -> Iterator[list[WorkerProcess]]:
    """Start a worker process for each of the trees; they are killed when the block ends.

    Raises:
        WorkerError: one cannot import its revision.
    """
    running: list[WorkerProcess] = []
    try:
        for tree in trees:
            running.append(WorkerProcess(tree, device, threads))
        for process in running:
            process.receive()
        yield running
    finally:
        for process in running:
            process.close()
