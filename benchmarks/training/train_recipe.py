"""A recipe's steps in turn, a folder each: from the best weights of one the next begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from benchmarks.data import CaptionData
from benchmarks.data.pixels import Pictures, encoded, unencoded
from benchmarks.errors import InputError
from benchmarks.run_folder import RunFolder, load_captioner
from benchmarks.training import setup
from benchmarks.training.fit import Result, fit
from benchmarks.training.presets import configuration
from benchmarks.training.recipes import RecipePreset
from torch_impl.checkpoints.checkpoint import CheckpointError
from torch_impl.checkpoints.released import load_swin
from torch_impl.layers.swin import SwinConfiguration, SwinTransformer
from torch_impl.models import (
    AnyCaptioner,
    AnyConfiguration,
    Configuration,
    EndToEnd,
    EndToEndConfiguration,
)
from torch_impl.training.distributed import ProcessGroup

TINY = SwinConfiguration(
    image_size=32, embed_dim=8, depths=(2, 2), num_heads=(1, 2), window_size=4, mlp_ratio=2
)
"""A backbone to try a recipe with, which has learnt nothing."""


@dataclass(frozen=True)
class Vision:
    """What the steps that train the backbone need, and the others encode pictures by.

    Args:
        pictures: of the data set.
        backbone: with the weights to begin with.
    """

    pictures: Pictures
    backbone: SwinTransformer


@dataclass
class _Weights:
    """What the next step begins with."""

    captioner: Mapping[str, Tensor] | None = None
    backbone: SwinTransformer | None = None

    def take(self, model: AnyCaptioner) -> None:
        """Those of a model, which may have a backbone or not."""
        if isinstance(model, EndToEnd):
            self.backbone = model.backbone
            model = model.captioner
        self.captioner = model.state_dict()


def backbone(name: str, seed: int) -> SwinTransformer:
    """A Swin Transformer with the weights of a file; or the tiny one, with drawn ones.

    Raises:
        InputError: the file is missing, or no Swin's.
    """
    if name == "tiny":
        with setup.seeded(seed):
            return SwinTransformer(TINY)
    try:
        return load_swin(Path(name))
    except CheckpointError as error:
        raise InputError(str(error)) from error


def chosen(preset: RecipePreset, names: Sequence[str] | None, *, pictures: bool) -> list[str]:
    """The steps to take, in the recipe's order.

    Args:
        preset: the recipe's.
        names: of the steps asked for; all if None.
        pictures: whether there are pictures.

    Raises:
        InputError: an unknown step, or one that needs pictures where there are none.
    """
    for name in names or ():
        if name not in preset.steps:
            raise InputError(f"--steps {name}: expected some of {', '.join(preset.steps)}")
    taken = [name for name in preset.steps if names is None or name in names]
    blind = [name for name in taken if preset.steps[name].end_to_end]
    if blind and not pictures:
        others = " ".join(n for n, step in preset.steps.items() if not step.end_to_end)
        raise InputError(
            f"{' and '.join(blind)} train the backbone too, of which there are cached features "
            f"only: expected --backbone and pictures, or --steps {others}"
        )
    return taken


def train(
    preset: RecipePreset,
    names: Sequence[str],
    data: CaptionData,
    out: Path,
    *,
    model: Mapping[str, Any],
    seed: int,
    vision: Vision | None = None,
    initial: AnyCaptioner | None = None,
    resume: bool = False,
    minutes: float | None = None,
    device: str = "cpu",
    process_group: ProcessGroup = ProcessGroup(),  # noqa: B008 - alone
    **options: Any,
) -> dict[str, Result]:
    """Take the steps ``names`` of a recipe, each in its folder of ``out``.

    A step begins with the best weights of the last step before it, of this call or an earlier one,
    and gives them back where it does not improve on them.

    Args:
        preset: the recipe's.
        names: as of ``chosen``.
        data: captions; and features, where there is no ``vision``.
        out: the folder.
        model: the captioner's sizes, in place of the preset's.
        seed: of every step.
        vision: pictures, and the backbone that sees them.
        initial: what the first step begins with.
        resume: go on where a kill left it.
        minutes: for all steps; the one that has no time left is the last.
        device: where to train.
        process_group: those that train together, which all see ``out`` where there is a ``vision``.
        options: others of ``fit``.

    Returns:
        What each step gave; of fewer than ``names`` where the time was up.

    Raises:
        InputError: as ``fit``; a step has nothing to begin with.
    """
    weights = _Weights(backbone=vision.backbone if vision else None)
    if initial is not None:
        weights.take(initial)
    results: dict[str, Result] = {}
    seconds = 0.0
    for name, step in preset.steps.items():
        folder = RunFolder(out / name)
        if names[-1] in results or (minutes is not None and results and seconds >= 60 * minutes):
            break
        if name not in names:
            if folder.best.exists():
                weights.take(_of_earlier(folder, data))
            continue
        if vision is None and weights.backbone is not None:
            raise InputError(
                f"{name} begins with a backbone that made none of the cached features, expected "
                "--backbone and pictures"
            )
        first = name == next(iter(preset.steps))
        if not first and weights.captioner is None:
            raise InputError(
                f"{name} begins with the weights of the step before, of which there are none in "
                f"{out}, expected --initial or --steps {next(iter(preset.steps))} {name}"
            )
        seen = data
        if vision is not None:
            assert weights.backbone is not None
            if step.end_to_end:
                seen = unencoded(data, vision.pictures, weights.backbone)
            else:
                features = out / "features"
                with process_group.main_first():
                    seen = encoded(data, vision.pictures, weights.backbone, features, device)
        captioner = configuration(seen, step.settings.recipe, {**preset.model, **model})
        results[name] = fit(
            seen,
            _configuration(captioner, weights, step.end_to_end),
            step.settings,
            seed,
            folder.path,
            initial=_initial(captioner, weights, step.end_to_end),
            improve=weights.captioner is not None,
            resume=resume and (first or folder.config.exists()),
            minutes=None if minutes is None else minutes - seconds / 60,
            device=device,
            process_group=process_group,
            **options,
        )
        weights.take(results[name].model.cpu())
        seconds += results[name].seconds
        if not results[name].finished:
            break
    return results


def _configuration(
    captioner: Configuration, weights: _Weights, end_to_end: bool
) -> AnyConfiguration:
    if not end_to_end:
        return captioner
    assert weights.backbone is not None
    sizes = weights.backbone.configuration
    return EndToEndConfiguration(**captioner.to_dict(), backbone=sizes)


def _initial(
    captioner: Configuration, weights: _Weights, end_to_end: bool
) -> Mapping[str, Tensor] | None:
    """The weights of a step's model; None where they are to be drawn."""
    if weights.captioner is None or not end_to_end:
        return weights.captioner
    assert weights.backbone is not None
    whole = {f"captioner.{name}": value for name, value in weights.captioner.items()}
    return whole | {f"backbone.{k}": v for k, v in weights.backbone.state_dict().items()}


def _of_earlier(folder: RunFolder, data: CaptionData) -> AnyCaptioner:
    """The best model of a step that was taken before.

    Raises:
        InputError: it has other words.
    """
    model, vocabulary = load_captioner(folder.path)
    if vocabulary.fingerprint != data.vocabulary.fingerprint:
        raise InputError(f"{folder.path}: trained on other words than those of {data.name}")
    return model
