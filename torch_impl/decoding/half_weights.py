"""Decoding with 16-bit weights on a CPU: a step reads half the bytes.

With few beams a step is bound by reading the weights. `to_float16_weights` rounds the decoder's;
activations and accumulators stay in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torch_impl.models import Captioner

LARGEST = torch.finfo(torch.float16).max


class HalfWeight(Tensor):
    """The weight (d', d) of a linear layer, rounded to float16.

    ``F.linear`` and ``torch.addmm`` read it in float16; every other operation takes it as the
    rounded weight in float32.
    """

    packed: Any

    @staticmethod
    def of(weight: Tensor) -> HalfWeight:
        """Round and pack a float32 weight on a CPU.

        Raises:
            ValueError: another dtype or device; a weight that overflows float16 or is not finite.
        """
        if weight.dtype != torch.float32 or not weight.is_cpu:
            where = f"{weight.dtype} on {weight.device}"
            raise ValueError(f"the model is {where}, expected float32 on a CPU")
        if not (weight.abs() <= LARGEST).all():
            raise ValueError(f"a weight is beyond float16's {LARGEST:g} or not finite")
        rounded = weight.detach().half().float()
        half = rounded.as_subclass(HalfWeight)
        half.packed = torch.ops.quantized.linear_prepack_fp16(rounded, None)
        return half

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            if func is F.linear:
                return _linear(*args, **(kwargs or {}))
            if func is torch.addmm and not kwargs and isinstance(args[1], HalfWeight):
                column, weight, x = args  # (d', 1), (d', d), (d, rows)
                return _linear(x.mT, weight, column.squeeze(1)).mT
            return func(*args, **(kwargs or {}))


def _linear(x: Tensor, weight: HalfWeight, bias: Tensor | None = None) -> Tensor:
    """x (..., d) to (..., d')."""
    out: Tensor = torch.ops.quantized.linear_dynamic_fp16(x.contiguous(), weight.packed)
    return out if bias is None else out.add_(bias)


@torch.no_grad()
def to_float16_weights(model: nn.Module) -> None:
    """Round the linear layers of each ``Captioner``'s decoder within ``model``, in place.

    The model can then only decode: it has no gradients of these weights, and its ``state_dict``
    lacks them.

    Raises:
        ValueError: no ``Captioner`` within, or as `HalfWeight.of`; nothing is changed then.
    """
    captioners = [module for module in model.modules() if isinstance(module, Captioner)]
    if not captioners:
        kind = type(model).__name__
        raise ValueError(f"a {kind} has no decoder to round, expected a Captioner")
    layers = [
        layer
        for captioner in captioners
        for layer in [*captioner.decoder.modules(), captioner.vocabulary]
        if isinstance(layer, nn.Linear)
    ]
    halves = [HalfWeight.of(layer.weight) for layer in layers]
    for layer, half in zip(layers, halves, strict=True):
        del layer.weight
        layer.weight = half
