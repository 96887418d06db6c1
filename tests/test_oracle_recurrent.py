"""The oracle's recurrent cells: against PyTorch's LSTM, against each other, and at their limits."""

import itertools
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.verify.strategies import SEEDS
from benchmarks.verify.tolerances import assert_close
from reference import attention, recurrent
from reference.primitives import softmax
from reference.recurrent import State
from tests.support.covers import covers
from tests.support.parameters import lstm_map, prefixed, read_only_map, state

SIZES = st.integers(1, 4)
LENGTHS = st.integers(1, 5)


def pytorch_lstm(T, d_x, d, **options):
    """PyTorch's LSTM with our parameters; its gates stand in the order i, f, g, o."""
    module = torch.nn.LSTM(d_x, d, **options).double()
    suffixes = ["", "_reverse"] if options.get("bidirectional") else [""]
    with torch.no_grad():
        for suffix, one in zip(suffixes, T, strict=True):
            i, f, o, g = np.split(np.c_[one["weight"], one["bias"]], 4)
            whole = torch.from_numpy(np.concatenate([i, f, g, o]))
            getattr(module, f"weight_ih_l0{suffix}").copy_(whole[:, :d_x])
            getattr(module, f"weight_hh_l0{suffix}").copy_(whole[:, d_x:-1])
            getattr(module, f"bias_ih_l0{suffix}").copy_(whole[:, -1])
            getattr(module, f"bias_hh_l0{suffix}").zero_()
    return module


@covers(arnet=[1, 2])
@given(SEEDS, SIZES, SIZES, LENGTHS)
def test_the_lstm_is_the_one_that_pytorch_has(seed, d_x, d, length):
    rng = np.random.default_rng(seed)
    T, start, xs = lstm_map(rng, d_x, d), state(rng, d), rng.standard_normal((length, d_x))
    states = recurrent.unroll(partial(recurrent.lstm, T=T), xs, start)
    with torch.no_grad():
        given = tuple(torch.from_numpy(part)[None] for part in start)
        hs, (_, c) = pytorch_lstm([T], d_x, d)(torch.from_numpy(xs), given)
    assert_close([s.h for s in states], hs.numpy(), "h")
    assert_close(states[-1].c, c[0].numpy(), "c")


@given(SEEDS, SIZES, SIZES, LENGTHS)
def test_the_bidirectional_lstm_is_the_one_that_pytorch_has(seed, d_x, d, length):
    rng = np.random.default_rng(seed)
    T, X = [lstm_map(rng, d_x, d) for _ in range(2)], rng.standard_normal((length, d_x))
    both = prefixed("forward", T[0]) | prefixed("backward", T[1])
    H, final = recurrent.bidirectional_lstm(X, both)
    with torch.no_grad():
        hs, (h, c) = pytorch_lstm(T, d_x, d, bidirectional=True)(torch.from_numpy(X))
    assert_close(H, hs.numpy(), "states")
    assert_close(final.h, h.numpy().ravel(), "final h")
    assert_close(final.c, c.numpy().ravel(), "final c")


@covers(arnet=[3])
@given(SEEDS, SIZES, SIZES, SIZES)
def test_the_attentive_lstm_reads_the_context_as_more_input(seed, d_x, d_z, d):
    rng = np.random.default_rng(seed)
    T, start = lstm_map(rng, d_x + d_z, d), state(rng, d)
    x, z = rng.standard_normal(d_x), rng.standard_normal(d_z)
    attentive = recurrent.attentive_lstm(x, z, start, T)
    # T acts on [x; h; z]: as an LSTM's on [x, z; h] the columns of z come before those of h
    of_x, of_h, of_z = np.split(T["weight"], [d_x, d_x + d], axis=1)
    plain = recurrent.lstm(
        np.r_[x, z], start, {"weight": np.c_[of_x, of_z, of_h], "bias": T["bias"]}
    )
    assert_close(attentive, plain)
    blind = {"weight": np.c_[of_x, of_h, 0 * of_z], "bias": T["bias"]}
    unseen = recurrent.lstm(x, start, {"weight": np.c_[of_x, of_h], "bias": T["bias"]})
    assert_close(recurrent.attentive_lstm(x, z, start, blind), unseen)


