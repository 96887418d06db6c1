"""Train the stages of a configuration in turn, each from the best weights of the previous one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from benchmarks.data import CaptionData
from benchmarks.data.pixels import Pictures, encoded, unencoded
from benchmarks.errors import InputError
from benchmarks.run_folder import RunFolder, load_captioner
from benchmarks.training.configuration import TrainingConfig
from benchmarks.training.fit import Result, fit
from benchmarks.training.objective import seeded
from torch_impl.checkpoints.checkpoint import CheckpointError
from torch_impl.checkpoints.released import load_swin
from torch_impl.layers.swin import SwinConfiguration, SwinTransformer
from torch_impl.models import (
    AnyConfiguration,
    BaseCaptioner,
    EndToEnd,
    EndToEndConfiguration,
)
from torch_impl.training.distributed import ProcessGroup

TINY = SwinConfiguration(
    image_size=32, embed_dim=8, depths=(2, 2), num_heads=(1, 2), window_size=4, mlp_ratio=2
)
"""An untrained backbone for trying end-to-end training."""


@dataclass(frozen=True)
class Vision:
    """The pictures, and the backbone with its initial weights."""

    pictures: Pictures
    backbone: SwinTransformer


@dataclass
class _Weights:
    """The initial weights of the next stage."""

    captioner: Mapping[str, Tensor] | None = None
    backbone: SwinTransformer | None = None

    def take(self, model: BaseCaptioner) -> None:
        """Take the weights of a model, with or without a backbone."""
        if isinstance(model, EndToEnd):
            self.backbone = model.backbone
            model = model.captioner
        self.captioner = model.state_dict()


def load_backbone(name: str, seed: int) -> SwinTransformer:
    """A Swin Transformer with the weights of a file, or "tiny" with random ones.

    Raises:
        InputError: the file is missing, or not of a Swin Transformer.
    """
    if name == "tiny":
        with seeded(seed):
            return SwinTransformer(TINY)
    try:
        return load_swin(Path(name))
    except CheckpointError as error:
        raise InputError(str(error)) from error


def check(config: TrainingConfig, names: Collection[str] | None, *, pictures: bool) -> None:
    """Check the names of the stages to train; None means all.

    Raises:
        InputError: an unknown stage, or an end-to-end stage without pictures.
    """
    for name in names or ():
        if name not in config.stages:
            raise InputError(f"--stages {name}: expected some of {', '.join(config.stages)}")
    wanted = config.stages if names is None else names
    blind = [n for n, stage in config.stages.items() if n in wanted and stage.end_to_end]
    if blind and not pictures:
        others = " ".join(n for n, stage in config.stages.items() if not stage.end_to_end)
        raise InputError(
            f"{' and '.join(blind)} train the backbone too, of which there are cached features "
            f"only: expected --backbone and pictures, or --stages {others}"
        )


def train(
    config: TrainingConfig,
    data: CaptionData,
    folders: Mapping[str, Path],
    *,
    names: Collection[str] | None = None,
    seed: int,
    vision: Vision | None = None,
    initial: BaseCaptioner | None = None,
    resume: bool | None = False,
    improve: bool = True,
    lock: Callable[[Path], AbstractContextManager[Any]] = nullcontext,
    minutes: float | None = None,
    device: str = "cpu",
    process_group: ProcessGroup = ProcessGroup(),  # noqa: B008 - alone
    **options: Any,
) -> dict[str, Result]:
    """Train the stages ``names``, each in its folder.

    A stage starts from the best weights of the previous stage, from this call or an earlier one.

    Args:
        data: captions and, without ``vision``, features.
        names: of the stages to train; None: all.
        vision: pictures and their backbone.
        initial: the initial model of the first stage.
        resume: whether to resume; None: if a folder has a run.
        improve: whether a stage returns its initial weights if it does not improve on them.
        lock: held on a stage's folder during its training.
        minutes: time limit for all stages together.
        process_group: the ranks that train together; with ``vision`` all need access to the
            folders.
        options: others of `fit`.

    Returns:
        The result of each stage; fewer than ``names`` if time was up.

    Raises:
        InputError: as `fit`, or a stage has no initial weights.
    """
    check(config, names, pictures=vision is not None)
    wanted = [name for name in config.stages if names is None or name in names]
    weights = _Weights(backbone=vision.backbone if vision else None)
    if initial is not None:
        weights.take(initial)
    first = next(iter(config.stages))
    results: dict[str, Result] = {}
    seconds = 0.0
    for name, stage in config.stages.items():
        folder = RunFolder(folders[name])
        if wanted[-1] in results or (minutes is not None and results and seconds >= 60 * minutes):
            break
        if name not in wanted:
            if folder.best.exists():
                weights.take(_of_earlier(folder, data))
            continue
        if vision is None and weights.backbone is not None:
            raise InputError(
                f"{name} begins with a backbone other than that of the cached features, expected "
                "--backbone and pictures"
            )
        if name != first and weights.captioner is None:
            raise InputError(
                f"{name} begins with the weights of the stage before, of which there are none in "
                f"{folder.path.parent}, expected --initial or --stages {first} {name}"
            )
        seen = data
        if vision is not None:
            assert weights.backbone is not None
            if stage.end_to_end:
                seen = unencoded(data, vision.pictures, weights.backbone)
            else:
                features = folder.path.parent / "features"
                with process_group.main_first():
                    seen = encoded(data, vision.pictures, weights.backbone, features, device)
        configuration = config.configuration(seen)
        with lock(folder.path):
            begun = folder.config.exists()
            results[name] = fit(
                seen,
                _with_backbone(configuration, weights) if stage.end_to_end else configuration,
                stage,
                seed,
                folder.path,
                initial=_initial(weights, stage.end_to_end),
                improve=improve and weights.captioner is not None,
                resume=begun if resume is None else resume and (begun or name == first),
                minutes=None if minutes is None else minutes - seconds / 60,
                device=device,
                process_group=process_group,
                **options,
            )
        weights.take(results[name].model)
        seconds += results[name].seconds
        if not results[name].finished:
            break
    return results


def _with_backbone(captioner: AnyConfiguration, weights: _Weights) -> EndToEndConfiguration:
    assert weights.backbone is not None
    sizes = weights.backbone.configuration
    return EndToEndConfiguration(**captioner.to_dict(), backbone=sizes)


def _initial(weights: _Weights, end_to_end: bool) -> Mapping[str, Tensor] | None:
    """The initial weights of a stage's model; None for random ones."""
    if weights.captioner is None or not end_to_end:
        return weights.captioner
    assert weights.backbone is not None
    whole = {f"captioner.{name}": value for name, value in weights.captioner.items()}
    return whole | {f"backbone.{k}": v for k, v in weights.backbone.state_dict().items()}


def _of_earlier(folder: RunFolder, data: CaptionData) -> BaseCaptioner:
    """The best model of a stage that was trained before.

    Raises:
        InputError: it has another vocabulary.
    """
    model, vocabulary = load_captioner(folder.path)
    if vocabulary.fingerprint != data.vocabulary.fingerprint:
        raise InputError(f"{folder.path}: trained on other words than those of {data.name}")
    return model
