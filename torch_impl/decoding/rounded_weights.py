"""Decoding with rounded weights on a CPU.

With few beams a step is bound by reading the weights. `round_weights` rounds the decoder's to
float16 or to 8-bit integers; what is between its layers stays in float32.
"""

from __future__ import annotations

import torch
from torch import nn

from torch_impl.layers.rounded import Float16Linear, Int8Linear, RoundedLinear
from torch_impl.models import Captioner

LINEAR: dict[str, type[RoundedLinear]] = {"float16": Float16Linear, "int8": Int8Linear}
"""By the name of the weights' dtype."""


@torch.no_grad()
def round_weights(model: nn.Module, dtype: str) -> None:
    """Round the linear layers of each ``Captioner``'s decoder within ``model``, in place.

    The model can then only decode: it has no gradients of these weights, and its ``state_dict``
    lacks them.

    Args:
        dtype: a name in ``LINEAR``.

    Raises:
        ValueError: no ``Captioner`` within, an unknown dtype, or as its layer; nothing is changed
            then.
    """
    if dtype not in LINEAR:
        raise ValueError(f"dtype is {dtype!r}, expected {' or '.join(LINEAR)}")
    captioners = [module for module in model.modules() if isinstance(module, Captioner)]
    if not captioners:
        kind = type(model).__name__
        raise ValueError(f"a {kind} has no decoder to round, expected a Captioner")
    rounded = [
        (parent, name, LINEAR[dtype](layer.weight, layer.bias))
        for captioner in captioners
        for parent in (captioner, *captioner.decoder.modules())
        for name, layer in parent.named_children()
        if isinstance(layer, nn.Linear) and (parent is not captioner or name == "vocabulary")
    ]
    for parent, name, layer in rounded:
        setattr(parent, name, layer)
