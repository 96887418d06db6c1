"""The expansion operators' vector-Jacobian products, derived by hand, one for each equation.

Each takes ``dY``, the gradient of a loss with respect to an equation's result, and returns the
gradients with respect to its arguments. ReLU's derivative at zero is taken as zero.
"""

from __future__ import annotations

import math
from collections import namedtuple
from collections.abc import Sequence

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

StaticGradients = namedtuple("StaticGradients", "E_Q E_B K V_1 V_2 S")
DynamicGradients = namedtuple("DynamicGradients", "E_Q E_B C K V_1 V_2 S")
"""Gradients with respect to the operators' arguments, in their shapes."""


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
    forward_mask: Mask | None = None,
    backward_mask: Mask | None = None,
) -> StaticGradients:
    """Gradients of ``sum(dO * static_expansion(E_Q, E_B, ...))``, dO (L, d).

    The masks are those of ``forward_weights`` and ``backward_weights``, for the dynamic operator.
    """
    M = length_transformation(E_Q, K)
    V = {1: V_1, 2: V_2}
    R_fw = {i: forward_weights(M, i, forward_mask, epsilon) for i in V}
    R_bw = {i: backward_weights(M, i, groups, backward_mask, epsilon) for i in V}
    F = {i: forward_expansion(R_fw[i], V[i], E_B) for i in V}
    B = {i: backward_expansion(R_bw[i], F[i]) for i in V}

    dS, dB_1, dB_2 = selection_vjp(dO, S, B[1], B[2])
    dB = {1: dB_1, 2: dB_2}
    dF = {i: R_bw[i].T @ dB[i] for i in V}
    dV = {i: R_fw[i].T @ dF[i] for i in V}
    dM = np.zeros_like(M)
    for i in V:
        dM += forward_weights_vjp(dF[i] @ V[i].T, M, i, forward_mask, epsilon)
        dM += backward_weights_vjp(dB[i] @ F[i].T, M, i, groups, backward_mask, epsilon)
    dE_Q, dK = length_transformation_vjp(dM, E_Q, K)
    return StaticGradients(dE_Q, dF[1] + dF[2], dK, dV[1], dV[2], dS)


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
    """Gradients of ``sum(dO * dynamic_expansion(E_Q, E_B, C, ...))``, dO (L, d)."""
    masks = causal_masks(len(C), len(E_Q)) if causal else (None, None)
    Q_E, B_E = broad_sum(C, E_Q), broad_sum(C, E_B)
    dQ_E, dB_E, *others = static_expansion_vjp(dO, Q_E, B_E, K, V_1, V_2, S, None, epsilon, *masks)
    dC_Q, dE_Q = broad_sum_vjp(dQ_E, len(C))
    dC_B, dE_B = broad_sum_vjp(dB_E, len(C))
    return DynamicGradients(dE_Q, dE_B, dC_Q + dC_B, *others)


def broad_sum_vjp(dY: Array, L: int) -> tuple[Array, Array]:
    """dC (L, d) and dE (N_E, d) from dY (L N_E, d)."""
    by_row = dY.reshape(L, -1, dY.shape[1])  # (L, N_E, d)
    return by_row.sum(axis=1), by_row.sum(axis=0)


def normalise_rows_vjp(dY: Array, X: Array, epsilon: float = EPSILON) -> Array:
    """``dx_ij = (dy_ij - sum_z dy_iz y_iz) / (sum_z x_iz + epsilon)``, y being the normalised x."""
    totals = X.sum(axis=1, keepdims=True) + epsilon
    dX: Array = (dY - (dY * X / totals).sum(axis=1, keepdims=True)) / totals
    return dX


def length_transformation_vjp(dM: Array, Q_E: Array, K: Array) -> tuple[Array, Array]:
    """dQ_E (N, d) and dK (L, d) from dM (N, L)."""
    root = math.sqrt(K.shape[1])
    return dM @ K / root, dM.T @ Q_E / root


def forward_weights_vjp(
    dR: Array, M: Array, i: int, mask: Mask | None = None, epsilon: float = EPSILON
) -> Array:
    """dM (N, L) from dR_i^fw (N, L) of stream i."""
    passes = _passes(SIGN[i] * M, mask)
    dP = normalise_rows_vjp(dR, np.where(passes, SIGN[i] * M, 0), epsilon)
    return np.where(passes, SIGN[i] * dP, 0)


def backward_weights_vjp(
    dR: Array,
    M: Array,
    i: int,
    groups: Sequence[int] | None = None,
    mask: Mask | None = None,
    epsilon: float = EPSILON,
) -> Array:
    """dM (N, L) from dR_i^bw (L, N) of stream i."""
    passes = _passes(SIGN[i] * M.T, mask)
    P = split_groups(np.where(passes, SIGN[i] * M.T, 0), groups)
    dB = split_groups(dR / len(P), groups)
    dP = [normalise_rows_vjp(dB_g, P_g, epsilon) for dB_g, P_g in zip(dB, P, strict=True)]
    return np.where(passes, SIGN[i] * np.concatenate(dP, axis=1), 0).T


def selection_vjp(dO: Array, S: Array, B_1: Array, B_2: Array) -> tuple[Array, Array, Array]:
    """dS, dB_1 and dB_2 from dO, each (L, d)."""
    gate = sigmoid(S)
    return gate * (1 - gate) * (B_1 - B_2) * dO, gate * dO, (1 - gate) * dO


def _passes(P: Array, mask: Mask | None) -> Mask:
    """True where an entry passes the ReLU and the mask."""
    return P > 0 if mask is None else (P > 0) & mask
