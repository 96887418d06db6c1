"""The training objectives: cross-entropy and the self-critical loss.

v1 13-15, v2 13-14; ARNet 8 and the read-only LSTM's 15.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from reference.equations import equation

Array = npt.NDArray[np.float64]
Baseline = Literal["leave_one_out", "printed"]


@equation("expansionnet_v1", 13)
@equation("expansionnet_v2", 13)
def cross_entropy(log_p: Array, y_star: Sequence[int]) -> float:
    """L_XE = - sum_t log p(y*_t | y*_{1:t-1}).

    Args:
        log_p: (T, V), row t the log-probabilities given the words before t.
        y_star: T ground truth words.
    """
    L = 0.0
    for t, word in enumerate(y_star):
        L -= log_p[t, word]
    return float(L)


@equation("arnet", 8)
@equation("lstm_readonly", 15)
def negative_log_likelihood(log_p: Array, y: Sequence[int]) -> float:
    """L_NLL = - sum_{t=2}^N log p(y_t | y_{1:t-1}), where y_1 is the start sign; read-only: S_0.

    Args:
        log_p: (N - 1, V), its rows the log-probabilities of y_2 ... y_N.
        y: N words, the start sign first.
    """
    return cross_entropy(log_p, y[1:])


def smoothed_cross_entropy(
    log_ps: Sequence[Array], y_stars: Sequence[Sequence[int]], epsilon: float
) -> float:
    """Cross-entropy as run: smoothed labels, averaged over all words of all captions.

    The target distribution is 1 - epsilon on the ground truth and epsilon / (V - 1) on each other
    word; with epsilon = 0 this is eq. 13 summed over the captions over their number of words.

    Args:
        log_ps: one (T, V) for each caption.
        y_stars: its T ground truth words.
        epsilon: 0 <= epsilon < 1.
    """
    L, words = 0.0, 0
    for log_p, y_star in zip(log_ps, y_stars, strict=True):
        V = log_p.shape[1]
        for t, word in enumerate(y_star):
            for v in range(V):
                target = 1 - epsilon if v == word else epsilon / max(V - 1, 1)
                if target > 0:  # the limit of 0 log p, p -> 0
                    L -= target * log_p[t, v]
            words += 1
    return float(L / words)


@equation("expansionnet_v1", 14)
def self_critical(log_p: Array, r: float, b: float) -> float:
    """L_RF = -(r - b) sum_t log p(y_t | y_{1:t-1}), for one sampled caption.

    Args:
        log_p: (T,), the log-probabilities of the sampled words.
        r: the caption's reward.
        b: the baseline.
    """
    return float(-(r - b) * np.sum(log_p))


@equation("expansionnet_v1", 15)
def baselines(R: Array, kind: Baseline = "leave_one_out") -> Array:
    """b(c_i): what the other samples of the same image were rewarded.

    "printed" is eq. 15, 1/K sum_{j != i} R(c_j); "leave_one_out" divides by K - 1, which makes it
    the mean of the others: the cited work's, and the one to train with.

    Args:
        R: (K,) rewards of an image's samples.
        kind: which of the two.

    Raises:
        ValueError: an unknown ``kind``, or "leave_one_out" of a single sample.
    """
    K = len(R)
    if kind not in ("leave_one_out", "printed"):
        raise ValueError(f"baseline is {kind!r}, expected 'leave_one_out' or 'printed'")
    if kind == "leave_one_out" and K < 2:
        raise ValueError("baseline 'leave_one_out' needs at least 2 samples of an image, got 1")
    divisor = K if kind == "printed" else K - 1
    b = np.zeros(K)
    for i in range(K):
        b[i] = sum(R[j] for j in range(K) if j != i) / divisor
    return b


@equation("expansionnet_v2", 14)
def self_critical_gradient(gradient_log_p: Array, r: float, b: float) -> Array:
    """The gradient of L_R by one sample: -(r - b) times the gradient of log p(y_{1:T}).

    Args:
        gradient_log_p: any shape, the gradient of the sample's log-probability by the parameters.
        r: the sample's reward.
        b: the baseline.
    """
    return -(r - b) * gradient_log_p
