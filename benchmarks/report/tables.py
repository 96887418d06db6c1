"""A paper's tables in its own layout, cell by cell: printed, ours, and what that shows.

Records of other data or another form are tables of their own, the best first. The sentence above a
table says what it shows, by one rule for all tables.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from benchmarks import figures, papers
from benchmarks.files import slug
from benchmarks.papers import cells as of_cells
from benchmarks.papers.cells import NOT_RUN
from benchmarks.papers.claim_tests import COMPARED
from benchmarks.papers.paired import by_row, grouped
from benchmarks.records import PREDICTED, STATUSES, Record
from benchmarks.report import sources as files
from benchmarks.report.document import (
    Block,
    Cell,
    Figure,
    Paragraph,
    Table,
    Value,
    evidenced,
    footnotes,
    text_of,
)
from benchmarks.report.sentences import (
    Source,
    above_baseline,
    decimals_of,
    printed,
    quantity,
    sentence,
)
from benchmarks.statistics import difference_of_seeds

BEST_FORM = "converged"
BLANK, NEITHER = "the paper leaves it blank", "not in the paper, and not measured here"
EMPTY = (BLANK, NEITHER)


def sources(made: Sequence[Record[Any]]) -> list[Source]:
    """A table's records, by data, their number and form: converged forms first, then by status.

    A converged form of a single row is not put first, as it compares with nothing. Counts, which
    have no data, join predictions.
    """
    computed = PREDICTED if any(r.status == PREDICTED for r in made) else ""

    def place(record: Record[Any]) -> tuple[str, str, str, int]:
        status = record.status if record.data.name else computed or record.status
        n = (record.n or 0) if record.data.name else 0
        return getattr(record.details, "form", None) or "", status, record.data.name, n

    ordered = sorted(
        grouped(made, place).items(),
        key=lambda of: (
            of[0][0] != BEST_FORM or len({r.what.row for r in of[1]}) == 1,
            STATUSES.index(of[0][1]),
            -len(of[1]),
            -of[0][3],
            of[0][2],
        ),
    )
    return [Source(_label(found), status, found) for (_, status, *_), found in ordered]


def _label(made: Sequence[Record[Any]]) -> str:
    first = made[0]
    form = getattr(first.details, "form", None)
    seeds = len({seed for r in made for seed in r.seeds})
    beam = getattr(first.details, "beam_size", None)
    parts = (
        first.data.name,
        first.data.split and f"{first.data.split} split",
        first.n and first.data.name and f"{first.n:,} cases",
        beam and f"beam {beam}",
        seeds and "seeds" not in first.data.name and f"{seeds} seed{'s' if seeds > 1 else ''}",
        form and form not in first.data.name and f"{form} form",
    )
    return ", ".join(str(part) for part in parts if part)


def blocks(paper: str, table: papers.Table, made: Sequence[Record[Any]]) -> list[Block]:
    """All blocks of a table: the sentence, the table of each source, the notes."""
    found = sources([r for r in made if (r.what.paper, r.what.table) == (paper, table.name)])
    shown: list[Block] = [sentence(paper, table, found)] if table.columns else []
    if not found and table.columns:
        cells = of_cells.cells(paper, (), table.name)
        cells += _blanks(table, cells)
        blank = "" if all(c.paper is not None for c in cells) else " (–: blank there)"
        caption = f"As printed{blank}: {table.caption}"
        shown.append(_layout(paper, table, caption, "", cells, (), {}))
        shown += _notes(table, cells, ())
    for n, source in enumerate(found):
        first = n == 0
        cells = of_cells.cells(paper, source.made, table.name) if table.columns else []
        rows = {r.what.row for r in source.made}
        kept = [c for c in cells if first or c.row in rows]
        kept += of_cells.beside(paper, source.made, table)
        kept += _blanks(table, kept)
        here = _what_stands(table, source)
        caption = f"{here if first else 'Also'}: {source.status}"
        caption += f" ({source.label})" if source.label else ""
        name = slug("table", paper, table.name, str(n + 1))
        later = _later(paper, table, found) if first else {}
        kept = [
            replace(c, reason=later[c.row].partition(",")[0])
            if c.row in later and c.reason not in EMPTY
            else c
            for c in kept
        ]
        shown.append(
            _layout(paper, table, caption, name, kept, source.made, later, folded=not first)
        )
        if first:
            shown += _notes(table, [c for c in kept if c.row not in later], source.made)
            shown += _dots(name, table, source)
    return shown


def _later(paper: str, table: papers.Table, found: Sequence[Source]) -> dict[str, str]:
    """The rows that only a later source has, each with a link to it."""
    shown = by_row(found[0].made)
    later: dict[str, str] = {}
    for n, source in enumerate(found[1:], 2):
        first = source.made[0]
        form = getattr(first.details, "form", None)
        how = f"run in the {form} form" if form else f"run on {first.data.name or 'no data'}"
        where = f"{paper}.html#{slug('table', paper, table.name, str(n))}"
        for row in by_row(source.made):
            if row not in shown:
                later.setdefault(row, f"{how}, [below]({where})")
    return later


def _what_stands(table: papers.Table, source: Source) -> str:
    """What the lines of a cell are."""
    if not table.columns:
        return "Measured here"
    if source.status not in COMPARED:
        return "Printed, ours below it, and the difference"
    several = len({seed for r in source.made for seed in r.seeds}) > 1
    how = " with its 95 % interval over seeds (Student's, which no bound of a score cuts)"
    return "Printed, and ours below it" + how * several


def _blanks(table: papers.Table, cells: Sequence[of_cells.Cell]) -> list[of_cells.Cell]:
    """The cells of the table's rows and columns with neither a printed value nor ours."""
    filled = {(cell.row, cell.column) for cell in cells}
    rows, columns = ({part.name for part in parts} for parts in (table.rows, table.columns))
    return [
        of_cells.Cell(
            table=table.name,
            row=row,
            column=column,
            paper=None,
            ours=None,
            status=NOT_RUN,
            records=(),
            reason=BLANK if row in rows and column in columns else NEITHER,
        )
        for row in dict.fromkeys(cell.row for cell in cells)
        for column in _columns(table, cells)
        if (row, column) not in filled
    ]


