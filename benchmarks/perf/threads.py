"""CPU threads: the number of usable cores, and pinning."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

TOPOLOGY = Path("/sys/devices/system/cpu")
THREADS = Path("/proc/self/task")


def usable() -> int:
    """Number of cores this process may run on, which can be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cores(threads: int) -> list[int]:
    """The cores to pin ``threads`` to; empty where the system cannot pin.

    Each physical core is used once before any is used twice, and the last cores first, since a
    system's own work tends to run on the first.
    """
    if not hasattr(os, "sched_getaffinity"):
        return []
    allowed = sorted(os.sched_getaffinity(0), key=lambda core: (_sibling(core), -core))
    return sorted(allowed[:threads])


def _sibling(core: int) -> int:
    """Index among the hardware threads of its physical core; 0 if unknown."""
    listed = TOPOLOGY / f"cpu{core}" / "topology" / "thread_siblings_list"
    with suppress(OSError, ValueError):
        ends = [part.split("-") for part in listed.read_text().strip().split(",")]
        siblings = [n for end in ends for n in range(int(end[0]), int(end[-1]) + 1)]
        return siblings.index(core)
    return 0


@contextmanager
def pinned(to: Sequence[int]) -> Iterator[None]:
    """Pin all threads of this process to these cores within the block, if there are any."""
    if not to:
        yield
        return
    before = os.sched_getaffinity(0)
    move(to)
    try:
        yield
    finally:
        move(before)


def move(to: Iterable[int]) -> None:
    """Pin this process's threads to these cores; new threads inherit their creator's."""
    there = [int(path.name) for path in THREADS.iterdir()] if THREADS.is_dir() else [0]
    for thread in there:
        with suppress(ProcessLookupError):  # it has ended in the meantime
            os.sched_setaffinity(thread, to)
