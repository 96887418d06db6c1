"""The auto-reconstructor's loss (ARNet 5-7, 9); training against inference states (10-12)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from reference.checks import requires
from reference.equations import Decision, Erratum, equation
from reference.primitives import Array, Parameters, linear, select, sigmoid
from reference.recurrent import BIAS, State, zero_state

STEPS = Decision(
    "the sum over t has no bounds",
    "t = 2 ... T: each of the decoder's states h_1 ... h_(T-1) is reconstructed from the one "
    "after it; the auto-reconstructor starts from zeros and reads h_1 too",
    "h_0 is what the network starts from, not a state that it came to",
    about="bounds",
)


@equation(
    "arnet",
    5,
    r"\begin{pmatrix} i'_t \\ f'_t \\ o'_t \\ g'_t \end{pmatrix} ="
    r" \begin{pmatrix} \sigma \\ \sigma \\ \sigma \\ \tanh \end{pmatrix}"
    r" \mathbf{T} \begin{pmatrix} h_t \\ h'_{t-1} \end{pmatrix}",
    r"c'_t = f'_t \odot c'_{t-1} + i'_t \odot g'_t",
    r"h'_t = o'_t \odot \tanh(c'_t)",
    notes=[BIAS],
)
def reconstructor(h: Array, state: State, T: Parameters) -> State:
    """h'_t and c'_t (d',) from the decoder's h_t (d,); T as in ``lstm``, with input h_t."""
    h_prime, c_prime = state
    i, f, o, g = np.split(T["weight"] @ np.concatenate([h, h_prime]) + T.get("bias", 0), 4)
    i, f, o, g = sigmoid(i), sigmoid(f), sigmoid(o), np.tanh(g)
    c_t: Array = f * c_prime + i * g
    h_t: Array = o * np.tanh(c_t)
    return State(h_t, c_t)


@equation("arnet", 6, r"\hat{h}_{t-1} = \mathbf{w}_{fc} h'_t + \mathbf{b}_{fc}")
def reconstructed(h_prime: Array, fc: Parameters) -> Array:
    """h^_{t-1} (d,) from h'_t (d',) by the linear map fc."""
    return linear(h_prime, fc)


@equation("arnet", 7, r"\mathcal{L}_{AR}^t = \| h_{t-1} - \hat{h}_{t-1} \|_2^2", notes=[STEPS])
def reconstruction_error(h: Array, h_hat: Array) -> float:
    """The squared Euclidean distance between h_{t-1} and h^_{t-1}, both (d,)."""
    error: float = np.sum((h - h_hat) ** 2)
    return error


def reconstruction_errors(h: Sequence[Array] | Array, parameters: Parameters) -> Array:
    """L_AR^t for t = 2 ... T, (T - 1,), from the decoder's T states (d,).

    ``parameters`` are ``lstm``, the T of (5), and ``fc``, the linear map of (6).
    """
    T, fc = select(parameters, "lstm."), select(parameters, "fc.")
    state = zero_state(len(T["weight"]) // 4, T["weight"].dtype)
    errors = []
    for t, h_t in enumerate(h):
        state = reconstructor(h_t, state, T)
        if t > 0:
            errors.append(reconstruction_error(h[t - 1], reconstructed(state.h, fc)))
    return np.stack(errors) if errors else np.zeros(0)


@equation(
    "arnet", 9, r"\mathcal{L} = \mathcal{L}_{NLL} + \lambda \sum \mathcal{L}_{AR}^t", notes=[STEPS]
)
@requires(lambda lambda_: 0 <= lambda_ < float("inf"), "lambda is {lambda_}, expected at least 0")
def joint_loss(L_NLL: float, L_AR: Sequence[float] | Array, lambda_: float) -> float:
    """The fine-tuning objective."""
    return float(L_NLL + lambda_ * np.sum(L_AR))


@equation("arnet", 10, r"d(h_1, h_2) = 1 - \frac{h_1^T h_2}{\|h_1\| \|h_2\|}")
@requires(
    lambda h_1, h_2: h_1.any() and h_2.any(), "a hidden state of norm 0 has no cosine distance"
)
def cosine_distance(h_1: Array, h_2: Array) -> float:
    """One minus the cosine of the angle between two states (d,), 0 to 2."""
    cosine: Any = h_1 @ h_2 / (np.linalg.norm(h_1) * np.linalg.norm(h_2))
    d: float = 1 - cosine
    return d


@equation(
    "arnet",
    11,
    r"d_{mc}(\mathbf{U}, \mathbf{V}) = d\left(\frac{1}{N} \sum_i^N \mathbf{u}_{I_i},"
    r" \frac{1}{N} \sum_j^N \mathbf{v}_{I_i}\right)",
    notes=[
        Erratum("the second mean, over j, is of v_{I_i}", "it is over its own index", "misprint")
    ],
)
def mean_centroid_distance(U: Array, V: Array) -> float:
    """The cosine distance between the mean states of training and inference mode.

    U and V (N, d) are the last hidden states of N images: of the step that emits the end token, or
    of the last step.
    """
    N = len(U)
    return float(cosine_distance(np.sum(U, axis=0) / N, np.sum(V, axis=0) / N))


@equation(
    "arnet",
    12,
    r"d_{pw}(\mathbf{U}, \mathbf{V}) ="
    r" \frac{1}{N} \sum_{i=1}^N d(\mathbf{u}_{I_i}, \mathbf{v}_{I_i})",
)
@requires(
    lambda U, V: U.shape == V.shape,
    "states of shapes {U.shape} and {V.shape}, expected the same images",
)
def point_wise_distance(U: Array, V: Array) -> float:
    """The mean cosine distance of an image's two states, see ``mean_centroid_distance``."""
    N = len(U)
    d = np.stack([cosine_distance(u, v) for u, v in zip(U, V, strict=True)])
    return float(np.sum(d) / N)
