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
import sys
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from benchmarks import papers
from benchmarks.errors import InputError
from benchmarks.papers.cells import NOT_RUN, Cell, beside, beyond, cells, number
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
)


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
