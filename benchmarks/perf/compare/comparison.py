"""When one revision is slower than another: intervals over processes, and a verdict.

Two processes of the same program differ, by where their memory lies and what ran beside them, and
no number of rounds within them shows by how much. So the process is the unit. It gives one number:
the mean, over all other processes, of the median over rounds of how much longer its calls took.
Differences of equal processes are symmetric whatever the noise is, so their median is not biased
by it; and a change of B shifts all of its differences from A alike, so it is measured whole.
Student's interval is over those numbers. Their variance is pooled over A, A again and B: if nothing
changed, all are the same program, which is exactly when a verdict must not be given.

A bootstrap over so few processes would be too narrow: resampling k of them underestimates the
variance by (k - 1) / k, and knows nothing of how uncertain the variance is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchmarks.statistics import CONFIDENCE as OF_FLOOR
from benchmarks.statistics import Estimate, student_t, verdict

CONFIDENCE = 99.2
"""Percent, of ratios and times. Six benchmarks have six chances of a false alarm, of 0.4 % each: of
equal revisions at most 2.5 % of comparisons say "slower" anywhere."""
LEAST_ROUNDS = 5
STRETCHES = 3
"""At most so many stretches of rounds a benchmark is timed for, see `in_stretches`."""

Times = npt.NDArray[np.float64]
"""Seconds a call: (processes, rounds)."""


@dataclass(frozen=True)
class Comparison:
    """What the rounds of one benchmark say."""

    seconds: Mapping[str, Estimate]  # a call, by side; not to be compared with another session's
    floor: float  # the A/A floor, at least 1: as far from 1 as A again may be from A
    # how many times as fast B is as A, both of A's halves taken together; None without B
    ratio: Estimate | None
    verdict: str  # "faster", "slower", "same", "not settled"; without B "first"
    rounds: int  # that count
    thrown: int  # rounds in which a clock jumped


def in_stretches(
    longer: Callable[[], tuple[Mapping[str, Times], int]], smallest: float
) -> Comparison:
    """The comparison of one stretch of rounds, or of more while its interval is wide.

    The width alone decides: who stops at a verdict finds more of them. Each call of ``longer``
    gives all rounds so far, a stretch more, and how many were thrown away.
    """
    for _ in range(STRETCHES):
        comparison = compare(*longer(), smallest)
        ratio = comparison.ratio
        if ratio is None or ratio.high <= ratio.value * (1 + smallest):
            break
    return comparison


def compare(sides: Mapping[str, Times], thrown: int, smallest: float) -> Comparison:
    """The comparison of sides "A" and "A again" and, where it is there, "B", as many rounds each.

    ``thrown`` rounds were thrown away; an interval within ``smallest``, 0.02 being 2 %, is "same".

    Raises:
        ValueError: a side has fewer than two processes, or no rounds.
    """
    for side, times in sides.items():
        if times.ndim != 2 or times.shape[0] < 2 or times.shape[1] < 1:
            raise ValueError(f"{side} is {times.shape}, expected (processes >= 2, rounds >= 1)")
    logs = {side: np.log(times) for side, times in sides.items()}
    every = np.concatenate(list(logs.values()))
    longer = np.median(every[:, None] - every, axis=2).mean(axis=1)
    ends = np.cumsum([len(x) for x in logs.values()])
    by_side = dict(zip(logs, np.split(longer, ends[:-1]), strict=True))
    freedom = sum(len(x) - 1 for x in by_side.values())
    deviation = np.sqrt(sum(((x - x.mean()) ** 2).sum() for x in by_side.values()) / freedom)

    def interval(difference: float, *counts: int, confidence: float = CONFIDENCE) -> Estimate:
        reach = student_t(freedom, confidence)
        half = reach * deviation * np.sqrt(sum(1 / count for count in counts))
        low, value, high = np.exp([difference - half, difference, difference + half])
        return Estimate(float(value), float(low), float(high))

    usual = float(np.median(every, axis=1).mean())
    seconds = {side: interval(usual + float(x.mean()), len(x)) for side, x in by_side.items()}
    a, again = by_side["A"], by_side["A again"]
    same = interval(float(a.mean() - again.mean()), len(a), len(again), confidence=OF_FLOOR)
    floor = max(same.high, 1 / same.low)
    rounds = every.shape[1]
    if "B" not in by_side:
        return Comparison(seconds, floor, None, "first", rounds, thrown)
    both, b = np.concatenate([a, again]), by_side["B"]
    ratio = interval(float(both.mean() - b.mean()), len(both), len(b))
    settled = rounds >= LEAST_ROUNDS and thrown <= rounds
    said = verdict(ratio, floor, smallest=smallest) if settled else "not settled"
    return Comparison(seconds, floor, ratio, said, rounds, thrown)
