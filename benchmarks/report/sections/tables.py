"""The section that lists every table of the five papers."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks import papers
from benchmarks import tables as tables_command
from benchmarks.records import Record
from benchmarks.report.document import (
    Cell,
    Paragraph,
    Section,
    Table,
)
from reference.equations import PAPERS


def every_table(records: Sequence[Record]) -> Section:
    """Each table and data figure of the five papers, and how much of it is regenerated."""
    rows: list[list[Cell]] = []
    for paper in PAPERS:
        tables = papers.load(paper)
        for table in tables.tables:
            cells = list(tables_command.cells(paper, records, table.name))
            run = [c for c in cells if c.ours is not None]
            rows.append(
                [
                    paper,
                    f"Table {table.name}",
                    table.caption,
                    f"{len(run)} of {len(cells)}" if cells else "0",
                    ", ".join(sorted({c.status for c in run})) if run else "not run",
                    "" if run else table.not_run,
                ]
            )
        for figure in tables.figures:
            if figure.data:
                reason = "not drawn yet"
                rows.append(
                    [paper, f"Figure {figure.name}", figure.caption, "0", "not run", reason]
                )
    return Section(
        "Every table of the five papers",
        [
            Paragraph(
                "`captionbench tables PAPER --table NAME` prints any of them cell by cell. Nothing "
                "is filled in from the paper: a cell of ours is measured here or empty."
            ),
            Table(
                "tables",
                "Tables and data figures",
                ("paper", "table", "what it shows", "our cells", "status", "why not"),
                rows,
            ),
        ],
    )
