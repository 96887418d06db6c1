"""Options that several commands share, spelt one way."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks import records
from benchmarks.errors import InputError
from benchmarks.files import check_writable, locked
from benchmarks.perf.threads import usable
from benchmarks.records import Record

DATA_VARIABLE = "CAPTIONBENCH_DATA"
LARGEST_BEAM = 1000
"""The largest beam size accepted: beyond it memory runs out, and captions stay the same."""


def at_least(smallest: int, largest: float = math.inf) -> Callable[[str], int]:
    """An option's type: integers from ``smallest`` to ``largest``."""

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
    """An option's type: finite numbers above 0."""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 < found < math.inf:
        raise argparse.ArgumentTypeError(f"{text}, expected a finite number above 0")
    return found


def thread_count(text: str) -> int:
    """An option's type: a number of CPU threads, or all."""
    return usable() if text == "all" else at_least(1, usable())(text)


def starting_with(names: Iterable[str], beginnings: Sequence[str] | None, kind: str) -> list[str]:
    """The ``names`` that start with one of the ``beginnings`` of ``--only``; all without any.

    Raises:
        InputError: no name, which are of the ``kind``, starts with one of them.
    """
    known = list(names)
    for beginning in beginnings or ():
        if not beginning or not any(name.startswith(beginning) for name in known):
            raise InputError(
                f"--only {beginning or '(empty)'}: no such {kind}, expected the beginning of one "
                f"of {', '.join(known)}"
            )
    return [name for name in known if not beginnings or name.startswith(tuple(beginnings))]


def check_device(name: str, asked: str | None = None) -> str:
    """Return ``name`` if PyTorch can compute there; a GPU with an index becomes the current one.

    On a GPU, cuDNN no longer rounds float32 to TF32, as it does by default.

    CUDA events and streams are of the current device, whatever device the tensors are on: otherwise
    ``cuda:1`` would be timed on the first GPU.

    Args:
        name: the device.
        asked: the option that named it, if not ``--device``.

    Raises:
        InputError: PyTorch cannot use it, and why.
    """
    import torch  # here, so that other commands start quickly

    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()
        if device.type == "cuda" and device.index is not None:
            torch.cuda.set_device(device)
        if device.type == "cuda":
            torch.backends.cudnn.allow_tf32 = False
    except (RuntimeError, AssertionError, ValueError) as error:
        reason = str(error).splitlines()[0]
        if asked:
            raise InputError(f"{asked}: PyTorch cannot use {name} ({reason})") from None
        raise InputError(
            f"--device {name}: PyTorch cannot use it ({reason}), expected cpu, cuda or cuda:N"
        ) from None
    if device.type == "cpu" and device.index:
        raise InputError(f"--device {name}: there is one CPU, expected cpu")
    return name


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def add_checkpoint(parser: argparse.ArgumentParser, what: str) -> None:
    """Add ``--checkpoint``, which may be repeated; ``what`` it takes besides a run's folder."""
    text = f"a run's folder (its best), {what}"
    parser.add_argument("--checkpoint", type=Path, action="append", required=True, help=text)


def add_images(parser: argparse._ActionsContainer) -> None:
    """Add ``--images``, the places of a data set's photographs."""
    parser.add_argument(
        "--images",
        type=Path,
        nargs="+",
        metavar="PLACE",
        help="zip files or folders of photographs (default: those beside the data set)",
    )


def add_beam_size(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--beam-size",
        type=at_least(1, LARGEST_BEAM),
        default=3,
        help="hypotheses of an image, 1 is greedy (default: 3)",
    )


def add_data(parser: argparse.ArgumentParser, what: str, otherwise: str = "") -> None:
    """Add ``--data``: ``what`` the folder is, and what happens ``otherwise``."""
    parser.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        default=os.environ.get(DATA_VARIABLE) or None,
        help=f"{what} (default: ${DATA_VARIABLE}{otherwise})",
    )


def add_lengths(parser: argparse.ArgumentParser) -> None:
    """Add ``--data``, the folder whose captions give T and T^2."""
    what = "data folder; its validation captions give T and T^2"
    add_data(parser, what, ", else their recorded means")


def add_records(parser: argparse.ArgumentParser) -> None:
    """Add ``--out``, the file of `own_records`."""
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="records (default: those that your reports show)"
    )


def add_record_folders(parser: argparse.ArgumentParser) -> None:
    """Add ``--records``, the folders of `known_records`."""
    parser.add_argument(
        "--records",
        type=Path,
        action="append",
        metavar="DIR",
        help="folder of records, may be repeated (default: the published ones and your own)",
    )


def known_records(arguments: argparse.Namespace) -> list[Record]:
    """The records under the folders of ``--records``, else the published ones and your own.

    Raises:
        InputError: there is no such folder.
    """
    for folder in arguments.records or ():
        if not folder.is_dir():
            raise InputError(f"{folder}: no such folder, expected records (--records)")
    return records.load(*(arguments.records or (records.PUBLISHED, records.LOCAL)))


def check_records(path: Path) -> None:
    """Check before long work that records can be appended to ``path``.

    Raises:
        InputError: it is not a regular file, or cannot be written.
    """
    if path.exists() and not path.is_file():
        raise InputError(f"--out {path}: a folder, a pipe or a device, expected a file of records")
    check_writable(path)


@contextmanager
def own_records(arguments: argparse.Namespace, name: str) -> Iterator[Path | None]:
    """Lock and yield the file of records: ``--out``, or ``name`` among those of your report.

    None with ``--tiny``, whose numbers mean nothing, unless ``--out`` is given.

    Raises:
        InputError: it is a folder or cannot be written, or another process writes it.
    """
    kept = None if getattr(arguments, "tiny", False) else records.LOCAL / name
    path: Path | None = arguments.out or kept
    if path is None:
        yield None
        return
    check_records(path)
    with locked(path, wait=False):
        yield path
