"""Build the report from records, and write it as a static site and as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import records
from benchmarks.files import write_atomically
from benchmarks.records import Record
from benchmarks.report import claims, evidence, explorer, html, index, markdown, paper, sources
from benchmarks.report.document import Equation, Page
from benchmarks.report.sections import history, speed

TITLE = "What held up"
PAPERS = {
    "expansionnet_v1": "ExpansionNet v1",
    "expansionnet_v2": "ExpansionNet v2",
    "arnet": "ARNet",
    "lstm_readonly": "Read-only LSTM",
    "middle_out": "Middle-Out",
}
OTHERS = {"all": "speed, counts and verification"}
"""Titles of records that are of no paper."""


def pages(
    made: Sequence[Record], jpegs: Mapping[int, bytes] | None = None, *, quick: bool = False
) -> list[Page]:
    """Every page, the first page first: a pure function of records and the papers' own numbers.

    Args:
        made: the records.
        jpegs: photographs by id, shown where a record has captions of them.
        quick: whether it is the short form, which says so.
    """
    made = sorted(records.newest(made), key=_place)
    lead = " This is the short form of the report: `captionbench report` makes the whole one."
    found = claims.of_all(made)
    first = index.page(TITLE, PAPERS, found, made)
    shown = [
        replace(first, lead=first.lead + lead) if quick else first,
        *(
            paper.page(name, title, found.get(name, ()), made, jpegs or {})
            for name, title in PAPERS.items()
        ),
        Page("speed", "Speed", "", [*speed.sections(made), *history.history(made)]),
        explorer.page(),
        claims.page(PAPERS, found, made),
        *evidence.pages(made, PAPERS | OTHERS),
    ]
    blocks = [block for page in shown for section in page.sections for block in section.blocks]
    listed = [code for e in blocks if isinstance(e, Equation) for code in (e.oracle, e.counterpart)]
    return [*shown, *sources.pages(code.path for code in listed if code)]


def _place(record: Record) -> tuple[Any, ...]:
    """Sort key: by time, then by what a record is of."""
    what = record.what
    return record.time, what.paper, what.table, what.row, record.seeds, records.line(record)


def write_site(shown: Sequence[Page], folder: Path) -> Path:
    """Write the site into a folder; returns the path of its first page."""
    for name, text in html.texts(shown, evidence.link).items():
        with write_atomically(folder / name) as file:
            file.write(text)
    for name, content in html.pictures(shown):
        with write_atomically(folder / name, "wb") as file:
            file.write(content)
    return folder / "index.html"


def write_markdown(shown: Sequence[Page], folder: Path) -> None:
    """Write the Markdown pages and their figures into a folder."""
    for name, text in markdown.files(shown):
        with write_atomically(folder / name) as file:
            file.write(text)


def stale(made: Sequence[Record], folder: Path) -> list[str]:
    """Published Markdown files that differ from what the published records give."""
    return sorted(
        name
        for name, text in markdown.texts(pages(made)).items()
        if not (folder / name).exists() or (folder / name).read_text(encoding="utf-8") != text
    )
