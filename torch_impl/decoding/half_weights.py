"""Decoding with 16-bit weights on a CPU: a step reads half the bytes.

With few beams a step is bound by reading the weights. `to_float16_weights` rounds the decoder's;
activations and accumulators stay in float32.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from torch_impl.models import Captioner

LARGEST = torch.finfo(torch.float16).max


class HalfLinear(nn.Linear):
    """A linear layer on a CPU whose weight is rounded to float16.

    Its ``weight`` is the rounded one in float32, for what reads it outside of this layer.

    Raises:
        ValueError: another dtype or device; a weight that overflows float16 or is not finite.
    """

    def __init__(self, linear: nn.Linear) -> None:
        weight = linear.weight.detach()
        if weight.dtype != torch.float32 or not weight.is_cpu:
            where = f"{weight.dtype} on {weight.device}"
            raise ValueError(f"the model is {where}, expected float32 on a CPU")
        if not (weight.abs() <= LARGEST).all():
            raise ValueError(f"a weight is beyond float16's {LARGEST:g} or not finite")
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias = weight.half().float(), linear.bias
        bias = None if linear.bias is None else linear.bias.detach()
        self._packed = torch.ops.quantized.linear_prepack_fp16(self.weight, bias)

    def forward(self, x: Tensor) -> Tensor:
        """x (..., in_features) to (..., out_features)."""
        out: Tensor = torch.ops.quantized.linear_dynamic_fp16(x.contiguous(), self._packed)
        return out


@torch.no_grad()
def to_float16_weights(model: nn.Module) -> None:
    """Round the linear layers of each ``Captioner``'s decoder within ``model``, in place.

    The model can then only decode: it has no gradients of these weights, and its ``state_dict``
    lacks them.

    Raises:
        ValueError: no ``Captioner`` within, or as `HalfLinear`; nothing is changed then.
    """
    captioners = [module for module in model.modules() if isinstance(module, Captioner)]
    if not captioners:
        kind = type(model).__name__
        raise ValueError(f"a {kind} has no decoder to round, expected a Captioner")
    halves = [
        (parent, name, HalfLinear(layer))
        for captioner in captioners
        for parent in (captioner, *captioner.decoder.modules())
        for name, layer in parent.named_children()
        if isinstance(layer, nn.Linear) and (parent is not captioner or name == "vocabulary")
    ]
    for parent, name, half in halves:
        setattr(parent, name, half)
