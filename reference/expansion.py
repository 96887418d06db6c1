"""The expansion mechanism (ExpansionNet v1, eqs. 3-9; v2, eqs. 1-9), one function per equation.

Stream 1 takes the positive part of the length transformation matrix M, stream 2 that of -M, as v1
prints and as the published weights have it. v2 prints ``(-1)^i M``, the same function after
swapping V_1 with V_2 and turning S into -S. M is v1's Z; row (j, n) of a dynamic expansion is
``j N_E + n``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from reference.equations import equation
from reference.primitives import (
    Array,
    Mask,
    Parameters,
    linear,
    relu,
    select,
    sigmoid,
)

EPSILON = 1e-9
SIGN = {1: 1, 2: -1}


@equation("expansionnet_v1", 3)
def dynamic_expansion_vectors(C: Array, Q_E: Array, B_E: Array) -> tuple[Array, Array]:
    """``e^Q_ij = c_i + q_j`` and ``e^B_ij = c_i + b_j``, stacked with j running fastest.

    Args:
        C: (L, d), the condition.
        Q_E, B_E: (N_E, d), the query and bias vectors.

    Returns:
        Queries and biases, each (L N_E, d).
    """
    E_Q = np.stack([c_i + q_j for c_i in C for q_j in Q_E])
    E_B = np.stack([c_i + b_j for c_i in C for b_j in B_E])
    return E_Q, E_B


@equation("expansionnet_v2", 1)
def broad_sum(C: Array, E: Array) -> Array:
    """``(C^T H_E)^T + (E^T I_E)^T``: every token's condition plus every expansion vector.

    H_E (L, L N_E) has the row of N_E ones on its diagonal, I_E (N_E, L N_E) is L identities side by
    side. Gives Q_E from E = E_Q and B_E from E = E_B.

    Args:
        C: (L, d), the condition.
        E: (N_E, d).

    Returns:
        (L N_E, d).
    """
    L, N_E = len(C), len(E)
    H_E = np.kron(np.eye(L, dtype=C.dtype), np.ones((1, N_E), dtype=C.dtype))
    I_E = np.concatenate([np.eye(N_E, dtype=C.dtype)] * L, axis=1)
    total: Array = (C.T @ H_E).T + (E.T @ I_E).T
    return total


@equation("expansionnet_v1", 4)
def static_expansion_vectors(Q_E: Sequence[Array], B_E: Sequence[Array]) -> tuple[Array, Array]:
    """``e^Q_i = q_i`` and ``e^B_i = b_i``: the learned vectors themselves, stacked.

    Args:
        Q_E, B_E: N_E vectors of (d,) each.

    Returns:
        Queries and biases, each (N_E, d).
    """
    return np.stack([*Q_E]), np.stack([*B_E])


@equation("expansionnet_v2", 9)
def block_expansion_vectors(E_Q: Sequence[Array], E_B: Sequence[Array]) -> tuple[Array, Array]:
    """The queries and the biases of all the groups, one under the other.

    Args:
        E_Q, E_B: one (N_E, d) for each group.

    Returns:
        Queries and biases, each (N, d) with N the sum of the groups' N_E.
    """
    return np.concatenate(E_Q), np.concatenate(E_B)


@equation("expansionnet_v1", 5)
@equation("expansionnet_v2", 4)
def normalise_rows(X: Array, epsilon: float = EPSILON) -> Array:
    """v1's Phi, v2's Psi: ``x_ij / (sum_z x_iz + epsilon)`` on a matrix of entries >= 0."""
    Y: Array = X / (X.sum(axis=1, keepdims=True) + epsilon)
    return Y


@equation("expansionnet_v1", 6)
@equation("expansionnet_v2", 2)
def length_transformation(Q_E: Array, K: Array) -> Array:
    """``M = Q_E K^T / sqrt(d_model)``, v1's Z: (N, d) and (L, d) to (N, L)."""
    M: Array = Q_E @ K.T / math.sqrt(K.shape[1])
    return M


@equation("expansionnet_v2", 3)
def forward_weights(M: Array, i: int, mask: Mask | None = None, epsilon: float = EPSILON) -> Array:
    """``R_i^fw = Psi(ReLU(+M), epsilon)`` for stream i = 1, of -M for i = 2.

    Args:
        M: (N, L).
        i: the stream, 1 or 2.
        mask: (N, L), True where an expanded row may see a token. Applied before the normalisation:
            a sum over hidden tokens would tell of them.
        epsilon: of Psi.

    Returns:
        (N, L).
    """
    return normalise_rows(_visible(relu(SIGN[i] * M), mask), epsilon)


