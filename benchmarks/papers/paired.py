"""How rows trained with several seeds are compared: paired by seed, and by one rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from benchmarks.records import Record
from benchmarks.statistics import Interval, difference_of_seeds, paired_difference

Rows = Mapping[str, Sequence[Record]]
"""By row, its records, one a seed."""
Numbers = Callable[[Record], npt.ArrayLike | None]
"""What of a record is compared: a number, or one an image; None where it has none."""


def by_row(records: Sequence[Record]) -> dict[str, list[Record]]:
    """The records of each row, in the order of seeds."""
    found: dict[str, list[Record]] = {}
    for record in sorted(records, key=lambda r: r.seeds):
        found.setdefault(record.what.row, []).append(record)
    return found


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
