"""A paper's tables in its own layout, cell by cell: printed, ours, and what that shows.

Records of one table that were made of other data, or in another form, are shown by themselves: the
best first. What a table shows is said in one sentence above it, by one rule for all tables.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from benchmarks import figures, papers
from benchmarks.files import slug
from benchmarks.kinds import Denoising, Released
from benchmarks.papers import cells as of_cells
from benchmarks.papers.cells import NOT_RUN
from benchmarks.papers.claims import weakness
from benchmarks.papers.paired import by_row, difference, grouped
from benchmarks.records import PREDICTED, STATUSES, Record
from benchmarks.report.document import (
    Block,
    Box,
    Cell,
    Figure,
    Paragraph,
    Table,
    Value,
    footnotes,
)
from benchmarks.statistics import Interval, difference_of_seeds, holm

BEST_FORM = "converged"
COMPARED = ("other data", "embedded")
"""Statuses of which differences between rows compare with the paper's, and values do not."""
UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"))


class Source(NamedTuple):
    """Records of a table that compare with each other."""

    label: str
    status: str
    made: Sequence[Record[Any]]


def sources(made: Sequence[Record[Any]]) -> list[Source]:
    """The records of a table by data and form: trained to the end first, then by status.

    A single row compares with nothing, so that its form is no first one. What is counted of no data
    stands beside what is predicted.
    """
    computed = PREDICTED if any(r.status == PREDICTED for r in made) else ""

    def place(record: Record[Any]) -> tuple[str, str, str]:
        status = record.status if record.data.name else computed or record.status
        return getattr(record.details, "form", None) or "", status, record.data.name

    ordered = sorted(
        grouped(made, place).items(),
        key=lambda of: (
            of[0][0] != BEST_FORM or len({r.what.row for r in of[1]}) == 1,
            STATUSES.index(of[0][1]),
            -len(of[1]),
            -max(r.n or 0 for r in of[1]),
            of[0][2],
        ),
    )
    return [Source(_label(found), status, found) for (_, status, _), found in ordered]


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


def quantity(number: float, decimals: int | None = None) -> str:
    """A value to so many decimals, or to four digits; large ones by their unit."""
    for unit, letter in UNITS:
        if abs(number) >= unit:
            return f"{number / unit:.4g} {letter}"
    if abs(number) >= 1e4:
        return f"{number:,.0f}"
    if decimals is None or 0 < abs(number) < 10.0**-decimals:
        return f"{number:.4g}"
    return f"{number:,.{decimals}f}"


def decimals_of(values: Iterable[papers.Value]) -> int | None:
    """The decimals that a column is printed with; None where its numbers are very small."""
    numbers = [abs(v) for v in values if isinstance(v, float)]
    if not numbers or min(n for n in [*numbers, 1.0] if n) < 0.1:
        return None
    return max(len(f"{n:.12g}".partition(".")[2]) for n in numbers)


def printed(cell: papers.Value, decimals: int | None = None) -> str:
    """The paper's value."""
    return quantity(cell, decimals) if isinstance(cell, float) else str(cell)


def blocks(paper: str, table: papers.Table, made: Sequence[Record[Any]]) -> list[Block]:
    """All of one table: the sentence, the table of each source, the notes."""
    found = sources([r for r in made if (r.what.paper, r.what.table) == (paper, table.name)])
    shown: list[Block] = [sentence(paper, table, found)] if table.columns else []
    if not found and table.columns:
        cells = of_cells.cells(paper, (), table.name)
        shown.append(_layout(paper, table, f"As printed: {table.caption}", "", cells, ()))
        shown += _notes(table, cells, ())
    for n, source in enumerate(found):
        first = n == 0
        cells = of_cells.cells(paper, source.made, table.name) if table.columns else []
        rows = {r.what.row for r in source.made}
        kept = [c for c in cells if first or c.row in rows]
        kept += of_cells.beside(paper, source.made, table)
        here = _what_stands(table, source)
        caption = f"{here if first else 'Also'}: {source.status}"
        caption += f" ({source.label})" if source.label else ""
        name = slug("table", paper, table.name, str(n + 1))
        shown.append(_layout(paper, table, caption, name, kept, source.made, folded=not first))
        if first:
            shown += _notes(table, kept, source.made)
            shown += _dots(name, table, source)
    return shown


def _what_stands(table: papers.Table, source: Source) -> str:
    """What a cell's lines are."""
    if not table.columns:
        return "Measured here"
    if source.status not in COMPARED:
        return "Printed, ours below it, and the difference"
    several = len({seed for r in source.made for seed in r.seeds}) > 1
    return "Printed, and ours below it" + " with its 95 % interval over seeds" * several


