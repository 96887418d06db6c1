"""What a table shows, in a sentence, and rows relative to baselines, by one rule for all tables."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks import papers
from benchmarks.kinds import Denoising, Released
from benchmarks.papers import cells as of_cells
from benchmarks.papers.cells import NOT_RUN
from benchmarks.papers.claim_tests import COMPARED
from benchmarks.papers.convergence import weakness
from benchmarks.papers.paired import by_row, difference
from benchmarks.records import PREDICTED, Record
from benchmarks.report.document import Box, Cell, Value
from benchmarks.statistics import Interval, difference_of_seeds, holm

UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"))


class Source(NamedTuple):
    """Records of a table that are comparable with each other."""

    label: str
    status: str
    made: Sequence[Record[Any]]


def quantity(number: float, decimals: int | None = None) -> str:
    """A number to ``decimals``, or to four digits; large ones with a unit."""
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
    """The paper's value as text."""
    return quantity(cell, decimals) if isinstance(cell, float) else str(cell)


def above(column: str, ours: Sequence[Record[Any]], base: Sequence[Record[Any]]) -> Interval | None:
    """The difference of two rows in a column over the seeds of both; for errors, of logarithms."""
    if by_seed := [
        r.details.per_seed[column] for r in (*ours, *base) if isinstance(r.details, Denoising)
    ]:
        return difference_of_seeds(*map(np.log, by_seed)) if len(by_seed) == 2 else None
    return difference(ours, base, column)


def above_baseline(
    table: papers.Table,
    column: str,
    row: str,
    by_place: Mapping[tuple[str, str], of_cells.Cell],
    runs: Mapping[str, Sequence[Record[Any]]],
    places: Mapping[str, str],
) -> Cell:
    """A row relative to its baseline: printed, ours, and a word for ours."""
    base = table.baseline(row)
    if base is None:
        return "baseline" if row in table.against.values() else "no baseline"
    place = places.get(row, "")
    theirs = _printed_gap(by_place, row, base, column)
    found = above(column, runs.get(row, ()), runs.get(base, ()))
    like = "" if theirs is None else f"{theirs:+.3g}"
    if found is None:
        return Value(printed=like, source=place) if like else "not run"
    word = _word(found, table.lower)
    made = [*runs[row], *runs[base]]
    if isinstance(made[0].details, Denoising):
        one, other = (by_place[name, column].paper for name in (row, base))
        both = isinstance(one, float) and isinstance(other, float)
        ratio = f"× {one / other:.3g}" if both else ""  # type: ignore[operator]
        centre, least, most = (f"{math.exp(x):.3g}" for x in (found.mean, found.low, found.high))
        detail, place = f"[{least}, {most}] {word}", place if both else ""
        return Value(f"× {centre}", made, made[0].status, ratio, detail, source=place)
    low, high = found.low / table.times, found.high / table.times
    interval = f"[{low:+.3g}, {high:+.3g}] " if np.isfinite(low) else ""
    mean = f"{found.mean / table.times:+.3g}"
    detail = f"{interval}{word}"
    return Value(mean, made, made[0].status, like, detail, source=place if like else "")


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


def largest(table: papers.Table, column: str, rows: Container[str]) -> tuple[str, float]:
    """Among ``rows``, or all without any, the one printed farthest from its baseline; the gap."""
    meant = {c.row: c.meant for c in table.cells if c.column == column}
    gaps = {
        row: one - other
        for row, one in meant.items()
        if (base := table.baseline(row)) is not None
        and isinstance(one, float)
        and isinstance(other := meant[base], float)
    }
    kept = {row: gap for row, gap in gaps.items() if row in rows} or gaps
    return max(kept.items(), key=lambda of: abs(of[1]))


def clear_pairs(paper: str, table: papers.Table, found: Sequence[Source]) -> tuple[int, int]:
    """How many rows differ clearly from their baselines, by Holm in each source, and of how many.

    In trainings that settle nothing none is clear.
    """
    clear = total = 0
    for source in found:
        pairs = _pairs(paper, table, source)
        total += len(pairs)
        if not weakness(by_row(source.made)):
            clear += sum(holm([differs for _, differs, *_ in pairs]))
    return clear, total


def of_curves(apart: Mapping[str, Interval], sign: int) -> str:
    """A word for differences by data set, given the ``sign`` of the paper's."""
    settled = {one.mean * sign > 0 for one in apart.values() if one.settled}
    if not settled:
        return "not settled"
    if len(settled) > 1:
        return "mixed"
    part = "" if all(one.settled for one in apart.values()) else " in part"
    return ("agrees" if settled == {True} else "opposes") + part


