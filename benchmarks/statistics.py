"""Intervals and verdicts for times, exponents, and differences between models."""

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
"""Confidence of all intervals, in per cent, unless stated otherwise."""
RESAMPLES = 2000


@dataclass(frozen=True)
class Estimate:
    """A value with its interval."""

    value: float
    low: float
    high: float


def verdict(ratio: Estimate, floor: float, *, smallest: float = 0.0, widen: bool = False) -> str:
    """The verdict on a speed-up, a ratio that is above 1 if something is faster.

    "same": the interval lies within ``smallest``, the smallest relevant change (0.02 is 2 %).
    "slower" or "faster": the interval excludes 1, and the ratio is beyond the A/A floor. With
    ``widen``, for the narrow bootstrap intervals of few rounds, the whole interval must be beyond
    the floor. Else "not settled".
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
    """Student's quantile: the half width of a two-sided interval in standard errors.

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
        samples: resampled together; for a single sample the interval is the value.
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
        ValueError: different numbers of rounds.
    """
    if len(baseline) != len(other):
        raise ValueError(f"{len(baseline)} and {len(other)} rounds, expected pairs")
    return bootstrap(np.median, np.asarray(baseline, dtype=np.float64) / np.asarray(other))


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """The least-squares slope of log ``values`` on log ``sizes``: p for values c n^p.

    Raises:
        ValueError: fewer than two sizes, another number of values, or a number not above 0.
    """
    return float(_slopes(sizes, np.asarray(values, dtype=np.float64)))


def measured_exponent(sizes: Sequence[float], rounds: npt.ArrayLike) -> Estimate:
    """The exponent of medians over rounds, bootstrapped over rounds.

    Args:
        sizes: (S,).
        rounds: (R, S), measured values; sizes of one round are resampled together.

    Raises:
        ValueError: as `exponent`.
    """

    def slope(*of_sizes: Array, axis: int) -> Array:
        return _slopes(sizes, np.stack([np.median(x, axis=axis) for x in of_sizes], axis=-1))

    return bootstrap(slope, *np.atleast_2d(np.asarray(rounds, dtype=np.float64)).T)


def _slopes(sizes: Sequence[float], y: Array) -> Array:
    """The exponent of each row of ``y``, (..., S)."""
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
"""Minimum number of seeds for a settled difference."""


@dataclass(frozen=True)
class Interval:
    """A difference with its 95 % interval.

    Attributes:
        p: the p value of a zero difference; below 0.05 if the interval excludes zero.
        seeds: number of seeds; None for models without seeds, such as ensembles.
    """

    mean: float
    low: float
    high: float
    p: float
    seeds: int | None

    @property
    def enough(self) -> bool:
        """Whether there are enough seeds to settle a difference."""
        return self.seeds is None or self.seeds >= SEEDS

    @property
    def settled(self) -> bool:
        """Whether the sign is settled: enough seeds, and the interval excludes zero."""
        return self.enough and (self.low > 0 or self.high < 0)


def holm(intervals: Sequence[Interval]) -> list[bool]:
    """Which differences are settled after Holm's step-down correction."""
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
    """Mean of ``ours - baseline``: the wider of two intervals, over seeds, or seeds and images.

    Student's interval over seeds ignores the sampling of images: if seeds differ little, equal
    models are called different too often. So the interval is never narrower than the normal one
    over seeds and images. With one seed or none it is Student's over images.

    Args:
        ours: scores (seeds, images) of one model, or (images,) without seeds.
        baseline: scores of the other model, with the same seeds and images in the same order.

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
    """Mean of ``ours - baseline``, one number for each seed, with Student's interval over seeds.

    With one seed the interval is infinite.

    Args:
        ours: (seeds,), of one model.
        baseline: of the other model, with the same seeds in the same order.

    Raises:
        ValueError: the shapes differ or are not (seeds,).
    """
    a, b = np.asarray(ours, dtype=np.float64), np.asarray(baseline, dtype=np.float64)
    if a.shape != b.shape or a.ndim != 1 or a.size == 0:
        raise ValueError(f"paired values must be two (seeds,), got {a.shape} and {b.shape}")
    return _interval(float((a - b).mean()), [a - b], len(a))


def _interval(mean: float, sources: Sequence[Array], seeds: int | None) -> Interval:
    """The wider of Student's interval of the first source of variance, and the normal one of all.

    A source has one mean for each seed or image; sources with a single mean are left out.
    """
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
    """The geometric mean over seeds of ``values`` or ``values / over``, with Student's interval.

    The interval is of logarithms: errors are skewed, and intervals of their arithmetic mean over
    few seeds, Student's or bootstrap, exclude the mean too often.

    Args:
        values: (seeds,), above zero.
        over: divisors, with the same seeds in the same order.
    """
    x = np.log(np.asarray(values, dtype=np.float64))
    y = np.zeros_like(x) if over is None else np.log(np.asarray(over, dtype=np.float64))
    log = difference_of_seeds(x, y)
    return Estimate(*(float(np.exp(end)) for end in (log.mean, log.low, log.high)))
