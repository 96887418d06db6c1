"""Optimisation: gradient descent, gradient clipping, RAdam, learning rate schedules.

The read-only LSTM's 18, 19 and its listing; the ExpansionNets' RAdam and warm-up, by the text and
as run. Iterations count the updates already made: the first update has iteration 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from reference.checks import requires
from reference.equations import Decision, Erratum, equation
from reference.primitives import Array


@equation(
    "lstm_readonly",
    18,
    r"\frac{\partial z}{\partial x} ="
    r" \sum_{i=1}^n \frac{\partial z}{\partial y_i} \frac{\partial y_i}{\partial x}",
    definition="the chain rule, by which every gradient is computed",
)
def chain_rule(dz_dy: Sequence[Array], dy_dx: Sequence[Array]) -> Array:
    """A node's gradient (d,) from dz/dy_i (d_i,) and dy_i/dx (d_i, d) of each of its successors."""
    terms = [dz_dy_i @ dy_i_dx for dz_dy_i, dy_i_dx in zip(dz_dy, dy_dx, strict=True)]
    dz_dx: Array = np.sum(terms, axis=0)
    return dz_dx


@equation(
    "lstm_readonly",
    19,
    r"\theta^{new} = \theta^{old} - \alpha \Delta_{\theta} I_{t:t+B}(\theta)",
    notes=[
        Erratum(
            "Delta_theta I_{t:t+B}(theta)",
            "the gradient of the loss, the mean over the B examples of the mini-batch",
            "I is the image elsewhere; (15) names the loss L",
        ),
        Erratum(
            "gradient descent updates the parameters (18)",
            "(19)",
            "misprint: (18) is the chain rule, (19) the update",
            about="text of II.D",
        ),
    ],
)
def gradient_descent(theta_old: Array, gradients: Array, alpha: float) -> Array:
    """The parameters after a step, from the gradients (B, ...) of each example's loss."""
    theta_new: Array = theta_old - alpha * gradients.mean(axis=0)
    return theta_new


@equation(
    "lstm_readonly",
    "gradient clipping",
    r"\hat{g} \leftarrow \frac{\partial \varepsilon}{\partial \theta}",
    r"\textbf{if } \|\hat{g}\| \geq \text{threshold} \textbf{ then }"
    r" \hat{g} \leftarrow \frac{\text{threshold}}{\|\hat{g}\|} \hat{g}",
    notes=[
        Decision(
            "the norm of the gradient by theta",
            "one norm, of the gradients of all parameters together",
            "theta are the parameters of the model, in (1)",
        )
    ],
)
@requires(lambda threshold: threshold > 0, "threshold is {threshold}, expected above 0")
def clip_gradients(g: Sequence[Array], threshold: float) -> list[Array]:
    """The gradients of all parameters, scaled to ``threshold`` if their joint norm reaches it."""
    norm = np.sqrt(sum((part**2).sum() for part in g))
    if norm >= threshold:
        return [threshold / norm * part for part in g]
    return [*g]


def rectification(t: int, beta_2: float) -> float | None:
    """r_t of RAdam (Liu et al. 2019; v1 [23], v2 [53]) at step t = 1, 2, ..., None where rho_t < 5.

    The exponential average of the squared gradients is approximated by a simple average of the last
    rho_t, of the same mean age; r_t is the root of its variance as t goes to infinity over that at
    t. With beta_2 = 0.98 it is None at steps 1 to 5.
    """
    age = np.arange(t, 0, -1)  # (t,), first gradient to last
    weight = (1 - beta_2) * beta_2 ** (age - 1) / (1 - beta_2**t)  # (t,), sums to 1
    rho = 2 * (weight @ age) - 1  # the mean age of a simple average is (rho + 1) / 2
    rho_inf = 2 / (1 - beta_2) - 1
    if rho < 5:
        return None
    variance, variance_inf = (n / (2 * (n - 2) * (n - 4)) for n in (rho, rho_inf))
    return math.sqrt(variance_inf / variance)


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

    Where the rectification is undefined, the run updates only the moments; the published algorithm
    takes a momentum step. Epsilon is added to the root of the second moment before bias correction.
    """
    m, v = np.zeros_like(theta), np.zeros_like(theta)
    trajectory = []
    for t, (g, lr) in enumerate(zip(gradients, learning_rates, strict=True), start=1):
        m = beta_1 * m + (1 - beta_1) * g
        v = beta_2 * v + (1 - beta_2) * g**2
        m_hat = m / (1 - beta_1**t)
        r = rectification(t, beta_2)
        if r is not None:
            l_hat = math.sqrt(1 - beta_2**t) / (np.sqrt(v) + epsilon)
            theta = theta - lr * r * m_hat * l_hat
        elif published:
            theta = theta - lr * m_hat
        trajectory.append(theta)
    return trajectory


def annealed(
    iteration: int, lr: float, batches_per_epoch: int, anneal: float, anneal_every: int
) -> float:
    """``lr`` times ``anneal`` for every ``anneal_every`` completed epochs."""
    epochs = iteration // batches_per_epoch
    return lr * math.prod([anneal] * (epochs // anneal_every))


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
    """The learning rate as run: annealed ``lr``, divided by the updates left of the warm-up.

    The rise is hyperbolic: half way through 10,000 updates the rate is lr / 5,000. After the
    warm-up the rate is at least ``floor``.
    """
    rate = annealed(iteration, lr, batches_per_epoch, anneal, anneal_every)
    if iteration < warmup:
        return rate / (warmup - iteration)
    return max(rate, floor)


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

    It rises linearly to ``lr`` at the ``warmup``-th update.
    """
    rate = annealed(iteration, lr, batches_per_epoch, anneal, anneal_every)
    if iteration + 1 < warmup:
        return rate * (iteration + 1) / warmup
    return rate
