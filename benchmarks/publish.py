"""``captionbench import``: publish records into ``reports/``, on purpose, and rewrite its pages."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks import records
from benchmarks.errors import InputError
from benchmarks.records import PUBLISHED
from benchmarks.report import build
from benchmarks.report.command import REPORTS


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument(
        "files", nargs="*", type=Path, metavar="FILE", help="record files (JSON lines) to publish"
    )


def run(arguments: argparse.Namespace) -> int:
    """Validate every file, then append the newest record of each slot, then rewrite the pages.

    Raises:
        InputError: a file or a line that is no record; nothing is published then.
    """
    for path in arguments.files:
        if not path.is_file():
            raise InputError(f"{path}: no such file, expected records as JSON lines")
    given = records.newest(record for path in arguments.files for record in records.read(path))
    published = records.load(PUBLISHED)
    new = [record for record in given if record not in published]
    for kind in records.KINDS:
        records.append([r for r in new if r["kind"] == kind], PUBLISHED / f"{kind}.jsonl")
    build.write_markdown(build.document([*published, *new]), REPORTS)
    print(f"{len(new)} new of {len(given)} records published; reports/ rewritten")
    return 0
