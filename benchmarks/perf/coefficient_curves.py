"""Time and memory over expansion coefficients by implementation, plotted from records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from benchmarks import records
from benchmarks.errors import InputError
from benchmarks.figures import Panel, panels
from benchmarks.kinds import Timing
from benchmarks.perf.cases.case import Case, Sizes
from benchmarks.perf.cases.expansions import ATTENTION
from benchmarks.records import Record
from torch_impl.layers.transformer import Mixer

AXES = {"encoder": "sum of G", "decoder": "N_E"}
"""Whose coefficients are on the x axis, and its label."""
OTHER = {"encoder": "decoder", "decoder": "encoder"}
QUANTITIES = ("seconds", "peak bytes")


class Place(NamedTuple):
    """What the timings of a curve share; they differ in coefficients and implementation."""

    subject: str
    half: str
    device: str
    precision: str
    cache: str


@dataclass(frozen=True)
class Curve:
    """The timings of one place, all other sizes equal."""

    place: Place
    records: tuple[Record, ...]

    @property
    def half(self) -> str:
        """The half whose coefficients vary."""
        return self.place.half

    @property
    def about(self) -> str:
        """What was timed, and where."""
        sizes = self.records[0].details.case.sizes
        other = sizes.get(OTHER[self.half])
        words = [self.place.subject, f"B={sizes['batch']}", *([other] if other else [])]
        return f"{', '.join([*words, self.place.precision])}; {self.place.device}{self.place.cache}"

    def coefficient(self, record: Record) -> int:
        """The sum of the half's coefficients, 0 for attention."""
        return sum(Mixer.parse(record.details.case.sizes[self.half]).coefficients)

    def panel(self, quantity: str) -> Panel:
        """One quantity as a panel."""
        points: dict[str, dict[int, tuple[float, ...]]] = defaultdict(dict)
        levels = {}
        for record in self.records:
            values, name = record.values, record.details.implementation
            if quantity not in values:
                continue
            value = values[quantity]
            bounds = values.get(f"{quantity} low", value), values.get(f"{quantity} high", value)
            if x := self.coefficient(record):
                points[name][x] = (value, *bounds)
            else:
                levels[ATTENTION] = value
        lines = {
            name: (sorted(at), *zip(*(at[x] for x in sorted(at)), strict=True))
            for name, at in points.items()
        }
        return Panel(self.about.replace("; ", "\n"), lines, levels, AXES[self.half], quantity)


def curves(known: Sequence[Record]) -> list[Curve]:
    """A curve per subject, half and device that was timed at two or more sums of coefficients.

    Where the other half varies too, the curve is at v2's mixer or, without it, at the one with the
    most points.
    """
    groups: dict[tuple[Place, str], list[Record]] = defaultdict(list)
    for record in records.newest(records.of_kind(known, Timing)):
        case, device = record.details.case, record.device.kind
        warm = device == "cuda" and record.details.cache == "warm"
        cache = ", cache warm" if warm else ""
        for half in AXES:
            if half in case.sizes:
                others = {name: v for name, v in case.sizes.items() if name != half}
                place = Place(case.subject, half, record.device.label, case.precision, cache)
                groups[place, str(sorted(others.items()))].append(record)
    best: dict[Place, Curve] = {}
    for (place, _), group in groups.items():
        curve = Curve(place, tuple(sorted(group, key=_form)))
        if place not in best or _weight(curve) > _weight(best[place]):
            best[place] = curve
    return [best[place] for place in sorted(best) if _weight(best[place])[1] > 1]


def _form(record: Record) -> tuple[bool, str]:
    """Sort key: the baseline first, so that a plot does not depend on the records' order."""
    details = record.details
    return details.implementation != details.baseline, details.implementation


def about(curves: Sequence[Curve]) -> str:
    """What was plotted, and which half had nothing to plot."""
    drawn = {curve.half for curve in curves}
    if not drawn:
        return "nothing to draw yet"
    left = "".join(
        f"; no curve over the {half}: fewer than two coefficients timed"
        for half in AXES
        if half not in drawn
    )
    return f"time and memory over expansion coefficients{left}"


def check(cases: Iterable[Case]) -> None:
    """Check before timing that there will be something to plot.

    Raises:
        InputError: no two cases differ in the sum of one half's coefficients alone.
    """
    sums: dict[Any, set[int]] = defaultdict(set)
    for case in cases:
        for half in AXES:
            if half in case.subject.sizes and case.subject.make:
                names = [name for name in case.subject.sizes if name != half]
                sizes = tuple(getattr(case.sizes, name) for name in names)
                mixer = Mixer.parse(getattr(case.sizes, half))
                sums[case.subject.name, case.precision, half, sizes].add(sum(mixer.coefficients))
    if not any(len(each - {0}) > 1 for each in sums.values()):
        raise InputError(
            "--plot: nothing is timed at two sums of coefficients, expected --suite grid, or "
            "several --groups or --num-expansions"
        )


def draw(curves: Sequence[Curve]) -> str:
    """Curves as one SVG, a row each: time, then memory where it was counted."""
    return panels([list(_row(curve)) for curve in curves])


def _row(curve: Curve) -> Iterator[Panel]:
    for quantity in QUANTITIES:
        panel = curve.panel(quantity)
        if panel.lines:
            yield panel


def _weight(curve: Curve) -> tuple[bool, int]:
    """Sort key: curves at v2's other half come first, then those of more points."""
    sizes, other = curve.records[0].details.case.sizes, OTHER[curve.half]
    usual = getattr(Sizes(), other)
    points = {curve.coefficient(record) for record in curve.records} - {0}
    return sizes.get(other, usual) == usual, len(points)
