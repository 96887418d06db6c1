"""``captionbench train``: cross-entropy training, validated by CIDEr-D, resumable after a kill."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import data_options
from benchmarks.devices import check_device
from benchmarks.errors import InputError
from benchmarks.fit import chosen_by, fit, verdict
from benchmarks.presets import PRESETS, Settings, configuration
from torch_impl.computation import PRECISIONS, Computation
from torch_impl.expansion.functional import DROPOUTS
from torch_impl.optimization import RECIPES


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    data_options.configure(parser)
    parser.add_argument(
        "--vocabulary-of",
        type=Path,
        metavar="CHECKPOINT",
        help="keep the words of another run in place of the data's own",
    )
    model = parser.add_argument_group("model")
    model.add_argument("--encoder", help="attention, aoa, static:64, static:8,16,32, dynamic:16")
    model.add_argument("--decoder", help="attention, aoa, dynamic:16")
    for name in ("d-model", "d-ff", "num-heads", "num-encoder-layers", "num-decoder-layers"):
        model.add_argument(f"--{name}", type=int, metavar="N")
    training = parser.add_argument_group("training")
    training.add_argument(
        "--preset",
        choices=list(PRESETS),
        help="sizes and training that the other options override "
        "(default: scenes with --scenes, else flickr8k)",
    )
    training.add_argument(
        "--recipe", choices=list(RECIPES), help="a paper's training in place of the preset's"
    )
    training.add_argument("--warm-up", type=int, metavar="STEPS")
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
    training.add_argument("--device", default="cpu")
    computed = parser.add_argument_group("computation")
    computed.add_argument(
        "--accumulate", type=int, default=1, metavar="N", help="parts to compute a batch in"
    )
    computed.add_argument("--precision", choices=PRECISIONS, default="float32")
    computed.add_argument("--compile", action="store_true", help="through torch.compile")
    kept = parser.add_argument_group("folder")
    kept.add_argument("--out", type=Path, required=True, metavar="DIR", help="the run's folder")
    kept.add_argument("--resume", action="store_true", help="go on with the run in the folder")
    kept.add_argument("--log-every", type=int, default=50, metavar="STEPS")
    kept.add_argument("--checkpoint-seconds", type=float, default=60, metavar="SECONDS")


def run(arguments: argparse.Namespace) -> int:
    """Train, and say how the best validation scored.

    Raises:
        InputError: bad input, by name.
    """
    preset = PRESETS[arguments.preset or ("scenes" if arguments.scenes else "flickr8k")]
    settings = _settings(preset.settings, arguments)
    fields = ("encoder", "decoder", "d_model", "d_ff", "num_heads")
    layers = ("num_encoder_layers", "num_decoder_layers")
    model = dict(preset.model) | _given(arguments, {name: name for name in fields + layers})
    if not 0 <= arguments.seed < 2**63:
        raise InputError(f"--seed is {arguments.seed}, expected 0 to 2^63 - 1")
    if arguments.log_every < 1:
        raise InputError(f"--log-every is {arguments.log_every}, expected at least 1")
    if arguments.minutes is not None and not arguments.minutes > 0:
        raise InputError(f"--minutes is {arguments.minutes}, expected more than 0")
    if not arguments.checkpoint_seconds >= 0:
        raise InputError(f"--checkpoint-seconds is {arguments.checkpoint_seconds}, expected >= 0")
    check_device(arguments.device)
    data = data_options.load(arguments)
    if arguments.vocabulary_of:
        data = data_options.with_words_of(data, arguments.vocabulary_of)
    if chosen_by(data) == "train":
        print(
            f"captionbench: {data.name} has no split 'val': validated on the images that are "
            "trained on, which says nothing of others",
            file=sys.stderr,
        )
    result = fit(
        data,
        configuration(data, settings.recipe, model),
        settings,
        arguments.seed,
        arguments.out,
        resume=arguments.resume,
        minutes=arguments.minutes,
        device=arguments.device,
        computation=_computation(arguments),
        log_every=arguments.log_every,
        checkpoint_seconds=arguments.checkpoint_seconds,
        progress=True,
    )
    state = "all epochs done" if result.finished else "time is up, --resume goes on"
    print(f"{arguments.out}: best {verdict(result.best)}; {result.seconds:.0f} s, {state}")
    return 0


def _settings(settings: Settings, arguments: argparse.Namespace) -> Settings:
    """The preset's settings, or the recipe's, with the options given."""
    if arguments.recipe:
        settings = Settings(RECIPES[arguments.recipe])
    of_recipe = {
        "warm_up": "warmup",
        "epochs": "epochs",
        "batch_size": "batch_size",
        "learning_rate": "lr",
        "dropout": "dropout",
        "dropout_of": "dropout_of",
    }
    try:
        recipe = replace(settings.recipe, **_given(arguments, of_recipe))
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
