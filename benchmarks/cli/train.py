"""``captionbench train``: by cross-entropy, or a paper's recipe; resumable after a kill."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.cli import data_options
from benchmarks.cli.main import EXIT_BAD_INPUT
from benchmarks.data import (
    CaptionData,
    karpathy,
    pixels,
)
from benchmarks.data.photographs import images_beside
from benchmarks.devices import check_device
from benchmarks.errors import InputError
from benchmarks.run_folder import load_captioner
from benchmarks.training import train_recipe
from benchmarks.training.fit import chosen_by, fit, verdict
from benchmarks.training.presets import PRESETS, Settings, configuration
from benchmarks.training.recipes import RECIPES
from torch_impl.expansion.functional import DROPOUTS
from torch_impl.models import AnyCaptioner
from torch_impl.training import distributed
from torch_impl.training.computation import PRECISIONS, Computation
from torch_impl.training.distributed import ProcessGroup, ProcessGroupError

PresetT = TypeVar("PresetT")

_GOES_ON = "--resume goes on from what was saved last, if anything was"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    data_options.configure(parser)
    parser.add_argument(
        "--vocabulary-of",
        type=Path,
        metavar="CHECKPOINT",
        help="keep the words of another run in place of the data's own",
    )
    pictures = parser.add_argument_group("pictures, for the steps that train the backbone too")
    pictures.add_argument(
        "--backbone",
        metavar="FILE",
        help="Swin's published weights in place of cached features; tiny: a small one, untrained",
    )
    pictures.add_argument(
        "--images",
        type=Path,
        nargs="+",
        metavar="PLACE",
        help="zip files or folders of photographs (default: those beside the data set)",
    )
    model = parser.add_argument_group("model")
    model.add_argument("--encoder", help="attention, aoa, static:64, static:8,16,32, dynamic:16")
    model.add_argument("--decoder", help="attention, aoa, dynamic:16")
    for name in ("d-model", "d-ff", "num-heads", "num-encoder-layers", "num-decoder-layers"):
        model.add_argument(f"--{name}", type=int, metavar="N")
    training = parser.add_argument_group("training")
    training.add_argument(
        "--recipe",
        choices=list(RECIPES),
        help="a paper's steps in turn, a folder of DIR each (default: cross-entropy alone)",
    )
    training.add_argument(
        "--preset",
        choices=list(dict.fromkeys([*PRESETS, *(name for of in RECIPES.values() for name in of)])),
        help="sizes and training that the other options override: of a recipe paper, as-run, or "
        "scenes (default: scenes with --scenes, else as-run); without one scenes, few or flickr8k "
        "(default: scenes with --scenes, else flickr8k)",
    )
    steps = "; ".join(
        f"{name}: {', '.join(next(iter(presets.values())).steps)}"
        for name, presets in RECIPES.items()
    )
    training.add_argument(
        "--steps",
        nargs="+",
        metavar="STEP",
        help=f"those of the recipe to take (default: all; {steps})",
    )
    training.add_argument(
        "--initial",
        type=Path,
        metavar="CHECKPOINT",
        help="begin with another run's best weights, whose words the data must have: also those "
        "kept of a run whose loss was not finite",
    )
    training.add_argument(
        "--warm-up", type=int, metavar="STEPS", help="of the recipe's steps that have one"
    )
    training.add_argument("--epochs", type=int, metavar="N")
    training.add_argument("--batch-size", type=int, metavar="CAPTIONS")
    training.add_argument("--learning-rate", type=float, metavar="RATE", help="after the warm-up")
    training.add_argument("--dropout", type=float, metavar="P")
    training.add_argument(
        "--dropout-of",
        choices=DROPOUTS,
        help="what an expansion drops going forward: values, or whole vectors, which is quicker",
    )
    training.add_argument("--captions-per-image", type=int, metavar="N", help="of one encoding")
    training.add_argument("--seed", type=int, default=0, metavar="N")
    training.add_argument("--minutes", type=float, metavar="N", help="stop in time")
    training.add_argument(
        "--device", default="cpu", help="under torchrun, cuda is each process's own GPU"
    )
    computed = parser.add_argument_group("computation")
    computed.add_argument(
        "--accumulate", type=int, default=1, metavar="N", help="parts to compute a batch in"
    )
    computed.add_argument("--precision", choices=PRECISIONS, default="float32")
    computed.add_argument(
        "--compile",
        action="store_true",
        help="through torch.compile, which takes minutes before the first step",
    )
    kept = parser.add_argument_group("folder")
    kept.add_argument("--out", type=Path, required=True, metavar="DIR", help="the run's folder")
    kept.add_argument(
        "--resume", action="store_true", help="go on with the run in the folder, if there is one"
    )
    kept.add_argument("--log-every", type=int, default=50, metavar="STEPS")
    kept.add_argument(
        "--checkpoint-seconds",
        type=float,
        default=60,
        metavar="SECONDS",
        help="to pass before another checkpoint, beside that of every epoch's end (default: 60)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Train, and say how the best validation scored; of several processes one speaks for all.

    Raises:
        InputError: bad input, by name; a process has ended.
    """
    try:
        with (
            distributed.init_process_group(arguments.device) as process_group,
            ExitStack() as silent,
        ):
            if not process_group.is_main:
                nobody = silent.enter_context(Path(os.devnull).open("w"))
                silent.enter_context(redirect_stdout(nobody))
                silent.enter_context(redirect_stderr(nobody))
            try:
                return _run(arguments, process_group)
            except (InputError, ProcessGroupError):
                if not process_group.elect_reporter():
                    sys.exit(EXIT_BAD_INPUT)
                raise
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"{arguments.out}: {_GOES_ON}") from None
    except ProcessGroupError as error:
        raise InputError(
            f"{error}; {arguments.out}: {_GOES_ON}, with any number of processes"
        ) from error