def perceptron(rng, d_a, d_s, d):
    return {
        "w": rng.standard_normal(d_a),
        "W_s": rng.standard_normal((d_a, d_s)),
        "W_h": rng.standard_normal((d_a, d)),
        "b": rng.standard_normal(d_a),
    }


@covers(arnet=[4], middle_out=[2, 3])
@given(SEEDS, LENGTHS, SIZES, SIZES, SIZES)
def test_soft_attention_is_the_attention_of_one_query(seed, n, d_s, d, d_a):
    rng = np.random.default_rng(seed)
    s, h = rng.standard_normal((n, d_s)), rng.standard_normal(d)
    score = partial(attention.additive_score, parameters=perceptron(rng, d_a, d_s, d))
    z = attention.soft_attention(h, s, score)
    assert_close(z, attention.attend(h[None], s, score)[0], "v1's eq. 1")
    order = rng.permutation(n)
    assert_close(attention.soft_attention(h, s[order], score), z, "reordered")
    shifted = attention.soft_attention(h, s, lambda a, b: score(a, b) - 900)
    assert_close(shifted, z, "shifted")


@covers(arnet=[4])
@given(SEEDS, LENGTHS, SIZES, SIZES, SIZES)
def test_the_perceptron_scores_all_vectors_at_once_as_one_by_one(seed, n, d_s, d, d_a):
    rng = np.random.default_rng(seed)
    s, h, p = rng.standard_normal((n, d_s)), rng.standard_normal(d), perceptron(rng, d_a, d_s, d)
    z = attention.soft_attention(h, s, partial(attention.additive_score, parameters=p))
    e = np.tanh(s @ p["W_s"].T + h @ p["W_h"].T + p["b"]) @ p["w"]
    assert_close(z, softmax(e) @ s)
    silent = p | {"w": np.zeros(d_a)}
    mean = attention.soft_attention(h, s, partial(attention.additive_score, parameters=silent))
    assert_close(mean, s.mean(axis=0), "of a silent perceptron")


@covers(arnet=[3, 4])
@given(SEEDS, LENGTHS, LENGTHS, SIZES)
def test_the_attentive_cell_attends_from_the_state_before(seed, length, n, d):
    rng = np.random.default_rng(seed)
    T, start = lstm_map(rng, 2 * d, d), state(rng, d)
    xs, s = rng.standard_normal((length, d)), rng.standard_normal((n, d))
    score = partial(attention.additive_score, parameters=perceptron(rng, 3, d, d))
    states = recurrent.unroll(recurrent.attentive_cell(s, score, T), xs, start)
    previous = [start, *states[:-1]]
    for t, x in enumerate(xs):
        z = attention.attend(previous[t].h[None], s, score)[0]
        assert_close(states[t], recurrent.attentive_lstm(x, z, previous[t], T), f"step {t}")


@given(SEEDS, SIZES)
def test_zoneout_of_no_unit_and_of_all_is_the_present_and_the_past(seed, d):
    rng = np.random.default_rng(seed)
    past, present = state(rng, d), state(rng, d)
    neither = recurrent.zoneout(past, present, 0.0, 0.0)
    assert (neither.h == present.h).all()
    assert (neither.c == present.c).all()
    kept = recurrent.zoneout(past, present, np.ones(d), 0.0)
    assert (kept.h == present.h).all()
    assert (kept.c == past.c).all()
    kept = recurrent.zoneout(past, present, 0.0, np.ones(d))
    assert (kept.h == past.h).all()
    assert (kept.c == present.c).all()


@given(SEEDS, st.integers(1, 3), st.floats(0, 1), st.floats(0, 1))
def test_zoneout_by_rates_is_the_expectation_over_masks(seed, d, z_c, z_h):
    rng = np.random.default_rng(seed)
    past, present = state(rng, d), state(rng, d)
    expected = np.zeros((2, d))
    for bits in itertools.product((0.0, 1.0), repeat=2 * d):
        mask = np.array(bits)
        rates = np.r_[np.full(d, z_c), np.full(d, z_h)]
        probability = np.where(mask == 1, rates, 1 - rates).prod()
        expected += probability * np.array(recurrent.zoneout(past, present, mask[:d], mask[d:]))
    assert_close(recurrent.zoneout(past, present, z_c, z_h), expected)


