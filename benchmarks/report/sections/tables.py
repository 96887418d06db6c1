"""The section that lists every table of the five papers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from benchmarks import papers
from benchmarks.files import slug
from benchmarks.papers import cells as tables_command
from benchmarks.records import PREDICTED, STATUSES, Record
from benchmarks.report.document import (
    Block,
    Cell,
    Paragraph,
    Section,
    Table,
)
from benchmarks.report.sections import (
    arnet,
    attention,
    denoising,
    expansion,
    middle_out,
    read_only,
    words,
)
from benchmarks.report.sections.evidence import provenance
from reference.equations import PAPERS

CELLS = ("row", "column", "paper", "ours", "95 % interval", "status")
Draw = Callable[[Sequence[Record]], Sequence[Block]]
FIGURES: dict[tuple[str, str], Draw] = {
    ("arnet", "3"): partial(arnet.examples, jpegs={}),
    ("arnet", "4"): arnet.states,
    ("arnet", "5"): arnet.by_weight,
    ("expansionnet_v1", "6"): attention.of_both,
    ("expansionnet_v2", "4"): attention.of_a_head,
    ("lstm_readonly", "1"): words.areas,
    ("lstm_readonly", "2"): words.bars,
    ("lstm_readonly", "7"): read_only.loss_curves,
    ("middle_out", "3"): denoising.example,
}
"""By paper and figure, what draws it from records; nothing draws a figure that is not here."""
CAPTIONS: dict[tuple[str, tuple[str, ...]], Draw] = {
    ("expansionnet_v1", ("6", "7")): partial(expansion.examples, "expansionnet_v1", jpegs={}),
    ("expansionnet_v2", ("VIII",)): partial(expansion.examples, "expansionnet_v2", jpegs={}),
    ("lstm_readonly", ("I",)): partial(read_only.examples, jpegs={}),
    ("middle_out", ("6", "10")): middle_out.pairs,
    ("middle_out", ("8", "9")): partial(middle_out.examples, jpegs={}),
}
"""By paper and the tables of captions that it serves, what shows them; captions are in no cell."""


def every_table(records: Sequence[Record]) -> Section:
    """Each table and data figure of the five papers, and how much of it is regenerated."""
    rows: list[list[Cell]] = []
    named: set[tuple[object, str]] = set()
    pages: list[Block] = []
    for paper in PAPERS:
        tables = papers.load(paper)
        for table in tables.tables:
            cells = list(tables_command.cells(paper, records, table.name))
            run = [c for c in cells if c.ours is not None]
            run += tables_command.beside(paper, records, table)
            if run:
                page, title = slug("cells", paper, table.name), f"{paper}, Table {table.name}"
                filled = [_cell(cell) for cell in run]
                pages.append(Table(page, f"{title}, cell by cell", CELLS, filled, folded=True))
            named.update((r.what, r.key) for c in run for r in c.records)
            about = [paper, f"Table {table.name}", table.caption]
            if shown := _shown(paper, table.name, records):
                rows.append([*about, *shown, ""])
                continue
            rows.append(
                [
                    *about,
                    _counted(cells),
                    ", ".join(sorted({c.status for c in run})) if run else "not run",
                    "" if run else table.not_run,
                ]
            )
        rows += [_figure(paper, f, records) for f in tables.figures if f.data]
    blocks: list[Block] = [
        Paragraph(
            "`captionbench tables PAPER --table NAME` prints a table of numbers cell by cell. "
            "Nothing is filled in from the paper: a cell of ours is measured, **predicted** where "
            "that is said, or empty. What is **drawn** or **shown** is counted by drawings, not by "
            "cells, and stands in its paper's section, which says by which models, beam and seed "
            "captions are; tables that one drawing serves name each other."
        ),
        Table(
            "tables",
            "Tables and data figures",
            ("paper", "table", "what it shows", "our cells", "status", "why not"),
            rows,
        ),
        *pages,
    ]
    used = [r for r in records if (r.what, r.key) in named]
    if used:
        blocks.append(provenance(used))
    return Section("Every table of the five papers", blocks)


def _figure(paper: str, figure: papers.Figure, records: Sequence[Record]) -> list[Cell]:
    draw = FIGURES.get((paper, figure.name))
    about = (paper, f"Figure {figure.name}", figure.caption)
    count, statuses = _drawn(draw, records) if draw else (0, "")
    if count:
        return [*about, f"{count} drawn", statuses, ""]
    why = "nothing was recorded to draw it from" if draw else "the report does not draw it"
    return [*about, "0", "not run", why]


def _shown(paper: str, table: str, records: Sequence[Record]) -> tuple[str, str] | None:
    """How often captions of a table are shown, and of which data; None where they are not."""
    for (whose, tables), draw in CAPTIONS.items():
        if whose == paper and table in tables:
            count, statuses = _drawn(draw, records)
            others = "".join(f", with Table {name}" for name in tables if name != table)
            return (f"{count} shown{others}", statuses) if count else None
    return None


def _drawn(draw: Draw, records: Sequence[Record]) -> tuple[int, str]:
    """How many drawings records give, and their statuses: each is of records of one status."""
    counts = {s: len(draw([r for r in records if r.status == s])) for s in STATUSES}
    return sum(counts.values()), ", ".join(sorted(s for s, count in counts.items() if count))


def _cell(cell: tables_command.Cell) -> list[Cell]:
    number = tables_command.number
    interval = None if cell.interval is None else " to ".join(map(number, cell.interval))
    printed, ours = (None if v is None else number(v) for v in (cell.paper, cell.ours))
    return [cell.row, cell.column, printed, ours, interval, cell.status]


def _counted(cells: Sequence[tables_command.Cell]) -> str:
    """How many cells are measured, and how many only predicted."""
    if not cells:
        return "0"
    predicted = sum(cell.status == PREDICTED for cell in cells)
    measured = sum(cell.ours is not None for cell in cells) - predicted
    return f"{measured} of {len(cells)}" + (f", {predicted} predicted" if predicted else "")