def _reasons(cells: Sequence[of_cells.Cell]) -> dict[str, str]:
    """Why cells have no value of ours, each said once below the table: the reason to its mark."""
    return footnotes(cell.reason for cell in cells if cell.ours is None and cell.reason)


def _notes(
    table: papers.Table, kept: Sequence[of_cells.Cell], made: Sequence[Record[Any]]
) -> Iterator[Block]:
    """The unit, why cells have no value where others have, misprints, signatures, assumptions."""
    for name, text in (("Unit", table.unit), ("The paper's table", table.remark)):
        if text:
            yield Paragraph(f"{name}: {text}")
    for reason, mark in _reasons(kept).items() if made else ():
        yield Paragraph(f"{mark} Not run: {reason}.")
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
    """What is odd about printed values that a ``*`` marks."""
    for cell in shown:
        if cell.note:
            meant = "" if cell.corrected is None else f"a misprint of {cell.corrected:.6g}, "
            yield f"* {cell.row}, {cell.column}: {meant}{cell.note}"


def _dots(name: str, table: papers.Table, source: Source) -> Iterator[Figure]:
    """What the table is judged by, a dot a seed."""
    if not table.judged or source.status not in COMPARED:
        return
    column = table.judged[0]
    runs = {row: [r for r in found if column in r.values] for row, found in _ordered(table, source)}
    values = {row: [r.values[column] for r in found] for row, found in runs.items() if found}
    base = table.against.get("")
    level = sum(values[base]) / len(values[base]) if base in values else None
    about = f"{column} of every row: a dot a seed, a bar at the mean"
    about += f"; dashed: {base}" if level is not None else ""
    if len(values) > 1:
        draw = partial(figures.dots, values, column, level)
        yield Figure(name, f"{about}.", source.made, draw)


def _ordered(table: papers.Table, source: Source) -> Iterator[tuple[str, Sequence[Record[Any]]]]:
    """The rows of records, in the paper's order, then those that it does not have."""
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
    *,
    folded: bool = False,
) -> Table:
    """Rows and columns of the paper; what the table is judged by once more, against a baseline."""
    names = [column.name for column in table.columns]
    columns = [c for c in names if any(cell.column == c for cell in cells)]
    # what few rows have beyond the paper's columns is left to their records
    having = Counter(cell.column for cell in cells if cell.ours is not None)
    further = {c: n for c, n in having.items() if c not in columns}
    columns += [c for c, n in further.items() if 3 * n >= len({cell.row for cell in cells})]
    by_place = {(cell.row, cell.column): cell for cell in cells}
    labels = {row.name: label(row) for row in table.rows}
    runs = by_row(made)
    marks = _reasons(cells) if made else {}
    judged = [c for c in table.judged if any(c in r.values for r in made)] if table.against else []
    digits = {c: decimals_of(cell.paper for cell in cells if cell.column == c) for c in columns}
    rows: list[list[Cell]] = []
    ends: list[tuple[int | None, str]] = []
    for row in dict.fromkeys(cell.row for cell in cells):
        of_row = [cell for cell in cells if cell.row == row]
        ours = [cell for cell in of_row if cell.ours is not None]
        line: list[Cell] = [labels.get(row, row)]
        for column in columns:
            mark = "" if not ours else "–"
            line.append(_cell(by_place.get((row, column)), digits[column], mark, marks))
        rows.append(line + [_above(table, column, row, by_place, runs) for column in judged])
        seeds = {seed for cell in ours for r in cell.records for seed in r.seeds}
        why = "".join(dict.fromkeys(marks.get(cell.reason or "", "") for cell in of_row))
        statuses = ", ".join(dict.fromkeys(cell.status for cell in ours))
        ends.append((len(seeds) or None, statuses or NOT_RUN + why))
    first = "encoder | decoder" if any(row.encoder for row in table.rows) else "row"
    heads = [heading(table, column) for column in columns]
    base = table.against.get("") if len(table.against) == 1 else None
    heads += [f"{column} above {base or 'its baseline'}" for column in judged]
    for place, head in enumerate(("seeds", "status")):
        if len({end[place] for end in ends}) > 1:  # else it is said above the table
            heads.append(head)
            rows = [[*line, end[place]] for line, end in zip(rows, ends, strict=True)]
    return Table(
        name or slug("table", paper, table.name),
        caption,
        (first, *heads),
        rows,
        folded=folded or not made,
    )


