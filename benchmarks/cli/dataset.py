"""``captionbench dataset``: make a training data set of pictures and a file of captions."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from pathlib import Path

from benchmarks.cli.options import add_json
from benchmarks.data import caption_files, karpathy, own_data
from benchmarks.data.photographs import Photographs
from benchmarks.data.vocabulary import TOKENISERS
from benchmarks.files import locked, write_atomically


def _shares(text: str) -> tuple[int, ...]:
    try:
        shares = tuple(map(int, text.split(",")))
    except ValueError:
        shares = ()
    if len(shares) != len(own_data.SPLITS) or min(shares) < 0 or sum(shares) != 100:
        message = f"{text!r}, expected per cent of train, val and test, as 80,10,10"
        raise argparse.ArgumentTypeError(message)
    return shares


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--images",
        type=Path,
        nargs="+",
        required=True,
        metavar="PLACE",
        help="folders or zip files of pictures",
    )
    parser.add_argument(
        "--captions",
        type=Path,
        required=True,
        metavar="FILE",
        help="CSV with the columns image, caption and perhaps split; or JSON: a list of such "
        "objects, {image: [captions]}, or COCO's caption format",
    )
    parser.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="where it is written"
    )
    parser.add_argument("--name", help="name of the data set (default: the folder's)")
    parser.add_argument(
        "--split-percent",
        type=_shares,
        metavar="TRAIN,VAL,TEST",
        help="per cent, where the file has no splits (default: 80,10,10)",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the splits (default: 0)")
    parser.add_argument(
        "--min-count",
        type=int,
        default=karpathy.MIN_COUNT,
        metavar="N",
        help=f"rarer words are unknown (default: {karpathy.MIN_COUNT}, as the papers)",
    )
    parser.add_argument(
        "--tokeniser",
        choices=TOKENISERS,
        default="words",
        help="what captions are made of; characters for scripts without spaces (default: words)",
    )
    parser.add_argument(
        "--skip-bad",
        action="store_true",
        help="leave out missing and damaged pictures and captions without a word",
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Write ``dataset_NAME.json``, and print a summary and the next command.

    Raises:
        InputError: invalid input; nothing is written then.
    """
    name = arguments.out.resolve().name if arguments.name is None else arguments.name
    path = own_data.path_in(arguments.out, name)
    with locked(arguments.out, wait=False):
        layout, said = own_data.make(
            Photographs(arguments.images),
            caption_files.read(arguments.captions),
            name=name,
            shares=arguments.split_percent,
            seed=arguments.seed,
            min_count=arguments.min_count,
            tokeniser=arguments.tokeniser,
            skip_bad=arguments.skip_bad,
        )
        with write_atomically(path) as file:
            json.dump(layout, file, ensure_ascii=False)
    for line in said:
        print(f"captionbench: {line}", file=sys.stderr)
    images = [str(place) for place in arguments.images]
    words = ["--karpathy", str(path), "--images", *images, "--out", str(path.parent / "features")]
    following = f"captionbench features {shlex.join(words)}"
    if arguments.json:
        print(json.dumps({"path": str(path), "holds": own_data.summary(layout), "next": following}))
    else:
        print(f"{path}: {own_data.summary(layout)}\nnext: {following}")
    return 0
