"""Linear layers with rounded weights on a CPU: a product of few rows reads fewer bytes.

Their results are float32.
"""

from __future__ import annotations

from math import inf
from typing import Any, cast

import torch
from torch import Tensor, nn

LEAST = 1e-30
"""The least magnitude of a row that 8 bits do not round to zero."""


class RoundedLinear(nn.Linear):
    """A linear layer on a CPU whose weight is rounded.

    Its ``weight`` is the rounded one in float32, for what reads it outside of this layer. It has no
    parameters.

    Args:
        weight: (out_features, in_features).
        bias: (out_features,), or None.

    Raises:
        ValueError: another dtype or device; a weight that is not finite, or too large to round.
    """

    _packed: Any
    """What ``forward`` reads."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        if weight.dtype != torch.float32 or not weight.is_cpu:
            where = f"{weight.dtype} on {weight.device}"
            raise ValueError(f"the model is {where}, expected float32 on a CPU")
        nn.Module.__init__(self)
        self.out_features, self.in_features = weight.shape
        self.weight = cast(nn.Parameter, self._rounded(weight.detach()))
        self.bias = cast(nn.Parameter, None if bias is None else bias.detach())
        if not self.weight.isfinite().all():
            raise ValueError("a weight is not finite when it is rounded")
        self._pack()
        self._joined: tuple[RoundedLinear, ...] = ()

    def _rounded(self, weight: Tensor) -> Tensor:
        raise NotImplementedError

    def _pack(self) -> None:
        raise NotImplementedError

    def joined(self, *others: RoundedLinear) -> RoundedLinear:
        """One layer with the outputs of this and of ``others``, concatenated; cached."""
        if not self._joined:
            layers = self, *others
            weight = torch.cat([layer.weight for layer in layers])
            self._joined = (type(self)(weight, torch.cat([layer.bias for layer in layers])),)
        return self._joined[0]


class Float16Linear(RoundedLinear):
    """A linear layer whose weight is rounded to float16."""

    def _rounded(self, weight: Tensor) -> Tensor:
        return weight.half().float()

    def _pack(self) -> None:
        self._packed = torch.ops.quantized.linear_prepack_fp16(self.weight, self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """x (..., in_features) to (..., out_features)."""
        out: Tensor = torch.ops.quantized.linear_dynamic_fp16(x.contiguous(), self._packed)
        return out


class Int8Linear(RoundedLinear):
    """A linear layer whose weight is rounded to 8-bit integers, with a scale for each output.

    Each row of its input is rounded so too; sums of their products are exact.
    """

    def _rounded(self, weight: Tensor) -> Tensor:
        integers, scales = _to_int8(weight)
        return integers * scales

    def _pack(self) -> None:
        integers, scales = _to_int8(self.weight)
        bias = self.weight.new_zeros(self.out_features) if self.bias is None else self.bias
        self._packed = integers.T, scales.T, bias

    def forward(self, x: Tensor) -> Tensor:
        """x (..., in_features) to (..., out_features)."""
        weight, weight_scales, bias = self._packed
        integers, scales = _to_int8(x.flatten(0, -2))
        out = torch.addcmul(bias, torch._int_mm(integers, weight) * scales, weight_scales)
        return out.view(*x.shape[:-1], self.out_features)


def _to_int8(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Integers from -127 to 127, and the scale of each row."""
    scales = torch.linalg.vector_norm(rows, inf, -1, keepdim=True).clamp_min_(LEAST).div_(127)
    return (rows / scales).round_().to(torch.int8), scales
