"""``captionbench scenes``: generated scenes as picture files, to try own data and pixels with."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.data.scenes import REFERENCES, pictures


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where files go")
    parser.add_argument(
        "--images", type=int, default=20, metavar="N", help="how many (default: 20)"
    )
    parser.add_argument(
        "--references",
        type=int,
        default=REFERENCES,
        metavar="N",
        help=f"captions of each (default: {REFERENCES})",
    )
    parser.add_argument(
        "--first", type=int, default=0, metavar="ID", help="the first scene's id (default: 0)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Write a PNG a scene, and their captions as CSV."""
    pictures.write(arguments.out, arguments.images, arguments.references, arguments.first)
    print(f"{arguments.out}: {arguments.images} pictures of scenes and {pictures.CAPTIONS}")
    return 0
