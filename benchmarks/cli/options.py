"""Options that several commands share, spelt one way."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks import records
from benchmarks.errors import InputError
from benchmarks.files import locked
from benchmarks.perf.threads import usable

LARGEST_BEAM = 1000
"""Hypotheses: beyond it a beam takes the memory of the machine and gives no other captions."""


def at_least(smallest: int, largest: float = math.inf) -> Callable[[str], int]:
    """A type of options: whole numbers from ``smallest`` on, up to ``largest``."""

    def number(text: str) -> int:
        try:
            found = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text}, expected a whole number") from None
        if not smallest <= found <= largest:
            upper = "" if largest == math.inf else f" and at most {largest}"
            raise argparse.ArgumentTypeError(f"{found}, expected at least {smallest}{upper}")
        return found

    return number


def above_0(text: str) -> float:
    """A type of options: finite numbers above 0."""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 < found < math.inf:
        raise argparse.ArgumentTypeError(f"{text}, expected a finite number above 0")
    return found


def thread_count(text: str) -> int:
    """A type of options: a number of the CPU's threads, or all."""
    return usable() if text == "all" else at_least(1, usable())(text)


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add ``--json``."""
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def add_beam_size(parser: argparse.ArgumentParser) -> None:
    """Add ``--beam-size``."""
    parser.add_argument(
        "--beam-size",
        type=at_least(1, LARGEST_BEAM),
        default=3,
        help="hypotheses of an image, 1 is greedy (default: 3)",
    )


def add_lengths(parser: argparse.ArgumentParser) -> None:
    """Add ``--data``, the folder whose captions give T and T^2."""
    parser.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        default=os.environ.get("CAPTIONBENCH_DATA") or None,
        help="data folder; its validation captions give T and T^2 (default: $CAPTIONBENCH_DATA, "
        "else their recorded means)",
    )


def add_records(parser: argparse.ArgumentParser) -> None:
    """Add ``--out``, the file of `own_records`."""
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="records (default: those that your reports show)"
    )


@contextmanager
def own_records(arguments: argparse.Namespace, name: str) -> Iterator[Path | None]:
    """The file of records of ``--out``, or ``name`` of your report's, this process's alone.

    None with ``--tiny``, whose numbers mean nothing, unless ``--out`` asks for them.

    Raises:
        InputError: it is a folder or cannot be written, or another process writes it.
    """
    kept = None if getattr(arguments, "tiny", False) else records.LOCAL / name
    path: Path | None = arguments.out or kept
    if path is None:
        yield None
        return
    if path.is_dir():
        raise InputError(f"--out {path}: is a folder, expected a file of records")
    records.check_writable(path)
    with locked(path, wait=False):
        yield path