@equation("expansionnet_v2", 5)
def forward_expansion(R_fw: Array, V: Array, B_E: Array) -> Array:
    """``F_i^fw = R_i^fw V_i + B_E``: (N, L), (L, d) and (N, d) to (N, d)."""
    F: Array = R_fw @ V + B_E
    return F


@equation("expansionnet_v2", 6)
def backward_weights(
    M: Array,
    i: int,
    groups: Sequence[int] | None = None,
    mask: Mask | None = None,
    epsilon: float = EPSILON,
) -> Array:
    """``R_i^bw = Psi(ReLU(+M^T), epsilon)`` for stream i = 1, of -M^T for i = 2.

    A block of several groups normalises within each group's columns and divides by their number, so
    that the result is an average over the groups.

    Args:
        M: (N, L).
        i: the stream, 1 or 2.
        groups: the groups' sizes, summing to N; one group of N when None.
        mask: (L, N), True where a token may see an expanded row; applied before the normalisation.
        epsilon: of Psi.

    Returns:
        (L, N).

    Raises:
        ValueError: the groups are not positive or do not sum to N.
    """
    P = _visible(relu(SIGN[i] * M.T), mask)
    blocks = [normalise_rows(block, epsilon) for block in split_groups(P, groups)]
    return np.concatenate(blocks, axis=1) / len(blocks)


@equation("expansionnet_v2", 7)
def backward_expansion(R_bw: Array, F_fw: Array) -> Array:
    """``B_i^bw = R_i^bw F_i^fw``: (L, N) and (N, d) to (L, d)."""
    B: Array = R_bw @ F_fw
    return B


@equation("expansionnet_v1", 7)
def forward_step(
    Z: Array,
    V_1: Array,
    V_2: Array,
    E_B: Array,
    mask: Mask | None = None,
    epsilon: float = EPSILON,
) -> tuple[Array, Array]:
    """Both streams forward: ``F_i^fw = Phi(ReLU(+-Z), epsilon) V_i + E_B``.

    Args:
        Z: (N, L).
        V_1, V_2: (L, d).
        E_B: (N, d).
        mask: (N, L), True where an expanded row may see a token.
        epsilon: of Phi.

    Returns:
        ``F_1^fw`` and ``F_2^fw``, each (N, d).
    """
    return (
        forward_expansion(forward_weights(Z, 1, mask, epsilon), V_1, E_B),
        forward_expansion(forward_weights(Z, 2, mask, epsilon), V_2, E_B),
    )


@equation("expansionnet_v1", 8)
def backward_step(
    Z: Array,
    F_1: Array,
    F_2: Array,
    groups: Sequence[int] | None = None,
    mask: Mask | None = None,
    epsilon: float = EPSILON,
) -> tuple[Array, Array]:
    """Both streams backward: ``B_i^bw = Phi(ReLU(+-Z^T), epsilon) F_i^fw``.

    Args:
        Z: (N, L).
        F_1, F_2: (N, d).
        groups: as in ``backward_weights``.
        mask: (L, N), True where a token may see an expanded row.
        epsilon: of Phi.

    Returns:
        ``B_1^bw`` and ``B_2^bw``, each (L, d).
    """
    return (
        backward_expansion(backward_weights(Z, 1, groups, mask, epsilon), F_1),
        backward_expansion(backward_weights(Z, 2, groups, mask, epsilon), F_2),
    )


@equation("expansionnet_v1", 9)
@equation("expansionnet_v2", 8)
def selection(S: Array, B_1: Array, B_2: Array) -> Array:
    """``sigmoid(S) * B_1 + (1 - sigmoid(S)) * B_2``, all (L, d): one gate for every channel."""
    return sigmoid(S) * B_1 + (1 - sigmoid(S)) * B_2


def static_expansion(
    E_Q: Array,
    E_B: Array,
    K: Array,
    V_1: Array,
    V_2: Array,
    S: Array,
    groups: Sequence[int] | None = None,
    epsilon: float = EPSILON,
) -> Array:
    """The static operator; of several ``groups``, the block static operator (v1, 6-9; v2, 2-9).

    Args:
        E_Q, E_B: (N, d), the query and bias vectors of all groups.
        K, V_1, V_2, S: (L, d).
        groups: the groups' sizes, summing to N; one group of N when None.
        epsilon: of Psi.

    Returns:
        (L, d).
    """
    M = length_transformation(E_Q, K)
    F_1, F_2 = forward_step(M, V_1, V_2, E_B, epsilon=epsilon)
    B_1, B_2 = backward_step(M, F_1, F_2, groups, epsilon=epsilon)
    return selection(S, B_1, B_2)


