"""Time over size, a panel a ladder: drawn from records alone."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.figures import Panel, panels
from benchmarks.records import Record
from benchmarks.statistics import median

PANELS_A_ROW = 3


def draw(made: Sequence[Record]) -> str:
    """The ladders of one device's records as one SVG."""
    ladders = dict.fromkeys(r.details.ladder for r in made)
    drawn = [_panel(name, [r for r in made if r.details.ladder == name]) for name in ladders]
    return panels([drawn[i : i + PANELS_A_ROW] for i in range(0, len(drawn), PANELS_A_ROW)])


def _panel(ladder: str, made: Sequence[Record]) -> Panel:
    lines: dict[str, tuple[Sequence[float], ...]] = {}
    for record in made:
        details = record.details
        rounds = zip(*details.samples, strict=True)
        found = [median([1000 * seconds for seconds in of_size]) for of_size in rounds]
        lines[details.implementation] = (
            details.sizes,
            [e.value for e in found],
            [e.low for e in found],
            [e.high for e in found],
        )
    return Panel(ladder, lines, {}, made[0].details.symbol, "ms")