@pytest.mark.parametrize(("z_c", "z_h", "name"), [(-0.1, 0, "z_c"), (0, 1.1, "z_h")])
def test_zoneout_outside_its_range_is_refused(z_c, z_h, name):
    zeros = recurrent.zero_state(2)
    with pytest.raises(ValueError, match=f"{name} is .*, expected in"):
        recurrent.zoneout(zeros, zeros, z_c, z_h)
    with pytest.raises(ValueError, match="z_c is nan"):
        recurrent.zoneout(zeros, zeros, float("nan"), 0)


@given(SEEDS, SIZES)
def test_recurrent_dropout_of_nothing_and_of_everything(seed, d):
    rng = np.random.default_rng(seed)
    cell = partial(recurrent.lstm, T=lstm_map(rng, d, d))
    x, past = rng.standard_normal(d), state(rng, d)
    nothing = recurrent.recurrent_dropout(cell, np.ones(d, dtype=bool), 0.0)
    assert np.array_equal(nothing(x, past), cell(x, past))
    everything = recurrent.recurrent_dropout(cell, np.zeros(d, dtype=bool), 0.5)
    assert_close(everything(x, past), cell(x, State(np.zeros(d), past.c)))


@given(SEEDS, st.integers(1, 4), st.floats(0, 0.9))
def test_recurrent_dropout_keeps_what_is_read_in_expectation(seed, d, p):
    past = state(np.random.default_rng(seed), d)
    read = np.zeros((2, d))
    for bits in itertools.product((False, True), repeat=d):
        keep = np.array(bits)
        probability = np.where(keep, 1 - p, p).prod()
        seen = recurrent.recurrent_dropout(lambda _, state: state, keep, p)(past.h, past)
        read += probability * np.array(seen)
    assert_close(read, past)


@given(SEEDS, st.integers(1, 4), st.floats(0, 0.9))
def test_update_dropout_keeps_the_memory_cell_in_expectation(seed, d, p):
    """Kept whole it is the LSTM; what no update reaches only forgets."""
    rng = np.random.default_rng(seed)
    T, x, past = lstm_map(rng, d, d), rng.standard_normal(d), state(rng, d)
    c = np.zeros(d)
    for bits in itertools.product((False, True), repeat=d):
        keep = np.array(bits)
        probability = np.where(keep, 1 - p, p).prod()
        c += probability * recurrent.update_dropout(x, past, T, keep, p).c
    whole = recurrent.lstm(x, past, T)
    assert_close(c, whole.c)
    assert_close(recurrent.update_dropout(x, past, T, np.ones(d, dtype=bool), 0.0), whole)
    none = recurrent.update_dropout(x, past, T, np.zeros(d, dtype=bool), p)
    assert (np.abs(none.c) <= np.abs(past.c)).all()


@pytest.mark.parametrize("p", [-0.1, 1.0, float("nan")])
def test_a_probability_of_dropout_out_of_range_is_refused(p):
    with pytest.raises(ValueError, match=f"p is {p}, expected in"):
        recurrent.recurrent_dropout(lambda _, state: state, np.ones(2, dtype=bool), p)
    zeros, T = recurrent.zero_state(2), {"weight": np.zeros((8, 4))}
    with pytest.raises(ValueError, match=f"p is {p}, expected in"):
        recurrent.update_dropout(zeros.h, zeros, T, np.ones(2, dtype=bool), p)


def stacked(W, gates="ifoc"):
    """The T of ARNet's LSTM that computes the same gates, without a bias."""
    return {"weight": np.concatenate([np.c_[W[f"W_{g}x"], W[f"W_{g}m"]] for g in gates])}


@covers(lstm_readonly=[6, 7, 8, 9, 10])
@given(SEEDS, SIZES)
def test_the_memory_block_is_the_lstm_but_for_the_tanh_of_its_output(seed, N):
    rng = np.random.default_rng(seed)
    W, x, past = read_only_map(rng, N), rng.standard_normal(N), state(rng, N)
    m, c = recurrent.memory_block(x, past, W)
    plain = recurrent.lstm(x, past, stacked(W))
    assert_close(c, plain.c, "c")
    assert_close(m * np.tanh(c), plain.h * c, "m")


