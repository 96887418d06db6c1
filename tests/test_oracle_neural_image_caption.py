"""The oracle's image captioner with and without the read-only unit: its parts and its whole."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.verify.strategies import SEEDS
from benchmarks.verify.tolerances import assert_close
from reference import neural_image_caption as nic
from reference import objectives, recurrent
from reference.primitives import log_softmax
from tests.support.covers import covers
from tests.support.parameters import captioner_map

SIZES = st.integers(1, 4)
READINGS = st.sampled_from([None, *recurrent.READINGS])


@st.composite
def captioners(draw, vocabulary=(2, 5)):
    """Parameters, the features of an image, the number of words."""
    rng = np.random.default_rng(draw(SEEDS))
    N, V, d_feature = draw(SIZES), draw(st.integers(*vocabulary)), draw(SIZES)
    features = rng.standard_normal((draw(SIZES), d_feature))
    return captioner_map(rng, N, V, d_feature), features, V


@covers(lstm_readonly=[1])
@given(SEEDS, st.integers(1, 5), st.integers(1, 4))
def test_the_most_likely_parameters_have_the_least_loss_on_all_pairs(seed, choices, images):
    rng = np.random.default_rng(seed)
    thetas = [rng.standard_normal((images, 3, 4)) for _ in range(choices)]
    pairs = [(image, rng.integers(0, 4, 3)) for image in range(images)]

    def log_p(S, image, theta):
        return nic.sentence_log_probability(log_softmax(theta[image]), S)

    def loss(theta):
        return sum(objectives.cross_entropy(log_softmax(theta[image]), S) for image, S in pairs)

    best = nic.most_likely(thetas, pairs, log_p)
    assert loss(best) == min(map(loss, thetas))
    assert nic.most_likely(thetas, iter(pairs[::-1]), log_p) is best


@covers(lstm_readonly=[2, 11, 14])
@given(captioners(vocabulary=(2, 3)), READINGS, st.integers(1, 3))
def test_the_probabilities_of_all_sentences_of_a_length_sum_to_one(captioner, reading, length):
    parameters, features, V = captioner
    total = 0.0
    for S in itertools.product(range(V), repeat=length):
        log_p = nic.word_log_probabilities(features, S[:-1], parameters, reading)
        total += math.exp(nic.sentence_log_probability(log_p, S))
    assert_close(total, 1.0)


@covers(lstm_readonly=[2, 15])
@given(captioners(), READINGS, SEEDS, st.integers(1, 4))
def test_the_loss_leaves_out_the_start_word_that_the_chain_rule_has(
    captioner, reading, seed, length
):
    parameters, features, V = captioner
    S = np.random.default_rng(seed).integers(0, V, length)
    log_p = nic.word_log_probabilities(features, S[:-1], parameters, reading)
    assert_close(
        log_p[0, S[0]] - nic.sentence_loss(log_p, S), nic.sentence_log_probability(log_p, S)
    )


@covers(lstm_readonly=[4, 12])
@given(captioners(), SEEDS)
def test_pooling_before_or_after_the_embedding_is_the_same(captioner, seed):
    parameters, features, _ = captioner
    x = nic.image_embedding(features, parameters["W_i"], parameters["b_i"])
    regions = [
        nic.image_embedding(row[None], parameters["W_i"], parameters["b_i"]) for row in features
    ]
    assert_close(x, np.mean(regions, axis=0))
    order = np.random.default_rng(seed).permutation(len(features))
    assert_close(nic.image_input(order, lambda image: features[image], parameters), x)


@covers(lstm_readonly=[5, 13])
@given(SEEDS, st.integers(1, 6), SIZES)
def test_a_row_of_the_identity_picks_a_row_of_the_embedding(seed, V, N_e):
    W_e = np.random.default_rng(seed).standard_normal((V, N_e))
    for word in range(V):
        one_hot = nic.one_hot_embedding(np.eye(V)[word], W_e)
        assert (one_hot == nic.word_embedding(word, W_e)).all()
        assert (one_hot == W_e[word]).all()


@pytest.mark.parametrize("word", [-1, 3])
def test_a_word_outside_the_vocabulary_is_refused(word):
    with pytest.raises(ValueError, match=f"word id {word} in a vocabulary of 3"):
        nic.word_embedding(word, np.ones((3, 2)))


@covers(lstm_readonly=[11])
@given(SEEDS, SIZES, st.integers(2, 5), st.floats(-5, 5))
def test_word_distributions_follow_the_projected_output(seed, N, V, shift):
    rng = np.random.default_rng(seed)
    m, W_pm = rng.standard_normal(N), rng.standard_normal((V, N))
    p = nic.word_distribution(m, W_pm)
    assert_close(p.sum(), 1.0)
    assert_close(np.log(p[1:] / p[0]), (W_pm[1:] - W_pm[0]) @ m)
    # adding the same row to all words changes nothing
    assert_close(nic.word_distribution(m, W_pm + shift * np.ones(N)), p)


@covers(lstm_readonly=[12, 13, 14])
@given(captioners(), READINGS, SEEDS, st.integers(0, 4))
def test_the_unrolled_network_is_its_steps(captioner, reading, seed, length):
    parameters, features, V = captioner
    S = np.random.default_rng(seed).integers(0, V, length)
    xs = [nic.image_input(features, lambda image: image, parameters)]
    xs += [nic.one_hot_embedding(np.eye(V)[word], parameters["W_e"]) for word in S]
    reads = recurrent.read_only_inputs(xs, reading) if reading else [None] * len(xs)
    memory, rows = recurrent.zero_state(len(parameters["W_im"])), []
    for x, read in zip(xs, reads, strict=True):
        p, memory = nic.next_word(x, memory, parameters, read)
        rows.append(np.log(p))
    assert_close(nic.word_log_probabilities(features, S, parameters, reading), rows)


@covers(lstm_readonly=[14, 16, 17])
@given(captioners(), st.sampled_from(recurrent.READINGS), SEEDS)
def test_a_read_only_unit_that_reads_zeros_is_not_there(captioner, reading, seed):
    parameters, features, V = captioner
    S = np.random.default_rng(seed).integers(0, V, 3)
    nothing = parameters | {"W_i": 0 * parameters["W_i"], "b_i": 0 * parameters["b_i"]}
    blank = nothing | ({} if reading == "image" else {"W_e": 0 * parameters["W_e"]})
    with_unit = nic.word_log_probabilities(features, S, blank, reading)
    assert (with_unit == nic.word_log_probabilities(features, S, blank, None)).all()
    with_unit = nic.word_log_probabilities(features, S, parameters, reading)
    assert (with_unit != nic.word_log_probabilities(features, S, parameters, None)).any()
