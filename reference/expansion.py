"""The expansion mechanism (ExpansionNet v1, eqs. 3-9; v2, eqs. 1-9), one function per equation.

In v2 the learned vectors are E_Q and E_B, the expanded rows Q_E and B_E; v1 swaps these names, and
its Z is v2's M. Each function has its own paper's symbols, the operators below v2's. Row (j, n) of
a dynamic expansion, for token j and vector n, has the index ``j N_E + n``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from reference.checks import requires
from reference.equations import Decision, Erratum, equation
from reference.primitives import Array, Mask, Parameters, linear, relu, select, sigmoid

EPSILON = 1e-9
SIGN = {1: 1, 2: -1}
"""Stream i takes the positive part of SIGN[i] M."""


@equation(
    "expansionnet_v1",
    3,
    r"e_{ij}^{Q} = c_i + q_j^{E}, \quad c_i \in C, q_j^{E} \in Q^{E}",
    r"e_{ij}^{B} = c_i + b_j^{E}, \quad c_i \in C, b_j^{E} \in B^{E}",
)
def dynamic_expansion_vectors(C: Array, Q_E: Array, B_E: Array) -> tuple[Array, Array]:
    """Queries and biases (L N_E, d) from the conditions C (L, d) and the vectors (N_E, d)."""
    E_Q = np.stack([c_i + q_j for c_i in C for q_j in Q_E])
    E_B = np.stack([c_i + b_j for c_i in C for b_j in B_E])
    return E_Q, E_B


@equation(
    "expansionnet_v2",
    1,
    r"Q_E = (C^\top \mathbb{H}_E)^\top + (E_Q^\top \mathbb{I}_E)^\top",
    r"B_E = (C^\top \mathbb{H}_E)^\top + (E_B^\top \mathbb{I}_E)^\top",
)
def broad_sum(C: Array, E: Array) -> Array:
    """BroadSum: Q_E or B_E (L N_E, d) from the conditions C (L, d) and E = E_Q or E_B (N_E, d)."""
    L, N_E = len(C), len(E)
    H_E = np.kron(np.eye(L), np.ones((1, N_E))).astype(C.dtype)  # (L, L N_E)
    I_E = np.concatenate([np.eye(N_E)] * L, axis=1).astype(C.dtype)  # (N_E, L N_E)
    total: Array = (C.T @ H_E).T + (E.T @ I_E).T
    return total


@equation(
    "expansionnet_v1",
    4,
    r"e_i^Q = q_i^E, \ q_i^E \in Q^E",
    r"e_i^B = b_i^E, \ b_i^E \in B^E",
    definition="the learned vectors themselves, under another name",
)
def static_expansion_vectors(Q_E: Sequence[Array], B_E: Sequence[Array]) -> tuple[Array, Array]:
    """Queries and biases (N_E, d), stacked from N_E vectors (d,) each."""
    return np.stack([*Q_E]), np.stack([*B_E])


@equation(
    "expansionnet_v2",
    9,
    r"E_Q^G = \{(E_Q^1)^\top, (E_Q^2)^\top, \dots, (E_Q^{N_G})^\top\}^\top",
    r"E_B^G = \{(E_B^1)^\top, (E_B^2)^\top, \dots, (E_B^{N_G})^\top\}^\top",
    definition="a name for the vectors of all groups, one under the other",
)
def block_expansion_vectors(E_Q: Sequence[Array], E_B: Sequence[Array]) -> tuple[Array, Array]:
    """Queries and biases (N, d) from the (N_E, d) of each group; N is the sum of their N_E."""
    return np.concatenate(E_Q), np.concatenate(E_B)


@equation(
    "expansionnet_v1", 5, r"\Phi(X,\epsilon)_{ij} = \frac{x_{ij}}{\sum_{z}^{N_2} x_{iz} + \epsilon}"
)
@equation(
    "expansionnet_v2",
    4,
    r"\Psi(X, \epsilon)_{ij} = \frac{x_{ij}}{\sum_{z=1}^{N_2} x_{iz} + \epsilon}",
)
def normalise_rows(X: Array, epsilon: float = EPSILON) -> Array:
    """v1's Phi, v2's Psi: each row of X (N_1, N_2) >= 0 divided by its sum plus epsilon."""
    Y: Array = X / (X.sum(axis=1, keepdims=True) + epsilon)
    return Y


SCALE = Decision(
    "scaled by the root of d_model",
    "as printed; multi-head attention beside it: sqrt(d_k) in each head",
    "the expansion has no heads",
)


@equation("expansionnet_v1", 6, r"Z = \frac{E_Q K^{\top}}{\sqrt{d_{model}}}", notes=[SCALE])
@equation("expansionnet_v2", 2, r"M = \frac{Q_E K^\top}{\sqrt{d_m}}", notes=[SCALE])
def length_transformation(Q_E: Array, K: Array) -> Array:
    """The length transformation matrix (N, L) from queries (N, d) and keys (L, d)."""
    M: Array = Q_E @ K.T / math.sqrt(K.shape[1])
    return M


FIRST_STREAM = Decision(
    "stream 1 takes ReLU(Z), stream 2 ReLU(-Z)",
    "as printed, for both papers",
    "v2 prints the opposite signs; the released weights follow v1's order",
)
DYNAMIC_BIASES = Decision(
    "the biases of the expanded rows, in the dynamic case too",
    "c_j + b_n for row (j, n): the bias vectors broad-summed with the condition",
    "the biases are defined so, like the queries",
    about="dynamic biases",
)


@equation(
    "expansionnet_v1",
    7,
    r"R_1^{fw} = \Phi(\operatorname{ReLU}(Z), \epsilon)",
    r"R_2^{fw} = \Phi(\operatorname{ReLU}(-Z), \epsilon)",
    r"F_1^{fw} = R_1^{fw} V_1 + E_B",
    r"F_2^{fw} = R_2^{fw} V_2 + E_B",
    notes=[FIRST_STREAM, DYNAMIC_BIASES],
)
def forward_step(
    Z: Array, V_1: Array, V_2: Array, E_B: Array, epsilon: float = EPSILON
) -> tuple[Array, Array]:
    """F_1^fw and F_2^fw (N, d) from Z (N, L), V_1 and V_2 (L, d), E_B (N, d)."""
    R_1 = normalise_rows(relu(Z), epsilon)
    R_2 = normalise_rows(relu(-Z), epsilon)
    F_1: Array = R_1 @ V_1 + E_B
    F_2: Array = R_2 @ V_2 + E_B
    return F_1, F_2


@equation(
    "expansionnet_v1",
    8,
    r"R_1^{bw} = \Phi(\operatorname{ReLU}(Z^\top), \epsilon)",
    r"R_2^{bw} = \Phi(\operatorname{ReLU}(-Z^\top), \epsilon)",
    r"B_1^{bw} = R_1^{bw} F_1^{fw}",
    r"B_2^{bw} = R_2^{bw} F_2^{fw}",
    notes=[FIRST_STREAM],
)
def backward_step(
    Z: Array, F_1: Array, F_2: Array, epsilon: float = EPSILON
) -> tuple[Array, Array]:
    """B_1^bw and B_2^bw (L, d) from Z (N, L), F_1^fw and F_2^fw (N, d)."""
    R_1 = normalise_rows(relu(Z.T), epsilon)
    R_2 = normalise_rows(relu(-Z.T), epsilon)
    B_1: Array = R_1 @ F_1
    B_2: Array = R_2 @ F_2
    return B_1, B_2


def causal_masks(L: int, N_E: int) -> tuple[Mask, Mask]:
    """Row (j, n) sees tokens i <= j, (L N_E, L); token i sees rows with j <= i, (L, L N_E)."""
    visible = np.tri(L, dtype=np.bool_)
    return np.repeat(visible, N_E, axis=0), np.repeat(visible, N_E, axis=1)


@requires(
    lambda X, groups: groups is None or (min(groups, default=0) >= 1 and sum(groups) == X.shape[1]),
    "groups {groups} must be positive and sum to {X.shape[1]}",
)
def split_groups(X: Array, groups: Sequence[int] | None) -> list[Array]:
    """The columns of X (L, N) split into the groups; None is a single group."""
    return [X] if groups is None else np.split(X, np.cumsum(groups)[:-1], axis=1)


SIGNS = Erratum(
    "stream i takes ReLU((-1)^i M), so that stream 1 takes -M",
    "stream 1 takes M, stream 2 takes -M",
    "the released weights follow v1's order; the print is the same function after swapping V_1 "
    "with V_2 and turning S into -S",
    about="signs",
)
FORWARD_NAME = Erratum(
    "R^bw in the forward step",
    "R^fw",
    "misprint: R^bw is defined in (6), from the transposed matrix",
    about="name",
)
MASKING = Decision(
    "masking is applied when calculating the results in (5) and (7)",
    "hidden entries are zero before the normalisations of (3) and (6)",
    "a normalising sum over later tokens would depend on them, against the auto-regressive "
    "property that the mask is there to keep",
    about="masking",
)


@equation(
    "expansionnet_v2",
    3,
    r"R_i^{bw} = \Psi(\operatorname{ReLU}((-1)^i M), \epsilon) \quad i \in \{1, 2\}",
    notes=[SIGNS, FORWARD_NAME, MASKING],
)
def forward_weights(M: Array, i: int, mask: Mask | None = None, epsilon: float = EPSILON) -> Array:
    """Stream i's R_i^fw (N, L) from M (N, L); ``mask`` is True where a row may see a token."""
    P = relu(SIGN[i] * M)
    if mask is not None:
        P = np.where(mask, P, 0)
    return normalise_rows(P, epsilon)


