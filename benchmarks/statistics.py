"""Intervals that comparisons between models rest on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


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
    """How often each seed and each image is drawn, as shares, (draws, seeds) and (draws, images).

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


@cache
def student_t(degrees: int) -> float:
    """The 97.5 % quantile of Student's t distribution, to 6 digits.

    Raises:
        ValueError: less than one degree of freedom.
    """
    if degrees < 1:
        raise ValueError(f"{degrees} degrees of freedom, expected at least 1")
    # t = sqrt(degrees) tan(angle) has a density that goes as cos(angle)^(degrees - 1)
    angles = np.linspace(0, np.pi / 2, 100_001)
    density = np.cos(angles) ** (degrees - 1)
    below = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    angle = np.interp(0.95, below / below[-1], angles)
    return float(degrees**0.5 * np.tan(angle))