def _run(arguments: argparse.Namespace, process_group: ProcessGroup) -> int:
    if not 0 <= arguments.seed < 2**63:
        raise InputError(f"--seed is {arguments.seed}, expected 0 to 2^63 - 1")
    if arguments.log_every < 1:
        raise InputError(f"--log-every is {arguments.log_every}, expected at least 1")
    if arguments.minutes is not None and not arguments.minutes > 0:
        raise InputError(f"--minutes is {arguments.minutes}, expected more than 0")
    if not arguments.checkpoint_seconds >= 0:
        raise InputError(f"--checkpoint-seconds is {arguments.checkpoint_seconds}, expected >= 0")
    check_device(process_group.device)
    if arguments.recipe:
        return _recipe(arguments, process_group)
    for name in ("steps", "backbone", "images"):
        if getattr(arguments, name):
            raise InputError(f"--{name} goes with --recipe")
    preset = _preset(PRESETS, "scenes" if arguments.scenes else "flickr8k", arguments.preset)
    settings = _settings(preset.settings, arguments)
    data = _worded(data_options.load(arguments), arguments)
    initial = _initial(arguments.initial, data)
    result = fit(
        data,
        configuration(data, settings.recipe, {**preset.model, **_model(arguments)}),
        settings,
        arguments.seed,
        arguments.out,
        initial=initial.state_dict() if initial else None,
        resume=arguments.resume,
        minutes=arguments.minutes,
        **_options(arguments, process_group),
    )
    state = "all epochs done" if result.finished else "time is up, --resume goes on"
    print(f"{arguments.out}: best {verdict(result.best)}; {result.seconds:.0f} s, {state}")
    return 0


def _recipe(arguments: argparse.Namespace, process_group: ProcessGroup) -> int:
    """Take a recipe's steps, and say of each how its best validation scored."""
    presets = RECIPES[arguments.recipe]
    preset = _preset(presets, "scenes" if arguments.scenes else "as-run", arguments.preset)
    names = train_recipe.chosen(preset, arguments.steps, pictures=arguments.backbone is not None)
    steps = {
        name: replace(step, settings=_settings(step.settings, arguments))
        for name, step in preset.steps.items()
    }
    vision = None
    if arguments.backbone:
        data, vision = _seen(arguments)
    elif arguments.images:
        raise InputError("--images goes with --backbone")
    else:
        data = data_options.load(arguments)
    data = _worded(data, arguments)
    results = train_recipe.train(
        replace(preset, steps=steps),
        names,
        data,
        arguments.out,
        model=_model(arguments),
        seed=arguments.seed,
        vision=vision,
        initial=_initial(arguments.initial, data),
        resume=arguments.resume,
        minutes=arguments.minutes,
        **_options(arguments, process_group),
    )
    for name, result in results.items():
        best, seconds = verdict(result.best), result.seconds
        print(f"{arguments.out / name}: best {best}; {seconds:.0f} s")
    if len(results) < len(names) or not all(result.finished for result in results.values()):
        print(f"{arguments.out}: time is up, --resume goes on")
    return 0


