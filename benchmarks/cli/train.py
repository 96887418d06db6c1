"""``captionbench train``: train by cross-entropy, or by a paper's recipe; resumable."""

from __future__ import annotations

import argparse
import json
import os
import sys
from contextlib import ExitStack, nullcontext, redirect_stderr, redirect_stdout
from pathlib import Path

from benchmarks.cli import data_options
from benchmarks.cli.main import EXIT_BAD_INPUT
from benchmarks.cli.options import above_0, add_images, add_json, at_least, check_device
from benchmarks.data import CaptionData, karpathy, pixels
from benchmarks.data.photographs import images_beside
from benchmarks.errors import InputError
from benchmarks.files import locked
from benchmarks.run_folder import load_captioner
from benchmarks.training import stages
from benchmarks.training.configuration import PRESETS, RECIPES, Stage, TrainingConfig, preset
from benchmarks.training.fit import validation_line, validation_split
from benchmarks.training.stages import Vision
from torch_impl.expansion.functional import DROPOUTS
from torch_impl.models import BaseCaptioner
from torch_impl.training import distributed
from torch_impl.training.computation import PRECISIONS, Computation
from torch_impl.training.distributed import ProcessGroup, ProcessGroupError
from torch_impl.training.sampling import SAMPLINGS, SamplingComputation

OF_STAGE = {
    "warm_up": "warmup",
    "epochs": "epochs",
    "batch_size": "batch_size",
    "learning_rate": "lr",
    "dropout": "dropout",
    "dropout_of": "dropout_of",
    "captions_per_image": "captions_per_image",
}
"""Options, and the fields of a stage that they set."""
OF_MODEL = (
    *("encoder", "decoder", "d_model", "d_ff", "num_heads"),
    *("num_encoder_layers", "num_decoder_layers"),
)
"""Options that set fields of the model."""
RESUME_HINT = "--resume continues from the last checkpoint, if any"


