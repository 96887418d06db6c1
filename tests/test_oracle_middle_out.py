"""The oracle's self-attentive and middle-out decoders: one form inside another, order, mirrors."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.verify.strategies import SEEDS
from benchmarks.verify.tolerances import SUMS, assert_close
from reference import attention, middle_out
from reference.middle_out import SELF_ATTENTIONS
from reference.primitives import select, softmax
from tests.support.covers import covers
from tests.support.parameters import decoder_map, encoder_map, linear_map, lstm_map, prefixed
from tests.support.parameters import state as random_state

SIZES = st.integers(1, 4)
KINDS = st.sampled_from(SELF_ATTENTIONS)
HALVES = st.lists(st.integers(0, 4), max_size=4)
V, D_E, D_C, D = 5, 3, 2, 4


def word_decoder(rng, kind):
    vocabulary = prefixed("vocabulary", linear_map(rng, D, V))
    return decoder_map(rng, kind, D_E, D_C, D) | vocabulary


class Model:
    """Random parameters of both decoders, an encoder's states and the state to start from."""

    def __init__(self, seed, kind):
        rng = np.random.default_rng(seed)
        self.left, self.right = word_decoder(rng, kind), word_decoder(rng, kind)
        self.embedding = {"embedding.weight": rng.standard_normal((V, D_E))}
        self.H_e, self.state = rng.standard_normal((3, D_C)), random_state(rng, D)
        self.kind = kind

    def __call__(self, left, middle, right, side_order=middle_out.LEFT_FIRST, swapped=False):
        sides = (self.right, self.left) if swapped else (self.left, self.right)
        parameters = self.embedding | prefixed("left", sides[0]) | prefixed("right", sides[1])
        memory = (self.H_e, self.state)
        return middle_out.middle_out(
            left, middle, right, *memory, parameters, self.kind, side_order
        )


@covers(middle_out=[2, 3, 4])
@given(SEEDS, SIZES, SIZES, SIZES)
def test_general_attention_is_the_matrix_form(seed, n, d, d_s):
    rng = np.random.default_rng(seed)
    h, H_e, W_a = (rng.standard_normal(shape) for shape in (d, (n, d_s), (d, d_s)))
    score = partial(attention.general_score, W_a=W_a)
    alpha = attention.alignment_weights(h, H_e, score)
    assert_close(alpha, softmax(h @ W_a @ H_e.T))
    c = attention.context_vector(alpha, H_e)
    assert_close(c, attention.soft_attention(h, H_e, score))
    assert (c >= H_e.min(axis=0) - SUMS).all()
    assert (c <= H_e.max(axis=0) + SUMS).all()


@covers(middle_out=[4])
@given(SEEDS, SIZES, SIZES, st.floats(-3, 3))
def test_the_general_score_is_linear_in_each_of_its_two(seed, d, d_s, factor):
    rng = np.random.default_rng(seed)
    (h, g), (s, r) = rng.standard_normal((2, d)), rng.standard_normal((2, d_s))
    W_a = rng.standard_normal((d, d_s))
    score = partial(attention.general_score, W_a=W_a)
    assert_close(score(h + factor * g, s), score(h, s) + factor * score(g, s))
    assert_close(score(h, s + factor * r), score(h, s) + factor * score(h, r))


@given(SEEDS, SIZES, SIZES, SIZES)
def test_a_weighted_sum_of_nothing_is_zero_and_of_equals_is_one_of_them(seed, n, d, m):
    rng = np.random.default_rng(seed)
    h, row, W = rng.standard_normal(d), rng.standard_normal(m), rng.standard_normal((d, m))
    assert (middle_out.weighted_sum(h, [], W) == np.zeros(m)).all()
    assert_close(middle_out.weighted_sum(h, [row] * n, W), row)
    rows = rng.standard_normal((n, m))
    assert_close(middle_out.weighted_sum(h, rows, 0 * W), rows.mean(axis=0))