@equation(
    "expansionnet_v2",
    5,
    r"F_i^{fw} = R_i^{bw} V_i + B_E \quad i \in \{1, 2\}",
    notes=[FORWARD_NAME, DYNAMIC_BIASES],
)
def forward_expansion(R_fw: Array, V: Array, B_E: Array) -> Array:
    """F_i^fw (N, d) from R_i^fw (N, L), V_i (L, d), B_E (N, d)."""
    F: Array = R_fw @ V + B_E
    return F


@equation(
    "expansionnet_v2",
    6,
    r"R_i^{bw} = \Psi(\operatorname{ReLU}((-1)^i M^\top), \epsilon) \quad i \in \{1, 2\}",
    notes=[
        SIGNS,
        MASKING,
        Decision(
            "in a block, the matrix is scaled by the inverse number of elements in the group G",
            "the transposed matrix is normalised within each group's columns, the groups are "
            "concatenated, then divided by the number of groups: an average over groups",
            "matches the released weights",
            about="Block Static",
        ),
    ],
)
def backward_weights(
    M: Array,
    i: int,
    groups: Sequence[int] | None = None,
    mask: Mask | None = None,
    epsilon: float = EPSILON,
) -> Array:
    """Stream i's R_i^bw (L, N) from M (N, L), averaged over ``groups``; None is a single group.

    ``mask`` (L, N) is True where a token may see an expanded row.
    """
    P = relu(SIGN[i] * M.T)
    if mask is not None:
        P = np.where(mask, P, 0)
    blocks = [normalise_rows(P_g, epsilon) for P_g in split_groups(P, groups)]
    return np.concatenate(blocks, axis=1) / len(blocks)


