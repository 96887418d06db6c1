"""Backbones that extract features from pictures, by name."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor

from benchmarks.errors import InputError
from torch_impl.models.vision import BACKBONES


class Backbone(Protocol):
    """Pictures (B, image_size, image_size, 3) of uint8 RGB to features (B, L, d_feature)."""

    name: str
    image_size: int
    d_feature: int

    @property
    def signature(self) -> dict[str, str]:
        """What the features depend on, apart from the picture."""

    def __call__(self, images: Tensor) -> Tensor:
        """The features of a batch."""

    def to(self, device: str) -> Any:
        """Move to a device."""


def load(name: str) -> Backbone:
    """The backbone of this name, with its weights.

    Raises:
        InputError: there is none, or the extra ``vision`` is not installed.
    """
    if name not in BACKBONES:
        raise InputError(f"backbone is {name!r}, expected one of {', '.join(BACKBONES)}")
    try:
        return BACKBONES[name]()
    except ImportError as error:
        raise InputError(str(error)) from error
