"""A paper's tables cell by cell: the paper's value beside ours.

Our value comes from the records of that paper, table, row and column. Among several, the best
status wins, then the newest data set; seeds of one measurement are averaged. Nothing is filled in
from the paper: a cell without records is "not run", with the reason.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from benchmarks import papers
from benchmarks.papers import Value
from benchmarks.records import STATUSES, Record, newest

NOT_RUN = "not run"


@dataclass(frozen=True)
class Cell:
    """One cell: the paper's value as printed, ours or None, and the source of ours.

    Args:
        status: of ``records``, or "not run".
        records: whose mean is our value.
        reason: why not run.
        corrected: the intended value, if the print is wrong.
        note: a remark on the printed value.
        interval: the 95 % interval of our value, from its record.
        assumptions: of our value, if it is predicted or counted.
    """

    table: str
    row: str
    column: str
    paper: Value
    ours: float | None
    status: str
    records: tuple[Record, ...]
    reason: str | None = None
    corrected: float | None = None
    note: str | None = None
    interval: tuple[float, float] | None = None
    assumptions: tuple[str, ...] = ()

    @property
    def meant(self) -> Value:
        """The intended value: corrected if the print is wrong."""
        return self.paper if self.corrected is None else self.corrected


def cells(paper: str, records: Iterable[Record], table: str | None = None) -> list[Cell]:
    """All cells of ``paper``, or of one of its tables, with our values from ``records``.

    Cells that the paper leaves blank are included only if there is a value of ours.

    Raises:
        InputError: there is no such paper or table.
    """
    content = papers.load(paper)
    tables = content.tables if table is None else (content.table(table),)
    measured = _measured(paper, records)
    missing = _missing(measured)
    return [
        _cell(entry, cell, made, missing.get((entry.name, cell.row), {}))
        for entry in tables
        for cell in entry.cells
        if (made := measured.get((entry.name, cell.row, cell.column))) or cell.value is not None
    ]


def beyond(paper: papers.PaperTables, records: Iterable[Record]) -> tuple[papers.Table, ...]:
    """Tables of records that the paper does not have: numbers of its figures, and our own."""
    figures = {figure.table: figure for figure in paper.figures}
    known = {table.name for table in paper.tables}
    columns: dict[str, list[str]] = {}
    for name, _, column in _measured(paper.paper, records):
        columns.setdefault(name, []).append(column)
    return tuple(
        papers.Table(
            name=name,
            kind="numbers",
            place=figure.place if (figure := figures.get(name)) else "in no table of the paper",
            caption=f"Figure {figure.name}. {figure.caption}" if figure else "Measured here alone.",
            columns=(),
            rows=(),
            not_run="",
            notes=(),
            times=times(paper, name, *columns[name]),
        )
        for name in sorted(columns.keys() - known)
    )


def times(paper: papers.PaperTables, table: str, *columns: str) -> float:
    """What multiplies the paper's values in records.

    Tables that the paper does not have are in the unit of its first with such a column.
    """
    named = [t for t in paper.tables if t.name == table]
    alike = (
        t for t in paper.tables for c in t.columns if any(of.endswith(c.name) for of in columns)
    )
    return next((t.times for t in (*named, *alike)), 1.0)


def beside(paper: str, records: Iterable[Record], table: papers.Table) -> list[Cell]:
    """Cells of records in rows that the paper's ``table`` does not have."""
    rows = {row.name for row in table.rows}
    found = {
        (row, column): made
        for (name, row, column), made in _measured(paper, records).items()
        if name == table.name and row not in rows
    }
    return [
        _cell(table, papers.Cell(row, column), found[row, column])
        for row, column in sorted(found, key=lambda place: _natural(place[0]))
    ]


def _natural(text: str) -> list[tuple[float, str]]:
    """A sort key that compares numbers within texts by value."""
    parts = re.split(r"(\d+(?:\.\d+)?)", text)
    return [(float(p), "") if n % 2 else (math.inf, p) for n, p in enumerate(parts)]


def _measured(paper: str, records: Iterable[Record]) -> dict[tuple[str, str, str], list[Record]]:
    """The newest records of ``paper`` by table, row and column."""
    measured: dict[tuple[str, str, str], list[Record]] = {}
    for record in newest(records):
        what = record.what
        if what.paper == paper and record.kind != "equations":
            for column in record.values:
                place = what.table, what.row, column
                measured.setdefault(place, []).append(record)
    return measured


def _missing(
    measured: Mapping[tuple[str, str, str], Sequence[Record]],
) -> dict[tuple[str, str], dict[str, str]]:
    """By table and row, the scores that could not be computed, and why."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    for (table, row, _), made in measured.items():
        for record in made:
            found.setdefault((table, row), {}).update(record.details.missing)
    return found


def _cell(
    table: papers.Table,
    cell: papers.Cell,
    made: list[Record] | None,
    missing: Mapping[str, str] | None = None,
) -> Cell:
    # a metric may be prefixed with its stage of training: "XE SPICE"
    why = (missing or {}).get(cell.column.split(" ")[-1])
    empty = Cell(
        table=table.name,
        row=cell.row,
        column=cell.column,
        paper=cell.value,
        ours=None,
        status=NOT_RUN,
        records=(),
        reason=why or table.reason(cell.row, cell.column),
        corrected=cell.corrected,
        note=cell.note,
    )
    if not made:
        return empty
    chosen = _one_measurement(made)
    return replace(
        empty,
        ours=fmean(record.values[cell.column] for record in chosen) / table.times,
        status=chosen[0].status,
        records=tuple(chosen),
        reason=None,
        interval=_interval(chosen, cell.column),
        assumptions=tuple(chosen[0].details.assumptions),
    )


def _interval(chosen: Sequence[Record], column: str) -> tuple[float, float] | None:
    """The interval of a single record; intervals of several seeds cannot be averaged."""
    if len(chosen) > 1:
        return None
    found: tuple[float, float] | None = chosen[0].details.interval.get(column)
    return found


def _one_measurement(made: Sequence[Record]) -> list[Record]:
    """The records of the best status and, among those, the newest data set: one for each seed."""

    def source(record: Record) -> tuple[Any, ...]:
        return record.status, record.kind, record.data.name, record.data.split

    best = min(STATUSES.index(record.status) for record in made)
    last = max((r for r in made if r.status == STATUSES[best]), key=lambda r: r.time)
    return [record for record in made if source(record) == source(last)]
