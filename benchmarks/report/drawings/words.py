"""How often words occur in captions: the read-only LSTM's Figures 1 and 2."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from benchmarks import figures
from benchmarks.files import slug
from benchmarks.kinds import Words
from benchmarks.papers.lstm_readonly.words import PAPER
from benchmarks.records import Record, of
from benchmarks.report.document import Figure

BARS = 40


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
                [record],
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
                [record],
                partial(figures.bars, commonest, "occurrences"),
            )
        )
    return drawn
