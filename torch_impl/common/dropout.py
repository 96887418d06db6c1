"""Dropout: boolean masks, True for what is kept, and their scale."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_STEPS = 2**16
"""Probabilities are rounded to multiples of 1 / 2^16: four random numbers to 64 random bits."""


def keep_mask(shape: Sequence[int], p: float, device: torch.device) -> Tensor:
    """Booleans, False with probability ``p``, from the default generator.

    On a CPU, where most of dropout's time goes into random numbers, one draw gives four of them.
    """
    dropped = round(p * _STEPS)
    if device.type != "cpu" or torch.compiler.is_compiling():
        return torch.rand(tuple(shape), device=device) >= dropped / _STEPS
    if dropped == _STEPS:
        return torch.zeros(tuple(shape), dtype=torch.bool)
    count = math.prod(shape)
    draws = torch.empty(-(-count // 4), dtype=torch.int64).random_(-(2**63), None)
    return (draws.view(torch.int16)[:count] >= dropped - 2**15).view(tuple(shape))


def keep_scale(p: float) -> float:
    """1 / (1 - p), for p as `keep_mask` rounds it; 0 where nothing is kept."""
    kept = _STEPS - round(p * _STEPS)
    return _STEPS / kept if kept else 0.0


class Dropout(nn.Dropout):
    """``nn.Dropout``, by `keep_mask` on a CPU unless its ``implementation`` is "literal"."""

    implementation = "auto"

    def forward(self, x: Tensor) -> Tensor:
        plain = self.implementation == "literal" or x.device.type != "cpu"
        if plain or not self.training or not self.p:
            return F.dropout(x, self.p, self.training)
        return x * keep_mask(x.shape, self.p, x.device) * keep_scale(self.p)
