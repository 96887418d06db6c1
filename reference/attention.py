"""Attention (ExpansionNet v1, 1-2; ARNet 4; Middle-Out 2-4), multi-head attention, the AoA gate."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from reference.equations import equation
from reference.primitives import (
    Array,
    Mask,
    Parameters,
    linear,
    select,
    sigmoid,
    softmax,
)


@equation("expansionnet_v1", 1)
def attend(hd: Array, he: Array, f: Callable[[Array, Array], float]) -> Array:
    """Attention by any similarity: ``e_ij = f(hd_j, he_i)``, ``v_j = sum_i alpha_ij he_i``.

    Args:
        hd: (M, d_decoder), the decoder's states.
        he: (N, d), the encoder's states.
        f: the similarity of one ``hd_j`` and one ``he_i``.

    Returns:
        (M, d).
    """
    e = np.array([[f(hd_j, he_i) for hd_j in hd] for he_i in he], dtype=he.dtype)
    alpha = softmax(e, axis=0)
    v: Array = alpha.T @ he
    return v


Score = Callable[[Array, Array], float]
"""How relevant a state s_i is to a decoder's state h: of (h, s_i)."""


def additive_score(h: Array, s_i: Array, parameters: Parameters) -> float:
    """``w^T tanh(W_s s_i + W_h h + b)``: ARNet's multilayer perceptron (Bahdanau et al., 2015).

    Args:
        h: (d,), the decoder's state.
        s_i: (d_s,), one local information vector.
        parameters: ``w`` (d_a,), ``W_s`` (d_a, d_s), ``W_h`` (d_a, d), ``b`` (d_a,).
    """
    hidden = np.tanh(parameters["W_s"] @ s_i + parameters["W_h"] @ h + parameters["b"])
    return float(parameters["w"] @ hidden)


@equation("middle_out", 4)
def general_score(h: Array, s_i: Array, W_a: Array) -> float:
    """``h_{t-1} W_a h_i`` (Luong et al., 2015), of (d,), (d_s,) and (d, d_s)."""
    return float(h @ W_a @ s_i)


@equation("middle_out", 3)
def alignment_weights(h: Array, states: Array, score: Score) -> Array:
    """``alpha_i = exp(score(h, h_i)) / sum_k exp(score(h, h_k))``: (n,).

    Args:
        h: (d,), the decoder's h_{t-1}.
        states: (n, d_s), n >= 1.
        score: of h and one of them.
    """
    return softmax(np.array([score(h, h_i) for h_i in states]))


@equation("middle_out", 2)
def context_vector(alpha: Array, states: Array) -> Array:
    """``c = sum_i alpha_i h_i``: (d_s,), of (n,) weights and (n, d_s) states."""
    c: Array = alpha @ states
    return c


@equation("arnet", 4)
def soft_attention(h: Array, s: Array, score: Score) -> Array:
    """``z_t = sum_i exp(alpha(s_i, h_{t-1})) s_i / sum_j exp(alpha(s_j, h_{t-1}))``: (d_s,).

    Args:
        h: (d,), h_{t-1}.
        s: (n, d_s), the local information vectors, n >= 1.
        score: alpha.
    """
    return context_vector(alignment_weights(h, s, score), s)


def scaled_dot_product(Q: Array, K: Array, V: Array, mask: Mask | None = None) -> Array:
    """``Softmax(Q K^T / sqrt(d)) V`` for one head.

    Args:
        Q: (M, d), K: (N, d), V: (N, d_v).
        mask: (M, N), True where query j may see key i; every query must see one.

    Returns:
        (M, d_v).
    """
    e: Array = Q @ K.T / math.sqrt(K.shape[1])
    if mask is not None:
        e = np.where(mask, e, -np.inf)
    s: Array = softmax(e) @ V
    return s


@equation("expansionnet_v1", 2)
def self_attention(Q: Array, K: Array, V: Array, W_out: Array) -> Array:
    """Single-head self-attention: ``s = Softmax(Q K^T / sqrt(D)) V``, ``out = W_out s``.

    Args:
        Q, K, V: (N, D).
        W_out: (D, D), applied to each row of ``s``.

    Returns:
        (N, D).
    """
    s = scaled_dot_product(Q, K, V)
    out: Array = s @ W_out.T
    return out


def causal_mask(length: int) -> Mask:
    """(length, length), True where position j may see position i: ``i <= j``."""
    return np.tri(length, dtype=np.bool_)


def heads_concatenated(
    Q: Array, K: Array, V: Array, num_heads: int, mask: Mask | None = None
) -> Array:
    """``scaled_dot_product`` on each of ``num_heads`` slices of d_k = d / num_heads, side by side.

    Args:
        Q: (M, d), K: (N, d), V: (N, d), already projected.
        num_heads: a divisor of d; each head is scaled by ``sqrt(d_k)``.
        mask: (M, N) as in ``scaled_dot_product``.

    Returns:
        (M, d).

    Raises:
        ValueError: ``num_heads`` does not divide d.
    """
    if num_heads < 1 or Q.shape[1] % num_heads:
        raise ValueError(f"{num_heads} heads do not divide a model of {Q.shape[1]} channels")
    heads = (np.split(A, num_heads, axis=1) for A in (Q, K, V))
    return np.concatenate(
        [scaled_dot_product(q, k, v, mask) for q, k, v in zip(*heads, strict=True)], axis=1
    )


def multi_head_attention(
    X: Array, Y: Array, parameters: Parameters, num_heads: int, mask: Mask | None = None
) -> Array:
    """Multi-head attention of the queries of X on the keys and values of Y (Vaswani et al., 2017).

    Args:
        X: (M, d), Y: (N, d).
        parameters: linear maps ``query``, ``key``, ``value``, ``out``.
        num_heads: a divisor of d.
        mask: (M, N), True where row j of X may see row i of Y.

    Returns:
        (M, d).
    """
    Q, K, V = _projections(X, Y, parameters)
    return linear(heads_concatenated(Q, K, V, num_heads, mask), select(parameters, "out."))


def attention_on_attention(
    X: Array, Y: Array, parameters: Parameters, num_heads: int, mask: Mask | None = None
) -> Array:
    """Attention on Attention (Huang et al., 2019): the result gated by itself and the query.

    ``I = W_i [V_hat, Q] + b_i``, ``G = sigmoid(W_g [V_hat, Q] + b_g)``, ``out = I * G``, where Q is
    the projected query and V_hat its heads' results side by side.

    Args:
        X: (M, d), Y: (N, d).
        parameters: linear maps ``query``, ``key``, ``value``, ``information``, ``gate``.
        num_heads: a divisor of d.
        mask: (M, N), True where row j of X may see row i of Y.

    Returns:
        (M, d).
    """
    Q, K, V = _projections(X, Y, parameters)
    V_hat = heads_concatenated(Q, K, V, num_heads, mask)
    both = np.concatenate([V_hat, Q], axis=1)
    information = linear(both, select(parameters, "information."))
    gate = sigmoid(linear(both, select(parameters, "gate.")))
    return information * gate


def _projections(X: Array, Y: Array, parameters: Parameters) -> tuple[Array, Array, Array]:
    return (
        linear(X, select(parameters, "query.")),
        linear(Y, select(parameters, "key.")),
        linear(Y, select(parameters, "value.")),
    )
