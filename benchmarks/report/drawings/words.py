"""How often words occur in captions: the read-only LSTM's Figures 1 and 2."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from benchmarks import figures
from benchmarks.files import slug
from benchmarks.kinds import Words
from benchmarks.papers.lstm_readonly.words import PAPER
from benchmarks.records import Record, of_kind
from benchmarks.report.document import Figure

BARS = 40


def areas(records: Sequence[Record]) -> list[Figure]:
    """Figure 1: every word's occurrences as an area, the commonest by name."""
    drawn = []
    for record in of_kind(records, Words):
        commonest = dict(record.details.commonest)
        different, counted = (
            int(record.values[name]) for name in ("different words counted", "words counted")
        )
        rest = f"{different - len(commonest):,} other words", counted - sum(commonest.values())
        shown = f"the {len(commonest)} commonest, and the others together"
        drawn.append(_figure("1", record, shown, partial(figures.areas, commonest, rest)))
    return drawn


def bars(records: Sequence[Record]) -> list[Figure]:
    """Figure 2: the commonest words."""
    drawn = []
    for record in of_kind(records, Words):
        commonest = dict(record.details.commonest[:BARS])
        draw = partial(figures.bars, commonest, "occurrences")
        drawn.append(_figure("2", record, f"the {len(commonest)} commonest", draw))
    return drawn


def _figure(number: str, record: Record, shown: str, draw: Callable[[], str]) -> Figure:
    about = f"Figure {number}: words in the captions of {record.data.name}: {shown}."
    return Figure(slug(PAPER, number, record.what.row), about, [record], draw)
