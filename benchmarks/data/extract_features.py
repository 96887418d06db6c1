"""``captionbench features``: photographs become features once, in checked shards."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import torch

from benchmarks.errors import InputError

DATA_VARIABLE = "CAPTIONBENCH_DATA"
PER_THREAD = 4
"""Pictures that a thread gives a backbone at a time: more would leave a CPU's cache."""

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_parallel(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """``function`` of every item, in their order, a few made ahead in a thread a core.

    Each thread works alone: threads that share one operator wait for each other at its end, which
    costs most of the time where other programs use the cores too.
    """
    threads = torch.get_num_threads()
    pending: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        for item in items:
            pending.append(pool.submit(function, item))
            if len(pending) > 2 * threads:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


def find_data_set(folder: Path | None) -> Path:
    """The data set in ``folder``, or in its folder named flickr8k.

    Raises:
        InputError: no folder, or not exactly one data set in it.
    """
    if folder is None:
        raise InputError(f"no data set named, expected --data, --karpathy or ${DATA_VARIABLE}")
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder, expected one with a data set")
    inner = folder / "flickr8k"
    found = sorted((inner if inner.is_dir() else folder).glob("dataset_*.json"))
    if len(found) != 1:
        raise InputError(f"{folder}: {len(found)} files dataset_*.json, expected exactly one")
    return found[0]
