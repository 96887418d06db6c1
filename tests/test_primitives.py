"""The oracle's primitives: against torch's own in float64, and their invariances."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.verify.strategies import SEEDS
from benchmarks.verify.tolerances import assert_close
from reference import primitives
from tests.support.parameters import linear_map

SIZES = st.integers(1, 6)
SCALES = st.sampled_from([1e-30, 1.0, 50.0, 1e4])


def normal(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape)


@given(SEEDS, SIZES, SIZES, SCALES)
def test_softmax_log_softmax_sigmoid_and_relu_are_torchs(seed, rows, columns, scale):
    x = scale * normal(seed, rows, columns)
    t = torch.from_numpy(x)
    for axis in (0, 1):
        assert_close(primitives.softmax(x, axis), t.softmax(axis).numpy(), "softmax")
        assert_close(primitives.log_softmax(x, axis), t.log_softmax(axis).numpy(), "log softmax")
    assert_close(primitives.sigmoid(x), t.sigmoid().numpy(), "sigmoid")
    assert_close(primitives.relu(x), t.relu().numpy(), "relu")


@given(SEEDS, SIZES, SIZES, SCALES)
def test_softmax_is_a_distribution_that_ignores_a_shift(seed, rows, columns, scale):
    x = scale * normal(seed, rows, columns)
    weights = primitives.softmax(x)
    assert (weights >= 0).all()
    assert_close(weights.sum(axis=-1), np.ones(rows), "sum")
    assert_close(primitives.softmax(x + 3.0), weights, "shifted")
    assert_close(np.exp(primitives.log_softmax(x)), weights, "exp of the logarithm")


def test_softmax_gives_hidden_entries_exactly_nothing():
    x = np.array([[1.0, -np.inf, 2.0]])
    assert primitives.softmax(x)[0, 1] == 0
    assert_close(primitives.softmax(x)[:, [0, 2]], primitives.softmax(x[:, [0, 2]]))


@given(SEEDS, SCALES)
def test_sigmoid_and_relu_of_opposites_complement_each_other(seed, scale):
    x = scale * normal(seed, 20)
    assert_close(primitives.sigmoid(x) + primitives.sigmoid(-x), np.ones(20), "sigmoid")
    assert (primitives.relu(x) - primitives.relu(-x) == x).all()


def test_the_ends_of_the_number_line_are_finite():
    ends = np.array([-1e300, -1e3, 0.0, 1e3, 1e300])
    assert primitives.sigmoid(ends).tolist() == [0.0, 0.0, 0.5, 1.0, 1.0]
    assert np.isfinite(primitives.softmax(ends)).all()
    assert np.isfinite(primitives.log_softmax(ends)).all()


@given(SEEDS, SIZES, st.integers(2, 6), SCALES)
def test_layer_norm_is_torchs(seed, rows, d, scale):
    X, parameters = scale * normal(seed, rows, d), {"weight": normal(1, d), "bias": normal(2, d)}
    expected = torch.nn.functional.layer_norm(
        torch.from_numpy(X),
        (d,),
        torch.from_numpy(parameters["weight"]),
        torch.from_numpy(parameters["bias"]),
        eps=1e-5,
    )
    assert_close(primitives.layer_norm(X, parameters), expected.numpy())


@given(SEEDS, SIZES, st.integers(2, 6), st.floats(-5, 5))
def test_layer_norm_ignores_a_shift_and_gives_unit_variance(seed, rows, d, shift):
    X, plain = 100 * normal(seed, rows, d), {"weight": np.ones(d), "bias": np.zeros(d)}
    normed = primitives.layer_norm(X, plain, epsilon=0.0)
    assert_close(normed.mean(axis=1), np.zeros(rows), "mean")
    assert_close(normed.var(axis=1), np.ones(rows), "variance")
    assert_close(primitives.layer_norm(X + shift, plain, epsilon=0.0), normed, "shifted")


@given(st.integers(1, 6), st.floats(-1e3, 1e3))
def test_layer_norm_of_a_constant_row_is_its_bias(d, constant):
    parameters = {"weight": normal(1, d), "bias": normal(2, d)}
    X = np.full((2, d), constant)
    # the mean of equal numbers may round, by less than the root of epsilon lets be seen
    assert_close(primitives.layer_norm(X, parameters), np.tile(parameters["bias"], (2, 1)))


@given(SEEDS, SIZES, SIZES, SIZES)
def test_linear_and_feed_forward_are_torchs(seed, rows, d_in, d_out):
    X, rng = normal(seed, rows, d_in), np.random.default_rng(3)
    first, second = linear_map(rng, d_in, d_out), linear_map(rng, d_out, d_in)
    t = {name: torch.from_numpy(value) for name, value in first.items()}
    hidden = torch.nn.functional.linear(torch.from_numpy(X), **t)
    assert_close(primitives.linear(X, first), hidden.numpy(), "linear")
    parameters = {f"linear_1.{name}": value for name, value in first.items()}
    parameters |= {f"linear_2.{name}": value for name, value in second.items()}
    t = {name: torch.from_numpy(value) for name, value in second.items()}
    out = torch.nn.functional.linear(hidden.relu(), **t)
    assert_close(primitives.feed_forward(X, parameters), out.numpy(), "feed-forward")


def test_select_takes_a_prefix_off_and_refuses_one_that_is_not_there():
    parameters = {"a.b.weight": np.ones(1), "a.bias": np.zeros(1), "ab.weight": np.ones(2)}
    assert set(primitives.select(parameters, "a.")) == {"b.weight", "bias"}
    with pytest.raises(ValueError, match=r"no parameter begins with 'c\.'"):
        primitives.select(parameters, "c.")


@given(SEEDS, st.integers(1, 5), st.integers(1, 4))
def test_word_vectors_are_scaled_embeddings_plus_the_position(seed, T, d):
    embedding, positions = normal(seed, 7, d), normal(seed + 1, 5, d)
    tokens = np.random.default_rng(seed).integers(0, 7, T)
    vectors = primitives.word_vectors(tokens, embedding, positions)
    for t, token in enumerate(tokens):
        assert_close(vectors[t], embedding[token] * d**0.5 + positions[t])


@pytest.mark.parametrize("tokens", [[7], [-1], [0, 9]])
def test_word_vectors_refuse_an_id_outside_the_vocabulary(tokens):
    with pytest.raises(ValueError, match="in a vocabulary of 7"):
        primitives.word_vectors(np.array(tokens), np.ones((7, 2)), np.ones((5, 2)))


def test_word_vectors_refuse_more_words_than_positions():
    with pytest.raises(ValueError, match="3 words but 2 positions"):
        primitives.word_vectors(np.zeros(3, dtype=int), np.ones((7, 2)), np.ones((2, 2)))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_the_dtype_is_kept(dtype):
    X = normal(0, 3, 4).astype(dtype)
    parameters = linear_map(np.random.default_rng(1), 4, 4)
    square = {name: value.astype(dtype) for name, value in parameters.items()}
    both = {f"linear_{i}.{name}": value for i in (1, 2) for name, value in square.items()}
    norm = {"weight": X[0], "bias": X[1]}
    results = [
        primitives.softmax(X),
        primitives.log_softmax(X),
        primitives.sigmoid(X),
        primitives.relu(X),
        primitives.linear(X, square),
        primitives.layer_norm(X, norm),
        primitives.feed_forward(X, both),
        primitives.word_vectors(np.array([2, 0]), X, X),
    ]
    assert {result.dtype for result in results} == {np.dtype(dtype)}
