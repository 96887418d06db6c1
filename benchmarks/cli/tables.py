"""``captionbench tables PAPER``: a paper's tables as in the report, ours below what is printed.

Table VI of ExpansionNet v2 and the parameters in its Table VII need no run, so they are counted on
the spot; training times are predicted if their table is asked for by name. What was measured for a
figure, or for no table of the paper, comes after its tables. ``--json`` prints the cells of
`benchmarks.papers.cells`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any

from msgspec import to_builtins

from benchmarks import papers
from benchmarks.cli.options import add_json, add_lengths, add_record_folders, known_records
from benchmarks.cli.terminal import lines
from benchmarks.errors import InputError
from benchmarks.kinds import TrainingTime
from benchmarks.papers.cells import NOT_RUN, Cell, beside, beyond, cells
from benchmarks.perf.flops import parameters, table_vi
from benchmarks.perf.roofline import training_time
from benchmarks.records import STATUSES, Record, key_of, newest, of_kind
from benchmarks.report.tables import blocks

FIELDS = (*(field.name for field in fields(Cell) if field.name != "records"), "record")
PROVENANCE = ("key", "command", "commit", "clean", "time", "seeds", "n", "data", "signature")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paper", metavar="PAPER", help=", ".join(papers.names()))
    parser.add_argument("--table", metavar="NAME", help="one table: VI, 4, ... (default: all)")
    add_json(parser)
    add_record_folders(parser)
    parser.add_argument(
        "--status",
        choices=STATUSES,
        help="use only records of this status (default: the best of each cell)",
    )
    add_lengths(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the tables.

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
    if arguments.json:
        entries = [entry for table in tables for entry in _entries(paper, table, records)]
        print(json.dumps(entries, indent=2, ensure_ascii=False))
        return 0
    made = newest(records)
    for table in tables:
        print(f"Table {table.name} ({table.place}): {table.caption}")
        for line in lines(blocks(paper.paper, table, made)):
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
        others = "".join(f", {table.name!r}" for table in further)
        raise InputError(f"{error}{others}") from None


def _training_time(paper: str, table: str, known: Sequence[Record]) -> list[Record]:
    """Predictions for a table of training times, made now unless they are on record."""
    if training_time.tables().get(paper) != table:
        return []
    if any((r.what.paper, r.what.table) == (paper, table) for r in of_kind(known, TrainingTime)):
        return []
    print("predicting the time of training steps ...", file=sys.stderr)
    return training_time.make_records(paper, known)


def _entries(
    paper: papers.PaperTables, table: papers.Table, records: Sequence[Record]
) -> list[dict[str, Any]]:
    """The table's cells as JSON objects; for a table without any, one with the reason."""
    listed = cells(paper.paper, records, table.name) if table in paper.tables else []
    if listed := [*listed, *beside(paper.paper, records, table)]:
        return [_entry(cell) for cell in listed]
    nothing = dict.fromkeys(FIELDS)
    return [nothing | {"table": table.name, "status": NOT_RUN, "reason": table.not_run}]


def _entry(cell: Cell) -> dict[str, Any]:
    made = [{name: getattr(record, name) for name in PROVENANCE} for record in cell.records]
    found = {name: getattr(cell, name) for name in FIELDS if name != "record"}
    return {**found, "record": to_builtins(made) or None}
