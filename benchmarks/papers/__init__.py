"""The papers' own numbers: every table and figure, as JSON in the folders beside this file.

A table has the printed values, misprints included; a misprinted cell also has the corrected value
and the reason. Captions of tables are in our words. Columns of scores have our scores' names (B1,
METEOR, CIDEr-D, ...), prefixed with "XE " or "RL " if a table has both stages of training. Rows of
ablations are named by their mixers, "static:64 | dynamic:16".
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import asdict, force_setattr

from benchmarks.errors import InputError
from benchmarks.files import read_typed

FOLDER = Path(__file__).parent

Value = float | str | None
EARLIER = "another paper's model, whose numbers are quoted: nothing here trains it"


class Part(Struct, frozen=True, forbid_unknown_fields=True):
    """A part of a paper's file; unknown fields are errors."""


class Column(Part, frozen=True):
    """A column: our name, the printed heading, and the heading of its group.

    ``not_run`` is why its cells have no value of ours, if not the table's reason.
    """

    name: str
    printed: str = ""
    group: str | None = None
    not_run: str | None = None

    def __post_init__(self) -> None:
        force_setattr(self, "printed", self.printed or self.name)


class Row(Part, frozen=True):
    """A row: our name, the printed label, and the mixers of an ablation's model.

    ``earlier`` marks another paper's model, whose numbers are quoted. ``not_run`` is why the row
    has no value of ours, if not the table's reason.
    """

    name: str
    values: tuple[Value, ...]
    printed: str = ""
    group: str | None = None
    encoder: str | None = None
    decoder: str | None = None
    earlier: bool = False
    not_run: str | None = None

    def __post_init__(self) -> None:
        force_setattr(self, "printed", self.printed or self.name)


class Note(Part, frozen=True):
    """A remark on a cell: the corrected value of a misprint, or how it is printed."""

    row: str
    column: str
    note: str | None = None
    corrected: float | None = None
    printed: str | None = None


class Cell(Note, frozen=True):
    """One cell and its remark; ``value`` is None if the paper leaves it blank."""

    value: Value = None

    @property
    def meant(self) -> Value:
        """The intended value: corrected if the print is wrong."""
        return self.value if self.corrected is None else self.corrected


class Table(Part, frozen=True, kw_only=True, dict=True):
    """A table of "numbers" or "captions"; ``not_run`` is why a cell has no value of ours.

    ``times`` converts its numbers to the unit of records: 100 for fractions. ``judged`` are the
    columns that the paper argues with; less is better if ``lower``. ``against`` maps each row to
    its baseline row; the key "" is the default.
    """

    name: str
    kind: Literal["numbers", "captions"]
    place: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    not_run: str
    notes: tuple[Note, ...]
    unit: str | None = None
    remark: str | None = None
    times: float = 1
    judged: tuple[str, ...] = ()
    lower: bool = False
    against: Mapping[str, str] = {}

    def __post_init__(self) -> None:
        """Check what types cannot; a ValueError names the table and the part."""
        for what, parts in (("column", self.columns), ("row", self.rows)):
            named = [part.name for part in parts]
            if twice := {name for name in named if named.count(name) > 1}:
                raise ValueError(
                    f"table {self.name}: {what} {min(twice)!r} stands twice, expected once"
                )
        for row in self.rows:
            if len(row.values) != len(self.columns):
                raise ValueError(
                    f"table {self.name}: row {row.name!r} has {len(row.values)} values, expected "
                    f"{len(self.columns)}"
                )
        places = {(cell.row, cell.column) for cell in self.cells}
        for note in self.notes:
            if (place := (note.row, note.column)) not in places:
                raise ValueError(f"table {self.name}: a note about {place}, which is no cell")

    def baseline(self, row: str) -> str | None:
        """The row that this row is compared with, if any."""
        found = self.against.get(row, self.against.get(""))
        return None if found == row else found

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        odd = {(note.row, note.column): note for note in self.notes}
        return tuple(
            Cell(**asdict(odd.get(place, Note(*place))), value=value)
            for row in self.rows
            for column, value in zip(self.columns, row.values, strict=True)
            if (place := (row.name, column.name))
        )

    def reason(self, row: str, column: str) -> str:
        """Why a cell has no value of ours."""
        of_row = next((r for r in self.rows if r.name == row), None)
        if of_row is not None and (of_row.earlier or of_row.not_run):
            return of_row.not_run or EARLIER
        own = {c.name: c.not_run for c in self.columns}.get(column) or self.not_run
        return f"{own}; the report shows what it captions" if self.kind == "captions" else own

    def cell(self, row: str, column: str) -> Cell:
        """The cell in a row and column.

        Raises:
            InputError: the table has no such row or column.
        """
        for cell in self.cells:
            if (cell.row, cell.column) == (row, column):
                return cell
        raise InputError(f"table {self.name}: no cell in row {row!r}, column {column!r}")


class Figure(Part, frozen=True):
    """A figure; ``data`` is True if it shows measurements; ``table`` is its name in records."""

    name: str
    place: str
    caption: str
    data: bool
    table: str | None = None


class PaperTables(Part, frozen=True):
    """A paper's tables and figures; ``summary`` says in our words what it proposes."""

    paper: str
    title: str
    summary: tuple[str, ...]
    tables: tuple[Table, ...]
    figures: tuple[Figure, ...]

    def table(self, name: str) -> Table:
        """The table called ``name``: "VI", "table vi" and "Table VI" are the same.

        Raises:
            InputError: the paper has no such table; the message lists those it has.
        """
        wanted = name.strip().upper().removeprefix("TABLE").strip()
        for table in self.tables:
            if table.name.upper() == wanted:
                return table
        known = ", ".join(table.name for table in self.tables)
        raise InputError(f"--table: {self.paper} has no table {name!r}, expected one of {known}")


def names() -> tuple[str, ...]:
    """The papers with a ``tables.json``."""
    return tuple(sorted(path.parent.name for path in FOLDER.glob("*/tables.json")))


def file_of(paper: str, name: str) -> Path:
    """The path of a file of ``paper``, one of `names`.

    Raises:
        InputError: an unknown paper.
    """
    if paper not in names():
        raise InputError(f"unknown paper {paper!r}, expected one of {', '.join(names())}")
    return FOLDER / paper / name


def load(paper: str) -> PaperTables:
    """The tables and figures of ``paper``, one of `names`.

    Raises:
        InputError: an unknown paper, or an inconsistent table (a row's length, a duplicate name, a
            note on no cell), which the message names.
    """
    return read_typed(file_of(paper, "tables.json"), PaperTables, "the tables of a paper")
