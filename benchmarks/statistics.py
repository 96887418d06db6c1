"""Intervals and verdicts: of times, of exponents, of differences between models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
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

    def widened(self, floor: float) -> Estimate:
        """An interval of a ratio, wider by a factor at both ends."""
        return Estimate(self.value, self.low / floor, self.high * floor)


def verdict(ratio: Estimate, floor: float, smallest: float = 0.0) -> str:
    """What may be said of a ratio that is above 1 where something is faster.

    "same": the interval lies within the smallest change that matters, 0.02 being 2 %. "slower" and
    "faster": it excludes 1, and the ratio itself is beyond the A/A floor. Else "not settled".
    """
    if smallest and ratio.low >= 1 / (1 + smallest) and ratio.high <= 1 + smallest:
        return "same"
    if ratio.high < 1 and ratio.value < 1 / floor:
        return "slower"
    if ratio.low > 1 and ratio.value > floor:
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
        seeds: how many the interval is over; None of what has none, an ensemble say.
    """

    mean: float
    low: float
    high: float
    seeds: int | None

    @property
    def enough(self) -> bool:
        """Whether it is over enough seeds to settle anything."""
        return self.seeds is None or self.seeds >= SEEDS

    @property
    def settled(self) -> bool:
        """Whether the sign of the difference is: of enough seeds, the interval excludes zero."""
        return self.enough and (self.low > 0 or self.high < 0)


def paired_difference(
    ours: npt.ArrayLike, baseline: npt.ArrayLike, *, draws: int = 2000, seed: int = 0
) -> Interval:
    """Mean of ``ours - baseline``, bootstrapped over seeds and images.

    Args:
        ours: scores (seeds, images) of one model, or (images,) of what has no seeds.
        baseline: scores of the other, the same seeds and images in the same order.
        draws: bootstrap resamples.
        seed: of the resampling; an equal seed gives an equal interval.

    Raises:
        ValueError: the shapes differ or are neither (seeds, images) nor (images,).
    """
    a, b = np.asarray(ours, dtype=np.float64), np.asarray(baseline, dtype=np.float64)
    if a.shape != b.shape or a.ndim not in (1, 2) or a.size == 0:
        raise ValueError(
            f"paired scores must be two (seeds, images) or (images,), got {a.shape} and {b.shape}"
        )
    difference = a - b
    means = bootstrap_means(np.atleast_2d(difference), draws=draws, seed=seed)
    low, high = np.percentile(means, [2.5, 97.5])
    seeds = len(difference) if difference.ndim == 2 else None
    return Interval(float(difference.mean()), float(low), float(high), seeds)


def bootstrap_means(scores: npt.ArrayLike, *, draws: int = 2000, seed: int = 0) -> Array:
    """The mean score in each resample of seeds and images, (draws,).

    Args:
        scores: (seeds, images).
        draws: bootstrap resamples.
        seed: of the resampling; scores of one shape are resampled alike.

    Raises:
        ValueError: the scores are not (seeds, images).
    """
    x = np.asarray(scores, dtype=np.float64)
    if x.ndim != 2 or x.size == 0:
        raise ValueError(f"scores must be (seeds, images), got {x.shape}")
    of_seeds, of_images = _resamples(*x.shape, draws, seed)
    means: Array = np.einsum("ds,sd->d", of_seeds, x @ of_images.T)
    return means


@lru_cache(maxsize=2)
def _resamples(seeds: int, images: int, draws: int, seed: int) -> tuple[Array, Array]:
    """How often each seed and image is resampled, as shares, (draws, seeds) and (draws, images).

    Kept because a report asks for hundreds of intervals of few shapes.
    """
    generator = np.random.default_rng(seed)
    of_seeds, of_images = np.empty((draws, seeds)), np.empty((draws, images))
    for i in range(draws):
        for shares, count in ((of_seeds, seeds), (of_images, images)):
            drawn = generator.integers(count, size=count)
            shares[i] = np.bincount(drawn, minlength=count) / count
    return of_seeds, of_images


@dataclass(frozen=True)
class Pair:
    """Two models by name, what the first should be above the second, and what it is."""

    first: str
    second: str
    expected: float
    found: Interval

    @property
    def agrees(self) -> bool:
        """Whether the mean difference has the expected sign."""
        return self.found.mean * self.expected > 0


def kendall_tau(pairs: Sequence[Pair]) -> float:
    """Kendall's tau over the pairs that are expected to differ: 1 the same order, -1 the reverse.

    Raises:
        ValueError: there is no pair.
    """
    if not pairs:
        raise ValueError("no pairs, expected models that are expected to differ")
    signs = [np.sign(pair.found.mean) * np.sign(pair.expected) for pair in pairs]
    return float(np.mean(signs))


def difference_of_seeds(ours: npt.ArrayLike, baseline: npt.ArrayLike) -> Interval:
    """Mean of ``ours - baseline``, of one number a seed: Student's interval.

    The bootstrap of three seeds is their range, which leaves out zero once in four times when
    nothing differs. Of one seed the interval has no ends.

    Args:
        ours: (seeds,), of one model.
        baseline: of the other, the same seeds in the same order.

    Raises:
        ValueError: the shapes differ or are not (seeds,).
    """
    a, b = np.asarray(ours, dtype=np.float64), np.asarray(baseline, dtype=np.float64)
    if a.shape != b.shape or a.ndim != 1 or a.size == 0:
        raise ValueError(f"paired values must be two (seeds,), got {a.shape} and {b.shape}")
    differences = a - b
    mean, n = float(differences.mean()), len(differences)
    if n == 1:
        return Interval(mean, -np.inf, np.inf, n)
    half = student_t(n - 1) * float(differences.std(ddof=1)) / n**0.5
    return Interval(mean, mean - half, mean + half, n)
