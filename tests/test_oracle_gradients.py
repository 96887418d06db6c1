"""The hand-derived gradients of the expansion: central differences away from ReLU's kinks."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.verify.strategies import SEEDS
from benchmarks.verify.tolerances import assert_close, assert_derivative
from reference import expansion
from reference import expansion_gradients as gradients
from reference.primitives import relu, sigmoid
from tests.support.covers import covers

VANISHING = 1e-300
SIZES = st.integers(1, 4)
GROUPS = st.lists(st.integers(1, 2), min_size=1, max_size=3)
CAUSAL = st.booleans()
EPSILONS = st.sampled_from([1e-9, 0.1, 1.0])


def draw_static(seed, groups, L, d):
    """E_Q, E_B, K, V_1, V_2, S and an output gradient, with no entry of M near a kink."""
    rng, N = np.random.default_rng(seed), sum(groups)
    while True:
        arrays = [rng.standard_normal((rows, d)) for rows in (N, N, L, L, L, L, L)]
        M = expansion.length_transformation(arrays[0], arrays[2])
        if np.abs(M).min() > 0.03:
            return arrays[:6], arrays[6]


def draw_dynamic(seed, N_E, L, d):
    """E_Q, E_B, C, K, V_1, V_2, S and an output gradient, with no entry of M near a kink."""
    rng = np.random.default_rng(seed)
    while True:
        arrays = [rng.standard_normal((rows, d)) for rows in (N_E, N_E, L, L, L, L, L, L)]
        Q_E = expansion.broad_sum(arrays[2], arrays[0])
        if np.abs(expansion.length_transformation(Q_E, arrays[3])).min() > 0.03:
            return arrays[:7], arrays[7]


def differences(function, arrays, which, step=1e-4):
    """Central differences of fourth order, entry by entry of ``arrays[which]``."""
    x = arrays[which]
    result = np.zeros_like(x)
    for index in np.ndindex(x.shape):

        def at(move, index=index):
            moved = x.copy()
            moved[index] += move
            return function(*arrays[:which], moved, *arrays[which + 1 :])

        near, far = at(step) - at(-step), at(2 * step) - at(-2 * step)
        result[index] = (8 * near - far) / (12 * step)
    return result


def flat(arrays):
    """One vector: the derivatives by single arguments may cancel to nothing but rounding."""
    return np.concatenate([array.ravel() for array in arrays])


@covers(expansionnet_v1=[5, 6, 9], expansionnet_v2=[2, 3, 4, 5, 6, 7, 8, 9])
@given(SEEDS, GROUPS, SIZES, SIZES, EPSILONS)
def test_static_gradients_are_central_differences(seed, groups, L, d, epsilon):
    arrays, dO = draw_static(seed, groups, L, d)
    found = gradients.static_expansion_vjp(dO, *arrays, groups, epsilon)

    def loss(*operands):
        return float((dO * expansion.static_expansion(*operands, groups, epsilon)).sum())

    numeric = [differences(loss, arrays, which) for which in range(len(arrays))]
    assert_derivative(flat(found), flat(numeric), "static")


@covers(expansionnet_v1=[3, 5, 6, 9], expansionnet_v2=[1, 2, 3, 4, 5, 6, 7, 8])
@given(SEEDS, st.integers(1, 3), st.integers(1, 3), SIZES, CAUSAL, EPSILONS)
def test_dynamic_gradients_are_central_differences(seed, N_E, L, d, causal, epsilon):
    arrays, dO = draw_dynamic(seed, N_E, L, d)
    found = gradients.dynamic_expansion_vjp(dO, *arrays, causal, epsilon)

    def loss(*operands):
        return float((dO * expansion.dynamic_expansion(*operands, causal, epsilon)).sum())

    numeric = [differences(loss, arrays, which) for which in range(len(arrays))]
    assert_derivative(flat(found), flat(numeric), "dynamic")


@covers(expansionnet_v1=[5], expansionnet_v2=[4])
@given(SEEDS, SIZES, SIZES, EPSILONS)
def test_the_gradient_of_psi_is_central_differences(seed, rows, columns, epsilon):
    X, dY = np.random.default_rng(seed).uniform(0.1, 1.0, (2, rows, columns))
    numeric = differences(
        lambda x: float((dY * expansion.normalise_rows(x, epsilon)).sum()), [X], 0
    )
    found = gradients.normalise_rows_vjp(dY, X, epsilon)
    # the gradient may cancel, of a lone entry over a small epsilon say: hold it to its terms' scale
    assert_derivative(np.append(found, 1.0), np.append(numeric, 1.0), "X")


@given(SEEDS, GROUPS, SIZES, SIZES, EPSILONS)
def test_static_gradients_are_the_reassociated_closed_form(seed, groups, L, d, epsilon):
    """With W = R_bw R_fw of L x L, as a fast form computes them, and never the expanded values."""
    (E_Q, E_B, K, V_1, V_2, S), dO = draw_static(seed, groups, L, d)
    found = gradients.static_expansion_vjp(dO, E_Q, E_B, K, V_1, V_2, S, groups, epsilon)
    M = expansion.length_transformation(E_Q, K)
    G, of_group = len(groups), np.repeat(np.eye(len(groups)), groups, axis=0)
    dZ, dE_B, B, dV = np.zeros_like(M), np.zeros_like(E_B), [], []
    for s, V, gate in ((1, V_1, sigmoid(S)), (-1, V_2, sigmoid(-S))):
        P, dB = relu(s * M), gate * dO
        r = P.sum(axis=1, keepdims=True) + epsilon
        c = P.T @ of_group @ of_group.T + epsilon
        R_fw, R_bw = P / r, P.T / (G * c)
        W, dW = R_bw @ R_fw, dB @ V.T
        B.append(W @ V + R_bw @ E_B)
        dV.append(W.T @ dB)
        dE_B += R_bw.T @ dB
        T, U = dW @ R_fw.T, dB @ E_B.T
        rho = (R_bw * T).sum(axis=0)[:, None]
        gamma = (R_bw * (T + U)) @ of_group @ of_group.T
        forward, backward = (R_bw.T @ dW - rho) / r, ((T + U) / G - gamma) / c
        dZ += s * (P > 0) * (forward + backward.T)
    dS = sigmoid(S) * sigmoid(-S) * (B[0] - B[1]) * dO
    root = d**0.5
    closed = gradients.StaticGradients(dZ @ K / root, dE_B, dZ.T @ E_Q / root, *dV, dS)
    assert_close(flat(closed), flat(found))


@covers(expansionnet_v2=[5, 7])
@given(SEEDS, st.integers(1, 3), st.integers(1, 4), SIZES, st.data())
def test_no_causal_gradient_reaches_a_later_token(seed, N_E, L, d, data):
    t = data.draw(st.integers(1, L))
    arrays, dO = draw_dynamic(seed, N_E, L, d)
    dO[t:] = 0
    found = gradients.dynamic_expansion_vjp(dO, *arrays)
    for name in ("C", "K", "V_1", "V_2", "S"):
        assert not getattr(found, name)[t:].any(), name


@given(SEEDS, GROUPS, SIZES, SIZES, CAUSAL)
def test_gradients_are_orthogonal_to_a_scale_that_does_not_matter(seed, groups, L, d, causal):
    """As epsilon vanishes the output ignores the scale of M, so that <dK, K> = <dE_Q, E_Q> = 0."""
    arrays, dO = draw_static(seed, groups, L, d)
    static = gradients.static_expansion_vjp(dO, *arrays, groups, VANISHING)
    products = [(static, static.K * arrays[2]), (static, static.E_Q * arrays[0])]
    arrays, dO = draw_dynamic(seed, 2, L, d)
    dynamic = gradients.dynamic_expansion_vjp(dO, *arrays, causal, VANISHING)
    products.append((dynamic, dynamic.K * arrays[3]))
    for found, product in products:
        assert_close(np.append(flat(found), product.sum()), np.append(flat(found), 0.0))


@given(SEEDS, SIZES, SIZES, SIZES)
def test_gradients_at_a_matrix_of_zeros_are_finite_and_zero_through_it(seed, N, L, d):
    arrays, dO = draw_static(seed, [N], L, d)
    arrays[2] = np.zeros((L, d))
    found = gradients.static_expansion_vjp(dO, *arrays)
    assert not any(gradient.any() for gradient in found)


@given(SEEDS, GROUPS, SIZES, SIZES)
def test_the_dtype_is_kept(seed, groups, L, d):
    for dtype in (np.float32, np.float64):
        arrays, dO = draw_static(seed, groups, L, d)
        arrays = [array.astype(dtype) for array in arrays]
        found = [*gradients.static_expansion_vjp(dO.astype(dtype), *arrays, groups)]
        E_Q, E_B, K, V_1, V_2, S = arrays
        found += gradients.dynamic_expansion_vjp(dO.astype(dtype), E_Q, E_B, K, K, V_1, V_2, S)
        assert {gradient.dtype for gradient in found} == {np.dtype(dtype)}
