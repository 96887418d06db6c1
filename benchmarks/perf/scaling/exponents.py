"""Exponents: the slope of log y on log n, with an interval where y was measured."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from benchmarks.perf.timing import CONFIDENCE, DRAWS, Estimate

Array = npt.NDArray[np.float64]


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """The least-squares slope of log ``values`` on log ``sizes``; p where they are c n^p.

    Raises:
        ValueError: fewer than two sizes, not as many values, or a number that is not above 0.
    """
    n, y = _checked(sizes, np.asarray(values, dtype=np.float64)[None])
    return float(_slopes(n, y)[0])


def local(sizes: Sequence[float], values: Sequence[float]) -> float:
    """The slope between the last two sizes: where growth is heading.

    Raises:
        ValueError: as `exponent`.
    """
    return exponent(sizes[-2:], values[-2:])


def measured(sizes: Sequence[float], rounds: npt.ArrayLike) -> Estimate:
    """The exponent of medians over rounds, bootstrapped over rounds.

    Args:
        sizes: (S,).
        rounds: (R, S), what each round gave for each size: a round's pause is in all its sizes.

    Raises:
        ValueError: as `exponent`.
    """
    n, y = _checked(sizes, np.atleast_2d(np.asarray(rounds, dtype=np.float64)))
    chosen = np.random.default_rng(0).integers(len(y), size=(DRAWS, len(y)))
    drawn = _slopes(n, np.median(y[chosen], axis=1))
    tail = (100 - CONFIDENCE) / 2
    low, high = np.percentile(drawn, [tail, 100 - tail])
    return Estimate(float(_slopes(n, np.median(y, axis=0)[None])[0]), float(low), float(high))


def _checked(sizes: Sequence[float], values: Array) -> tuple[Array, Array]:
    n = np.asarray(sizes, dtype=np.float64)
    if len(set(n.tolist())) < 2 or values.ndim != 2 or values.shape[1] != len(n):
        raise ValueError(
            f"sizes {n.tolist()} and values of shape {values.shape[1:]}, expected as many values "
            "as sizes, and two sizes at least"
        )
    if not (n > 0).all() or not (values > 0).all():
        raise ValueError("a size or a value is not above 0, which has no logarithm")
    return n, values


def _slopes(n: Array, y: Array) -> Array:
    x = np.log(n) - np.log(n).mean()
    slopes: Array = np.log(y) @ x / (x @ x)
    return slopes