def dynamic_expansion(
    E_Q: Array,
    E_B: Array,
    C: Array,
    K: Array,
    V_1: Array,
    V_2: Array,
    S: Array,
    causal: bool = True,
    epsilon: float = EPSILON,
) -> Array:
    """The dynamic operator, for generation (causal) or in both directions (v1, 6-9; v2, 1-8).

    Args:
        E_Q, E_B: (N_E, d), the query and bias vectors.
        C, K, V_1, V_2, S: (L, d).
        causal: whether a token's output may depend on it and the tokens before it alone.
        epsilon: of Psi.

    Returns:
        (L, d).
    """
    forward, backward = causal_masks(len(C), len(E_Q)) if causal else (None, None)
    M = length_transformation(broad_sum(C, E_Q), K)
    F_1, F_2 = forward_step(M, V_1, V_2, broad_sum(C, E_B), forward, epsilon)
    B_1, B_2 = backward_step(M, F_1, F_2, None, backward, epsilon)
    return selection(S, B_1, B_2)


def static_expansion_layer(
    X: Array,
    parameters: Parameters,
    groups: Sequence[int] | None = None,
    epsilon: float = EPSILON,
) -> Array:
    """Static expansion of X (L, d), with its four projections.

    Args:
        X: (L, d).
        parameters: ``query_vectors`` and ``bias_vectors`` (N, d); linear maps ``key``, ``value_1``,
            ``value_2``, ``selector``.
        groups: the groups' sizes, summing to N; one group of N when None.
        epsilon: of Psi.

    Returns:
        (L, d).
    """
    E_Q, E_B = parameters["query_vectors"], parameters["bias_vectors"]
    K, V_1, V_2, S = _projections(X, parameters)
    return static_expansion(E_Q, E_B, K, V_1, V_2, S, groups, epsilon)


def dynamic_expansion_layer(
    X: Array, parameters: Parameters, causal: bool = True, epsilon: float = EPSILON
) -> Array:
    """Dynamic expansion of X (L, d), with its five projections.

    Args:
        X: (L, d).
        parameters: ``query_vectors`` and ``bias_vectors`` (N_E, d); linear maps ``condition``,
            ``key``, ``value_1``, ``value_2``, ``selector``.
        causal: whether a token sees only itself and the tokens before it.
        epsilon: of Psi.

    Returns:
        (L, d).
    """
    E_Q, E_B = parameters["query_vectors"], parameters["bias_vectors"]
    C = linear(X, select(parameters, "condition."))
    K, V_1, V_2, S = _projections(X, parameters)
    return dynamic_expansion(E_Q, E_B, C, K, V_1, V_2, S, causal, epsilon)


def causal_masks(L: int, N_E: int) -> tuple[Mask, Mask]:
    """Which tokens row (j, n) may see, (L N_E, L), and which rows token i may see, (L, L N_E).

    Row (j, n) sees tokens up to j; token i sees the rows of tokens up to i.
    """
    visible = np.tri(L, dtype=np.bool_)
    return np.repeat(visible, N_E, axis=0), np.repeat(visible, N_E, axis=1)


def split_groups(X: Array, groups: Sequence[int] | None) -> list[Array]:
    """The columns of X (L, N), group by group; all of them when ``groups`` is None.

    Raises:
        ValueError: the groups are not positive or do not sum to N.
    """
    groups = [X.shape[1]] if groups is None else list(groups)
    if min(groups, default=0) < 1 or sum(groups) != X.shape[1]:
        raise ValueError(f"groups {groups} must be positive and sum to {X.shape[1]}")
    return np.split(X, np.cumsum(groups)[:-1], axis=1)


def _visible(P: Array, mask: Mask | None) -> Array:
    return P if mask is None else np.where(mask, P, 0)


def _projections(X: Array, parameters: Parameters) -> tuple[Array, Array, Array, Array]:
    return (
        linear(X, select(parameters, "key.")),
        linear(X, select(parameters, "value_1.")),
        linear(X, select(parameters, "value_2.")),
        linear(X, select(parameters, "selector.")),
    )
