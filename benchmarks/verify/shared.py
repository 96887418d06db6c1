"""Arguments in shared memory, which the parent checks for changes after a call."""

from __future__ import annotations

import itertools
import mmap
import os
import pickle
import tempfile
from collections.abc import Sequence
from typing import Any

from benchmarks.verify.originals import own_builtins

own_builtins(globals())

ALIGNMENT = 64
"""Alignment of arrays in bytes."""


class Shared:
    """A value whose contiguous arrays are in a file that another process maps.

    Attributes:
        data: input of ``load``, with the file's ``descriptor``.
    """

    def __init__(self, value: Any) -> None:
        if hasattr(os, "memfd_create"):  # Linux
            self.descriptor = os.memfd_create("arguments")
        else:
            with tempfile.TemporaryFile() as file:
                self.descriptor = os.dup(file.fileno())
        buffers: list[pickle.PickleBuffer] = []
        self._pickled = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
        parts = [buffer.raw() for buffer in buffers]
        self._sizes = [part.nbytes for part in parts]
        aligned = ((part, bytes(-part.nbytes % ALIGNMENT)) for part in parts)
        self._content = b"".join(itertools.chain.from_iterable(aligned))
        os.pwrite(self.descriptor, self._content, 0)
        self.data = pickle.dumps((self._pickled, self._sizes))

    def __del__(self) -> None:
        if hasattr(self, "descriptor"):  # else Ctrl-C came before it
            os.close(self.descriptor)

    def write(self, other: Shared) -> None:
        """Replace the content of its arrays by those of ``other``.

        Raises:
            ValueError: their sizes differ.
        """
        if other._sizes != self._sizes:
            raise ValueError(f"arrays of {other._sizes} bytes, expected {self._sizes}")
        os.pwrite(self.descriptor, other._content, 0)

    def holds(self, other: Shared) -> bool:
        """Whether its arrays currently have the original content of ``other``."""
        return os.pread(self.descriptor, len(other._content), 0) == other._content

    def now(self) -> Any:
        """The value with the current content of its arrays."""
        # a truncated file counts as changed
        found = os.pread(self.descriptor, len(self._content), 0).ljust(len(self._content), b"\xff")
        parts = zip(_places(self._sizes), self._sizes, strict=False)
        return pickle.loads(
            self._pickled, buffers=[found[start : start + size] for start, size in parts]
        )


def load(data: bytes, descriptor: int) -> Any:
    """The value of ``data``, with mapped arrays; the descriptor is closed."""
    pickled, sizes = pickle.loads(data)
    *starts, total = _places(sizes)
    # mapped at once: a page that is first touched in a timed call would take time there
    flags = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
    memory = memoryview(mmap.mmap(descriptor, total, flags) if total else b"")
    os.close(descriptor)
    found = [memory[start : start + size] for start, size in zip(starts, sizes, strict=True)]
    return pickle.loads(pickled, buffers=found)


def _places(sizes: Sequence[int]) -> list[int]:
    """The start of each part, and the end of the last one."""
    whole = (-(-size // ALIGNMENT) * ALIGNMENT for size in sizes)
    return list(itertools.accumulate(whole, initial=0))