def label(row: papers.Row) -> str:
    """A row's name, with its group where it does not say it."""
    said = not row.group or row.group.casefold() in row.name.casefold()
    return row.name if said else f"{row.name} ({row.group})"


def heading(table: papers.Table, column: str) -> str:
    """A column's heading, as printed where our name is another."""
    said = {c.name: c.printed for c in table.columns}.get(column, column)
    one, other = (re.sub(r"[\W_]", "", name).casefold() for name in (column, said))
    return column if one == other else f"{column} ({said})"


def _cell(
    cell: of_cells.Cell | None, decimals: int | None, dash: str, marks: Mapping[str, str]
) -> Cell:
    """Ours has one more decimal than what is printed; without it, the dash of its row."""
    if cell is None:
        return None
    theirs = "" if cell.paper is None else printed(cell.paper, decimals)
    theirs += "*" if cell.note else ""
    finer = None if decimals is None else decimals + 1
    if cell.ours is None:
        why = marks.get(cell.reason or "", "")
        return Value(dash and dash + why, (), NOT_RUN, theirs, note=f"not run: {cell.reason}")
    return Value(
        quantity(cell.ours, finer),
        cell.records,
        cell.status,
        theirs,
        _spread(cell, finer),
        "; ".join(filter(None, (cell.status, cell.note))),
    )


def _spread(cell: of_cells.Cell, decimals: int | None) -> str:
    """The interval of ours; of a single value on the paper's data how far it is from print."""
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


def above(column: str, ours: Sequence[Record[Any]], base: Sequence[Record[Any]]) -> Interval | None:
    """How far rows are apart in a column, over the seeds of both; of errors, their logarithms."""
    if by_seed := [
        r.details.per_seed[column] for r in (*ours, *base) if isinstance(r.details, Denoising)
    ]:
        return difference_of_seeds(*map(np.log, by_seed)) if len(by_seed) == 2 else None
    return difference(ours, base, column)


def _above(
    table: papers.Table,
    column: str,
    row: str,
    by_place: Mapping[tuple[str, str], of_cells.Cell],
    runs: Mapping[str, Sequence[Record[Any]]],
) -> Cell:
    """A row above what it is compared with: printed, ours, and what ours is called."""
    base = table.baseline(row)
    if base is None:
        return None
    theirs = _printed_gap(by_place, row, base, column)
    found = above(column, runs.get(row, ()), runs.get(base, ()))
    like = "" if theirs is None else f"{theirs:+.3g}"
    if found is None:
        return Value(printed=like) if like else None
    word = _word(found, table.lower)
    made = [*runs[row], *runs[base]]
    if isinstance(made[0].details, Denoising):
        one, other = (by_place[name, column].paper for name in (row, base))
        both = isinstance(one, float) and isinstance(other, float)
        ratio = f"× {one / other:.3g}" if both else ""  # type: ignore[operator]
        centre, least, most = (f"{math.exp(x):.3g}" for x in (found.mean, found.low, found.high))
        return Value(f"× {centre}", made, made[0].status, ratio, f"[{least}, {most}] {word}")
    low, high = found.low / table.times, found.high / table.times
    interval = f"[{low:+.3g}, {high:+.3g}] " if np.isfinite(low) else ""
    mean = f"{found.mean / table.times:+.3g}"
    return Value(mean, made, made[0].status, like, f"{interval}{word}")


def _word(found: Interval, lower: bool) -> str:
    if not found.enough:
        return "too few seeds"
    if not found.settled:
        return "not settled"
    return "better" if (found.mean < 0) == lower else "worse"


def _printed_gap(
    by_place: Mapping[tuple[str, str], of_cells.Cell], row: str, base: str, column: str
) -> float | None:
    places = (row, column), (base, column)
    found = [by_place[place].meant for place in places if place in by_place]
    values = [meant for meant in found if isinstance(meant, float)]
    return values[0] - values[1] if len(values) == 2 else None


# --- one sentence a table


def sentence(paper: str, table: papers.Table, found: Sequence[Source]) -> Box:
    """What the table shows here: agrees, opposes, not settled, predicted or not run."""
    if not found:
        return Box(NOT_RUN, f"{table.not_run[:1].upper()}{table.not_run[1:]}.")
    first = found[0]
    cells = [c for c in of_cells.cells(paper, first.made, table.name) if c.ours is not None]
    order, words = _of_order(table, first, cells)
    if first.status in COMPARED:
        return Box(order, words)
    word, values = _of_values(table, first, cells)
    if word == "differs" and order == "agrees":
        return Box("agrees in order", f"{words} The values differ: {values}")
    return Box(word, f"{values} {words}" if order != "nothing" else values)


