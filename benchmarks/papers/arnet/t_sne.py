"""Exact t-SNE in two dimensions (van der Maaten & Hinton, Visualizing Data using t-SNE, JMLR 2008).

For a few hundred points: every step computes all pairs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

TINY = 1e-12
"""Lower bound of probabilities in logarithms."""
EXAGGERATION, EXAGGERATED_STEPS = 4.0, 50
"""Section 3.4, "early exaggeration"."""
MOMENTUM, LATER_MOMENTUM, MOMENTUM_CHANGES = 0.5, 0.8, 250
RATE, STEPS = 100.0, 1000
LEAST_GAIN = 0.01


@dataclass(frozen=True)
class Embedding:
    """Points (n, 2) in the plane, and their divergence KL(P || Q)."""

    points: Array
    divergence: float


def squared_distances(x: Array) -> Array:
    """|x_i - x_j|^2 of rows (n, d): (n, n), exact zeros on the diagonal."""
    difference = x[:, None] - x[None]
    squared: Array = (difference**2).sum(-1)
    return squared


def conditional(distances: Array, perplexity: float) -> Array:
    """p_{j|i} (eq. 1), with each row's variance found by bisection of its perplexity.

    Args:
        distances: |x_i - x_j|^2, (n, n).
        perplexity: 2^H of each row, with the entropy H in bits.

    Raises:
        ValueError: the distances are not square or not finite, or the perplexity is not between 1
            and n - 1.
    """
    n = len(distances)
    if distances.shape != (n, n) or not np.isfinite(distances).all():
        raise ValueError(f"distances {distances.shape}, expected finite ones of (n, n)")
    if not 1 < perplexity < n - 1:
        raise ValueError(f"perplexity is {perplexity}, expected above 1 and below {n - 1}")
    others = ~np.eye(n, dtype=bool)
    apart = distances[others].reshape(n, n - 1)
    # normalise the variance's unit, so that the bounds below suit distances of any scale
    apart = apart - apart.min(1, keepdims=True)
    apart = apart / np.maximum(apart.mean(1, keepdims=True), TINY)
    low, high = np.full((n, 1), -50.0), np.full((n, 1), 50.0)
    for _ in range(100):
        middle = (low + high) / 2
        p = np.exp(-apart * np.exp(middle))
        p /= p.sum(1, keepdims=True)
        entropy = -(p * np.log(np.maximum(p, TINY))).sum(1, keepdims=True)
        wide = entropy > np.log(perplexity)
        low, high = np.where(wide, middle, low), np.where(wide, high, middle)
    found = np.zeros((n, n))
    found[others] = p.ravel()
    return found


def joint(x: Array, perplexity: float) -> Array:
    """p_ij = (p_{j|i} + p_{i|j}) / 2n of rows (n, d): (n, n), sums to 1 (section 3.1)."""
    p = conditional(squared_distances(x), perplexity)
    symmetric: Array = (p + p.T) / (2 * len(p))
    return symmetric


def divergence(p: Array, y: Array) -> float:
    """The cost KL(P || Q) of points ``y`` (n, 2), with q_ij of eq. 4."""
    _, q = _similarities(y)
    return float((p * np.log(np.maximum(p, TINY) / np.maximum(q, TINY))).sum())


def gradient(p: Array, y: Array) -> Array:
    """The cost's gradient with respect to ``y`` (n, 2), eq. 5."""
    near, q = _similarities(y)
    pull = (p - q) * near
    found: Array = 4 * (pull.sum(1)[:, None] * y - pull @ y)
    return found


def _similarities(y: Array) -> tuple[Array, Array]:
    """(1 + |y_i - y_j|^2)^-1 with a zero diagonal, and its normalised values q_ij."""
    near = 1 / (1 + squared_distances(y))
    np.fill_diagonal(near, 0)
    return near, near / near.sum()


def embed(x: npt.ArrayLike, *, perplexity: float = 30, seed: int = 0) -> Embedding:
    """Embed the rows ``x`` (n, d) in the plane by algorithm 1.

    As in the paper: gradient descent with momentum, and a learning rate for each coordinate that
    grows while its gradient keeps its sign (Jacobs 1988). ``seed`` determines the initial points.

    Raises:
        ValueError: ``x`` is not (n, d), or the perplexity is not between 1 and n - 1.
    """
    rows = np.asarray(x, dtype=np.float64)
    if rows.ndim != 2:
        raise ValueError(f"rows to embed are {rows.shape}, expected (n, d)")
    p = joint(rows, perplexity)
    y = np.random.default_rng(seed).normal(0, 1e-2, (len(rows), 2))
    velocity, gains = np.zeros_like(y), np.ones_like(y)
    for step in range(STEPS):
        slope = gradient(p * EXAGGERATION if step < EXAGGERATED_STEPS else p, y)
        keeps = slope * velocity < 0
        gains = np.maximum(np.where(keeps, gains + 0.2, gains * 0.8), LEAST_GAIN)
        momentum = MOMENTUM if step < MOMENTUM_CHANGES else LATER_MOMENTUM
        velocity = momentum * velocity - RATE * gains * slope
        y = y + velocity
    return Embedding(y - y.mean(0), divergence(p, y))
