"""How a training step is computed: in parts, in 16 bits, compiled."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from torch_impl.models import AnyCaptioner

PRECISIONS = {"float32": None, "bfloat16": torch.bfloat16, "float16": torch.float16}
"""What a forward pass is computed in; weights, their gradients and moments stay as they are."""


@dataclass(frozen=True)
class Computation:
    """How a step is computed, which changes what it gives by rounding and by draws of dropout.

    Args:
        accumulate: parts that a batch is computed in, one after the other; their gradients make one
            update, that of the batch.
        precision: a name in ``PRECISIONS``: 16 bits by autocast, those of float16 with a loss that
            is scaled so that its gradients do not vanish.
        compile: whether the model's passes go through ``torch.compile``.

    Raises:
        ValueError: ``accumulate`` below 1, or an unknown ``precision``.
    """

    accumulate: int = 1
    precision: str = "float32"
    compile: bool = False

    def __post_init__(self) -> None:
        """Hold every field to its range."""
        if self.accumulate < 1:
            raise ValueError(f"accumulate is {self.accumulate}, expected at least 1")
        if self.precision not in PRECISIONS:
            known = " or ".join(PRECISIONS)
            raise ValueError(f"precision is {self.precision!r}, expected {known}")

    def captioner(self, model: AnyCaptioner) -> Any:
        """``model`` as objectives call it."""
        return _Compiled(model) if self.compile else model

    def autocast(self, device: torch.device) -> AbstractContextManager[Any]:
        """What a forward pass runs in."""
        dtype = PRECISIONS[self.precision]
        return nullcontext() if dtype is None else torch.autocast(device.type, dtype)

    def scaler(self, device: torch.device) -> torch.amp.GradScaler:
        """Of the loss, which it leaves alone but in float16."""
        return torch.amp.GradScaler(device.type, enabled=self.precision == "float16")


class _Compiled:
    """A captioner whose passes are compiled; all else is its own."""

    def __init__(self, model: AnyCaptioner) -> None:
        self._model = model
        for name in ("encode", "states", "predict", "decode"):
            setattr(self, name, torch.compile(getattr(model, name)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)
