"""The oracle's auto-reconstructor and its discrepancies: what they ignore, and their limits."""

import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.verify.strategies import SEEDS
from benchmarks.verify.tolerances import assert_close
from reference import auto_reconstructor as arnet
from reference import objectives
from reference.neural_image_caption import sentence_loss
from reference.primitives import log_softmax, select, softmax
from reference.recurrent import lstm, unroll, zero_state
from tests.support.covers import covers
from tests.support.parameters import linear_map, lstm_map, prefixed, state

SIZES = st.integers(1, 4)
LENGTHS = st.integers(1, 6)
EIGHTHS = st.integers(0, 24).map(lambda n: n / 8)


def assert_same(actual, expected, what="output"):
    """To rounding of 1, the scale of a cosine: a distance itself may cancel to nothing."""
    assert_close([1, *actual], [1, *expected], what)


def reconstructor_parameters(rng, d, d_prime):
    return prefixed("lstm", lstm_map(rng, d, d_prime)) | prefixed("fc", linear_map(rng, d_prime, d))


@covers(arnet=[5])
@given(SEEDS, SIZES, SIZES)
def test_the_reconstructor_is_an_lstm_that_reads_states(seed, d, d_prime):
    rng = np.random.default_rng(seed)
    T, h, past = lstm_map(rng, d, d_prime), rng.standard_normal(d), state(rng, d_prime)
    assert_close(arnet.reconstructor(h, past, T), lstm(h, past, T))


@covers(arnet=[5, 6, 7])
@given(SEEDS, LENGTHS, SIZES, SIZES)
def test_each_error_is_of_a_state_from_all_that_came_after(seed, length, d, d_prime):
    rng = np.random.default_rng(seed)
    parameters, h = reconstructor_parameters(rng, d, d_prime), rng.standard_normal((length, d))
    T = select(parameters, "lstm.")
    read = unroll(partial(lstm, T=T), h, zero_state(d_prime))
    weight, bias = parameters["fc.weight"], parameters["fc.bias"]
    expected = [sum((h[t - 1] - weight @ read[t].h - bias) ** 2) for t in range(1, length)]
    assert_close(arnet.reconstruction_errors(h, parameters), expected)


@covers(arnet=[5, 6, 7])
@given(SEEDS, LENGTHS, SIZES, st.data())
def test_errors_of_a_prefix_are_the_first_of_the_sequence(seed, length, d, data):
    cut = data.draw(st.integers(1, length))
    rng = np.random.default_rng(seed)
    parameters, h = reconstructor_parameters(rng, d, d), rng.standard_normal((length, d))
    errors = arnet.reconstruction_errors(h, parameters)
    assert (arnet.reconstruction_errors(h[:cut], parameters) == errors[: cut - 1]).all()


@covers(arnet=[6, 7])
@given(SEEDS, LENGTHS, SIZES)
def test_states_that_never_change_can_be_reconstructed(seed, length, d):
    rng = np.random.default_rng(seed)
    h = np.tile(rng.standard_normal(d), (length, 1))
    parameters = reconstructor_parameters(rng, d, d)
    parameters |= {"fc.weight": np.zeros((d, d)), "fc.bias": h[0]}
    errors = arnet.reconstruction_errors(h, parameters)
    assert errors.shape == (length - 1,)
    assert not errors.any()


@covers(arnet=[7])
@given(SEEDS, SIZES, EIGHTHS)
def test_the_error_is_the_square_of_a_distance(seed, d, factor):
    h, h_hat, shift = np.random.default_rng(seed).standard_normal((3, d))
    error = arnet.reconstruction_error(h, h_hat)
    assert_close(error, np.linalg.norm(h - h_hat) ** 2)
    assert_close(arnet.reconstruction_error(h + shift, h_hat + shift), error, "shifted")
    assert_close(arnet.reconstruction_error(factor * h, factor * h_hat), factor**2 * error)


@covers(arnet=[8], lstm_readonly=[15])
@given(SEEDS, LENGTHS, st.integers(2, 5))
def test_the_likelihood_is_the_product_over_all_words_but_the_first(seed, N, V):
    rng = np.random.default_rng(seed)
    scores, y = rng.standard_normal((N - 1, V)), rng.integers(0, V, N)
    loss = objectives.negative_log_likelihood(log_softmax(scores), y)
    chosen = [softmax(row)[word] for row, word in zip(scores, y[1:], strict=True)]
    assert_close(loss, -math.log(math.prod(chosen)))
    y[0] = (y[0] + 1) % V
    assert objectives.negative_log_likelihood(log_softmax(scores), y) == loss
    with_start = log_softmax(np.concatenate([rng.standard_normal((1, V)), scores]))
    assert sentence_loss(with_start, y) == loss
    with pytest.raises(ValueError, match="expected a row for each but the first"):
        objectives.negative_log_likelihood(with_start, y)


