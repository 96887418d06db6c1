"""Attention (ExpansionNet v1, 1-2; ARNet 4; Middle-Out 2-4), multi-head attention, the AoA gate."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from reference.checks import requires
from reference.equations import Decision, Erratum, equation
from reference.primitives import Array, Mask, Parameters, linear, select, sigmoid, softmax

Score = Callable[[Array, Array], Array]
"""``score(h, state)``: the relevance of a state (d_s,), or of each of (n, d_s), to the decoder's
state h (d,).
"""


@equation(
    "expansionnet_v1",
    1,
    r"e_{ij} = f(hd_j, he_i)",
    r"\alpha_{ij} = \operatorname{Softmax}(i, \{e_{1j}, ..., e_{Nj}\})",
    r"v_j = \sum_{t}^{N} he_i \cdot \alpha_{ij}",
    notes=[
        Erratum(
            "v_j is a sum over t of he_i alpha_ij",
            "v_j = sum_i alpha_ij he_i",
            "the sum runs over the encoder's states",
        )
    ],
)
def attend(hd: Array, he: Array, f: Score) -> Array:
    """The decoder's states hd (M, d) attend to the encoder's he (N, d_s): (M, d_s)."""
    rows = [np.stack([f(hd_j, he_i) for hd_j in hd], dtype=he.dtype) for he_i in he]
    e = np.stack(rows)  # (N, M)
    alpha = softmax(e, axis=0)
    v: Array = alpha.T @ he
    return v


@equation(
    "expansionnet_v1",
    2,
    r"s = \operatorname{Softmax}(\frac{QK^{\top}}{\sqrt{D}})V",
    r"out = W^{out}s",
    notes=[
        Decision(
            "scaled by sqrt(D)",
            "multi-head attention: sqrt(d_k) in each head",
            "the equation is of a single head, where both are the same",
        )
    ],
)
def self_attention(Q: Array, K: Array, V: Array, W_out: Array) -> Array:
    """Single-head self-attention of Q, K, V (N, D), then W_out (D, D) on each row: (N, D)."""
    s = softmax(Q @ K.T / math.sqrt(K.shape[1])) @ V
    out: Array = s @ W_out.T
    return out


@equation("middle_out", 2, r"\mathbf{c}_t = \sum_{i=1}^n \alpha_{t,i} \mathbf{h}_i^e")
def context_vector(alpha: Array, states: Array) -> Array:
    """The sum of the states (n, d_s), weighted by alpha (n,): (d_s,)."""
    c: Array = alpha @ states
    return c


@equation(
    "middle_out",
    3,
    r"\alpha_{t,i} = \frac{\exp(\operatorname{score}(\mathbf{h}_{t-1}^d, \mathbf{h}_i^e))}"
    r"{\sum_{k=1}^n \exp(\operatorname{score}(\mathbf{h}_{t-1}^d, \mathbf{h}_k^e))}",
)
def alignment_weights(h: Array, states: Array, score: Score) -> Array:
    """The attention weights (n,) of the decoder's h_{t-1} (d,) over the states (n, d_s)."""
    return softmax(score(h, states))


@equation(
    "middle_out",
    4,
    r"\operatorname{score}(\mathbf{h}_{t-1}^d, \mathbf{h}_i^e) ="
    r" \mathbf{h}_{t-1}^d \mathbf{W}_a \mathbf{h}_i^e",
)
def general_score(h: Array, h_i: Array, W_a: Array) -> Array:
    """The general score () (Luong et al., 2015) of h (d,) and h_i (d_s,), with W_a (d, d_s).

    Of the states (n, d_s), all their scores (n,).
    """
    score: Array = h @ W_a @ h_i.T
    return score


@equation(
    "arnet",
    4,
    r"z_t = f_{att}(\mathbf{s}, h_{t-1}) = \sum_{i=1}^{|\mathbf{s}|}"
    r" \frac{\exp(\alpha(s_i, h_{t-1}))}{\sum_{j=1}^{|\mathbf{s}|} \exp(\alpha(s_j, h_{t-1}))} s_i",
    notes=[
        Decision(
            "alpha is usually realized by a multilayer perceptron",
            "w^T tanh(W_s s_i + W_h h_{t-1} + b)",
            "the perceptron of the work that the paper cites",
        )
    ],
)
def soft_attention(h: Array, s: Array, score: Score) -> Array:
    """The context (d_s,) of the local information vectors s (n, d_s) for h_{t-1} (d,)."""
    z: Array = softmax(score(h, s)) @ s
    return z


