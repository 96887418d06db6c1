"""Run our implementations with chunks and tiles so small that small cases need several of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from torch_impl import kernels
from torch_impl.decoding import beams
from torch_impl.expansion import factored
from torch_impl.kernels import launch, static
from torch_impl.layers import kv_cache
from torch_impl.recurrent import loop

THRESHOLDS: tuple[tuple[Any, str, int], ...] = (
    (factored, "CHUNK", 8),
    (loop, "CHUNK", 200),
    (beams, "BLOCK", 4),
    (kv_cache, "OUTPUTS", 3),
    (launch, "FLAT", 16),
    (static, "SEQUENCES", 2),
)
"""Modules, their thresholds, and the small value of each."""

TILES = launch.Tiles(2, 4, 8, 4, 4)


@contextmanager
def small_tiles() -> Iterator[None]:
    """Within, chunks and tiles of this process are small, and uninitialised memory is NaN."""
    before = [getattr(module, name) for module, name, _ in THRESHOLDS]
    deterministic = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    for module, name, size in THRESHOLDS:
        setattr(module, name, size)
    try:
        with launch.tiles(TILES), kernels.interpreted():
            yield
    finally:
        torch.use_deterministic_algorithms(deterministic)
        for (module, name, _), size in zip(THRESHOLDS, before, strict=True):
            setattr(module, name, size)


class InContext:
    """A function whose forward and backward pass run in the context ``within()``."""

    def __init__(self, function: Callable[..., Any], within: Callable[[], Any]) -> None:
        """`candidate.Candidate` enters the context."""
        self.function, self.within = function, within
        self.__signature__ = inspect.signature(function)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self.function(*arguments, **named)
