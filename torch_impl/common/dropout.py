"""Dropout: boolean masks, True for what is kept, and their scale."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

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


def keep_factors(shape: Sequence[int], p: float, device: torch.device) -> Tensor:
    """`keep_mask` as bytes 0 and 1: on a CPU products convert booleans three times as slowly."""
    return keep_mask(shape, p, device).view(torch.uint8)


def keep_scale(p: float) -> float:
    """1 / (1 - p), for p as `keep_mask` rounds it; 0 where nothing is kept."""
    kept = _STEPS - round(p * _STEPS)
    return _STEPS / kept if kept else 0.0


class _DroppedReLU(torch.autograd.Function):
    """Dropout of a ReLU. Only its result is saved: where that is 0, so is the gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float) -> Tensor:
        out = F.relu(x).mul_(keep_factors(x.shape, p, x.device)).mul_(keep_scale(p))
        ctx.save_for_backward(out)
        ctx.scale = keep_scale(p)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (out,) = ctx.saved_tensors
        return torch.ops.aten.threshold_backward(gradient, out, 0) * ctx.scale, None


class Dropout(nn.Dropout):
    """``nn.Dropout``, by `keep_mask` on a CPU unless its ``implementation`` is "literal"."""

    implementation = "auto"

    def _plain(self, x: Tensor) -> bool:
        own = self.implementation != "literal" and x.device.type == "cpu"
        return not (own and self.training and self.p)

    def forward(self, x: Tensor) -> Tensor:
        if self._plain(x):
            return F.dropout(x, self.p, self.training)
        return x * keep_factors(x.shape, self.p, x.device) * keep_scale(self.p)

    def of_relu(self, x: Tensor) -> Tensor:
        """``self(relu(x))``, with less saved for the backward pass."""
        if self._plain(x):
            return self(F.relu(x))
        out: Tensor = _DroppedReLU.apply(x, self.p)
        return out