def additive_score(h: Array, s_i: Array, parameters: Parameters) -> Array:
    """``w^T tanh(W_s s_i + W_h h + b)``, (): ARNet's multilayer perceptron (Bahdanau et al., 2015).

    ``w`` and ``b`` are (d_a,), ``W_s`` (d_a, d_s), ``W_h`` (d_a, d). Of the vectors s (n, d_s), all
    their scores (n,).
    """
    hidden = np.tanh(s_i @ parameters["W_s"].T + parameters["W_h"] @ h + parameters["b"])
    score: Array = hidden @ parameters["w"]
    return score


def causal_mask(length: int) -> Mask:
    """(length, length), True where position j may see position i: ``i <= j``."""
    return np.tri(length, dtype=np.bool_)


def scaled_dot_product(Q: Array, K: Array, V: Array, mask: Mask | None = None) -> Array:
    """``Softmax(Q K^T / sqrt(d_k)) V``: (M, d_k), (N, d_k), (N, d_v) to (M, d_v).

    ``mask`` (M, N) is True where a query may see a key; every query must see one.
    """
    e: Array = Q @ K.T / math.sqrt(K.shape[1])
    if mask is not None:
        e = np.where(mask, e, -np.inf)
    s: Array = softmax(e) @ V
    return s


@requires(
    lambda Q, num_heads: num_heads >= 1 and Q.shape[1] % num_heads == 0,
    "{num_heads} heads do not divide a model of {Q.shape[1]} channels",
)
def heads_concatenated(
    Q: Array, K: Array, V: Array, num_heads: int, mask: Mask | None = None
) -> Array:
    """Attention per head, of d_k = d / num_heads channels: (M, d), (N, d), (N, d) to (M, d).

    ``mask`` as in ``scaled_dot_product``.
    """
    split_Q, split_K, split_V = (np.split(A, num_heads, axis=1) for A in (Q, K, V))
    heads = zip(split_Q, split_K, split_V, strict=True)
    return np.concatenate([scaled_dot_product(q, k, v, mask) for q, k, v in heads], axis=1)


def multi_head_attention(
    X: Array, Y: Array, parameters: Parameters, num_heads: int, mask: Mask | None = None
) -> Array:
    """Multi-head attention (Vaswani et al., 2017) of the rows of X (M, d) to those of Y (N, d).

    ``parameters`` are the linear maps ``query``, ``key``, ``value``, ``out``; ``mask`` (M, N) is
    True where row j of X may see row i of Y.
    """
    Q = linear(X, select(parameters, "query."))
    K = linear(Y, select(parameters, "key."))
    V = linear(Y, select(parameters, "value."))
    return linear(heads_concatenated(Q, K, V, num_heads, mask), select(parameters, "out."))


def attention_on_attention(
    X: Array, Y: Array, parameters: Parameters, num_heads: int, mask: Mask | None = None
) -> Array:
    """Attention on Attention (Huang et al., 2019): a gate on the result of multi-head attention.

    ``I = W_i [V_hat, Q] + b_i``, ``G = sigmoid(W_g [V_hat, Q] + b_g)``, ``out = I * G``. V_hat are
    the concatenated heads; the linear maps are ``query``, ``key``, ``value``, ``information`` and
    ``gate``; else as ``multi_head_attention``.
    """
    Q = linear(X, select(parameters, "query."))
    K = linear(Y, select(parameters, "key."))
    V = linear(Y, select(parameters, "value."))
    V_hat = heads_concatenated(Q, K, V, num_heads, mask)
    both = np.concatenate([V_hat, Q], axis=1)  # (M, 2 d)
    information = linear(both, select(parameters, "information."))
    gate = sigmoid(linear(both, select(parameters, "gate.")))
    return information * gate