def _preset(presets: Mapping[str, PresetT], default: str, name: str | None) -> PresetT:
    if (name or default) not in presets:
        raise InputError(f"--preset {name}: expected one of {', '.join(presets)} here")
    return presets[name or default]


def _seen(arguments: argparse.Namespace) -> tuple[CaptionData, train_recipe.Vision]:
    """The data set with its pictures, and what sees them."""
    if arguments.features or arguments.mean_features:
        raise InputError("--backbone makes the features: --features and --mean-features do not go")
    backbone = train_recipe.backbone(arguments.backbone, arguments.seed)
    if arguments.moving:
        raise InputError(
            "--moving: there are no pictures of moving scenes, expected --scenes alone"
        )
    if arguments.scenes:
        if arguments.images:
            raise InputError("--images goes with --karpathy; the scenes bring their own")
        return data_options.load(arguments), train_recipe.Vision(pixels.of_scenes(), backbone)
    path = arguments.karpathy
    seen = pixels.of_photographs(path, arguments.images or images_beside(path))
    data = karpathy.with_features(path, pixels.Pixels(seen, (), backbone))
    return data, train_recipe.Vision(seen, backbone)


def _worded(data: CaptionData, arguments: argparse.Namespace) -> CaptionData:
    """``data`` in the words asked for, with a line on stderr where its training validates it."""
    if arguments.vocabulary_of:
        _, vocabulary = load_captioner(arguments.vocabulary_of)
        data = data.with_words_of(vocabulary, arguments.vocabulary_of)
    if chosen_by(data) == "train":
        print(
            f"captionbench: {data.name} has no split 'val': validated on the images that are "
            "trained on, which says nothing of others",
            file=sys.stderr,
        )
    return data


def _initial(checkpoint: Path | None, data: CaptionData) -> AnyCaptioner | None:
    """The model to begin with.

    Raises:
        InputError: it has other words than ``data``.
    """
    if checkpoint is None:
        return None
    model, vocabulary = load_captioner(checkpoint)
    data.check_tokens(vocabulary, checkpoint)
    if vocabulary.fingerprint != data.vocabulary.fingerprint:
        raise InputError(
            f"{checkpoint}: a vocabulary of {len(vocabulary)}, which is not that of {data.name} "
            f"({len(data.vocabulary)}), expected --vocabulary-of {checkpoint}"
        )
    return model


def _model(arguments: argparse.Namespace) -> dict[str, Any]:
    """The sizes that were given."""
    fields = ("encoder", "decoder", "d_model", "d_ff", "num_heads")
    layers = ("num_encoder_layers", "num_decoder_layers")
    return _given(arguments, {name: name for name in fields + layers})


def _options(arguments: argparse.Namespace, process_group: ProcessGroup) -> dict[str, Any]:
    """What changes no number, or by rounding alone."""
    return {
        "device": process_group.device,
        "process_group": process_group,
        "computation": _computation(arguments),
        "log_every": arguments.log_every,
        "checkpoint_seconds": arguments.checkpoint_seconds,
        "progress": True,
    }


def _settings(settings: Settings, arguments: argparse.Namespace) -> Settings:
    """``settings`` with the options given."""
    of_recipe = {
        "warm_up": "warmup",
        "epochs": "epochs",
        "batch_size": "batch_size",
        "learning_rate": "lr",
        "dropout": "dropout",
        "dropout_of": "dropout_of",
    }
    given = _given(arguments, of_recipe)
    if arguments.recipe and not settings.recipe.warmup:
        given.pop("warmup", None)
    try:
        recipe = replace(settings.recipe, **given)
    except ValueError as error:
        raise InputError(str(error)) from error
    of_loading = _given(arguments, {"captions_per_image": "captions_per_image"})
    return replace(settings, recipe=recipe, **of_loading)


def _computation(arguments: argparse.Namespace) -> Computation:
    try:
        return Computation(arguments.accumulate, arguments.precision, arguments.compile)
    except ValueError as error:
        raise InputError(f"--{error}") from error


def _given(arguments: argparse.Namespace, names: Mapping[str, str]) -> dict[str, Any]:
    """The options that were given, under the names of the fields that they set."""
    values = {field: getattr(arguments, option) for option, field in names.items()}
    return {field: value for field, value in values.items() if value is not None}