@equation("expansionnet_v2", 7, r"B_i^{bw} = R_i^{bw} F_i^{fw} \quad i \in \{1, 2\}")
def backward_expansion(R_bw: Array, F_fw: Array) -> Array:
    """B_i^bw (L, d) from R_i^bw (L, N) and F_i^fw (N, d)."""
    B: Array = R_bw @ F_fw
    return B


@equation("expansionnet_v1", 9, r"out = \sigma(S) \odot B_1^{bw} + (1 - \sigma(S)) \odot B_2^{bw}")
@equation(
    "expansionnet_v2",
    8,
    r"out = \sigma(S) \odot B_1^{bw} + (1 - \sigma(S)) \odot B_2^{bw}",
    notes=[
        Erratum(
            "S in R^L",
            "S in R^(L x d_m): one gate for every channel",
            "S multiplies B^bw element by element; matches the released weights",
        )
    ],
)
def selection(S: Array, B_1: Array, B_2: Array) -> Array:
    """The gated sum of both streams: all (L, d)."""
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
    """Static Expansion, or Block Static with several ``groups`` (v2, 2-9): (L, d).

    E_Q and E_B are (N, d), the vectors of all groups; K, V_1, V_2 and S (L, d).
    """
    M = length_transformation(E_Q, K)
    B = []
    for i, V_i in ((1, V_1), (2, V_2)):
        F_i = forward_expansion(forward_weights(M, i, epsilon=epsilon), V_i, E_B)
        B.append(backward_expansion(backward_weights(M, i, groups, epsilon=epsilon), F_i))
    return selection(S, *B)


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
    """Dynamic Expansion (v2, 1-8), causal or bidirectional: (L, d).

    E_Q and E_B are (N_E, d); C, K, V_1, V_2 and S (L, d). If causal, the output of token t depends
    on tokens up to t only.
    """
    forward, backward = causal_masks(len(C), len(E_Q)) if causal else (None, None)
    Q_E, B_E = broad_sum(C, E_Q), broad_sum(C, E_B)
    M = length_transformation(Q_E, K)
    B = []
    for i, V_i in ((1, V_1), (2, V_2)):
        F_i = forward_expansion(forward_weights(M, i, forward, epsilon), V_i, B_E)
        B.append(backward_expansion(backward_weights(M, i, mask=backward, epsilon=epsilon), F_i))
    return selection(S, *B)


def static_expansion_layer(
    X: Array, parameters: Parameters, groups: Sequence[int] | None = None, epsilon: float = EPSILON
) -> Array:
    """Static expansion of X (L, d) with its four projections: (L, d).

    ``parameters`` are ``query_vectors`` and ``bias_vectors`` (N, d) and the linear maps ``key``,
    ``value_1``, ``value_2``, ``selector``.
    """
    E_Q, E_B = parameters["query_vectors"], parameters["bias_vectors"]
    names = ("key.", "value_1.", "value_2.", "selector.")
    K, V_1, V_2, S = (linear(X, select(parameters, name)) for name in names)
    return static_expansion(E_Q, E_B, K, V_1, V_2, S, groups, epsilon)


def dynamic_expansion_layer(
    X: Array, parameters: Parameters, causal: bool = True, epsilon: float = EPSILON
) -> Array:
    """Dynamic expansion of X (L, d) with its five projections: (L, d).

    ``parameters`` are ``query_vectors`` and ``bias_vectors`` (N_E, d) and the linear maps
    ``condition``, ``key``, ``value_1``, ``value_2``, ``selector``.
    """
    E_Q, E_B = parameters["query_vectors"], parameters["bias_vectors"]
    names = ("condition.", "key.", "value_1.", "value_2.", "selector.")
    C, K, V_1, V_2, S = (linear(X, select(parameters, name)) for name in names)
    return dynamic_expansion(E_Q, E_B, C, K, V_1, V_2, S, causal, epsilon)
