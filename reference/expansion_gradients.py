"""The expansion operators' vector-Jacobian products, derived by hand, one for each equation.

Each takes the gradient of a loss by an equation's result, ``dY``, and gives the gradients by its
arguments. ReLU's derivative at zero is taken as zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from reference.expansion import (
    EPSILON,
    SIGN,
    backward_expansion,
    backward_weights,
    broad_sum,
    causal_masks,
    forward_expansion,
    forward_weights,
    length_transformation,
    split_groups,
)
from reference.primitives import Array, Mask, sigmoid


class StaticGradients(NamedTuple):
    """Gradients by the arguments of ``static_expansion``, by their names and in their shapes."""

    E_Q: Array
    E_B: Array
    K: Array
    V_1: Array
    V_2: Array
    S: Array


class DynamicGradients(NamedTuple):
    """Gradients by the arguments of ``dynamic_expansion``, by their names and in their shapes."""

    E_Q: Array
    E_B: Array
    C: Array
    K: Array
    V_1: Array
    V_2: Array
    S: Array


def static_expansion_vjp(
    dO: Array,
    E_Q: Array,
    E_B: Array,
    K: Array,
    V_1: Array,
    V_2: Array,
    S: Array,
    groups: Sequence[int] | None = None,
    epsilon: float = EPSILON,
) -> StaticGradients:
    """Gradients of ``sum(dO * static_expansion(...))``.

    Args:
        dO: (L, d), the gradient by the output.
        E_Q, E_B, K, V_1, V_2, S, groups, epsilon: as in ``static_expansion``.
    """
    return _operator_vjp(dO, E_Q, E_B, K, V_1, V_2, S, groups, None, None, epsilon)


def dynamic_expansion_vjp(
    dO: Array,
    E_Q: Array,
    E_B: Array,
    C: Array,
    K: Array,
    V_1: Array,
    V_2: Array,
    S: Array,
    causal: bool = True,
    epsilon: float = EPSILON,
) -> DynamicGradients:
    """Gradients of ``sum(dO * dynamic_expansion(...))``.

    Args:
        dO: (L, d), the gradient by the output.
        E_Q, E_B, C, K, V_1, V_2, S, causal, epsilon: as in ``dynamic_expansion``.
    """
    forward, backward = causal_masks(len(C), len(E_Q)) if causal else (None, None)
    queries, biases = broad_sum(C, E_Q), broad_sum(C, E_B)
    dQ, dB, *others = _operator_vjp(
        dO, queries, biases, K, V_1, V_2, S, None, forward, backward, epsilon
    )
    dC_Q, dE_Q = broad_sum_vjp(dQ, len(C))
    dC_B, dE_B = broad_sum_vjp(dB, len(C))
    return DynamicGradients(dE_Q, dE_B, dC_Q + dC_B, *others)


def broad_sum_vjp(dY: Array, L: int) -> tuple[Array, Array]:
    """From (L N_E, d), the gradients by the condition (L, d) and the expansion vectors (N_E, d)."""
    by_row = dY.reshape(L, -1, dY.shape[1])
    return by_row.sum(axis=1), by_row.sum(axis=0)


def normalise_rows_vjp(dY: Array, X: Array, epsilon: float = EPSILON) -> Array:
    """``dx_ij = (dy_ij - sum_z dy_iz y_iz) / (sum_z x_iz + epsilon)``, y being the normalised x."""
    totals = X.sum(axis=1, keepdims=True) + epsilon
    dX: Array = (dY - (dY * X / totals).sum(axis=1, keepdims=True)) / totals
    return dX


def length_transformation_vjp(dM: Array, Q_E: Array, K: Array) -> tuple[Array, Array]:
    """Gradients by the queries (N, d) and the keys (L, d) of ``M`` (N, L)."""
    root = math.sqrt(K.shape[1])
    return dM @ K / root, dM.T @ Q_E / root


def forward_weights_vjp(
    dR: Array, M: Array, i: int, mask: Mask | None = None, epsilon: float = EPSILON
) -> Array:
    """Gradient by ``M`` (N, L) of stream i's ``R_i^fw`` (N, L)."""
    sign = SIGN[i]
    open_ = _open(sign * M, mask)
    dP = normalise_rows_vjp(dR, np.where(open_, sign * M, 0), epsilon)
    return np.where(open_, sign * dP, 0)


def backward_weights_vjp(
    dR: Array,
    M: Array,
    i: int,
    groups: Sequence[int] | None = None,
    mask: Mask | None = None,
    epsilon: float = EPSILON,
) -> Array:
    """Gradient by ``M`` (N, L) of stream i's ``R_i^bw`` (L, N)."""
    sign = SIGN[i]
    open_ = _open(sign * M.T, mask)
    P_groups = split_groups(np.where(open_, sign * M.T, 0), groups)
    dR_groups = split_groups(dR / len(P_groups), groups)
    dP = np.concatenate(
        [normalise_rows_vjp(d, P, epsilon) for d, P in zip(dR_groups, P_groups, strict=True)],
        axis=1,
    )
    return np.where(open_, sign * dP, 0).T


def selection_vjp(dO: Array, S: Array, B_1: Array, B_2: Array) -> tuple[Array, Array, Array]:
    """Gradients by S, B_1 and B_2, each (L, d)."""
    gate = sigmoid(S)
    return gate * (1 - gate) * (B_1 - B_2) * dO, gate * dO, (1 - gate) * dO


def _operator_vjp(
    dO: Array,
    Q_E: Array,
    B_E: Array,
    K: Array,
    V_1: Array,
    V_2: Array,
    S: Array,
    groups: Sequence[int] | None,
    forward_mask: Mask | None,
    backward_mask: Mask | None,
    epsilon: float,
) -> StaticGradients:
    """What the two operators share: from the expanded queries Q_E and biases B_E (N, d) on."""
    M = length_transformation(Q_E, K)
    V = {1: V_1, 2: V_2}
    R_fw = {i: forward_weights(M, i, forward_mask, epsilon) for i in V}
    R_bw = {i: backward_weights(M, i, groups, backward_mask, epsilon) for i in V}
    F = {i: forward_expansion(R_fw[i], V[i], B_E) for i in V}
    B = {i: backward_expansion(R_bw[i], F[i]) for i in V}

    dS, *dB_streams = selection_vjp(dO, S, B[1], B[2])
    dB = dict(zip(V, dB_streams, strict=True))
    dF = {i: R_bw[i].T @ dB[i] for i in V}
    dV = {i: R_fw[i].T @ dF[i] for i in V}
    dB_E = dF[1] + dF[2]
    dM = np.zeros_like(M)
    for i in V:
        dM += forward_weights_vjp(dF[i] @ V[i].T, M, i, forward_mask, epsilon)
        dM += backward_weights_vjp(dB[i] @ F[i].T, M, i, groups, backward_mask, epsilon)
    dQ_E, dK = length_transformation_vjp(dM, Q_E, K)
    return StaticGradients(dQ_E, dB_E, dK, dV[1], dV[2], dS)


def _open(P: Array, mask: Mask | None) -> Mask:
    """Where an entry passes both ReLU and the mask."""
    return P > 0 if mask is None else (P > 0) & mask
