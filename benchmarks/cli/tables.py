"""``captionbench tables PAPER``: a paper's tables cell by cell, the paper's value beside ours.

A cell of ours comes from a record that names its paper, table, row and column; where several say
so, the best status wins, then the newest data set, and the seeds of one measurement are averaged.
Table VI of ExpansionNet v2 and the parameters in its Table VII need no run, so the command counts
them on the spot; so are training times predicted, where their table is asked for by name. Nothing
is ever filled in from the paper: every other cell is empty, "not run", with the reason. What was
measured under the name of a figure, or of no table of the paper, comes after its tables.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks import papers
from benchmarks.errors import InputError
from benchmarks.papers import Value
from benchmarks.perf.flops import parameters, table_vi
from benchmarks.perf.roofline import training_time
from benchmarks.records import (
    LOCAL,
    PREDICTED,
    PUBLISHED,
    STATUSES,
    Record,
    key_of,
    load,
    newest,
)

NOT_RUN = "not run"
PROVENANCE = ("key", "command", "commit", "clean", "time", "seeds", "n", "data", "signature")


@dataclass(frozen=True)
class Cell:
    """One cell: the paper's value as printed, ours or None, and where ours comes from.

    Args:
        status: of the records that ours is the mean of, or "not run".
        record: for each of those records, how it was made (`PROVENANCE`); None where not run.
        reason: why not run.
        corrected: the value that the paper must have meant, where the print is wrong.
        note: what is odd about the printed value.
        interval: of ours, the 95 % interval that its record gives.
        assumptions: what ours rests on where it is predicted or counted, not measured.
    """

    table: str
    row: str
    column: str
    paper: Value
    ours: float | None
    status: str
    record: list[dict[str, Any]] | None
    reason: str | None = None
    corrected: float | None = None
    note: str | None = None
    interval: tuple[float, float] | None = None
    assumptions: tuple[str, ...] = ()


def cells(paper: str, records: Iterable[Record], table: str | None = None) -> list[Cell]:
    """All cells of ``paper``, or of one ``table`` of it, with ours from ``records``.

    A cell that the paper leaves blank is one only where there is a value of ours.

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
    """Tables that records have and the paper has not: the numbers of its figures, and others."""
    figures = {figure.table: figure for figure in paper.figures}
    known = {table.name for table in paper.tables}
    names = {name for name, _, _ in _measured(paper.paper, records)}
    return tuple(
        papers.Table(
            name,
            "numbers",
            place=figure.place if (figure := figures.get(name)) else "in no table of the paper",
            caption=f"Figure {figure.name}. {figure.caption}" if figure else "Measured here alone.",
            columns=(),
            rows=(),
            not_run="",
            notes={},
        )
        for name in sorted(names - known)
    )


def beside(paper: str, records: Iterable[Record], table: papers.Table) -> list[Cell]:
    """What was measured for ``table`` in rows that it does not have: the paper gives no value."""
    rows = {row.name for row in table.rows}
    found = {
        (row, column): made
        for (name, row, column), made in _measured(paper, records).items()
        if name == table.name and row not in rows
    }
    return [
        _cell(table, papers.Cell(row, column, None), found[row, column])
        for row, column in sorted(found, key=lambda place: _natural(place[0]))
    ]


def _natural(text: str) -> list[tuple[float, str]]:
    """Texts in the order of the numbers in them."""
    parts = re.split(r"(\d+(?:\.\d+)?)", text)
    return [(float(p), "") if n % 2 else (math.inf, p) for n, p in enumerate(parts)]


def _measured(paper: str, records: Iterable[Record]) -> dict[tuple[str, str, str], list[Record]]:
    """The newest records of ``paper`` by table, row and column."""
    measured: dict[tuple[str, str, str], list[Record]] = {}
    for record in newest(records):
        what = record["what"]
        if what["paper"] == paper and record["kind"] != "equations":
            for column in record["values"]:
                place = what["table"], what["row"], column
                measured.setdefault(place, []).append(record)
    return measured