@covers(lstm_readonly=[6, 7, 8, 16])
@given(SEEDS, SIZES)
def test_the_four_gates_are_one_function_of_their_own_matrices(seed, N):
    rng = np.random.default_rng(seed)
    W, x, m = read_only_map(rng, N), rng.standard_normal(N), rng.standard_normal(N)
    gates = {
        "i": recurrent.input_gate,
        "f": recurrent.forget_gate,
        "o": recurrent.output_gate,
        "r": recurrent.read_only_gate,
    }
    for name, gate in gates.items():
        value = gate(x, m, W)
        assert_close(np.log(value) - np.log1p(-value), W[f"W_{name}x"] @ x + W[f"W_{name}m"] @ m)
        for other in gates.keys() - {name}:
            changed = W | {f"W_{other}x": -W[f"W_{other}x"]}
            assert (gate(x, m, changed) == value).all()


@covers(lstm_readonly=[9, 10, 17])
@given(SEEDS, SIZES)
def test_a_closed_read_only_gate_leaves_the_lstm(seed, N):
    rng = np.random.default_rng(seed)
    W, x, (m, c) = read_only_map(rng, N), rng.standard_normal(N), state(rng, N)
    f, i, read = rng.random(N), rng.random(N), rng.standard_normal(N)
    closed = recurrent.read_only_memory_cell(f, i, np.zeros(N), c, x, m, read, W)
    assert (closed == recurrent.memory_cell(f, i, c, x, m, W)).all()
    nothing = recurrent.memory_block(x, State(m, c), W, np.zeros(N))
    assert np.array_equal(nothing, recurrent.memory_block(x, State(m, c), W))


@covers(lstm_readonly=[16, 17])
@given(SEEDS, SIZES, st.floats(-3, 3))
def test_the_cell_grows_by_the_gate_times_what_is_read(seed, N, factor):
    rng = np.random.default_rng(seed)
    W, x, past = read_only_map(rng, N), rng.standard_normal(N), state(rng, N)
    read = rng.standard_normal(N)
    r = recurrent.read_only_gate(x, past.h, W)
    without = recurrent.memory_block(x, past, W).c
    assert_close(recurrent.memory_block(x, past, W, factor * read).c, without + factor * r * read)


@covers(lstm_readonly=[17])
@given(SEEDS, LENGTHS, SIZES)
def test_the_readings_are_a_constant_and_a_shift_that_agree_after_the_image(seed, length, N):
    xs = np.random.default_rng(seed).standard_normal((length, N))
    image = recurrent.read_only_inputs(xs, "image")
    previous = recurrent.read_only_inputs(xs, "previous_input")
    assert len(image) == len(previous) == length
    assert all((read == xs[0]).all() for read in image)
    assert not previous[0].any()
    assert all((previous[t] == xs[t - 1]).all() for t in range(1, length))
    assert np.array_equal(image[1:2], previous[1:2])


@covers(lstm_readonly=[17])
@given(SEEDS, LENGTHS, SIZES, st.sampled_from([None, *recurrent.READINGS]), st.data())
def test_memory_blocks_before_a_changed_input_are_the_same(seed, length, N, reading, data):
    t = data.draw(st.integers(0, length - 1))
    rng = np.random.default_rng(seed)
    W, xs = read_only_map(rng, N), rng.standard_normal((length, N))
    before = np.array(recurrent.memory_blocks(xs, W, reading))
    xs[t] += 1
    after = np.array(recurrent.memory_blocks(xs, W, reading))
    assert (before[:t] == after[:t]).all()
    assert (before[t:] != after[t:]).any()


def test_the_reading_and_its_sizes_are_checked():
    xs = np.ones((2, 3))
    with pytest.raises(ValueError, match="reading is 'words', expected 'image' or 'previous_inp"):
        recurrent.read_only_inputs(xs, "words")
    W = {f"W_{g}x": np.ones((3, 2)) for g in "iforc"} | {
        f"W_{g}m": np.ones((3, 3)) for g in "iforc"
    }
    with pytest.raises(ValueError, match="memory of 3 channels reads vectors of 2"):
        recurrent.memory_block(np.ones(2), recurrent.zero_state(3), W, np.ones(2))
