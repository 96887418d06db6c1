"""How often words occur in captions: the read-only LSTM's Figures 1 and 2."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from benchmarks import figures, papers
from benchmarks.files import slug
from benchmarks.kinds import Words
from benchmarks.papers.lstm_readonly.words import (
    NAMES,
    OF_ALL,
    OF_COUNTED,
    PAPER,
    TABLE,
)
from benchmarks.records import Record, of
from benchmarks.report.document import (
    Block,
    Cell,
    Figure,
    Paragraph,
    Table,
)
from benchmarks.report.sections.evidence import not_run, provenance

BARS = 40


def words(records: Sequence[Record]) -> list[Block]:
    """The share that the paper gives in its text, and both figures, of each source of captions."""
    made = of(records, Words)
    if not made:
        how = "`captionbench reproduce lstm_readonly --table words` counts them."
        return [not_run("How often words occur in captions:", how)]
    printed = {cell.row: cell.value for cell in papers.load(PAPER).table(TABLE).cells}
    counts = ("words", "words counted", "different words counted")
    rows: list[list[Cell]] = []
    for record in sorted(made, key=lambda r: list(NAMES).index(r.what.row)):
        values, row = record.values, record.what.row
        rows.append(
            [
                record.data.name,
                record.n,
                printed.get(row),
                *(f"{values[share]:.1f}" for share in (OF_ALL, OF_COUNTED)),
                *(f"{values[name]:,.0f}" for name in counts),
                record.status,
            ]
        )
    columns = ("captions of", "captions", "paper", OF_ALL, OF_COUNTED, *counts, "status")
    return [
        Paragraph(
            "How often words occur, without pronouns, determiners and words that occur fewer than "
            "4 times, which are not **counted** as in the paper. Its share is of all captions of "
            "MS-COCO; it does not say whether of all their words or of those counted."
        ),
        Table(slug(PAPER, TABLE), "The 100 commonest words", columns, rows),
        *(figure for drawn in (areas(made), bars(made)) for figure in drawn),
        provenance(made),
    ]


def areas(records: Sequence[Record]) -> list[Figure]:
    """Figure 1: every word's occurrences as an area, the commonest by name."""
    drawn = []
    for record in of(records, Words):
        commonest = dict(record.details.commonest)
        different, counted = (
            int(record.values[name]) for name in ("different words counted", "words counted")
        )
        rest = f"{different - len(commonest):,} other words", counted - sum(commonest.values())
        drawn.append(
            Figure(
                slug(PAPER, "1", record.what.row),
                f"Figure 1: how often words occur in the captions of {record.data.name}: "
                f"the {len(commonest)} commonest, and the others together.",
                partial(figures.areas, commonest, rest),
            )
        )
    return drawn


def bars(records: Sequence[Record]) -> list[Figure]:
    """Figure 2: the commonest words."""
    drawn = []
    for record in of(records, Words):
        commonest = dict(record.details.commonest[:BARS])
        drawn.append(
            Figure(
                slug(PAPER, "2", record.what.row),
                f"Figure 2: the {len(commonest)} commonest words in the captions of "
                f"{record.data.name}.",
                partial(figures.bars, commonest, "occurrences"),
            )
        )
    return drawn
