"""Intervals and verdicts: of times, of exponents, of differences between models."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

Array = npt.NDArray[np.float64]

CONFIDENCE = 95.0
"""Percent, of all intervals that do not say otherwise."""
RESAMPLES = 2000


@dataclass(frozen=True)
class Estimate:
    """A value with its interval."""

    value: float
    low: float
    high: float


def verdict(ratio: Estimate, floor: float, *, smallest: float = 0.0, widen: bool = False) -> str:
    """What may be said of a ratio that is above 1 where something is faster.

    "same": the interval lies within the smallest change that matters, 0.02 being 2 %. "slower" and
    "faster": it excludes 1, and the ratio itself is beyond the A/A floor; with ``widen``, as of a
    bootstrap over few rounds, which is narrow, the whole interval is. Else "not settled".
    """
    if smallest and ratio.low >= 1 / (1 + smallest) and ratio.high <= 1 + smallest:
        return "same"
    low, high = (ratio.low / floor, ratio.high * floor) if widen else (ratio.low, ratio.high)
    if high < 1 and ratio.value < 1 / floor:
        return "slower"
    if low > 1 and ratio.value > floor:
        return "faster"
    return "not settled"


def student_t(degrees: int, confidence: float = CONFIDENCE) -> float:
    """How many standard errors a two-sided interval reaches: Student's quantile.

    Raises:
        ValueError: less than one degree of freedom.
    """
    if degrees < 1:
        raise ValueError(f"{degrees} degrees of freedom, expected at least 1")
    return float(scipy.special.stdtrit(degrees, 0.5 + confidence / 200))


def bootstrap(statistic: Callable[..., Any], *samples: npt.ArrayLike) -> Estimate:
    """A statistic with its percentile interval over paired samples, (n,) each.

    Args:
        statistic: of samples (..., n), computed along ``axis=-1``.
        samples: resampled together; of a single one the interval is the value.
    """
    sides = [np.asarray(x, dtype=np.float64) for x in samples]
    value = low = high = float(statistic(*sides, axis=-1))
    if len(sides[0]) > 1:
        low, high = scipy.stats.bootstrap(
            sides,
            statistic,
            paired=True,
            vectorized=True,
            n_resamples=RESAMPLES,
            confidence_level=CONFIDENCE / 100,
            method="percentile",
            rng=np.random.default_rng(0),
        ).confidence_interval
    return Estimate(value, float(low), float(high))


def median(samples: Sequence[float]) -> Estimate:
    """The median, bootstrapped over the samples."""
    return bootstrap(np.median, samples)


def paired_ratio(baseline: Sequence[float], other: Sequence[float]) -> Estimate:
    """The median over rounds of baseline / other, bootstrapped over rounds.

    Raises:
        ValueError: not as many rounds of one as of the other.
    """
    if len(baseline) != len(other):
        raise ValueError(f"{len(baseline)} and {len(other)} rounds, expected pairs")
    return bootstrap(np.median, np.asarray(baseline, dtype=np.float64) / np.asarray(other))


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """The least-squares slope of log ``values`` on log ``sizes``; p where they are c n^p.

    Raises:
        ValueError: fewer than two sizes, not as many values, or a number that is not above 0.
    """
    return float(_slopes(sizes, np.asarray(values, dtype=np.float64)))


def measured_exponent(sizes: Sequence[float], rounds: npt.ArrayLike) -> Estimate:
    """The exponent of medians over rounds, bootstrapped over rounds.

    Args:
        sizes: (S,).
        rounds: (R, S), what each round gave for each size: a round's pause is in all its sizes.

    Raises:
        ValueError: as `exponent`.
    """

    def slope(*of_sizes: Array, axis: int) -> Array:
        return _slopes(sizes, np.stack([np.median(x, axis=axis) for x in of_sizes], axis=-1))

    return bootstrap(slope, *np.atleast_2d(np.asarray(rounds, dtype=np.float64)).T)


def _slopes(sizes: Sequence[float], y: Array) -> Array:
    """Of each row of ``y``, (..., S)."""
    n = np.asarray(sizes, dtype=np.float64)
    if len(set(n.tolist())) < 2 or y.shape[-1] != len(n):
        raise ValueError(
            f"sizes {n.tolist()} and values of shape {y.shape}, expected as many values as sizes, "
            "and two sizes at least"
        )
    if not (n > 0).all() or not (y > 0).all():
        raise ValueError("a size or a value is not above 0, which has no logarithm")
    x = np.log(n) - np.log(n).mean()
    slopes: Array = np.log(y) @ x / (x @ x)
    return slopes


SEEDS = 3
"""Fewer settle nothing, whatever their interval."""


@dataclass(frozen=True)
class Interval:
    """A difference with its 95 % interval.

    Attributes:
        p: of a difference at least as far from zero where there is none; below 0.05 where the
            interval excludes zero.
        seeds: how many the interval is over; None of what has none, an ensemble say.
    """

    mean: float
    low: float
    high: float
    p: float
    seeds: int | None

    @property
    def enough(self) -> bool:
        """Whether it is over enough seeds to settle anything."""
        return self.seeds is None or self.seeds >= SEEDS

    @property
    def settled(self) -> bool:
        """Whether the sign of the difference is: of enough seeds, the interval excludes zero."""
        return self.enough and (self.low > 0 or self.high < 0)


def holm(intervals: Sequence[Interval]) -> list[bool]:
    """Which differences stay settled where all are judged together: Holm's step-down method."""
    order = sorted(
        (i for i, one in enumerate(intervals) if one.enough), key=lambda i: intervals[i].p
    )
    settled = [False] * len(intervals)
    for rank, i in enumerate(order):
        if intervals[i].p * (len(order) - rank) > 1 - CONFIDENCE / 100:
            break
        settled[i] = True
    return settled


