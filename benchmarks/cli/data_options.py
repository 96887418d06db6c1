"""The options that choose a data set."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.data import CaptionData, karpathy, scenes
from benchmarks.data.batches import without_images
from benchmarks.data.scenes import motion
from benchmarks.errors import InputError


def configure(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """Add the options; if ``required``, a data set must be named."""
    data = parser.add_argument_group("data")
    source = data.add_mutually_exclusive_group(required=required)
    source.add_argument(
        "--scenes",
        nargs="?",
        const=(2000, 250, 250),
        type=_images,
        metavar="TRAIN,VAL,TEST",
        help="the embedded, generated scenes (default: 2000,250,250)",
    )
    data.add_argument(
        "--moving", action="store_true", help="with --scenes: moving scenes, a few frames each"
    )
    source.add_argument(
        "--karpathy", type=Path, metavar="JSON", help="captions and splits in Karpathy's layout"
    )
    data.add_argument(
        "--features", type=Path, metavar="DIR", help="its features (captionbench features)"
    )
    data.add_argument(
        "--mean-features",
        action="store_true",
        help="give every image the mean of the training images: a baseline that does not see",
    )


def _images(text: str) -> tuple[int, int, int]:
    try:
        train, val, test = map(int, text.split(","))
    except ValueError:
        message = f"{text!r}, expected three numbers of images, as 2000,250,250"
        raise argparse.ArgumentTypeError(message) from None
    return train, val, test


def load(arguments: argparse.Namespace) -> CaptionData:
    """The data set that the options name.

    Raises:
        InputError: options that exclude each other, or invalid files.
    """
    if arguments.scenes:
        if arguments.features:
            raise InputError("--features goes with --karpathy; the scenes bring their own")
        train, val, test = arguments.scenes
        kind = motion if arguments.moving else scenes
        data = kind.make(train=train, val=val, test=test)
    elif arguments.moving:
        raise InputError("--moving goes with --scenes")
    else:
        if not arguments.features:
            raise InputError("--karpathy needs --features DIR (see captionbench features)")
        data = karpathy.load(arguments.karpathy, arguments.features)
    return without_images(data) if arguments.mean_features else data
