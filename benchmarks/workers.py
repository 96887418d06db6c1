"""Run jobs in parallel worker processes of one thread each; Ctrl-C ends them all."""

from __future__ import annotations

import io
import multiprocessing
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.util import get_temp_dir
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

import torch
from tqdm import tqdm

from benchmarks import records
from benchmarks.errors import InputError
from benchmarks.records import Record


@dataclass(frozen=True)
class Job:
    """A module-level function that returns records, called with ``key`` and ``arguments``.

    ``keys`` are further keys of its records, if they have several.
    """

    name: str
    key: str
    function: Callable[..., list[Record]]
    arguments: tuple[Any, ...] = ()
    keys: tuple[str, ...] = ()

    def gives(self) -> set[str]:
        """The keys of its records."""
        return {self.key, *self.keys}

    def run(self) -> list[Record]:
        return self.function(self.key, *self.arguments)


class _Lines(io.TextIOBase):
    """Write whole lines prefixed with a name; a progress bar's at most every ``seconds``."""

    def __init__(self, out: TextIO, name: str, seconds: float) -> None:
        super().__init__()
        self._out, self._name, self._seconds = out, name, seconds
        self._shown = time.monotonic()

    def write(self, text: str) -> int:
        # a progress bar's text starts with a carriage return, other messages end with a newline
        now = time.monotonic()
        for line in filter(None, map(str.strip, text.replace("\r", "\n").split("\n"))):
            if text.startswith("\r"):
                if now - self._shown < self._seconds:
                    continue
                self._shown = now
            print(f"{self._name}: {line}", file=self._out, flush=True)
        return len(text)


@contextmanager
def named_lines(name: str, seconds: float = 60) -> Iterator[None]:
    """Within, stderr is written as whole lines prefixed with ``name``, for parallel processes.

    Args:
        name: the prefix.
        seconds: the least time between lines of a progress bar.
    """
    with redirect_stderr(_Lines(sys.stderr, name, seconds)):
        yield


def _start_worker(
    environment: dict[str, str], initialise: Callable[[], object] | None, scratch: str
) -> None:
    os.environ.clear()  # inherited from the fork server's start
    os.environ.update(environment)
    # Ctrl-C is the parent's to handle; one thread each, so that numbers do not depend on the cores
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, args=(scratch,), daemon=True).start()
    torch.set_num_threads(1)
    if initialise:
        initialise()
    # tqdm's default lock is a semaphore shared by processes, which leaks if one is terminated
    tqdm.set_lock(threading.RLock())


def _end_with_parent(scratch: str) -> None:
    """Exit when the parent exits, even if killed, and remove its scratch folder."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    shutil.rmtree(scratch, ignore_errors=True)
    os._exit(1)


@contextmanager
def unwound_by_signals() -> Iterator[None]:
    """Within, SIGTERM and SIGHUP unwind the stack as Ctrl-C does, so that cleanup runs."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    if threading.current_thread() is not threading.main_thread():  # which alone may set handlers
        yield
        return
    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _ctrl_c_held() -> Iterator[None]:
    """Defer Ctrl-C to the end of the block; processes started in it ignore it.

    They inherit the blocked signal, but not a handler. The handler is still needed here: threads of
    libraries, which do not block the signal, receive it too.
    """
    pressed: list[int] = []
    in_main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGINT)
    if in_main:
        signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    try:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
    finally:
        if in_main:
            signal.signal(signal.SIGINT, handler)
        if pressed:
            signal.raise_signal(signal.SIGINT)


def _stop(pool: ProcessPoolExecutor) -> None:
    """Terminate the pool's processes, and wait until they have exited."""
    processes = list((pool._processes or {}).values())
    for process in processes:
        process.terminate()
    pool.shutdown(cancel_futures=True)
    for process in processes:
        process.join()


@contextmanager
def submitted(
    calls: Iterable[Callable[[], Any]],
    workers: int,
    initialise: Callable[[], object] | None = None,
) -> Iterator[list[Future[Any]]]:
    """The results to be of calls in worker processes of one thread each, in order.

    Leaving the block by an exception, Ctrl-C among them, ends the processes and what they started.

    Args:
        calls: functions that pickle.
        workers: number of processes.
        initialise: a module-level function, called once in each process.
    """
    with unwound_by_signals():
        with _ctrl_c_held():  # on its own: starting it unblocks Ctrl-C for later children
            resource_tracker.ensure_running()
        pool: ProcessPoolExecutor | None = None
        ended = False
        try:
            with _ctrl_c_held():
                context = multiprocessing.get_context("forkserver")
                context.set_forkserver_preload(["torch"])  # takes seconds to import
                given = dict(os.environ), initialise, get_temp_dir()
                pool = ProcessPoolExecutor(workers, context, _start_worker, given)
                futures = [pool.submit(call) for call in calls]
            yield futures
            ended = True
        finally:
            with _ctrl_c_held():
                if pool and ended:
                    pool.shutdown()
                elif pool:
                    _stop(pool)


def run_all(
    jobs: Sequence[Job],
    path: Path,
    at_most: int | None = None,
    initialise: Callable[[], object] | None = None,
) -> Generator[tuple[Job, list[Record]], None, None]:
    """Run the jobs in parallel; as each ends, append its records to ``path`` and yield it.

    A job that fails, or Ctrl-C, stops the rest; records appended before are kept.

    Args:
        jobs: started in this order.
        path: of the records.
        at_most: number of processes (default: one for each core).
        initialise: a module-level function, called once in each process.

    Raises:
        InputError: a process was killed, for example out of memory.
    """
    workers = max(1, min(at_most or os.cpu_count() or 1, len(jobs)))
    with submitted([job.run for job in jobs], workers, initialise) as futures:
        pending = dict(zip(futures, jobs, strict=True))
        while pending:
            done, _ = wait(pending, return_when=FIRST_COMPLETED)
            for future in done:
                job = pending.pop(future)
                try:
                    new = future.result()
                except BrokenProcessPool:
                    raise InputError(
                        f"{job.name}, or what ran beside it, was killed: expected memory for "
                        f"{workers} at a time"
                    ) from None
                records.append(new, path, once=True)
                yield job, new