def _of_values(
    table: papers.Table, source: Source, cells: Sequence[of_cells.Cell]
) -> tuple[str, str]:
    """Of values that compare with the paper's own."""
    pairs = [
        (cell, meant, ours)
        for cell in cells
        if isinstance(meant := cell.meant, float) and (ours := cell.ours) is not None and meant
    ]
    if not pairs:
        return source.status, "The paper gives no number to compare with."
    units = {
        column: min(_last_digit(meant) for cell, meant, _ in pairs if cell.column == column)
        for column in {cell.column for cell, _, _ in pairs}
    }
    equal = sum(abs(ours - meant) <= units[cell.column] for cell, meant, ours in pairs)
    _, theirs, ours = max(pairs, key=lambda pair: abs(math.log(abs(pair[2] / pair[1]) or 1e-9)))
    off = ours / theirs
    how = f"{100 * (off - 1):+.2g} %" if 0.5 < off < 2 else f"× {off:.2g}"
    text = (
        f"{_compared(table, source, pairs)}{equal} of {len(pairs)} values are the printed ones to "
        f"within a unit of the last digit; the farthest is {printed(theirs)} in print and "
        f"{quantity(ours)} here ({how})."
    )
    if source.status == PREDICTED:
        return PREDICTED, f"{text} Computed by the roofline from step counts, not measured."
    whole = "agrees" if len(pairs) == _numbers(table) else "agrees where compared"
    return {len(pairs): whole, 0: "differs"}.get(equal, "agrees in part"), text


def _numbers(table: papers.Table) -> int:
    return sum(isinstance(cell.meant, float) for cell in table.cells)


def _compared(table: papers.Table, source: Source, pairs: Sequence[Any]) -> str:
    """What was compared, where it is not all that is printed."""
    if len(pairs) == _numbers(table):
        return ""
    names = ([cell.row for cell, *_ in pairs], [cell.column for cell, *_ in pairs])
    listed = min((", ".join(dict.fromkeys(of)) for of in names), key=len)
    if isinstance(source.made[0].details, Released):
        listed = f"the released captions of {pairs[0][0].row} alone"
    return f"Compared: {listed}, {len(pairs)} of {_numbers(table)} values. "


def _last_digit(number: float) -> float:
    """A unit of the last digit that a number is printed with, as far as it is no zero."""
    digits, _, exponent = f"{number:.11e}".partition("e")
    decimals = len(digits.rstrip("0").partition(".")[2])
    return float(10.0 ** (int(exponent) - decimals))


def _of_order(
    table: papers.Table, source: Source, cells: Sequence[of_cells.Cell]
) -> tuple[str, str]:
    """Whether differences from a baseline have the sign that the paper prints."""
    by_place = {(cell.row, cell.column): cell for cell in cells}
    runs = by_row(source.made)
    found = [
        (gap, differs, row, column)
        for column in table.judged
        for row in runs
        if (base := table.baseline(row)) is not None
        and (gap := _printed_gap(by_place, row, base, column))
        and (differs := above(column, runs[row], runs.get(base, ())))
    ]
    weak = weakness(runs)
    caveat = f" Nothing is settled: {weak}." if weak else ""
    if not found:
        nothing = f"Of {source.status}, values do not compare with print, nor do any rows.{caveat}"
        return "not settled" if source.status in COMPARED else "nothing", nothing
    settled = [gap * differs.mean > 0 for gap, differs, *_ in found if differs.settled]
    alike, other, rest = sum(settled), settled.count(False), len(found) - len(settled)
    clear = holm([differs for _, differs, *_ in found])
    together = {
        gap * differs.mean > 0 for (gap, differs, *_), is_ in zip(found, clear, strict=True) if is_
    }
    word = "not settled" if weak or not together else "mixed" if len(together) > 1 else ""
    part = "" if all(clear) else " in part"
    word = word or ("agrees" if together == {True} else "opposes") + part
    _, _, row, column = max(found, key=lambda one: abs(one[0]))
    most = _above(table, column, row, by_place, runs)
    assert isinstance(most, Value)
    many = f"{len(found)} difference{'s' if len(found) > 1 else ''}"
    return word, (
        f"Of {many} from a baseline in {' and '.join(table.judged)}, {alike} clear of zero as "
        f"printed, {other} the other way, {rest} not clear; judged together (Holm), {sum(clear)} "
        f"clear. The largest in print, {row}: {most.printed}; here {most.text} {most.detail}."
        f"{caveat}"
    )
