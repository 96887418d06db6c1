"""The CPU's threads: how many, and which cores they stay on."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

TOPOLOGY = Path("/sys/devices/system/cpu")
THREADS = Path("/proc/self/task")


def usable() -> int:
    """How many cores this process may run on, which can be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cores(threads: int) -> list[int]:
    """The cores that ``threads`` are pinned to; none where the system pins nothing.

    One of each physical core before a second of any; and the last ones first, since a system's own
    work tends to be on the first.
    """
    if not hasattr(os, "sched_getaffinity"):
        return []
    allowed = sorted(os.sched_getaffinity(0), key=lambda core: (_sibling(core), -core))
    return sorted(allowed[:threads])


def _sibling(core: int) -> int:
    """Which of its physical core's hardware threads it is, 0 where that is not known."""
    listed = TOPOLOGY / f"cpu{core}" / "topology" / "thread_siblings_list"
    with suppress(OSError, ValueError):
        ends = [part.split("-") for part in listed.read_text().strip().split(",")]
        siblings = [n for end in ends for n in range(int(end[0]), int(end[-1]) + 1)]
        return siblings.index(core)
    return 0


@contextmanager
def pinned(to: Sequence[int]) -> Iterator[None]:
    """Within, all threads of this process stay on these cores; anywhere, if there are none."""
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
    """Let this process's threads run on these cores; new ones go where what starts them is."""
    there = [int(path.name) for path in THREADS.iterdir()] if THREADS.is_dir() else [0]
    for thread in there:
        with suppress(ProcessLookupError):  # it has ended in the meantime
            os.sched_setaffinity(thread, to)