@covers(arnet=[9])
@given(EIGHTHS, st.lists(EIGHTHS, max_size=4), EIGHTHS, EIGHTHS)
def test_the_joint_loss_is_linear_in_lambda_from_the_likelihood_on(L_NLL, L_AR, a, b):
    assert arnet.joint_loss(L_NLL, L_AR, 0.0) == L_NLL
    both = arnet.joint_loss(L_NLL, L_AR, a + b)
    apart = arnet.joint_loss(L_NLL, L_AR, a) + arnet.joint_loss(0, L_AR, b)
    assert_close(both, apart)
    assert_close(arnet.joint_loss(0, L_AR, 1), math.fsum(L_AR))


@pytest.mark.parametrize("lambda_", [-0.01, float("nan")])
def test_a_negative_lambda_is_refused(lambda_):
    with pytest.raises(ValueError, match=r"lambda is .*, expected at least 0"):
        arnet.joint_loss(1.0, [1.0], lambda_)


def rotation(rng, d):
    return np.linalg.qr(rng.standard_normal((d, d)))[0]


@covers(arnet=[10])
@given(SEEDS, SIZES, st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
def test_the_cosine_distance_sees_the_angle_alone(seed, d, a, b):
    rng = np.random.default_rng(seed)
    h_1, h_2 = rng.standard_normal((2, d))
    distance = arnet.cosine_distance(h_1, h_2)
    R = rotation(rng, d)
    assert_same([distance], [arnet.cosine_distance(h_2, h_1)], "symmetric")
    same = [arnet.cosine_distance(a * h_1, b * h_2), arnet.cosine_distance(R @ h_1, R @ h_2)]
    assert_same(same, [distance, distance], "scaled, turned")
    extremes = [arnet.cosine_distance(h_1, a * h_1), arnet.cosine_distance(h_1, -a * h_1)]
    assert_same(extremes, [0, 2], "extremes")
    opposite = arnet.cosine_distance(h_1, -h_2)
    assert_same([distance + opposite], [2], "opposites")


@covers(arnet=[10])
@given(st.floats(0, math.pi))
def test_the_cosine_distance_of_an_angle(angle):
    turned = np.array([math.cos(angle), math.sin(angle)])
    assert_same([arnet.cosine_distance(np.array([1.0, 0.0]), turned)], [1 - math.cos(angle)])


def test_a_state_without_direction_and_other_images_are_refused():
    with pytest.raises(ValueError, match="norm 0 has no cosine distance"):
        arnet.cosine_distance(np.zeros(3), np.ones(3))
    with pytest.raises(ValueError, match=r"shapes \(2, 3\) and \(1, 3\)"):
        arnet.point_wise_distance(np.ones((2, 3)), np.ones((1, 3)))


@covers(arnet=[11, 12])
@given(SEEDS, LENGTHS, st.integers(2, 4))
def test_both_discrepancies_ignore_rotation_and_the_images_order(seed, N, d):
    rng = np.random.default_rng(seed)
    U, V = rng.standard_normal((2, N, d))
    R, order = rotation(rng, d), rng.permutation(N)
    for distance in (arnet.mean_centroid_distance, arnet.point_wise_distance):
        plain = distance(U, V)
        same = [distance(V, U), distance(U @ R, V @ R), distance(U[order], V[order])]
        assert_same(same, [plain] * 3)
        assert_same([distance(U, U)], [0], "of themselves")


@covers(arnet=[11])
@given(SEEDS, LENGTHS, st.integers(2, 4))
def test_the_centroid_does_not_know_whose_state_is_whose(seed, N, d):
    rng = np.random.default_rng(seed)
    U, V = rng.standard_normal((2, N, d))
    plain = arnet.mean_centroid_distance(U, V)
    assert_same([arnet.mean_centroid_distance(U, V[rng.permutation(N)])], [plain])
    assert_same([arnet.mean_centroid_distance(3 * U, 0.1 * V)], [plain], "scaled as a whole")
    assert_same([arnet.mean_centroid_distance(U, np.r_[V, V])], [plain], "every image twice")


@covers(arnet=[12])
@given(SEEDS, LENGTHS, st.integers(2, 4))
def test_the_point_wise_distance_is_the_mean_over_images_and_ignores_each_norm(seed, N, d):
    rng = np.random.default_rng(seed)
    U, V = rng.standard_normal((2, N, d))
    plain = arnet.point_wise_distance(U, V)
    each = [arnet.mean_centroid_distance(u[None], v[None]) for u, v in zip(U, V, strict=True)]
    assert_same([plain], [sum(each) / N])
    norms = rng.uniform(0.1, 10, (N, 1))
    assert_same([arnet.point_wise_distance(norms * U, V)], [plain], "scaled one by one")
