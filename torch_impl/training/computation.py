"""How a training step is computed: in micro-batches, in 16 bits, compiled."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from torch_impl.models import BaseCaptioner

PRECISIONS = {"float32": None, "bfloat16": torch.bfloat16, "float16": torch.float16}
"""Of the forward pass; weights, gradients and moments keep their precision."""


@dataclass(frozen=True)
class Computation:
    """How a step is computed: changes results only by rounding and by dropout's random numbers.

    Args:
        accumulate: micro-batches of a batch, whose gradients are accumulated into one update.
        precision: a name in ``PRECISIONS``: 16 bits by autocast; float16 with loss scaling.
        compile: whether the model's forward passes are compiled by ``torch.compile``.

    Raises:
        ValueError: ``accumulate`` below 1, or an unknown ``precision``.
    """

    accumulate: int = 1
    precision: str = "float32"
    compile: bool = False

    def __post_init__(self) -> None:
        if self.accumulate < 1:
            raise ValueError(f"accumulate is {self.accumulate}, expected at least 1")
        if self.precision not in PRECISIONS:
            known = " or ".join(PRECISIONS)
            raise ValueError(f"precision is {self.precision!r}, expected {known}")

    def captioner(self, model: BaseCaptioner) -> Any:
        """``model``, with compiled forward passes if ``compile``."""
        return _Compiled(model) if self.compile else model

    def autocast(self, device: torch.device) -> AbstractContextManager[Any]:
        """The context of a forward pass."""
        dtype = PRECISIONS[self.precision]
        return nullcontext() if dtype is None else torch.autocast(device.type, dtype)

    def scaler(self, device: torch.device) -> torch.amp.GradScaler:
        """Scales the loss in float16, and only there."""
        return torch.amp.GradScaler(device.type, enabled=self.precision == "float16")


class _Compiled:
    """A captioner whose forward passes are compiled; other attributes are the model's."""

    def __init__(self, model: BaseCaptioner) -> None:
        self._model = model
        for name in ("encode", "states", "predict", "decode"):
            setattr(self, name, torch.compile(getattr(model, name)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)