def configure(parser: argparse.ArgumentParser) -> None:
    data_options.configure(parser)
    parser.add_argument(
        "--vocabulary-of",
        type=Path,
        metavar="CHECKPOINT",
        help="use another run's vocabulary",
    )
    pictures = parser.add_argument_group("pictures, for the stages that train the backbone too")
    pictures.add_argument(
        "--backbone",
        metavar="FILE",
        help="Swin's published weights in place of cached features; tiny: a small one, untrained",
    )
    add_images(pictures)
    model = parser.add_argument_group("model")
    model.add_argument("--encoder", help="attention, aoa, static:64, static:8,16,32, dynamic:16")
    model.add_argument("--decoder", help="attention, aoa, dynamic:16")
    for name in ("d-model", "d-ff", "num-heads", "num-encoder-layers", "num-decoder-layers"):
        model.add_argument(f"--{name}", type=int, metavar="N")
    training = parser.add_argument_group("training")
    training.add_argument(
        "--recipe",
        choices=list(RECIPES),
        help="a paper's stages in turn, a folder of DIR each (default: cross-entropy alone)",
    )
    training.add_argument(
        "--preset",
        choices=list(
            dict.fromkeys([*PRESETS, *(name for presets in RECIPES.values() for name in presets)])
        ),
        help="sizes and training that the other options override: of a recipe paper, as-run, or "
        "scenes (default: scenes with --scenes, else as-run); without one scenes, few or flickr8k "
        "(default: scenes with --scenes, else flickr8k)",
    )
    known = "; ".join(
        f"{name}: {', '.join(next(iter(presets.values())).stages)}"
        for name, presets in RECIPES.items()
    )
    training.add_argument(
        "--stages",
        nargs="+",
        metavar="STAGE",
        help=f"those of the recipe to take (default: all; {known})",
    )
    training.add_argument(
        "--initial",
        type=Path,
        metavar="CHECKPOINT",
        help="begin with the best weights of another run with the same vocabulary, also of one "
        "that stopped at a loss that is not finite",
    )
    training.add_argument(
        "--warm-up", type=int, metavar="STEPS", help="warm-up of the recipe's stages that have one"
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
    training.add_argument(
        "--captions-per-image", type=int, metavar="N", help="captions per encoded image"
    )
    training.add_argument("--seed", type=at_least(0, 2**63 - 1), default=0, metavar="N")
    training.add_argument(
        "--minutes", type=above_0, metavar="N", help="stop after N minutes, with a checkpoint"
    )
    training.add_argument(
        "--device", default="cpu", help="under torchrun, cuda is each process's own GPU"
    )
    computed = parser.add_argument_group("computation")
    computed.add_argument(
        "--accumulate",
        type=int,
        default=1,
        metavar="N",
        help="gradient accumulation: micro-batches per batch",
    )
    computed.add_argument("--precision", choices=PRECISIONS, default="float32")
    computed.add_argument(
        "--compile",
        action="store_true",
        help="through torch.compile, which takes minutes before the first step",
    )
    computed.add_argument(
        "--sampling",
        choices=SAMPLINGS,
        default="as-run",
        help="dropout while sampling in self-critical stages: as-run (a new mask per token, "
        "prefixes recomputed), shared (one mask per sample, layer and position), or off "
        "(default: as-run)",
    )
    kept = parser.add_argument_group("folder")
    kept.add_argument("--out", type=Path, required=True, metavar="DIR", help="the run's folder")
    kept.add_argument(
        "--resume", action="store_true", help="continue the run in the folder, if there is one"
    )
    add_json(parser)
    kept.add_argument("--log-every", type=at_least(1), default=50, metavar="STEPS")
    kept.add_argument(
        "--checkpoint-seconds",
        type=float,
        default=60,
        metavar="SECONDS",
        help="to pass before another checkpoint, beside that of every epoch's end (default: 60)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Train, and print the best validation scores, on the main process only.

    Raises:
        InputError: invalid options or files; a process of the group has ended.
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
        raise KeyboardInterrupt(f"{arguments.out}: {RESUME_HINT}") from None
    except ProcessGroupError as error:
        raise InputError(
            f"{error}; {arguments.out}: {RESUME_HINT}, with any number of processes"
        ) from error


def _run(arguments: argparse.Namespace, process_group: ProcessGroup) -> int:
    if not arguments.checkpoint_seconds >= 0:
        raise InputError(f"--checkpoint-seconds is {arguments.checkpoint_seconds}, expected >= 0")
    check_device(process_group.device)
    for name in ("stages", "backbone", "images"):
        if getattr(arguments, name) and not arguments.recipe:
            raise InputError(f"--{name} goes with --recipe")
    of_scenes = arguments.scenes is not None
    config = _with_options(
        preset(arguments.recipe, arguments.preset, of_scenes=of_scenes), arguments
    )
    stages.check(config, arguments.stages, pictures=arguments.backbone is not None)
    wanted = arguments.stages or config.stages
    rewarded = any(config.stages[name].objective == "self_critical" for name in wanted)
    if arguments.sampling != "as-run" and not rewarded:
        raise InputError(f"--sampling {arguments.sampling}: no self-critical stage here")
    data, vision = _data(arguments)
    out = arguments.out
    folders = {name: out / name if arguments.recipe else out for name in config.stages}
    with locked(out, wait=False) if process_group.is_main else nullcontext():
        results = stages.train(
            config,
            data,
            folders,
            names=arguments.stages,
            seed=arguments.seed,
            vision=vision,
            initial=_initial(arguments.initial, data),
            resume=arguments.resume,
            minutes=arguments.minutes,
            device=process_group.device,
            process_group=process_group,
            computation=_computation(arguments),
            log_every=arguments.log_every,
            checkpoint_seconds=arguments.checkpoint_seconds,
            progress=True,
        )
    if arguments.json:
        summary = {
            name: {
                "folder": str(folders[name]),
                "best": result.best,
                "seconds": result.seconds,
                "finished": result.finished,
            }
            for name, result in results.items()
        }
        print(json.dumps(summary, indent=1))
        return 0
    for name, result in results.items():
        state = "done" if result.finished else "time is up, --resume continues"
        print(
            f"{folders[name]}: best {validation_line(result.best)}; {result.seconds:.0f} s, {state}"
        )
    return 0


def _with_options(config: TrainingConfig, arguments: argparse.Namespace) -> TrainingConfig:
    """``config`` with the options that were given; a stage without warm-up gets none."""
    given = {field: getattr(arguments, option) for option, field in OF_STAGE.items()}
    given = {field: value for field, value in given.items() if value is not None}
    sizes = {name: getattr(arguments, name) for name in OF_MODEL}

    def changed(stage: Stage) -> Stage:
        without = {"warmup"} if arguments.recipe and not stage.optimisation.warmup else set()
        return stage.but(**{k: v for k, v in given.items() if k not in without})

    sizes = {name: size for name, size in sizes.items() if size is not None}
    return config.each(changed).but(**sizes)


def _data(arguments: argparse.Namespace) -> tuple[CaptionData, Vision | None]:
    """The data set in the requested vocabulary, and the backbone with its pictures, if any."""
    vision = None
    if not arguments.backbone:
        if arguments.images:
            raise InputError("--images goes with --backbone")
        data = data_options.load(arguments)
    elif arguments.features or arguments.mean_features:
        raise InputError("--backbone makes the features: --features and --mean-features do not go")
    elif arguments.moving:
        raise InputError("--moving: no pictures of moving scenes, expected --scenes alone")
    else:
        backbone = stages.load_backbone(arguments.backbone, arguments.seed)
        if arguments.scenes:
            if arguments.images:
                raise InputError("--images goes with --karpathy; the scenes bring their own")
            data, vision = data_options.load(arguments), Vision(pixels.of_scenes(), backbone)
        else:
            path = arguments.karpathy
            seen = pixels.of_photographs(path, arguments.images or images_beside(path))
            data = karpathy.with_features(path, pixels.Pixels(seen, (), backbone))
            vision = Vision(seen, backbone)
    if arguments.vocabulary_of:
        _, vocabulary = load_captioner(arguments.vocabulary_of)
        data = data.with_words_of(vocabulary, arguments.vocabulary_of)
    if validation_split(data) == "train":
        print(
            f"captionbench: {data.name} has no split 'val': validated on the images that are "
            "trained on, which says nothing of others",
            file=sys.stderr,
        )
    return data, vision


def _initial(checkpoint: Path | None, data: CaptionData) -> BaseCaptioner | None:
    """The model to start from.

    Raises:
        InputError: its vocabulary is not that of ``data``.
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


def _computation(arguments: argparse.Namespace) -> Computation:
    options = arguments.accumulate, arguments.precision, arguments.compile
    try:
        if arguments.sampling == "as-run":
            return Computation(*options)
        return SamplingComputation(*options, arguments.sampling)
    except ValueError as error:
        raise InputError(f"--{error}") from error