def _missing(
    measured: Mapping[tuple[str, str, str], Sequence[Record]],
) -> dict[tuple[str, str], dict[str, str]]:
    """By table and row, the scores that its records lack, and why."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    for (table, row, _), made in measured.items():
        for record in made:
            found.setdefault((table, row), {}).update(record["details"].get("missing", {}))
    return found


def _cell(
    table: papers.Table,
    cell: papers.Cell,
    made: list[Record] | None,
    missing: Mapping[str, str] | None = None,
) -> Cell:
    # a metric may have its stage of training before it: "XE SPICE"
    why = (missing or {}).get(cell.column.split(" ")[-1])
    empty = Cell(
        table=table.name,
        row=cell.row,
        column=cell.column,
        paper=cell.value,
        ours=None,
        status=NOT_RUN,
        record=None,
        reason=why or table.reason(cell.row, cell.column),
        corrected=cell.corrected,
        note=cell.note,
    )
    if not made:
        return empty
    chosen = _one_measurement(made)
    return replace(
        empty,
        ours=fmean(record["values"][cell.column] for record in chosen),
        status=chosen[0]["status"],
        record=[{name: record[name] for name in PROVENANCE} for record in chosen],
        reason=None,
        interval=_interval(chosen, cell.column),
        assumptions=tuple(chosen[0]["details"].get("assumptions", ())),
    )


def _interval(chosen: Sequence[Record], column: str) -> tuple[float, float] | None:
    """The interval that a single record gives; those of several seeds do not average."""
    if len(chosen) > 1:
        return None
    low_high = chosen[0]["details"].get("interval", {}).get(column)
    return None if low_high is None else (low_high[0], low_high[1])


def _one_measurement(made: Sequence[Record]) -> list[Record]:
    """The records of the best status and, among those, of the newest data set: one a seed."""

    def source(record: Record) -> tuple[Any, ...]:
        data = record["data"] or {}
        return record["status"], record["kind"], data.get("name"), data.get("split")

    best = min(STATUSES.index(record["status"]) for record in made)
    last = max((r for r in made if r["status"] == STATUSES[best]), key=lambda r: r["time"])
    return [record for record in made if source(record) == source(last)]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument("paper", metavar="PAPER", help=", ".join(papers.names()))
    parser.add_argument("--table", metavar="NAME", help="one table: VI, 4, ... (default: all)")
    parser.add_argument("--json", action="store_true", help="print JSON: a list of cells")
    parser.add_argument(
        "--records",
        type=Path,
        action="append",
        metavar="DIR",
        help="folder of records, may be repeated (default: the published ones and your own)",
    )
    parser.add_argument(
        "--status",
        choices=STATUSES,
        help="of records of this status alone: embedded say (default: of a cell the best)",
    )
    table_vi.data_option(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the cells.

    Raises:
        InputError: there is no such paper, table or folder.
    """
    for folder in arguments.records or ():
        if not folder.is_dir():
            raise InputError(f"{folder}: no such folder, expected records (--records)")
    if arguments.data is not None and not arguments.data.is_dir():
        raise InputError(f"{arguments.data}: no such folder, expected the data folder (--data)")
    paper = papers.load(arguments.paper)
    records = load(*(arguments.records or (PUBLISHED, LOCAL)))
    if arguments.status is not None:
        records = [record for record in records if record["status"] == arguments.status]
    tables = _asked(paper, beyond(paper, records), arguments.table)
    if paper.paper == table_vi.PAPER and any(table.name == table_vi.TABLE for table in tables):
        key = key_of("flops", asdict(table_vi.captions(arguments.data)))
        records += table_vi.make_records(key, arguments.data)
    if arguments.table is not None:
        records += _training_time(paper.paper, tables[0].name, records)
    if paper.paper == parameters.PAPER and any(t.name == parameters.TABLE for t in tables):
        records += parameters.make_records()
    own = [table for table in tables if table in paper.tables]
    listed = [cell for table in own for cell in cells(paper.paper, records, table.name)]
    listed += [cell for table in tables for cell in beside(paper.paper, records, table)]
    if arguments.json:
        entries = [
            entry
            for table in tables
            for entry in _entries(table, [cell for cell in listed if cell.table == table.name])
        ]
        print(json.dumps(entries, indent=2, ensure_ascii=False))
        return 0
    for table in tables:
        print(f"Table {table.name} ({table.place}): {table.caption}")
        for remark in filter(None, (table.unit, table.remark)):
            print(f"  {remark}")
        shown = [cell for cell in listed if cell.table == table.name]
        if not shown:
            print(f"  {NOT_RUN}: {table.not_run}")
        for cell in shown:
            print(f"  {cell.row} | {cell.column} | {_beside(cell)}")
        assumed = dict.fromkeys((_whose(c), text) for c in shown for text in c.assumptions)
        for whose, assumption in assumed:
            print(f"  {whose}, assuming: {assumption}")
        print()
    return 0


def _asked(
    paper: papers.PaperTables, further: Sequence[papers.Table], name: str | None
) -> Sequence[papers.Table]:
    """The table of that name, or all."""
    if name is None:
        return (*paper.tables, *further)
    if named := [table for table in further if table.name == name]:
        return named
    try:
        return [paper.table(name)]
    except InputError as error:
        others = "".join(f", {table.name}" for table in further)
        raise InputError(f"{error}{others}") from None


def _training_time(paper: str, table: str, known: Sequence[Record]) -> list[Record]:
    """Predictions for a table of training times, made now unless there are records of them."""
    if training_time.tables().get(paper) != table:
        return []
    what = {"paper": paper, "table": table}
    if any(r["kind"] == "prediction" and what.items() <= r["what"].items() for r in known):
        return []
    print("predicting the time of training steps ...", file=sys.stderr)
    return training_time.make_records(paper, known)


def _entries(table: papers.Table, listed: Sequence[Cell]) -> list[dict[str, Any]]:
    """The table's cells as JSON objects; of a table without any, one that only says why."""
    if listed:
        return [asdict(cell) for cell in listed]
    nothing: dict[str, Any] = dict.fromkeys(field.name for field in fields(Cell))
    return [nothing | {"table": table.name, "status": NOT_RUN, "reason": table.not_run}]


def _beside(cell: Cell) -> str:
    printed = "-" if cell.paper is None else number(cell.paper)
    if cell.corrected is not None:
        printed += f" (misprint of {number(cell.corrected)})"
    if cell.ours is None:
        return f"paper {printed} | {NOT_RUN}: {cell.reason}"
    ours = number(cell.ours)
    if cell.interval is not None:
        ours += " [{}, {}]".format(*map(number, cell.interval))
    said = f" ({cell.note})" if cell.note and cell.corrected is None else ""
    return f"paper {printed}{said} | {_whose(cell)} {ours} | {cell.status}{_source(cell)}"


def _source(cell: Cell) -> str:
    """The data and the seeds of ours, where it has them."""
    made = cell.record or []
    names = dict.fromkeys(one["data"]["name"] for one in made if one["data"])
    seeds = dict.fromkeys(seed for one in made for seed in one["seeds"] or ())
    what = list(names)
    if seeds:
        what.append(f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}")
    return f" ({'; '.join(what)})" if what else ""


def _whose(cell: Cell) -> str:
    return PREDICTED if cell.status == PREDICTED else "ours"


def number(value: Value) -> str:
    """A value as it is shown."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
