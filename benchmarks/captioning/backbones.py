"""Which backbone makes the features that a captioner was trained on."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from benchmarks.captioning.captioners import Single
from benchmarks.errors import InputError
from benchmarks.files import read_json
from benchmarks.run_folder import RunFolder
from torch_impl.models import EndToEnd
from torch_impl.vision import BACKBONES, Swin


class Backbone(Protocol):
    """Pictures (B, image_size, image_size, 3) of uint8 RGB to features (B, L, d_feature)."""

    name: str
    image_size: int
    d_feature: int

    @property
    def signature(self) -> dict[str, str]:
        """What the features depend on besides the picture."""

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


def of_run(model: Single, checkpoint: Path, chosen: str | None = None) -> tuple[Backbone, Single]:
    """What a run's model sees with, and the captioner of what that sees.

    An end to end model has its own backbone; another was trained on the features of the one that
    the run's configuration names, or else of the ``chosen`` one.

    Args:
        model: the run's.
        checkpoint: the run's folder, or a checkpoint in it.
        chosen: a backbone's name.

    Raises:
        InputError: the run does not say and none is chosen, or another one is; the backbone is not
            as it was, in its weights say, when the run was trained.
    """
    if isinstance(model, EndToEnd):
        if chosen:
            raise InputError(f"{checkpoint}: has a backbone of its own, not {chosen}")
        return Swin(model.backbone), model.captioner
    folder = RunFolder(checkpoint if checkpoint.is_dir() else checkpoint.parent)
    config = read_json(folder.config, "the configuration of a training run")
    then = config.get("backbone", {}) if isinstance(config, dict) else {}
    if not isinstance(then, dict):
        raise InputError(f"{folder.config}: the backbone is {then!r}, expected its signature")
    name = then.get("backbone", chosen)
    if name is None:
        raise InputError(
            f"{folder.config}: names no backbone that made the features, expected --backbone"
        )
    if chosen not in (None, name):
        raise InputError(f"{folder.config}: trained on features of {name}, not of {chosen}")
    if name == Swin.name:
        raise InputError(
            f"{folder.config}: trained on features of a Swin that is no part of it, expected a "
            "checkpoint trained end to end (step B or D of its recipe)"
        )
    backbone = load(name)
    now = backbone.signature
    for field, was in then.items():
        if now.get(field) != was:
            raise InputError(
                f"{folder.config}: trained on features with {field} {was}, not {now.get(field)}"
            )
    width = model.configuration.d_feature
    if backbone.d_feature != width:
        raise InputError(
            f"{checkpoint}: expects features {width} wide, {name} makes {backbone.d_feature}"
        )
    return backbone, model
