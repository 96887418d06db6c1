"""``captionbench scenes``: generated scenes as picture files with captions."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from benchmarks.cli.options import add_json, at_least
from benchmarks.cli.terminal import progress
from benchmarks.data.scenes import REFERENCES, pictures
from benchmarks.files import all_or_nothing, locked

MOST_IMAGES, MOST_REFERENCES = 1_000_000, 100


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where files go")
    parser.add_argument(
        "--num-images",
        type=at_least(1, MOST_IMAGES),
        default=20,
        metavar="N",
        help="how many (default: 20)",
    )
    parser.add_argument(
        "--num-references",
        type=at_least(1, MOST_REFERENCES),
        default=REFERENCES,
        metavar="N",
        help=f"captions of each (default: {REFERENCES})",
    )
    parser.add_argument(
        "--first",
        type=at_least(0),
        default=0,
        metavar="ID",
        help="the first scene's id (default: 0)",
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Write a PNG per scene, and the captions as CSV."""
    with locked(arguments.out, wait=False), all_or_nothing(arguments.out), progress() as say:
        say(f"{arguments.num_images:,} pictures drawn")
        pictures.write(
            arguments.out, arguments.num_images, arguments.num_references, arguments.first
        )
    if arguments.json:
        table = str(arguments.out / pictures.CAPTIONS)
        print(json.dumps({"images": arguments.num_images, "captions": table}))
        return 0
    print(f"{arguments.out}: {arguments.num_images} pictures of scenes and {pictures.CAPTIONS}")
    return 0
