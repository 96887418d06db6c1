"""How rows trained with several seeds are compared: paired by seed, and by one rule."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

import numpy as np
import numpy.typing as npt

from benchmarks.records import Record
from benchmarks.statistics import (
    SEEDS,
    Interval,
    Pair,
    difference_of_seeds,
    paired_difference,
)

Rows = Mapping[str, Sequence[Record]]
"""By row, its records, one a seed."""
Numbers = Callable[[Record], npt.ArrayLike | None]
"""What of a record is compared: a number, or one an image; None where it has none."""
RULE = (
    "A difference is of the seeds that both sides have, and is called something only where its "
    f"95 % interval excludes zero and is over at least {SEEDS} seeds. Intervals are Student's, "
    "over seeds, and never narrower than over seeds and images together."
)
"""What `verdict` does, for the lead of every section that uses it."""


def by_row(records: Sequence[Record]) -> dict[str, list[Record]]:
    """The records of each row, in the order of seeds."""
    found: dict[str, list[Record]] = {}
    for record in sorted(records, key=lambda r: r.seeds):
        found.setdefault(record.what.row, []).append(record)
    return found


def mean(runs: Sequence[Record], metric: str) -> float:
    """The mean over seeds."""
    return sum(r.values[metric] for r in runs) / len(runs)


def mean_and_spread(runs: Sequence[Record], metric: str) -> str | None:
    """The mean over seeds and half their range; None where a seed has none."""
    if not all(metric in r.values for r in runs):
        return None
    values = [r.values[metric] for r in runs]
    half = (max(values) - min(values)) / 2
    return f"{mean(runs, metric):.1f}" + (f" ± {half:.1f}" if len(values) > 1 else "")


def shared(*rows: Sequence[Record]) -> list[tuple[Record, ...]]:
    """For each seed that all rows have, in order, the record of each row.

    Records of one seed are paired: they saw the same data in the same order.
    """
    by_seed = [{tuple(r.seeds): r for r in runs} for runs in rows]
    seeds = sorted(set.intersection(*map(set, by_seed)))
    return [tuple(of_row[seed] for of_row in by_seed) for seed in seeds]


def value(metric: str) -> Numbers:
    """A record's number."""
    return lambda record: record.values.get(metric)


def percent(detail: str) -> Numbers:
    """What records hold of each image under ``detail``, x 100."""
    return lambda record: 100 * np.array(getattr(record.details, detail))


CIDER_D = percent("cider_d")


def difference(
    ours: Sequence[Record], baseline: Sequence[Record], numbers: Numbers = CIDER_D
) -> Interval | None:
    """Ours above the baseline over the seeds of both, in CIDEr-D x 100; None if there is none."""
    read = [tuple(map(numbers, pair)) for pair in shared(ours, baseline)]
    pairs = [pair for pair in read if all(side is not None for side in pair)]
    if not pairs:
        return None
    sides = [np.array(side, dtype=np.float64) for side in zip(*pairs, strict=True)]
    one_a_seed = sides[0].ndim == 1
    return difference_of_seeds(*sides) if one_a_seed else paired_difference(*sides)


def ordered_pairs(runs: Rows, expected: Mapping[str, float]) -> list[Pair]:
    """Every pair of rows that ``expected`` orders, as far as both share a seed."""
    return [
        Pair(one, other, expected[one] - expected[other], found)
        for one, other in combinations([row for row in expected if row in runs], 2)
        if expected[one] != expected[other] and (found := difference(runs[one], runs[other]))
    ]


def measured(found: Interval, digits: int = 1) -> str:
    """A difference, and its interval if that has ends."""
    ends = f" ({found.low:+.{digits}f} to {found.high:+.{digits}f})"
    return f"{found.mean:+.{digits}f}{ends if math.isfinite(found.low) else ''}"


def verdict(
    found: Interval | None, below: str = "worse", above: str = "better", digits: int = 1
) -> str:
    """A difference and what it is called: by `RULE`, and empty where there is none."""
    if found is None:
        return ""
    if not found.enough:
        word = "too few seeds"
    elif not found.settled:
        word = "not settled"
    else:
        word = above if found.mean > 0 else below
    return f"{measured(found, digits)}: {word}"
