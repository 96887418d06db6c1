"""Time over size, a panel per ladder, plotted from records."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.figures import Panel, panels
from benchmarks.records import Record
from benchmarks.statistics import median


def draw(known: Sequence[Record], a_row: int = 3) -> str:
    """The ladders of one device's records as one SVG, ``a_row`` panels per row."""
    ladders = dict.fromkeys(r.details.ladder for r in known)
    drawn = [_panel(name, [r for r in known if r.details.ladder == name]) for name in ladders]
    return panels([drawn[i : i + a_row] for i in range(0, len(drawn), a_row)])


def _panel(ladder: str, known: Sequence[Record]) -> Panel:
    lines: dict[str, tuple[Sequence[float], ...]] = {}
    labels, dotted = {}, {}
    for record in known:
        details = record.details
        rounds = zip(*details.samples, strict=True)
        medians = [median([1000 * seconds for seconds in of_size]) for of_size in rounds]
        expected = details.macs or details.flops
        dotted[details.implementation] = [medians[-1].value * n / expected[-1] for n in expected]
        exponents = f"{record.values['exponent']:.2f}, expected {record.values['expected']:.2f}"
        labels[details.implementation] = f"{details.implementation}: {exponents}"
        lines[details.implementation] = (
            details.sizes,
            [e.value for e in medians],
            [e.low for e in medians],
            [e.high for e in medians],
        )
    return Panel(ladder, lines, {}, known[0].details.symbol, "ms", labels, dotted)