def _columns(table: papers.Table, cells: Sequence[of_cells.Cell]) -> list[str]:
    """The columns to show: the paper's, and others that a third of the rows have."""
    found = [c.name for c in table.columns if any(cell.column == c.name for cell in cells)]
    having = Counter(cell.column for cell in cells if cell.ours is not None)
    further = {c: n for c, n in having.items() if c not in found}
    rows = len({cell.row for cell in cells})
    return found + [c for c, n in further.items() if 3 * n >= rows]


def _reasons(cells: Sequence[of_cells.Cell], made: Sequence[Record[Any]]) -> dict[str, str]:
    """Why cells have no value: a footnote's mark by reason.

    Empty for a table without any value of ours: the sentence above it says why.
    """
    return footnotes(c.reason for c in cells if made and c.ours is None and c.reason)


def _notes(
    table: papers.Table, kept: Sequence[of_cells.Cell], made: Sequence[Record[Any]]
) -> Iterator[Block]:
    """The unit, reasons for missing values, misprints, signatures, assumptions."""
    for name, text in (("Unit", table.unit), ("The paper's table", table.remark)):
        if text:
            yield Paragraph(f"{name}: {text}")
    for reason, mark in _reasons(kept, made).items():
        yield Paragraph(f"{mark} {'No number' if reason in EMPTY else 'Not run'}: {reason}.")
    yield from map(Paragraph, _misprints(kept))
    signatures = sorted({r.signature for r in made if r.signature})
    yield from (Paragraph(f"Signature of the scores: `{s}`.") for s in signatures)
    prints = grouped(made, lambda r: r.data.fingerprint[:8])
    if len(prints) > 1:
        lists = (f"`{print_}`: {', '.join(by_row(of))}" for print_, of in prints.items())
        yield Paragraph(
            "The rows' data have one name and several fingerprints; what differs is not recorded. "
            + "; ".join(lists)
            + "."
        )
    if assumed := dict.fromkeys(text for cell in kept for text in cell.assumptions):
        name = slug("assumed", made[0].what.paper, table.name)
        yield Table(
            name, "What is assumed", ("assumed",), [[text] for text in assumed], folded=True
        )


def _misprints(shown: Sequence[of_cells.Cell]) -> Iterator[str]:
    """Notes on the printed values that are marked with ``*``."""
    for cell in shown:
        if cell.note:
            meant = "" if cell.corrected is None else f"a misprint of {cell.corrected:.6g}, "
            yield f"* {cell.row}, {cell.column}: {meant}{cell.note}"


def _dots(name: str, table: papers.Table, source: Source) -> Iterator[Figure]:
    """A dot plot of the judged column, a dot per seed."""
    if not table.judged or source.status not in COMPARED:
        return
    column = table.judged[0]
    runs = {row: [r for r in found if column in r.values] for row, found in _ordered(table, source)}
    values = {
        row: [r.values[column] / table.times for r in found] for row, found in runs.items() if found
    }
    base = table.against.get("")
    level = sum(values[base]) / len(values[base]) if base in values else None
    about = f"{column} of every row: a dot a seed, a bar at the mean"
    about += f"; dashed: {base}" if level is not None else ""
    if len(values) > 1:
        draw = partial(figures.dots, values, column, level)
        yield Figure(name, f"{about}.", source.made, draw, partial(draw, narrow=True))


def _ordered(table: papers.Table, source: Source) -> Iterator[tuple[str, Sequence[Record[Any]]]]:
    """Records by row: those of the paper's rows in its order, then others."""
    runs = by_row(source.made)
    names = [row.name for row in table.rows if row.name in runs]
    for row in (*names, *(row for row in runs if row not in names)):
        yield row, runs[row]


