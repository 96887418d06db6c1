"""``captionbench scenes``: generated scenes as picture files, to try own data and pixels with."""

from __future__ import annotations

import argparse
import csv
import io
from pathlib import Path

from PIL import Image

from benchmarks.data import scenes
from benchmarks.data.scene_files import CAPTIONS
from benchmarks.data.scene_layout import Draw
from benchmarks.errors import InputError
from benchmarks.files import write_atomically


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where files go")
    parser.add_argument(
        "--images", type=int, default=20, metavar="N", help="how many (default: 20)"
    )
    parser.add_argument(
        "--references",
        type=int,
        default=scenes.REFERENCES,
        metavar="N",
        help=f"captions of each (default: {scenes.REFERENCES})",
    )
    parser.add_argument(
        "--first", type=int, default=0, metavar="ID", help="the first scene's id (default: 0)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Write a PNG a scene, and their captions as CSV.

    Raises:
        InputError: a number is out of range, or the folder cannot be written.
    """
    if arguments.images < 1:
        raise InputError(f"--images is {arguments.images}, expected at least 1")
    if arguments.references < 1:
        raise InputError(f"--references is {arguments.references}, expected at least 1")
    if arguments.first < 0:
        raise InputError(f"--first is {arguments.first}, expected at least 0")
    rows = [("image", "caption")]
    for i in range(arguments.first, arguments.first + arguments.images):
        scene, name = scenes.scene(0, i), f"scene_{i:06d}.png"
        buffer = io.BytesIO()
        Image.fromarray(scenes.render(scene)).save(buffer, "png")
        with write_atomically(arguments.out / name, "wb") as file:
            file.write(buffer.getvalue())
        texts = scenes.captions(scene, Draw(0, i, 1), arguments.references)
        rows += [(name, text) for text in texts]
    with write_atomically(arguments.out / CAPTIONS) as file:
        csv.writer(file, lineterminator="\n").writerows(rows)
    print(f"{arguments.out}: {arguments.images} pictures of scenes and {CAPTIONS}")
    return 0
