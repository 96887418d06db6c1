"""Intervals that comparisons between models rest on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """A difference with its 95 % interval."""

    mean: float
    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        """Whether the sign of the difference is settled."""
        return self.low > 0 or self.high < 0


def paired_difference(
    ours: npt.ArrayLike, baseline: npt.ArrayLike, *, draws: int = 2000, seed: int = 0
) -> Interval:
    """Mean of ``ours - baseline``, bootstrapped over seeds and images.

    Args:
        ours: scores (seeds, images) of one model.
        baseline: scores of the other, the same seeds and images in the same order.
        draws: bootstrap resamples.
        seed: of the resampling; an equal seed gives an equal interval.

    Raises:
        ValueError: the shapes differ or are not (seeds, images).
    """
    a, b = np.asarray(ours, dtype=np.float64), np.asarray(baseline, dtype=np.float64)
    if a.shape != b.shape or a.ndim != 2 or a.size == 0:
        raise ValueError(f"paired scores must be two (seeds, images), got {a.shape} and {b.shape}")
    difference = a - b
    (means,) = bootstrap_means(difference[None], draws=draws, seed=seed).T
    return _interval(float(difference.mean()), means)


def bootstrap_means(scores: npt.ArrayLike, *, draws: int = 2000, seed: int = 0) -> Array:
    """The mean of each model's scores in each resample of seeds and images, (draws, models).

    Args:
        scores: (models, seeds, images); a resample draws the same seeds and images of all models.
        draws: bootstrap resamples.
        seed: of the resampling.

    Raises:
        ValueError: the scores are not (models, seeds, images).
    """
    x = np.asarray(scores, dtype=np.float64)
    if x.ndim != 3 or x.size == 0:
        raise ValueError(f"scores must be (models, seeds, images), got {x.shape}")
    _, seeds, images = x.shape
    generator = np.random.default_rng(seed)
    # how often each seed and each image is drawn, as shares
    of_seeds, of_images = np.empty((draws, seeds)), np.empty((draws, images))
    for i in range(draws):
        for shares, count in ((of_seeds, seeds), (of_images, images)):
            drawn = generator.integers(count, size=count)
            shares[i] = np.bincount(drawn, minlength=count) / count
    means: Array = np.einsum("ds,msd->dm", of_seeds, x @ of_images.T)
    return means


@dataclass(frozen=True)
class Pair:
    """Two models, by their places, and what the first is above the second."""

    first: int
    second: int
    expected: float
    found: Interval

    @property
    def agrees(self) -> bool:
        """Whether the mean difference has the expected sign."""
        return self.found.mean * self.expected > 0


def ordered_pairs(
    scores: npt.ArrayLike, expected: npt.ArrayLike, *, draws: int = 2000, seed: int = 0
) -> list[Pair]:
    """Every pair of models that ``expected`` orders, with the interval of its difference.

    Args:
        scores: (models, seeds, images).
        expected: (models,) the scores, of other data say, whose order is in question.
        draws: bootstrap resamples, the same for all pairs.
        seed: of the resampling.

    Raises:
        ValueError: the scores are not (models, seeds, images), or not as many as are expected.
    """
    x, e = np.asarray(scores, dtype=np.float64), np.asarray(expected, dtype=np.float64)
    if e.shape != x.shape[:1]:
        raise ValueError(f"{len(x)} models have scores, but {e.shape} are expected")
    resampled, means = bootstrap_means(x, draws=draws, seed=seed), x.mean((1, 2))
    return [
        Pair(
            i,
            j,
            float(e[i] - e[j]),
            _interval(means[i] - means[j], resampled[:, i] - resampled[:, j]),
        )
        for i in range(len(x))
        for j in range(i + 1, len(x))
        if e[i] != e[j]
    ]


def kendall_tau(pairs: list[Pair]) -> float:
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
        return Interval(mean, -np.inf, np.inf)
    half = student_t(n - 1) * float(differences.std(ddof=1)) / n**0.5
    return Interval(mean, mean - half, mean + half)


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


def _interval(mean: float, resampled: Array) -> Interval:
    low, high = np.percentile(resampled, [2.5, 97.5])
    return Interval(float(mean), float(low), float(high))