def paired_difference(ours: npt.ArrayLike, baseline: npt.ArrayLike) -> Interval:
    """Mean of ``ours - baseline``: Student's interval over seeds, or over both where that is wider.

    Over seeds alone it leaves out what one model has above the other on the images that happen to
    be in the split; where seeds differ little, equal models are then called different too often.
    So it is never narrower than the normal interval over seeds and images together. Of one seed,
    and of none, it is Student's over images.

    Args:
        ours: scores (seeds, images) of one model, or (images,) of what has no seeds.
        baseline: scores of the other, the same seeds and images in the same order.

    Raises:
        ValueError: the shapes differ or are neither (seeds, images) nor (images,).
    """
    a, b = np.asarray(ours, dtype=np.float64), np.asarray(baseline, dtype=np.float64)
    if a.shape != b.shape or a.ndim not in (1, 2) or a.size == 0:
        raise ValueError(
            f"paired scores must be two (seeds, images) or (images,), got {a.shape} and {b.shape}"
        )
    difference = np.atleast_2d(a - b)
    sources = difference.mean(1), difference.mean(0)
    return _interval(float(difference.mean()), sources, len(a) if a.ndim == 2 else None)


def difference_of_seeds(ours: npt.ArrayLike, baseline: npt.ArrayLike) -> Interval:
    """Mean of ``ours - baseline``, of one number a seed: Student's interval over seeds.

    Of one seed the interval has no ends.

    Args:
        ours: (seeds,), of one model.
        baseline: of the other, the same seeds in the same order.

    Raises:
        ValueError: the shapes differ or are not (seeds,).
    """
    a, b = np.asarray(ours, dtype=np.float64), np.asarray(baseline, dtype=np.float64)
    if a.shape != b.shape or a.ndim != 1 or a.size == 0:
        raise ValueError(f"paired values must be two (seeds,), got {a.shape} and {b.shape}")
    return _interval(float((a - b).mean()), [a - b], len(a))


def _interval(mean: float, sources: Sequence[Array], seeds: int | None) -> Interval:
    """Student's of the first source of chance that has several means, or wider, of all together."""
    errors = [(float(x.std(ddof=1)) / len(x) ** 0.5, len(x) - 1) for x in sources if len(x) > 1]
    if not errors:
        return Interval(mean, -math.inf, math.inf, 1.0, seeds)
    together = math.hypot(*(error for error, _ in errors))
    error, degrees = errors[0]
    half = max(error * student_t(degrees), together * float(scipy.special.ndtri(0.975)))
    if mean == 0 or together == 0:
        return Interval(mean, mean - half, mean + half, float(mean == 0), seeds)
    of_first = scipy.special.stdtr(degrees, -abs(mean) / error) if error else 0.0
    of_all = scipy.special.ndtr(-abs(mean) / together)
    return Interval(mean, mean - half, mean + half, 2 * float(max(of_first, of_all)), seeds)


def geometric_mean(values: npt.ArrayLike, over: npt.ArrayLike | None = None) -> Estimate:
    """The geometric mean over seeds, of ratios if ``over`` is given: Student's, of logarithms.

    Errors of a few seeds are skewed: an interval of their arithmetic mean, Student's or bootstrap,
    leaves the mean out too often.

    Args:
        values: (seeds,), above zero.
        over: what they are divided by, the same seeds in the same order.
    """
    x = np.log(np.asarray(values, dtype=np.float64))
    y = np.zeros_like(x) if over is None else np.log(np.asarray(over, dtype=np.float64))
    log = difference_of_seeds(x, y)
    return Estimate(*(float(np.exp(end)) for end in (log.mean, log.low, log.high)))
