"""``captionbench import``: publish records into ``reports/``, and rewrite its pages.

It takes a run's own records (JSON lines) and device records.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks import papers, records
from benchmarks.cli.options import add_json
from benchmarks.cli.terminal import progress
from benchmarks.errors import InputError
from benchmarks.files import locked
from benchmarks.perf import device_record
from benchmarks.records import PUBLISHED, REPORTS, Record
from benchmarks.report import build


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files",
        nargs="*",
        type=Path,
        metavar="FILE",
        help="records to publish: JSON lines, or the file of `captionbench record`",
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Check every file, append the new records, and rewrite the pages.

    Records that are published already, or replaced by a newer one of their slot, are skipped.

    Raises:
        InputError: a file is truncated, modified or foreign, or its records lack what the pages
            show; nothing is published then.
    """
    with progress() as say:
        say("records checked")
        read = [record for path in arguments.files for record in _read(path)]
        say("records published and pages written")
        with locked(PUBLISHED):  # concurrent imports run one after another
            new, newest = _publish(read, ", ".join(map(str, arguments.files)))
    if arguments.json:
        already, replaced = len(read) - new, new - newest
        print(json.dumps({"published": newest, "already": already, "replaced": replaced}))
        return 0
    print(
        f"{newest} of {len(read)} records published, {len(read) - new} were already, "
        f"{new - newest} are replaced by newer ones; reports/ rewritten"
    )
    return 0


def _read(path: Path) -> list[Record]:
    found = device_record.read(path)
    known = (*papers.names(), "all")
    for record in found:
        if record.what.paper not in known:
            expected = ", ".join(known)
            raise InputError(f"{path}: no paper {record.what.paper!r}, expected one of {expected}")
        # the newest record of a slot is shown: one of the future would hide all others
        if datetime.fromisoformat(record.time) > datetime.now(UTC) + timedelta(days=1):
            raise InputError(f"{path}: a record of {record.time}, expected none of the future")
    return found


def _publish(read: Sequence[Record], names: str) -> tuple[int, int]:
    """The numbers of new records, and of those the newest of their slot, which are published."""
    published = records.load(PUBLISHED)
    known = set(map(records.line, published))
    new = [r for text, r in {records.line(r): r for r in read}.items() if text not in known]
    newest = records.newest(new)
    try:
        pages = build.pages([*published, *newest])
    except Exception as error:  # whatever the pages miss in a foreign record
        said = f"{type(error).__name__}: {error}"
        raise InputError(f"{names}: no report can be made of these records ({said})") from error
    for kind in records.KINDS:
        records.append([r for r in newest if r.kind == kind], PUBLISHED / f"{kind}.jsonl")
    build.write_markdown(pages, REPORTS)
    return len(new), len(newest)