@covers(middle_out=[1, 5, 6, 7])
@given(SEEDS, SIZES, SIZES, SIZES)
def test_a_recurrence_that_does_not_look_is_the_one_without(seed, d_e, d_c, d):
    rng = np.random.default_rng(seed)
    T, past = lstm_map(rng, 2 * d_e + d_c + d, d), random_state(rng, d)
    e, out, c, h_tilde = (rng.standard_normal(size) for size in (d_e, d_e, d_c, d))
    of = dict(zip("edchr", np.split(T["weight"], np.cumsum([d_e, d_e, d_c, d]), 1), strict=True))

    def zeroed(blind):
        return T | {"weight": np.concatenate([(n not in blind) * of[n] for n in of], axis=1)}

    def without(blind):
        return T | {"weight": np.concatenate([of[n] for n in of if n not in blind], axis=1)}

    def dual(blind):
        return middle_out.dual_attention_recurrence(past, e, out, c, h_tilde, zeroed(blind))

    hidden = middle_out.hidden_attention_recurrence(past, e, c, h_tilde, without("d"))
    assert_close(dual("d"), hidden, "6 in 7")
    output = middle_out.output_attention_recurrence(past, out, c, without("eh"))
    assert_close(dual("eh"), output, "5 in 7")
    plain = middle_out.attention_recurrence(past, e, c, without("dh"))
    assert_close(dual("dh"), plain, "1 in 7")


@covers(middle_out=[1, 2, 3, 4, 5, 6, 7])
@given(SEEDS, KINDS, SIZES, SIZES, st.integers(0, 4))
def test_a_step_attends_from_the_state_before_by_a_matrix_for_each(seed, kind, n, outputs, states):
    rng = np.random.default_rng(seed)
    parameters, past = decoder_map(rng, kind, D_E, D_C, D), random_state(rng, D)
    H_e, E = rng.standard_normal((n, D_C)), rng.standard_normal((outputs, D_E))
    H, e = rng.standard_normal((states, D)), rng.standard_normal(D_E)

    def attended(rows, name):
        if not len(rows):
            return np.zeros(rows.shape[1])
        return softmax(past.h @ parameters[name] @ rows.T) @ rows

    c, d, h_tilde = attended(H_e, "W_a"), attended(E, "W_d"), attended(H, "W_h")
    T = select(parameters, "lstm.")
    expected = {
        "none": lambda: middle_out.attention_recurrence(past, e, c, T),
        "output": lambda: middle_out.output_attention_recurrence(past, d, c, T),
        "hidden": lambda: middle_out.hidden_attention_recurrence(past, e, c, h_tilde, T),
        "dual": lambda: middle_out.dual_attention_recurrence(past, e, d, c, h_tilde, T),
    }
    step = middle_out.decoder_step(past, e, H_e, list(E), list(H), parameters, kind)
    assert_close(step, expected[kind]())


@covers(middle_out=[1, 5, 6, 7])
@given(SEEDS, KINDS, HALVES, st.integers(0, 4))
def test_left_to_right_is_middle_out_from_the_start_token_with_no_left_half(
    seed, kind, words, start
):
    model = Model(seed, kind)
    tokens = [start, *words]
    decoder = model.embedding | prefixed("decoder", model.right)
    log_p = middle_out.sequence_to_sequence(tokens, model.H_e, model.state, decoder, kind)
    halves = model((), start, [*words, 0], side_order=("right",))
    assert (halves["right"] == log_p).all()
    assert halves["left"].shape == (0, V)
    assert_close(np.exp(log_p).sum(axis=1), np.ones(len(tokens)))


@covers(middle_out=[1, 5, 6, 7])
@given(SEEDS, KINDS, st.lists(st.integers(0, 4), min_size=1, max_size=5), st.data())
def test_the_left_to_right_decoder_is_causal(seed, kind, tokens, data):
    t = data.draw(st.integers(0, len(tokens) - 1))
    model = Model(seed, kind)
    decoder = model.embedding | prefixed("decoder", model.right)

    def log_p(words):
        return middle_out.sequence_to_sequence(words, model.H_e, model.state, decoder, kind)

    changed = [*tokens[:t], (tokens[t] + 1) % V, *tokens[t + 1 :]]
    before, after = log_p(tokens), log_p(changed)
    assert (before[:t] == after[:t]).all()
    assert (before[t:] != after[t:]).any()


@given(SEEDS, KINDS, HALVES, HALVES, st.integers(0, 4))
def test_swapped_decoders_and_turns_mirror_the_sentence(seed, kind, left, right, middle):
    model = Model(seed, kind)
    plain = model(left, middle, right)
    mirrored = model(right, middle, left, side_order=("right", "left"), swapped=True)
    assert (mirrored["left"] == plain["right"]).all()
    assert (mirrored["right"] == plain["left"]).all()


