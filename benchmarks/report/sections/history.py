"""The section on tracked revisions: each benchmark over time, and tests of the comparison."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial

from benchmarks.files import slug
from benchmarks.kinds import Comparison
from benchmarks.papers.paired import grouped
from benchmarks.perf.compare.history import COLUMNS, cells, drawing, is_test, series
from benchmarks.records import Record, of_kind
from benchmarks.report.document import (
    Block,
    Cell,
    Figure,
    Paragraph,
    Section,
    Table,
    evidenced,
)

VERDICTS = ("slower", "faster", "same", "not settled")
BLANK = ("", "", "not timed", "not compared", "nothing", "not timed", "", "none")
"""Texts for empty cells of `COLUMNS`."""
TESTED = ("case", "device", "B slowed down by", "runs", *VERDICTS)


def history(records: Sequence[Record]) -> list[Section]:
    """Every series, and the tests of the comparison; no section if there are neither.

    Revisions are in the order of measurement, as a report has no repository.
    """
    made = of_kind(records, Comparison)
    if not made:
        return []
    blocks: list[Block] = [
        Paragraph(
            "Revisions of this project against each other: several fresh processes of each, in "
            "turn, and as many again of the first, whose difference from it is the A/A floor. "
            "Intervals are over processes, at 99 %. **slower** and **faster** are beyond doubt and "
            "floor, **same** is within the smallest change that matters. Times of two sessions do "
            "not compare: a curve is the product of ratios, each measured in one session."
        )
    ]
    found = series(made)
    rows: list[list[Cell]] = []
    for name, entries in found.items():
        for entry in entries:
            shown = (c or blank for c, blank in zip(cells(entry), BLANK, strict=True))
            rows.append([*name, *evidenced([entry.record], *shown)])
    blocks.append(Table("history", "Every revision tracked", ("case", "device", *COLUMNS), rows))
    for name, entries in found.items():
        if sum(entry.level is not None for entry in entries) > 1:
            about = f"{name[0]} on {name[1]}"
            drawn = [entry.record for entry in entries]
            blocks.append(Figure(slug("history", *name), about, drawn, partial(drawing, entries)))
    if tests := [record for record in made if is_test(record)]:
        about = "The comparison itself tested: a revision against itself, as it is and slowed down"
        blocks.append(Table("history-tests", about, TESTED, _tested(tests)))
    return [Section("Revisions", blocks)]


def _tested(records: Sequence[Record]) -> list[list[Cell]]:
    by_test = grouped(
        records,
        lambda r: (r.details.benchmark, r.device.label, (r.details.planted or 1.0) - 1),
    )
    return [
        [name, device, f"{planted:.0%}", *evidenced(made, len(made), *_counts(made))]
        for (name, device, planted), made in sorted(by_test.items())
    ]


def _counts(made: Sequence[Record]) -> list[int]:
    counter = Counter(record.details.verdict for record in made)
    return [counter[verdict] for verdict in VERDICTS]
