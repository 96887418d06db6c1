"""Run our implementations as large sizes do on small ones: in chunks and tiles, by rarer forms."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch

from torch_impl import kernels
from torch_impl.decoding import beams
from torch_impl.expansion import factored
from torch_impl.kernels import launch, static
from torch_impl.layers import kv_cache
from torch_impl.recurrent import loop

Changes = tuple[tuple[Any, str, Any], ...]
"""Modules, their thresholds or choices, and the value of each."""

THRESHOLDS: Changes = (
    (factored, "CHUNK", 16),
    (loop, "CHUNK", 200),
    (beams, "BLOCK", 4),
    (kv_cache, "OUTPUTS", 2),
    (kv_cache, "FEW_ROWS", 24),
    (launch, "FLAT", 16),
    (static, "SEQUENCES", 1),
    (static, "PROGRAMS", 8),
)

RECOMPUTED: Changes = (
    (factored, "folds", lambda B, L, N: True),
    (factored, "recomputes", lambda L, N, d: True),
)
"""The factored static expansion's choices for the papers' sizes, whatever the sizes are."""

TILES = launch.Tiles(2, 4, 2, 4, 4)

DYNAMIC = (
    "dynamic_lengths",
    "dynamic_sums",
    "dynamic_weights",
    "dynamic_selection",
    "dynamic_mix_gradients",
    "dynamic_weight_gradients",
    "dynamic_length_gradients",
)

OTHERS = {
    **dict.fromkeys((launch.DYNAMIC, *DYNAMIC), launch.Tiles(2, 2, 2, 4, 4)),
    "length_transformation": launch.Tiles(4, 2, 4, 2, 2),
    "mixing_weights": launch.Tiles(2, 2, 4, 4, 4),
    "selection": launch.Tiles(1, 2, 4, 2, 4),
    "weight_gradients": launch.Tiles(4, 2, 4, 2, 2),
    "bias_gradients": launch.Tiles(1, 4, 2, 2, 4),
}
"""Tiles of programs that others follow, or that are last: one's grid is too small for the other. In
those of dynamic expansion three blocks of tokens, or of vectors, are within a small case.
"""


@contextmanager
def small_tiles(changes: Changes = THRESHOLDS) -> Iterator[None]:
    """Within, chunks and tiles of this process are small, and uninitialised memory is NaN."""
    before = [getattr(module, name) for module, name, _ in changes]
    deterministic = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    for module, name, value in changes:
        setattr(module, name, value)
    try:
        with launch.tiles(TILES, OTHERS), kernels.interpreted():
            yield
    finally:
        torch.use_deterministic_algorithms(deterministic)
        for (module, name, _), value in zip(changes, before, strict=True):
            setattr(module, name, value)


def recomputed() -> AbstractContextManager[None]:
    """`small_tiles`, and static expansions fold their key projection and recompute M."""
    return small_tiles((*THRESHOLDS, *RECOMPUTED))
