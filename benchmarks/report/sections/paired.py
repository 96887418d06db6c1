"""What sections on rows trained with several seeds share: means, and paired differences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from benchmarks.records import Record
from benchmarks.statistics import Array, Interval, paired_difference

Rows = Mapping[str, Sequence[Record]]
"""By row, its records, one a seed."""
SEEDS = 3
"""Fewer settle nothing, whatever their interval."""


def by_row(records: Sequence[Record]) -> dict[str, list[Record]]:
    """The records of each row, in the order of seeds."""
    found: dict[str, list[Record]] = {}
    for record in sorted(records, key=lambda r: r["seeds"]):
        found.setdefault(record["what"]["row"], []).append(record)
    return found


def mean(runs: Sequence[Record], metric: str) -> float:
    """The mean over seeds."""
    return sum(r["values"][metric] for r in runs) / len(runs)


def mean_and_spread(runs: Sequence[Record], metric: str, times: float = 1) -> str | None:
    """The mean over seeds and half their range, ``times`` so much; None where a seed has none."""
    if not all(metric in r["values"] for r in runs):
        return None
    values = [times * r["values"][metric] for r in runs]
    half = (max(values) - min(values)) / 2
    return f"{times * mean(runs, metric):.1f}" + (f" ± {half:.1f}" if len(values) > 1 else "")


def cider_d(rows: Sequence[Sequence[Record]], of: str = "cider_d") -> Array | None:
    """CIDEr-D x 100 (rows, seeds, images) of the seeds that all rows have; None if there is none.

    Records of one seed are paired: they saw the same data in the same order. ``of`` names another
    detail that has a number an image.
    """
    of_seeds = [{tuple(r["seeds"]): r["details"][of] for r in runs} for runs in rows]
    shared = sorted(set.intersection(*map(set, of_seeds))) if of_seeds else []
    if not shared:
        return None
    return 100 * np.array([[scores[seeds] for seeds in shared] for scores in of_seeds])


def difference(
    ours: Sequence[Record], baseline: Sequence[Record], of: str = "cider_d"
) -> Interval | None:
    """Ours above the baseline in CIDEr-D x 100, over the seeds of both; None if there is none."""
    scores = cider_d([ours, baseline], of)
    return None if scores is None else paired_difference(*scores)


def verdict(found: Interval) -> str:
    """A difference with its interval, called better or worse only where that excludes zero."""
    word = ("better" if found.mean > 0 else "worse") if found.excludes_zero else "not settled"
    return f"{found.mean:+.1f} ({found.low:+.1f} to {found.high:+.1f}): {word}"


def common(ours: Sequence[Record], baseline: Sequence[Record]) -> int:
    """How many seeds both have."""
    return len({tuple(r["seeds"]) for r in ours} & {tuple(r["seeds"]) for r in baseline})


def judged(found: Interval | None, seeds: int, say: Callable[[Interval], str]) -> str:
    """What ``say`` says of a difference of so many seeds, without its verdict of too few."""
    if found is None:
        return ""
    return say(found) if seeds >= SEEDS else f"{say(found).partition(':')[0]}: too few seeds"
