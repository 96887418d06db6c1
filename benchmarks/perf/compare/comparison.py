"""Decides whether one revision is slower than another: intervals over processes, and a verdict.

Two processes of the same program differ in speed, by memory layout and by other load, and rounds
within them do not show by how much. So the process is the unit. It contributes one number: the
median over rounds of its time relative to another process's (a log ratio), averaged over all
processes. Differences of equal processes are symmetric whatever the noise is, so their median is
unbiased; and a change of B shifts all of its differences from A equally, so it is measured in full.
The interval is Student's over those numbers. Their variance is pooled over A, A again and B: if
nothing changed, all are the same program, which is when a verdict would be a false alarm.

A bootstrap over so few processes would be too narrow: resampling k of them underestimates the
variance by (k - 1) / k, and ignores that the variance itself is uncertain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchmarks.statistics import CONFIDENCE as OF_FLOOR
from benchmarks.statistics import Estimate, student_t, verdict

CONFIDENCE = 99.2
"""Percent, of ratios and times. Each of six benchmarks has a false alarm rate of 0.4 %: of equal
revisions at most 2.5 % of comparisons say "slower" anywhere."""
LEAST_ROUNDS = 5
STRETCHES = 3
"""Most stretches of rounds that a benchmark is timed for, see `compare_until_narrow`."""

Times = npt.NDArray[np.float64]
"""Seconds per call, (processes, rounds)."""


@dataclass(frozen=True)
class Comparison:
    """Times, ratio and verdict of one benchmark."""

    seconds: Mapping[str, Estimate]  # per call, by side; not comparable with another session's
    floor: float  # A/A floor, at least 1: how far A again may be from A, as a ratio
    # speed of B relative to A and A again together; None without B
    ratio: Estimate | None
    verdict: str  # "faster", "slower", "same", "not settled"; without B "first"
    rounds: int  # used
    discarded: int  # rounds in which a clock jumped


def compare_until_narrow(
    longer: Callable[[], tuple[Mapping[str, Times], int]], smallest: float
) -> Comparison:
    """Compare after one stretch of rounds, and after more while the interval is wide.

    Only the width decides: stopping at a verdict would make false ones more likely. Each call of
    ``longer`` returns all rounds so far, a stretch more, and how many were discarded.
    """
    for _ in range(STRETCHES):
        comparison = compare(*longer(), smallest)
        ratio = comparison.ratio
        if ratio is None or ratio.high <= ratio.value * (1 + smallest):
            break
    return comparison


def compare(sides: Mapping[str, Times], discarded: int, smallest: float) -> Comparison:
    """Compare sides "A" and "A again" and, if given, "B", with equally many rounds.

    A clock jumped in the ``discarded`` rounds; an interval within ``smallest``, 0.02 being 2 %, is
    "same".

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
        return Comparison(seconds, floor, None, "first", rounds, discarded)
    both, b = np.concatenate([a, again]), by_side["B"]
    ratio = interval(float(both.mean() - b.mean()), len(both), len(b))
    settled = rounds >= LEAST_ROUNDS and discarded <= rounds
    said = verdict(ratio, floor, smallest=smallest) if settled else "not settled"
    return Comparison(seconds, floor, ratio, said, rounds, discarded)
