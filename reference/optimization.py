"""Gradients and what is done with them: descent, clipping, RAdam as run, learning rates.

The read-only LSTM's 18, 19 and its listing; of the ExpansionNets the warm-up in its two readings.

Iterations count the updates already made: the first update has iteration 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from reference.equations import equation

Array = npt.NDArray[np.float64]


@equation("lstm_readonly", 18)
def chain_rule(dz_dy: Sequence[Array], dy_dx: Sequence[Array]) -> Array:
    """``dz/dx = sum_i dz/dy_i dy_i/dx``: a node's gradient from those of its n successors.

    Args:
        dz_dy: for each successor (d_i,), the gradient of the scalar z by it.
        dy_dx: for each successor its derivative by the node, (d_i, d).

    Returns:
        (d,).
    """
    dz_dx: Array = sum(
        (dz_dy_i @ dy_i_dx for dz_dy_i, dy_i_dx in zip(dz_dy, dy_dx, strict=True)),
        start=np.zeros(dy_dx[0].shape[1]),
    )
    return dz_dx


@equation("lstm_readonly", 19)
def gradient_descent(theta_old: Array, gradients: Array, alpha: float) -> Array:
    """``theta_new = theta_old - alpha grad L_{t:t+B}(theta)``, of one mini-batch.

    Args:
        theta_old: the parameters, any shape.
        gradients: (B, ...), the gradient of each example's loss; that of the batch is their mean.
        alpha: the learning rate.
    """
    theta_new: Array = theta_old - alpha * gradients.mean(axis=0)
    return theta_new


@equation("lstm_readonly", "gradient clipping")
def clip_gradients(g: Sequence[Array], threshold: float) -> list[Array]:
    """``if ||g|| >= threshold: g = threshold / ||g|| g``: one norm, of all parameters' gradients.

    Args:
        g: the gradient of each parameter, any shapes.
        threshold: the largest norm to leave as it is, above zero.

    Raises:
        ValueError: a threshold that is not above zero.
    """
    if not threshold > 0:
        raise ValueError(f"threshold is {threshold}, expected above 0")
    norm = math.sqrt(sum(float((part**2).sum()) for part in g))
    scale = threshold / norm if norm >= threshold else 1.0
    return [scale * part for part in g]


def rectification(t: int, beta_2: float) -> float | None:
    """r_t of Liu et al. 2019 (v1 [23], v2 [53]), or None where step t = 1, 2, ... has none.

    rho_t approximates the degrees of freedom of the second moment; below 5 its variance is not
    trusted. With beta_2 = 0.98 these are steps 1 to 5.
    """
    rho_inf = 2 / (1 - beta_2) - 1
    rho = rho_inf - 2 * t * beta_2**t / (1 - beta_2**t)
    if rho < 5:
        return None
    return math.sqrt((rho - 4) * (rho - 2) * rho_inf / ((rho_inf - 4) * (rho_inf - 2) * rho))


def radam(
    theta: Array,
    gradients: Sequence[Array],
    learning_rates: Sequence[float],
    *,
    beta_1: float = 0.9,
    beta_2: float = 0.98,
    epsilon: float = 1e-9,
    published: bool = False,
) -> list[Array]:
    """The parameters after each update of RAdam, as run or as published.

    Where the rectification is undefined the parameters stay as run, although the moments are
    gathered; the published algorithm (Liu et al. 2019) takes a step of momentum there.

    Args:
        theta: the first parameters, any shape.
        gradients: one of theta's shape for each update.
        learning_rates: one for each update.
        beta_1: decay of the first moment.
        beta_2: decay of the second moment.
        epsilon: added to the root of the second moment before its bias is corrected.
        published: whether to move by momentum where there is no rectification.
    """
    m, v = np.zeros_like(theta), np.zeros_like(theta)
    trajectory = []
    for t, (g, lr) in enumerate(zip(gradients, learning_rates, strict=True), start=1):
        m = beta_1 * m + (1 - beta_1) * g
        v = beta_2 * v + (1 - beta_2) * g**2
        m_hat = m / (1 - beta_1**t)
        r = rectification(t, beta_2)
        if r is None:
            theta = theta - lr * m_hat if published else theta
        else:
            l_hat = math.sqrt(1 - beta_2**t) / (np.sqrt(v) + epsilon)
            theta = theta - lr * r * m_hat * l_hat
        trajectory.append(theta)
    return trajectory


def hyperbolic_warmup(
    iteration: int,
    *,
    lr: float,
    warmup: int,
    batches_per_epoch: int,
    anneal: float,
    anneal_every: int,
    floor: float = 5e-7,
) -> float:
    """The learning rate as run: lr / max(w - it, 1), annealed, and not below ``floor`` from w on.

    The rise is hyperbolic: half way through w = 10,000 the rate is lr / 5,000. ``anneal`` is a
    factor for every ``anneal_every`` epochs, counted from the first iteration.
    """
    annealed = anneal ** (iteration // (batches_per_epoch * anneal_every))
    rate = lr / max(warmup - iteration, 1) * annealed
    return max(rate, floor) if iteration >= warmup else rate


def linear_warmup(
    iteration: int,
    *,
    lr: float,
    warmup: int,
    batches_per_epoch: int,
    anneal: float,
    anneal_every: int,
) -> float:
    """The learning rate as the papers' text has it: "warm-up", "annealed by 0.8 every 2 epochs".

    It rises linearly to ``lr`` at the ``warmup``-th update; annealed as in ``hyperbolic_warmup``.
    """
    annealed = anneal ** (iteration // (batches_per_epoch * anneal_every))
    return lr * min((iteration + 1) / max(warmup, 1), 1.0) * annealed
