"""The first page's figure: targets that are ratios, on one thread of every CPU."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Any

from benchmarks import figures
from benchmarks.perf.targets import RATIO, TargetResult, evaluate_targets
from benchmarks.records import Record
from benchmarks.report.document import Figure


def one_thread(outcomes: Sequence[TargetResult]) -> list[TargetResult]:
    """The verdicts on one thread of every CPU."""
    return [o for o in outcomes if o.target.device == "cpu" and o.device.endswith(", 1 thread")]


def headline(made: Sequence[Record]) -> list[Figure]:
    """A figure of the ratios on one thread of every processor."""
    shown = [o for o in one_thread(evaluate_targets(made)) if o.target.quantity == RATIO]
    if not shown:
        return []
    about = (
        "[Speed targets](speed.html) on one thread of each processor: speedup over the plain form."
    )
    drawn = [record for outcome in shown for record in outcome.evidence]
    return [Figure("speed-headline", about, drawn, partial(_headline, shown))]


FIRST = ("training step", "self-critical step", "beam search")
"""Beginnings of the targets that are drawn first: what a user runs."""


def _headline(outcomes: Sequence[TargetResult]) -> str:
    """A line per target, with the estimate on each processor."""

    def place(outcome: TargetResult) -> int:
        what = outcome.target.what
        return next((n for n, word in enumerate(FIRST) if what.startswith(word)), len(FIRST))

    rows: dict[str, tuple[float, dict[str, tuple[str, Any]]]] = {}
    for outcome in sorted(outcomes, key=place):
        _, found = rows.setdefault(outcome.target.what, (outcome.target.bound, {}))
        found[processor(outcome.device)] = outcome.verdict, outcome.estimate
    return figures.against_targets(rows, "speedup")


def processor(device: str) -> str:
    """A device's name without trademarks and threads."""
    return re.sub(r"\(R\)|\(TM\)| Processor|, 1 thread$", "", device)