def _layout(
    paper: str,
    table: papers.Table,
    caption: str,
    name: str,
    cells: Sequence[of_cells.Cell],
    made: Sequence[Record[Any]],
    later: Mapping[str, str],
    *,
    folded: bool = False,
) -> Table:
    """The judged columns, relative to a baseline; then the paper's rows and columns."""
    columns = _columns(table, cells)
    by_place = {(cell.row, cell.column): cell for cell in cells}
    labels = {row.name: label(row) for row in table.rows}
    runs = by_row(made)
    marks = _reasons([c for c in cells if c.row not in later], made)
    known = {row.name for row in table.rows}
    places = {row: files.printed(paper, table.name, row) for row in known}
    judged = [c for c in table.judged if any(c in r.values for r in made)] if table.against else []
    digits = {c: decimals_of(cell.paper for cell in cells if cell.column == c) for c in columns}
    rows: list[list[Cell]] = []
    ends: list[tuple[str, Cell]] = []
    for row in dict.fromkeys(cell.row for cell in cells):
        of_row = [cell for cell in cells if cell.row == row]
        ours = [cell for cell in of_row if cell.ours is not None]
        line: list[Cell] = [labels.get(row, row)]
        for column in columns:
            cell, place = by_place[row, column], places.get(row, "")
            line.append(_cell(cell, digits[column], bool(ours), marks, place))
        gaps = [above_baseline(table, c, row, by_place, runs, places) for c in judged]
        rows.append([line[0], *gaps, *line[1:]])
        seeds = {seed for cell in ours for r in cell.records for seed in r.seeds}
        reasons = dict.fromkeys(cell.reason for cell in of_row if cell.reason not in EMPTY)
        why = ",".join(marks[reason] for reason in reasons if reason in marks)
        statuses = ", ".join(dict.fromkeys(cell.status for cell in ours))
        of_ours = list(dict.fromkeys(r.key for cell in ours for r in cell.records))
        from_ = [r for r in made if r.key in of_ours]
        (number,) = evidenced(from_, len(seeds) or "none")
        ends.append((statuses or later.get(row) or NOT_RUN + why, number))
    first = "encoder | decoder" if any(row.encoder for row in table.rows) else "row"
    base = table.against.get("") if len(table.against) == 1 else None
    better = " (lower is better)" if table.lower else ""
    heads = [f"{column} above {base or 'its baseline'}{better}" for column in judged]
    heads += [heading(table, column) for column in columns]
    for at, head in ((1, "seeds"), (0, "status")):
        if len({text_of(end[at]) for end in ends}) > 1:  # else it is said above the table
            heads.insert(0, head)
            rows = [[line[0], end[at], *line[1:]] for line, end in zip(rows, ends, strict=True)]
    return Table(
        name or slug("table", paper, table.name),
        caption,
        (first, *heads),
        rows,
        folded=folded or not made,
    )


def label(row: papers.Row) -> str:
    """A row's name, and its group unless the name contains it."""
    said = not row.group or row.group.casefold() in row.name.casefold()
    return row.name if said else f"{row.name} ({row.group})"


def heading(table: papers.Table, column: str) -> str:
    """A column's heading, with the printed one if it differs."""
    said = {c.name: c.printed for c in table.columns}.get(column, column)
    one, other = (re.sub(r"[\W_]", "", name).casefold() for name in (column, said))
    return column if one == other else f"{column} ({said})"


def _cell(
    cell: of_cells.Cell, decimals: int | None, dashed: bool, marks: Mapping[str, str], place: str
) -> Cell:
    """A cell; ours has one more decimal than printed, or a dash in a ``dashed`` row."""
    theirs = "" if cell.paper is None else printed(cell.paper, decimals)
    theirs += "*" if cell.note else ""
    finer = None if decimals is None else decimals + 1
    if cell.ours is None:
        dash = f"–{marks.get(cell.reason or '', '')}" if dashed or not theirs else ""
        why = cell.reason or ""
        why = why if why in EMPTY or why.startswith("run ") else f"not run: {why}"
        return Value(dash, (), NOT_RUN, theirs, note=why, source=place if theirs else "")
    return Value(
        quantity(cell.ours, finer),
        cell.records,
        cell.status,
        theirs,
        _spread(cell, finer),
        "; ".join(filter(None, (cell.status, cell.note))),
        place if theirs else "",
    )


def _spread(cell: of_cells.Cell, decimals: int | None) -> str:
    """Our value's interval; for a single value on the paper's data, its difference from print."""
    ours = cell.ours
    assert ours is not None
    if cell.interval is not None:
        return f"[{quantity(cell.interval[0], decimals)}, {quantity(cell.interval[1], decimals)}]"
    if len(cell.records) > 1:
        values = [record.values[cell.column] for record in cell.records]
        found = difference_of_seeds(values, np.zeros(len(values)))
        scale = ours / found.mean if found.mean else 1.0
        low, high = (quantity(scale * end, decimals) for end in (found.low, found.high))
        return f"[{low}, {high}]"
    meant = cell.meant
    if cell.status in COMPARED or not isinstance(meant, float) or not meant:
        return ""
    off = ours - meant
    return f"{100 * off / meant:+.3f} %" if abs(meant) >= 1e6 else f"{off:+.3g}"
