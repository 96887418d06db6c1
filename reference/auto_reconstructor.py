"""The auto-reconstructor (ARNet 5-12): its loss, and how far training and inference are apart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reference.equations import equation
from reference.primitives import (
    Array,
    Parameters,
    linear,
    select,
)
from reference.recurrent import State, lstm, zero_state


@equation("arnet", 5)
def reconstructor(h: Array, state: State, T: Parameters) -> State:
    """``(i', f', o', g') = (sigma, sigma, sigma, tanh) T [h_t; h'_{t-1}]``, then c'_t and h'_t.

    Args:
        h: (d,), the decoder's h_t.
        state: h'_{t-1} and c'_{t-1}, (d',) each.
        T: ``weight`` (4 d', d + d') and, if there, ``bias``, as ``recurrent.lstm`` has them.
    """
    return lstm(h, state, T)


@equation("arnet", 6)
def reconstructed(h_prime: Array, fc: Parameters) -> Array:
    """``h^_{t-1} = w_fc h'_t + b_fc``: (d',) to (d,).

    Args:
        h_prime: (d',), h'_t.
        fc: ``weight`` (d, d') and ``bias`` (d,).
    """
    return linear(h_prime, fc)


@equation("arnet", 7)
def reconstruction_error(h: Array, h_hat: Array) -> float:
    """``L_AR^t = || h_{t-1} - h^_{t-1} ||_2^2``, the square of the Euclidean distance."""
    difference = h - h_hat
    return float(difference @ difference)


def reconstruction_errors(h: Sequence[Array] | Array, parameters: Parameters) -> Array:
    """L_AR^t for t = 2 ... T: (T - 1,), each state reconstructed from the one after it.

    The auto-reconstructor starts from zeros and reads h_1 too, which has no predecessor among the
    states and adds nothing to the loss.

    Args:
        h: the decoder's T states in their order, (d,) each.
        parameters: ``lstm``, the T of eq. 5, and ``fc``, the linear map of eq. 6.
    """
    T, fc = select(parameters, "lstm."), select(parameters, "fc.")
    state = zero_state(len(T["weight"]) // 4)
    errors = []
    for t, h_t in enumerate(h):
        state = reconstructor(h_t, state, T)
        if t > 0:
            errors.append(reconstruction_error(h[t - 1], reconstructed(state.h, fc)))
    return np.array(errors)


@equation("arnet", 9)
def joint_loss(L_NLL: float, L_AR: Sequence[float] | Array, lambda_: float) -> float:
    """``L = L_NLL + lambda sum_t L_AR^t``.

    Raises:
        ValueError: lambda negative or not finite.
    """
    if not 0 <= lambda_ < float("inf"):
        raise ValueError(f"lambda is {lambda_}, expected at least 0")
    return float(L_NLL + lambda_ * sum(L_AR))


@equation("arnet", 10)
def cosine_distance(h_1: Array, h_2: Array) -> float:
    """``d(h_1, h_2) = 1 - h_1^T h_2 / (||h_1|| ||h_2||)``, 0 to 2.

    Raises:
        ValueError: a vector of zeros, which has no direction.
    """
    norms = np.linalg.norm(h_1) * np.linalg.norm(h_2)
    if not norms > 0:
        raise ValueError("a hidden state of norm 0 has no cosine distance")
    return float(1 - h_1 @ h_2 / norms)


@equation("arnet", 11)
def mean_centroid_distance(U: Array, V: Array) -> float:
    """``d_mc(U, V) = d(1/N sum_i u_i, 1/N sum_j v_j)``.

    Args:
        U: (N, d), the last hidden state of each of N images in training mode.
        V: (N, d), the same in inference mode: of the step that emits the end token or is the last.
    """
    return cosine_distance(U.mean(axis=0), V.mean(axis=0))


@equation("arnet", 12)
def point_wise_distance(U: Array, V: Array) -> float:
    """``d_pw(U, V) = 1/N sum_i d(u_i, v_i)``, with U and V as in ``mean_centroid_distance``.

    Raises:
        ValueError: U and V differ in shape, or a state is zero.
    """
    if U.shape != V.shape:
        raise ValueError(f"states of shapes {U.shape} and {V.shape}, expected the same images")
    return float(np.mean([cosine_distance(u, v) for u, v in zip(U, V, strict=True)]))
