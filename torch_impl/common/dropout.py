"""Dropout whose random numbers are cheap on a CPU, where drawing them is most of its cost."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def _rounded(dropout: float) -> int:
    """The probability in 2^-16."""
    return round(dropout * 2**16)


def keep(shape: Sequence[int], dropout: float, device: torch.device) -> Tensor:
    """Booleans of ``shape``, False with probability ``dropout``, from the default generator.

    The probability is rounded to a multiple of 2^-16: on a CPU four come from a 64-bit number.
    """
    dropped = _rounded(dropout)
    if device.type != "cpu" or torch.compiler.is_compiling():
        return torch.rand(tuple(shape), device=device) >= dropped / 2**16
    if dropped == 2**16:
        return torch.zeros(tuple(shape), dtype=torch.bool)
    count = math.prod(shape)
    numbers = torch.empty(-(-count // 4), dtype=torch.int64).random_(-(2**63), None)
    return (numbers.view(torch.int16)[:count] >= dropped - 2**15).view(tuple(shape))


def scale(dropout: float) -> float:
    """What ``keep`` keeps is multiplied by: 1 / (1 - dropout) as rounded; 0 where it keeps none."""
    kept = 2**16 - _rounded(dropout)
    return 2**16 / kept if kept else 0.0


class Dropout(nn.Dropout):
    """``nn.Dropout``, which on a CPU draws by ``keep`` unless its implementation is "literal"."""

    implementation = "auto"

    def forward(self, x: Tensor) -> Tensor:
        """``x`` with entries dropped and the others scaled, in training mode."""
        plain = self.implementation == "literal" or x.device.type != "cpu"
        if plain or not self.training or not self.p:
            return F.dropout(x, self.p, self.training)
        return x * keep(x.shape, self.p, x.device) * scale(self.p)
