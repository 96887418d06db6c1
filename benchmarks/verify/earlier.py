"""Results and arguments of earlier calls, which later calls must not write into."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
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

COMPARED, COMPARED_BYTES = 8, 2**16
"""Number of these that are compared after each call; of larger results two are."""


def arguments_content(arrays: NumPy, arguments: Sequence[Any]) -> bytes:
    """Arguments of a call as bytes: they may be hundreds of arrays, which all calls compare."""
    with suppress(TypeError):
        return b"".join(_content(arrays, value) for value in arguments)
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
        self._results, self._turn = deque[tuple[Any, bytes]](), 0
        self._added = 0

    def add(self, result: Any) -> None:
        """Record a result with its content."""
        self._results.append((result, self._content(result)))
        self._added += 1
        if self._added % EVERY and len(self._results) > NEWEST:
            del self._results[-NEWEST - 1]
        size = sum(len(content) for _, content in self._results)
        while len(self._results) > RECORDED or size > RECORDED_BYTES:
            size -= len(self._results.popleft()[1])

    def has_changed(self) -> bool:
        """Whether the content of the last two has changed, or that of a few others in turn."""
        size, n = 0, len(self._results)
        for i in range(min(COMPARED, n)):
            if i > 1:
                self._turn = (self._turn + 1) % n
            result, content = self._results[-1 - i if i < 2 else self._turn]
            if self._content(result) != content:
                return True
            size += len(content)
            if i and size > COMPARED_BYTES:
                break
        return False


def share_memory(framework: NumPy, one: Any, other: Any) -> bool:
    """Whether an array of a result is in the memory of one of another result."""
    spans = [(*framework.memory(x), of) for of in (0, 1) for x in _arrays_of((one, other)[of])]
    ends = [0, 0]
    for start, end, of in sorted(spans):
        if start < ends[1 - of]:
            return True
        ends[of] = max(ends[of], end)
    return False


def _arrays_of(value: Any) -> Iterator[Any]:
    """Every array in a result; its numbers, which may be many, have no memory."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for item in () if are_numbers(value) else value:
            yield from _arrays_of(item)
    elif hasattr(value, "dtype") and not isinstance(value, np.generic):
        yield value
