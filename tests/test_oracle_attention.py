"""The oracle's attention: one form against another, and what attention is indifferent to."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.verify.strategies import SEEDS
from benchmarks.verify.tolerances import assert_close
from reference import attention
from reference.primitives import sigmoid
from tests.support.covers import covers
from tests.support.parameters import linear_map

SIZES = st.integers(1, 6)
SCALES = st.sampled_from([0.0, 1e-20, 1.0, 1e3])


def normals(seed, *shapes):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape) for shape in shapes]


def identity(d):
    return {"weight": np.eye(d), "bias": np.zeros(d)}


def named(**maps):
    return {f"{name}.{key}": value for name, p in maps.items() for key, value in p.items()}


@covers(expansionnet_v1=[1, 2])
@given(SEEDS, SIZES, SIZES, SCALES)
def test_attention_by_the_scaled_dot_product_is_the_matrix_form(seed, N, D, scale):
    Q, K, W_out = normals(seed, (N, D), (N, D), (D, D))
    Q = scale * Q
    v = attention.attend(Q, K, lambda hd_j, he_i: float(hd_j @ he_i) / D**0.5)
    assert_close(attention.self_attention(Q, K, K, W_out), v @ W_out.T)


@covers(expansionnet_v1=[1])
@given(SEEDS, SIZES, SIZES, SIZES)
def test_attention_ignores_a_shift_of_the_similarity_and_the_encoders_order(seed, M, N, d):
    hd, he = normals(seed, (M, d), (N, d))
    order = np.random.default_rng(seed).permutation(N)
    plain = attention.attend(hd, he, lambda a, b: float(a @ b))
    assert_close(attention.attend(hd, he, lambda a, b: float(a @ b) + 7), plain, "shifted")
    assert_close(attention.attend(hd, he[order], lambda a, b: float(a @ b)), plain, "reordered")


@covers(expansionnet_v1=[2])
@given(SEEDS, SIZES, SIZES)
def test_one_head_is_the_single_head_formulation(seed, N, D):
    X, W_out = normals(seed, (N, D), (D, D))
    out = {"weight": W_out, "bias": np.zeros(D)}
    parameters = named(query=identity(D), key=identity(D), value=identity(D), out=out)
    heads = attention.multi_head_attention(X, X, parameters, num_heads=1)
    assert_close(heads, attention.self_attention(X, X, X, W_out))


@given(SEEDS, SIZES, SIZES, st.integers(1, 3), st.integers(1, 3))
def test_each_head_attends_on_its_own_channels_scaled_by_its_own_size(seed, M, N, h, d_k):
    Q, K, V = normals(seed, (M, h * d_k), (N, h * d_k), (N, h * d_k))
    together = attention.heads_concatenated(Q, K, V, h)
    for head in range(h):
        own = slice(head * d_k, (head + 1) * d_k)
        e = np.exp(Q[:, own] @ K[:, own].T / d_k**0.5)
        assert_close(together[:, own], e / e.sum(axis=1, keepdims=True) @ V[:, own])


@given(SEEDS, SIZES, st.data())
def test_causal_attention_before_a_changed_token_is_the_same_to_the_bit(seed, N, data):
    t = data.draw(st.integers(0, N - 1))
    Q, K, V, other = normals(seed, (N, 4), (N, 4), (N, 4), (3, 4))
    mask = attention.causal_mask(N)
    before = attention.heads_concatenated(Q, K, V, 2, mask)
    Q[t], K[t], V[t] = 100 * other
    after = attention.heads_concatenated(Q, K, V, 2, mask)
    assert (before[:t] == after[:t]).all()
    assert (before[t:] != after[t:]).any()


@given(SEEDS, SIZES, st.data())
def test_causal_attention_of_a_prefix_is_the_prefix_of_causal_attention(seed, N, data):
    T = data.draw(st.integers(1, N))
    Q, K, V = normals(seed, (N, 4), (N, 4), (N, 4))
    whole = attention.heads_concatenated(Q, K, V, 2, attention.causal_mask(N))
    prefix = attention.heads_concatenated(Q[:T], K[:T], V[:T], 2, attention.causal_mask(T))
    assert_close(prefix, whole[:T])


@given(SEEDS, SIZES, SIZES)
def test_the_gate_weighs_the_information_of_the_result_and_the_query(seed, M, N):
    rng = np.random.default_rng(seed)
    X, Y = rng.standard_normal((M, 4)), rng.standard_normal((N, 4))
    maps = {name: linear_map(rng, 4, 4) for name in ("query", "key", "value")}
    maps |= {name: linear_map(rng, 8, 4) for name in ("information", "gate")}
    out = attention.attention_on_attention(X, Y, named(**maps), num_heads=2)

    # without a gate's own map, the multi-head result goes out through an identity
    plain = named(out=identity(4), **{name: maps[name] for name in ("query", "key", "value")})
    V_hat = attention.multi_head_attention(X, Y, plain, num_heads=2)
    Q = X @ maps["query"]["weight"].T + maps["query"]["bias"]
    for channel in range(4):
        W_i, W_g = maps["information"]["weight"][channel], maps["gate"]["weight"][channel]
        b_i, b_g = maps["information"]["bias"][channel], maps["gate"]["bias"][channel]
        information = V_hat @ W_i[:4] + Q @ W_i[4:] + b_i
        gate = sigmoid(V_hat @ W_g[:4] + Q @ W_g[4:] + b_g)
        assert_close(out[:, channel], information * gate)


@pytest.mark.parametrize("num_heads", [0, 3, 8])
def test_heads_that_do_not_divide_the_model_are_refused(num_heads):
    X = np.ones((2, 4))
    with pytest.raises(ValueError, match=f"{num_heads} heads do not divide a model of 4 channels"):
        attention.heads_concatenated(X, X, X, num_heads)


def test_float32_stays_float32():
    X = np.ones((3, 4), dtype=np.float32)
    mask = attention.causal_mask(3)
    assert attention.attend(X, X, lambda a, b: float(a @ b)).dtype == np.float32
    assert attention.heads_concatenated(X, X, X, 2, mask).dtype == np.float32
    assert attention.self_attention(X, X, X, X[:, :3].T @ X).dtype == np.float32
