"""Intervals that comparisons between models rest on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Interval:
    """A difference with its 95 % bootstrap interval."""

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
    seeds, images = difference.shape
    generator = np.random.default_rng(seed)
    means = np.empty(draws)
    for i in range(draws):
        rows = generator.integers(seeds, size=seeds)
        columns = generator.integers(images, size=images)
        means[i] = difference[np.ix_(rows, columns)].mean()
    low, high = np.percentile(means, [2.5, 97.5])
    return Interval(float(difference.mean()), float(low), float(high))
