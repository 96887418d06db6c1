"""``captionbench tables PAPER``: a paper's tables, ours below what is printed.

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
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from itertools import accumulate
from typing import Any

from msgspec import to_builtins

from benchmarks import papers
from benchmarks.cli.options import add_json, add_lengths, add_record_folders, known_records
from benchmarks.cli.terminal import grid
from benchmarks.errors import InputError
from benchmarks.kinds import TrainingTime
from benchmarks.papers.cells import NOT_RUN, Cell, beside, beyond, cells, notes, number, whose
from benchmarks.perf.flops import parameters, table_vi
from benchmarks.perf.roofline import training_time
from benchmarks.records import PREDICTED, STATUSES, Record, key_of, of_kind

WIDEST = 132
"""Characters of a line and of a cell: wider tables are broken, longer texts are listed."""

FIELDS = (*(field.name for field in fields(Cell) if field.name != "records"), "record")
PROVENANCE = ("key", "command", "commit", "clean", "time", "seeds", "n", "data", "signature")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument("paper", metavar="PAPER", help=", ".join(papers.names()))
    parser.add_argument("--table", metavar="NAME", help="one table: VI, 4, ... (default: all)")
    add_json(parser)
    add_record_folders(parser)
    parser.add_argument(
        "--status",
        choices=STATUSES,
        help="of records of this status alone: embedded say (default: of a cell the best)",
    )
    add_lengths(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the cells.

    Raises:
        InputError: there is no such paper, table or folder.
    """
    if arguments.data is not None and not arguments.data.is_dir():
        raise InputError(f"{arguments.data}: no such folder, expected the data folder (--data)")
    paper, records = papers.load(arguments.paper), known_records(arguments)
    if arguments.status is not None:
        records = [record for record in records if record.status == arguments.status]
    tables = _asked(paper, beyond(paper, records), arguments.table)
    if paper.paper == table_vi.PAPER and any(table.name == table_vi.TABLE for table in tables):
        key = key_of(table_vi.make_records, asdict(table_vi.captions(arguments.data)))
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
        for line in lines(table, shown) if shown else (f"{NOT_RUN}: {table.not_run}",):
            print(f"  {line}".rstrip())
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
    if any((r.what.paper, r.what.table) == (paper, table) for r in of_kind(known, TrainingTime)):
        return []
    print("predicting the time of training steps ...", file=sys.stderr)
    return training_time.make_records(paper, known)


def _entries(table: papers.Table, listed: Sequence[Cell]) -> list[dict[str, Any]]:
    """The table's cells as JSON objects; of a table without any, one that only says why."""
    if listed:
        return [_entry(cell) for cell in listed]
    nothing = dict.fromkeys(FIELDS)
    return [nothing | {"table": table.name, "status": NOT_RUN, "reason": table.not_run}]


def _entry(cell: Cell) -> dict[str, Any]:
    made = [{name: getattr(record, name) for name in PROVENANCE} for record in cell.records]
    found = {name: getattr(cell, name) for name in FIELDS if name != "record"}
    return {**found, "record": to_builtins(made) or None}


def lines(table: papers.Table, shown: Sequence[Cell]) -> list[str]:
    """The paper's rows and columns, ours below what is printed, then the notes."""
    names = [column.name for column in table.columns]
    columns = sorted(
        dict.fromkeys(cell.column for cell in shown),
        key=lambda name: names.index(name) if name in names else len(names),
    )
    if table.kind == "captions":
        return [*_list(shown), "", *notes(shown)]
    rows: dict[str, dict[str, Cell]] = {}
    for cell in shown:
        rows.setdefault(cell.row, {})[cell.column] = cell
    widths = {
        name: 2 + max(len(text) for row in rows.values() for text in (name, *_pair(row.get(name))))
        for name in columns
    }
    width = max(map(len, rows)) + len(f"  {PREDICTED}")
    found: list[str] = []
    while columns:
        count = max(1, sum(w <= WIDEST - width for w in accumulate(widths[c] for c in columns)))
        found += [*grid([("", "", *columns[:count]), *_rows(rows, columns[:count])], left=2), ""]
        columns = columns[count:]
    return [*found, *notes(shown)]


def _rows(rows: Mapping[str, Mapping[str, Cell]], columns: Sequence[str]) -> Iterator[list[str]]:
    """A line of the paper's values and a line of ours, where there are any."""
    for name, row in rows.items():
        paper, ours = zip(*(_pair(row.get(column)) for column in columns), strict=True)
        ours_is = next((whose(cell) for cell in row.values() if cell.ours is not None), "ours")
        label = name
        for who, texts in (("paper", paper), (ours_is, ours)):
            if any(texts):
                yield [label, who, *texts]
                label = ""


def _pair(cell: Cell | None) -> tuple[str, str]:
    """A cell's texts: the paper's, ours."""
    return (_printed(cell), _ours(cell)) if cell else ("", "")


def _printed(cell: Cell) -> str:
    mark = "*" if cell.note else ""
    return "" if cell.paper is None else f"{number(cell.paper)}{mark}"


def _ours(cell: Cell) -> str:
    if cell.ours is None:
        return ""
    interval = "" if cell.interval is None else " [{:.4g}, {:.4g}]".format(*cell.interval)
    return f"{cell.ours:.4g}{interval}"


def _list(shown: Sequence[Cell]) -> Iterator[str]:
    """Captions, one after another."""
    for cell in shown:
        yield f"{cell.row}, {cell.column}"
        yield from (
            f"  {who + ':':<7}{text}"
            for who, text in zip(("paper", whose(cell)), _pair(cell), strict=True)
            if text
        )
