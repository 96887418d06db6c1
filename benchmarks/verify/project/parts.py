"""Our implementations with chunks and tiles so small that small cases cross their borders."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from torch_impl import kernels
from torch_impl.expansion import factored
from torch_impl.kernels import launch
from torch_impl.recurrent import loop

CHUNKS: tuple[tuple[Any, int], ...] = ((factored, 8), (loop, 256))
"""Modules and what their ``CHUNK`` is lowered to."""

TILES = launch.Tiles(16, 4, 4, 4)


@contextmanager
def small_parts() -> Iterator[None]:
    """Lower every threshold of this process; what is allocated and not written is NaN."""
    before = [module.CHUNK for module, _ in CHUNKS]
    deterministic = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    for module, size in CHUNKS:
        module.CHUNK = size
    try:
        with launch.tiles(TILES), kernels.interpreted():
            yield
    finally:
        torch.use_deterministic_algorithms(deterministic)
        for (module, _), size in zip(CHUNKS, before, strict=True):
            module.CHUNK = size


class Within:
    """A function that runs, backward pass included, while ``within()`` holds."""

    def __init__(self, function: Callable[..., Any], within: Callable[[], Any]) -> None:
        """See ``candidate.Candidate``."""
        self.function, self.within = function, within
        self.__signature__ = inspect.signature(function)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """The function's result."""
        return self.function(*arguments, **named)
