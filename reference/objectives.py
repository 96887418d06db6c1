"""The training objectives: cross-entropy and the self-critical loss.

v1 13-15, v2 13-14; ARNet 8.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from reference.checks import requires
from reference.equations import Decision, Erratum, equation
from reference.primitives import Array

Baseline = Literal["leave_one_out", "printed"]


@equation(
    "expansionnet_v1",
    13,
    r"L_{XE}(\theta) = -\sum_{t}^{T} \log(p_{\theta}(y_{t}^{*}|y_{1:t-1}^{*}))",
)
@equation(
    "expansionnet_v2", 13, r"L_{XE}(\theta) = - \sum_t^T \log(p_\theta(y_t^* | y_{1:t-1}^*, I))"
)
def cross_entropy(log_p: Array, y_star: Sequence[int]) -> float:
    """The cross-entropy of T ground-truth words; row t of log_p (T, V) reads the words before t."""
    return float(-log_p[range(len(y_star)), y_star].sum())


@equation(
    "arnet",
    8,
    r"\mathcal{L}_{NLL} = -\log p(\mathcal{C}|\mathcal{I}) = -\sum_{t=2}^N \log p(y_t|y_{t-1})",
    notes=[
        Decision(
            "p(y_t | y_{t-1})",
            "conditioned through h_{t-1} on all earlier words",
            "the network is recurrent",
        ),
        Erratum(
            "p(y_t | y_{t-1}) = Softmax(w h_t) with h_t = LSTM(E y_t, h_{t-1})",
            "p(y_t | y_{t-1}) = Softmax(w h_{t-1}): h_t, which has read y_t, gives that of y_{t+1}",
            "off by one: a distribution of y_t from a state that has read it would be none",
            about="text of 4.2",
        ),
    ],
)
@requires(
    lambda log_p, y: len(log_p) == len(y) - 1,
    "log_p of shape {log_p.shape} for the words {y}, expected a row for each but the first",
)
def negative_log_likelihood(log_p: Array, y: Sequence[int]) -> float:
    """The negative log-likelihood of the words after the start sign y_1.

    log_p (N - 1, V) has a row for each of y_2 ... y_N.
    """
    return float(-log_p[range(len(log_p)), y[1:]].sum())


def smoothed_cross_entropy(
    log_ps: Sequence[Array], y_stars: Sequence[Sequence[int]], epsilon: float
) -> float:
    """Cross-entropy as run: smoothed labels, averaged over all words of all captions.

    Each caption has log_p (T, V) and T ground-truth words. The target distribution is 1 - epsilon
    on the ground truth and epsilon / (V - 1) on each other word, 0 <= epsilon < 1.
    """
    losses = []
    for log_p, y_star in zip(log_ps, y_stars, strict=True):
        for log_p_t, word in zip(log_p, y_star, strict=True):
            target = np.full_like(log_p_t, epsilon / max(len(log_p_t) - 1, 1))
            target[word] = 1 - epsilon
            some = target > 0  # the limit of 0 log p, p -> 0
            losses.append(-np.sum(target[some] * log_p_t[some]))
    return float(np.mean(np.stack(losses)))


@equation(
    "expansionnet_v1",
    14,
    r"L_{RF}(\theta) = -(r - b) \cdot \sum_{t}^{T} \log(p_{\theta}(y_{t}|y_{1:t-1}))",
)
def self_critical(log_p: Array, r: float, b: float) -> float:
    """The loss of one sampled caption: reward r, log-probabilities log_p (T,) of its words."""
    loss: float = -(r - b) * log_p.sum()
    return loss


@equation(
    "expansionnet_v1",
    15,
    r"b(c_i) = \frac{1}{K} \sum_{j \neq i} R(c_j) \quad i = 1, ..., K",
    notes=[
        Erratum(
            "b(c_i) = 1/K sum_{j != i} R(c_j)",
            "both, as `printed` (1/K) and `leave_one_out` (1/(K-1)); training uses the latter",
            "the mean over the other K-1 samples of the work that the paper cites",
        )
    ],
)
@requires(
    lambda kind: kind in ("leave_one_out", "printed"),
    "baseline is {kind!r}, expected 'leave_one_out' or 'printed'",
)
@requires(
    lambda R, kind: kind == "printed" or len(R) >= 2,
    "baseline 'leave_one_out' needs at least 2 samples of an image, got {R.size}",
)
def baselines(R: Array, kind: Baseline = "leave_one_out") -> Array:
    """The baselines b(c_i), (K,), from the rewards R (K,) of an image's samples."""
    K = len(R)
    divisor = K if kind == "printed" else K - 1
    b: Array = (R.sum() - R) / divisor
    return b


@equation(
    "expansionnet_v2",
    14,
    r"\nabla_\theta L_R(\theta) \approx"
    r" -(r(y_{1:T}^s) - b) \nabla_\theta \log p_\theta(y_{1:T}^s)",
)
def self_critical_gradient(gradient_log_p: Array, r: float, b: float) -> Array:
    """One sample's gradient of the loss from that of its log-probability, of any shape."""
    return -(r - b) * gradient_log_p
