"""Call a module with given parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call


def call(
    module: Callable[[], nn.Module], parameters: Mapping[str, Tensor], *arguments: Any, **named: Any
) -> Any:
    """The module's output with ``parameters`` instead of its own, which are not initialised."""
    with torch.device("meta"):
        layer = module()
    return functional_call(layer, dict(parameters), arguments, named)


def select(parameters: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The parameters whose names start with ``prefix``, which is removed."""
    return {
        name.removeprefix(prefix): value
        for name, value in parameters.items()
        if name.startswith(prefix)
    }
