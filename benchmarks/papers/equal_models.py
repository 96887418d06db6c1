"""Simulate how often equal models are called different, with variances estimated from records.

The difference of two rows on image i with seed s is u_s + v_i + e_si: an effect of the seed, an
effect of the image, and a residual. Their variances are estimated from all pairs of rows of a
published table; then differences with mean zero are simulated.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks import records
from benchmarks.kinds import Simulation
from benchmarks.papers.paired import by_row, numbers, shared
from benchmarks.records import Record
from benchmarks.statistics import SEEDS, difference_of_seeds, paired_difference

DRAWS = 4000
SEEDS_TRIED = (3, 5)


class Spread(NamedTuple):
    """Standard deviations of a difference: between seeds, between images, and residual."""

    seeds: float
    images: float
    rest: float


def spread(rows: npt.NDArray[np.float64]) -> Spread:
    """Estimate from scores (rows, seeds, images), by the moments of all pairs of rows."""
    _, s, i = rows.shape
    found = []
    for a, b in combinations(rows, 2):
        difference = a - b
        by_seed, by_image = difference.mean(1), difference.mean(0)
        rest = difference - by_seed[:, None] - by_image + difference.mean()
        of_rest = (rest**2).sum() / ((s - 1) * (i - 1))
        found.append(
            (by_seed.var(ddof=1) - of_rest / i, by_image.var(ddof=1) - of_rest / s, of_rest)
        )
    return Spread(*np.sqrt(np.maximum(np.mean(found, axis=0), 0)).tolist())


def false_verdicts(of: Spread, seeds: int, images: int, draws: int) -> dict[str, float]:
    """Per cent of differences between equal models that are settled, by our rule and Student's.

    The complement is the coverage of our intervals, since they shift with the difference.
    """
    generator = np.random.default_rng(0)
    settled = {"false settled": 0, "false settled, over seeds alone": 0}
    nothing = np.zeros((seeds, images))
    for _ in range(draws):
        difference = of.seeds * generator.normal(size=(seeds, 1))
        difference = difference + of.images * generator.normal(size=images)
        difference = difference + of.rest * generator.normal(size=(seeds, images))
        judged = (
            paired_difference(difference, nothing),
            difference_of_seeds(difference.mean(1), np.zeros(seeds)),
        )
        for name, one in zip(settled, judged, strict=True):
            settled[name] += one.settled
    shares = {name: 100 * count / draws for name, count in settled.items()}
    return {**shares, "coverage": 100 - shares["false settled"]}


def tables(made: Iterable[Record[Any]]) -> dict[tuple[str, str, str], list[Record[Any]]]:
    """By paper, table and data: records of rows with enough seeds and CIDEr-D by image."""
    found: dict[tuple[str, str, str], list[Record[Any]]] = {}
    for record in records.newest(made):
        if getattr(record.details, "cider_d", None) and len(record.seeds) == 1:
            place = record.what.paper, record.what.table, record.data.name
            found.setdefault(place, []).append(record)
    for place, each in found.items():
        rows = by_row(each).values()
        found[place] = [r for runs in rows if len(runs) >= SEEDS for r in runs]
    return {place: each for place, each in sorted(found.items()) if len(by_row(each)) > 1}


def simulate(made: Iterable[Record[Any]], draws: int = DRAWS) -> list[Record[Simulation]]:
    """A record for each of `tables` and each number of seeds."""
    found = []
    for (paper, table, data), each in tables(made).items():
        rows = zip(*shared(*by_row(each).values()), strict=True)
        scores = np.array([numbers(row, "CIDEr-D") for row in rows])  # (rows, seeds, images)
        of, images = spread(scores), scores.shape[2]
        for seeds in SEEDS_TRIED:
            found.append(
                records.make(
                    Simulation(spread=of._asdict(), draws=draws, measured=len(each)),
                    paper="all",
                    table="equal models",
                    row=f"{paper} {table}, {data}: {seeds} seeds",
                    values=false_verdicts(of, seeds, images, draws),
                    status="embedded",
                    key=records.key_of(false_verdicts, *of, seeds, images, draws),
                    n=images,
                    data=records.Data(name=data, split=each[0].data.split),
                )
            )
    return found
