"""Results and arguments of earlier calls, which later calls must not write into."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from typing import Any

from benchmarks.verify import wire
from benchmarks.verify.cases import MODELS, objects
from benchmarks.verify.frameworks import NumPy
from benchmarks.verify.originals import are_numbers, np, own_builtins

own_builtins(globals())

RECORDED, RECORDED_BYTES = 64, 2**25
"""Maximum number of results that are recorded, and their maximum size together, in bytes."""

NEWEST, EVERY = 4, 8
"""The newest are all recorded, before them one of so many: most are freed soon, so that what that
changes is seen.
"""

COMPARED, COMPARED_BYTES, ARRAY_BYTES = 8, 2**16, 2**7
"""Number of these that are compared after each call; of larger results two are. An array takes as
long as so many bytes.
"""


def arrays_content(arrays: NumPy, values: Sequence[Any]) -> bytes:
    """Arguments or gradients as bytes: they may be hundreds of arrays, which all calls compare."""
    with suppress(TypeError):
        return b"".join(_content(arrays, value) for value in values)
    return b""


def _content(arrays: NumPy, value: Any) -> bytes:
    if isinstance(value, Mapping):
        items = [_content(arrays, item) for item in value.values()]
        return b"".join([repr(list(value)).encode(), *items])
    if isinstance(value, MODELS):
        return _content(arrays, value.table)
    if not hasattr(value, "dtype"):
        return wire.dump(value)
    array = arrays.in_place(value)
    return f"{array.dtype.char}{array.shape}".encode() + array.tobytes()


def size_of(value: Any) -> int:
    """The size of an argument, in bytes; of a list 64 for each item."""
    return sum(
        64 * len(x) if isinstance(x, list) else getattr(x, "nbytes", 0) for x in objects(value)
    )


class EarlierResults:
    """The last results, or arguments, of a candidate, with their contents."""

    def __init__(self, content: Callable[[Any], bytes]) -> None:
        """``content`` gives a result as bytes."""
        self._content = content
        self._results, self._turn = deque[tuple[Any, bytes, int]](), 0
        self._added = 0

    def add(self, result: Any) -> None:
        """Record a result with its content."""
        content = self._content(result)
        cost = len(content) + ARRAY_BYTES * sum(1 for _ in arrays_of(result))
        self._results.append((result, content, cost))
        self._added += 1
        if self._added % EVERY and len(self._results) > NEWEST:
            del self._results[-NEWEST - 1]
        size = sum(len(content) for _, content, _ in self._results)
        while len(self._results) > RECORDED or size > RECORDED_BYTES:
            size -= len(self._results.popleft()[1])

    def has_changed(self) -> bool:
        """Whether the content of the last two has changed, or that of a few others in turn."""
        total, n = 0, len(self._results)
        for i in range(min(COMPARED, n)):
            if i > 1:
                self._turn = (self._turn + 1) % n
            result, content, cost = self._results[-1 - i if i < 2 else self._turn]
            if self._content(result) != content:
                return True
            total += cost
            if i and total > COMPARED_BYTES:
                break
        return False


def share_memory(framework: NumPy, one: Any, other: Any) -> bool:
    """Whether an array of a result is in the memory of one of another result."""
    return any(are_in_memory(framework, one, other))


def are_in_memory(framework: NumPy, one: Any, other: Any) -> Iterator[bool]:
    """For each array of a result, whether it is in the memory of one of another result."""
    spans = sorted(map(framework.memory, arrays_of(other)))
    starts, ends = [start for start, _ in spans], [*accumulate((end for _, end in spans), max)]
    for start, end in map(framework.memory, arrays_of(one)):
        before = bisect_left(starts, end)
        yield bool(before) and ends[before - 1] > start


def arrays_of(value: Any) -> Iterator[Any]:
    """Every array in a result; its numbers, which may be many, have no memory."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for item in () if are_numbers(value) else value:
            yield from arrays_of(item)
    elif hasattr(value, "dtype") and not isinstance(value, np.generic):
        yield value
