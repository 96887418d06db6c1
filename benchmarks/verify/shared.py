"""Arguments in memory that both processes see: the parent reads them itself after a call."""

from __future__ import annotations

import itertools
import mmap
import os
import pickle
import tempfile
from collections.abc import Sequence
from typing import Any

ALIGNMENT = 64
"""Bytes: an array begins at a multiple."""


class Shared:
    """A value, the contiguous arrays of which lie in a file that another process maps.

    Attributes:
        data: for ``load``, with the file's ``descriptor``.
    """

    def __init__(self, value: Any) -> None:
        with tempfile.TemporaryFile() as file:
            self.descriptor = os.dup(file.fileno())
        buffers: list[pickle.PickleBuffer] = []
        self._pickled = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
        parts = [buffer.raw() for buffer in buffers]
        self._sizes = [part.nbytes for part in parts]
        *starts, total = _places(self._sizes)
        self._content = bytearray(total)
        for start, part in zip(starts, parts, strict=True):
            self._content[start : start + part.nbytes] = part
        os.pwrite(self.descriptor, self._content, 0)
        self.data = pickle.dumps((self._pickled, self._sizes))

    def __del__(self) -> None:
        os.close(self.descriptor)

    def holds(self, other: Shared) -> bool:
        """Whether its arrays are now those that ``other`` was made of."""
        return os.pread(self.descriptor, len(other._content), 0) == other._content

    def now(self) -> Any:
        """The value, with its arrays as they are now."""
        # whoever has made the file shorter has changed it
        found = os.pread(self.descriptor, len(self._content), 0).ljust(len(self._content), b"\xff")
        parts = zip(_places(self._sizes), self._sizes, strict=False)
        return pickle.loads(
            self._pickled, buffers=[found[start : start + size] for start, size in parts]
        )


def load(data: bytes, descriptor: int) -> Any:
    """The value of ``data``, with its arrays where they are; the descriptor is closed."""
    pickled, sizes = pickle.loads(data)
    *starts, total = _places(sizes)
    memory = memoryview(mmap.mmap(descriptor, total) if total else b"")
    os.close(descriptor)
    found = [memory[start : start + size] for start, size in zip(starts, sizes, strict=True)]
    return pickle.loads(pickled, buffers=found)


def _places(sizes: Sequence[int]) -> list[int]:
    """Where each part begins, and where the last one ends."""
    whole = (-(-size // ALIGNMENT) * ALIGNMENT for size in sizes)
    return list(itertools.accumulate(whole, initial=0))
