"""A page for each file that the report cites: printed numbers, and code."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache

from benchmarks import papers
from benchmarks.files import slug
from benchmarks.records import ROOT
from benchmarks.report.document import Page

TARGETS = "benchmarks/perf/targets.py"
DEVICES = "benchmarks/perf/roofline/devices.json"


@cache
def _text(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def link(path: str, line: int = 1) -> str:
    """The address of a line of a file; ``path`` is relative to the repository's root."""
    return f"{slug('source', path)}.html#line-{line}"


def find(path: str, *texts: str) -> str:
    """The address of the last of the texts in a file, each searched for after the one before.

    Raises:
        ValueError: one is not found.
    """
    content, at = _text(path), 0
    for text in texts:
        at = content.index(text, at)
    return link(path, content.count("\n", 0, at) + 1)


@cache
def printed(paper: str, table: str, row: str) -> str:
    """The address of a table's row in the paper's file; without a table, of its summary."""
    of_table, of_row = (f'"name": {json.dumps(name, ensure_ascii=False)}' for name in (table, row))
    return find(tables(paper), *([of_table, '"rows"', of_row] if table else ['"summary"']))


def targets(device: str) -> str:
    """The address of the performance targets of a kind of device."""
    return find(TARGETS, f"_ON_{device.upper()} = [")


def tables(paper: str) -> str:
    """The path of the paper's file of tables, from the repository's root."""
    file = papers.file_of(paper, "tables.json")
    return file.resolve().relative_to(ROOT).as_posix()


def pages(paths: Iterable[str]) -> list[Page]:
    """A page for each file, and for the files of tables, targets and devices."""
    every = {*paths, TARGETS, DEVICES, *map(tables, papers.names())}
    return [
        Page(
            slug("source", path),
            path,
            "",
            template="source.html",
            data={"text": _text(path)},
            published=False,
            listed=False,
        )
        for path in sorted(every)
    ]