def signed(found: Interval, times: float = 1) -> str:
    """A difference with its interval, divided by ``times``."""
    mean, low, high = (of / times for of in (found.mean, found.low, found.high))
    ends = f" [{low:+.3g}, {high:+.3g}]" if np.isfinite(low) else ""
    return f"{mean:+.3g}{ends}"


def sentence(paper: str, table: papers.Table, found: Sequence[Source]) -> Box:
    """What the table shows here: agrees, opposes, not settled, predicted or not run."""
    if not found:
        return Box(NOT_RUN, f"{table.not_run[:1].upper()}{table.not_run[1:]}.")
    first = found[0]
    cells = [c for c in of_cells.cells(paper, first.made, table.name) if c.ours is not None]
    order, words = _of_order(paper, table, first, cells)
    if first.status in COMPARED:
        return Box(order, words, first.made)
    word, values = _of_values(table, first, cells)
    if word == "differs" and order == "agrees":
        return Box("agrees in order", f"{words} The values differ: {values}", first.made)
    return Box(word, f"{values} {words}" if order != "nothing" else values, first.made)


def _of_values(
    table: papers.Table, source: Source, cells: Sequence[of_cells.Cell]
) -> tuple[str, str]:
    """A verdict and a sentence on values that are comparable with the paper's."""
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
    """What was compared, if it is not all that is printed."""
    if len(pairs) == _numbers(table):
        return ""
    names = ([cell.row for cell, *_ in pairs], [cell.column for cell, *_ in pairs])
    listed = min((", ".join(dict.fromkeys(of)) for of in names), key=len)
    if isinstance(source.made[0].details, Released):
        listed = f"the released captions of {pairs[0][0].row} alone"
    return f"Compared: {listed}, {len(pairs)} of {_numbers(table)} values. "


def _last_digit(number: float) -> float:
    """One unit of the last nonzero digit of a number."""
    digits, _, exponent = f"{number:.11e}".partition("e")
    decimals = len(digits.rstrip("0").partition(".")[2])
    return float(10.0 ** (int(exponent) - decimals))


def _of_one_caption(runs: Mapping[str, Sequence[Record[Any]]]) -> str:
    """Rows that gave all of their examples one caption, in how many runs; else empty."""
    found: dict[str, list[bool]] = {}
    for row, made in runs.items():
        shown = [getattr(r.details, "examples", ()) for r in made]
        found[row] = [len(of) > 1 and len({e.caption for e in of}) == 1 for of in shown]
    alike = [f"{row} ({sum(of)} of {len(of)} runs)" for row, of in found.items() if any(of)]
    if not alike:
        return ""
    return f" {', '.join(alike)}: the same caption for every input shown."


def _pairs(
    paper: str, table: papers.Table, source: Source
) -> list[tuple[float, Interval, str, str]]:
    """Rows relative to their baselines, if both are printed: printed, ours, row, column."""
    cells = of_cells.cells(paper, source.made, table.name)
    by_place = {(cell.row, cell.column): cell for cell in cells if cell.ours is not None}
    runs = by_row(source.made)
    return [
        (gap, differs, row, column)
        for column in table.judged
        for row in runs
        if (base := table.baseline(row)) is not None
        and (gap := _printed_gap(by_place, row, base, column))
        and (differs := above(column, runs[row], runs.get(base, ())))
    ]


def _of_order(
    paper: str, table: papers.Table, source: Source, cells: Sequence[of_cells.Cell]
) -> tuple[str, str]:
    """Whether differences from a baseline have the printed sign."""
    by_place = {(cell.row, cell.column): cell for cell in cells}
    runs = by_row(source.made)
    found = _pairs(paper, table, source)
    weak = weakness(runs)
    caveat = (f" Nothing is settled: {weak}." if weak else "") + _of_one_caption(runs)
    if not found:
        nothing = (
            f"Values ({source.status}) are not comparable with print, nor any two rows with each "
            f"other.{caveat}"
        )
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
    most = above_baseline(table, column, row, by_place, runs, {})
    assert isinstance(most, Value)
    largest = "" if len(found) == 1 else "Largest in print, "
    said = (
        f"{largest}{row} above its baseline in {column}: printed {most.printed}, here {most.text} "
        f"{most.detail.removesuffix(f' {word}')}."
    )
    if largest:
        said += (
            f" Of {len(found)} such differences {alike} are clearly as printed, {other} clearly "
            f"opposite, {rest} unclear; clear when judged together (Holm): {sum(clear)}."
        )
    return word, said + caveat