@given(SEEDS, HALVES, HALVES, HALVES, st.integers(0, 4))
def test_vanilla_halves_do_not_know_of_each_other(seed, left, right, other, middle):
    model = Model(seed, "none")
    plain, changed = model(left, middle, right), model(left, middle, other)
    assert (plain["left"] == changed["left"]).all()
    # and so whose turn is first does not matter
    turned = model(left, middle, right, side_order=("right", "left"))
    assert (turned["left"] == plain["left"]).all()
    assert (turned["right"] == plain["right"]).all()


@covers(middle_out=[5, 6, 7])
@given(
    SEEDS,
    st.sampled_from(["output", "hidden", "dual"]),
    st.lists(st.integers(0, 4), min_size=2, max_size=4),
    st.lists(st.integers(0, 4), min_size=2, max_size=4),
    st.data(),
)
def test_self_attention_tells_a_half_of_the_other_once_it_is_written(seed, kind, left, right, data):
    model = Model(seed, kind)
    k = data.draw(st.integers(0, min(len(left), len(right)) - 2))
    changed = [*right[:k], (right[k] + 1) % V, *right[k + 1 :]]
    before, after = model(left, 0, right), model(left, 0, changed)
    # the k-th word of the right half is written after the k-th turns of both
    assert (before["left"][: k + 1] == after["left"][: k + 1]).all()
    assert (before["right"][: k + 1] == after["right"][: k + 1]).all()
    assert (before["right"][k + 1] != after["right"][k + 1]).any()
    seen = k + 1 if kind != "hidden" else k + 2  # a state shows its word from the next one on
    if seen < len(left):
        assert (before["left"][seen] != after["left"][seen]).any()


@given(SEEDS, KINDS, HALVES, HALVES, st.integers(0, 4), st.integers(0, 4), st.integers(0, 4))
def test_the_first_words_of_longer_halves_have_the_same_scores(
    seed, kind, left, right, middle, a, b
):
    model = Model(seed, kind)
    short, long = model(left, middle, right), model([*left, a], middle, [*right, b])
    if len(left) == len(right):
        assert (long["left"][: len(left)] == short["left"]).all()
        assert (long["right"][: len(right)] == short["right"]).all()
    k = min(len(left), len(right))
    assert (long["left"][:k] == short["left"][:k]).all()
    assert (long["right"][:k] == short["right"][:k]).all()


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [(0, 0, ""), (2, 2, "lrlr"), (1, 3, "lrrr"), (3, 1, "lrll"), (0, 2, "rr")],
)
def test_the_sides_take_turns_until_each_is_through(left, right, expected):
    assert "".join(side[0] for side in middle_out.turns(left, right)) == expected


def test_a_side_that_has_no_turn_and_an_unknown_self_attention_are_refused():
    with pytest.raises(ValueError, match=r"2 outputs on the left, which is not among \('right',\)"):
        list(middle_out.turns(2, 1, ("right",)))
    model = Model(0, "none")
    model.kind = "triple"
    with pytest.raises(ValueError, match="self_attention is 'triple', expected one of none, out"):
        model([1], 0, [1])


@given(SEEDS, SIZES, SIZES)
def test_the_encoder_of_a_mirrored_input_swaps_the_halves_of_its_state(seed, n, d_x):
    rng = np.random.default_rng(seed)
    X, parameters = rng.standard_normal((n, d_x)), encoder_map(rng, d_x, D)
    swapped = prefixed("encoder.forward", select(parameters, "encoder.backward."))
    swapped |= prefixed("encoder.backward", select(parameters, "encoder.forward."))
    H_e, final = middle_out.encode(X, parameters)
    H_mirrored, final_mirrored = middle_out.encode(X[::-1], swapped)
    assert H_e.shape == (n, D)
    assert_close(H_mirrored[::-1], np.roll(H_e, D // 2, axis=1))
    assert_close(final_mirrored.c, np.roll(final.c, D // 2))


@given(SEEDS, SIZES, SIZES, st.integers(2, 5))
def test_the_middle_word_is_a_softmax_of_the_last_state(seed, n, d_x, candidates):
    rng = np.random.default_rng(seed)
    X, T, out = rng.standard_normal((n, d_x)), lstm_map(rng, d_x, D), linear_map(rng, D, candidates)
    p = middle_out.middle_word(X, prefixed("lstm", T) | prefixed("vocabulary", out))
    assert_close(p.sum(), 1.0)
    h = middle_out.unroll(lambda x, s: middle_out.lstm(x, s, T), X, middle_out.zero_state(D))[-1].h
    ratio = (out["weight"][1:] - out["weight"][0]) @ h + out["bias"][1:] - out["bias"][0]
    assert_close(np.log(p[1:] / p[0]), ratio)
