"""``captionbench history``: each benchmark over the tracked revisions, per device."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from benchmarks import records
from benchmarks.cli.terminal import grid
from benchmarks.errors import InputError
from benchmarks.files import slug, write_atomically
from benchmarks.perf.compare.checkout import order
from benchmarks.perf.compare.history import COLUMNS, Entry, Name, cells, drawing, series
from benchmarks.records import LOCAL, PUBLISHED, ROOT, Record


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files",
        nargs="*",
        type=Path,
        metavar="FILE",
        help="records (default: those that your reports show)",
    )
    parser.add_argument("--only", metavar="NAME", help="benchmarks whose names begin so")
    parser.add_argument(
        "--plot", type=Path, metavar="DIR", help="draw each series as SVG into this folder"
    )
    parser.add_argument("--json", action="store_true", help="print the series as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print every series, the oldest revision first.

    Raises:
        InputError: a file is not one of records, or no such benchmark was tracked.
    """
    chosen = series(_read(arguments.files), order(ROOT))
    if arguments.only:
        chosen = {n: e for n, e in chosen.items() if n[0].startswith(arguments.only)}
    if not chosen:
        which = f" of {arguments.only}" if arguments.only else ""
        where = f"{', '.join(map(str, arguments.files))}: " if arguments.files else ""
        expected = "expected some that `captionbench track` has appended"
        raise InputError(f"{where}no records{which}, {expected}")
    if arguments.plot:
        for name, entries in chosen.items():
            with write_atomically(arguments.plot / f"{slug(*name)}.svg") as file:
                file.write(drawing(entries))
    if arguments.json:
        listed = [
            {"benchmark": name, "device": device, "revisions": [e.to_dict() for e in entries]}
            for (name, device), entries in chosen.items()
        ]
        print(json.dumps(listed, indent=2))
    else:
        print("\n\n".join("\n".join(_lines(name, entries)) for name, entries in chosen.items()))
    return 0


def _read(files: Sequence[Path]) -> list[Record]:
    if not files:
        return records.load(PUBLISHED, LOCAL)
    for path in files:
        if not path.is_file():
            raise InputError(f"{path}: no such file, expected records as JSON lines")
    return [record for path in files for record in records.read(path)]


def _lines(name: Name, entries: Sequence[Entry]) -> list[str]:
    table = grid([COLUMNS, *map(cells, entries)], left=len(COLUMNS))
    ms = "ms are of different sessions, and do not compare; ratios are of one session each"
    return [f"{name[0]} on {name[1]}", *(f"  {line}" for line in [*table, ms])]
