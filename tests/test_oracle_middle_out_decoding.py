"""The oracle's search from the middle outwards: exhaustive, left-to-right and mirrored forms."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.verify.strategies import SEEDS
from benchmarks.verify.tolerances import SUMS, assert_close
from reference import decoding, middle_out
from reference import middle_out_decoding as outwards
from reference.middle_out import LEFT_FIRST, SELF_ATTENTIONS
from reference.middle_out_decoding import Halves
from tests.support.parameters import decoder_map, linear_map, prefixed
from tests.support.parameters import state as random_state
from tests.support.tables import END, START, table_oracle

BEAMS = st.integers(1, 5)
MAX_LENGTHS = st.integers(2, 4)
EVERY = 10_000
"""A beam that holds every hypothesis of the models here."""


def hashed(halves, side, order):
    """A prefix that differs wherever the halves or the side do, mirrored for mirrored halves."""
    mine, other = halves.half(side), halves.half("right" if side == "left" else "left")
    return (halves.middle, order.index(side) + 5, *mine, 17, *other)


@st.composite
def models(draw, order=LEFT_FIRST):
    """A model from probabilities that sum to one, few distinct ones at times; its vocabulary."""
    rng = np.random.default_rng(draw(SEEDS))
    V = draw(st.integers(3, 4))
    table = np.log(rng.dirichlet(np.ones(V), draw(st.integers(1, 9))))
    of_prefix = table_oracle(table)
    return lambda halves, side: of_prefix(hashed(halves, side, order)), V


def words(halves):
    return [(h.left, h.middle, h.right, h.log_probs) for h in halves]


@given(models(), MAX_LENGTHS, st.integers(0, 2))
def test_a_beam_of_every_hypothesis_is_exhaustive_search(model, max_length, middle):
    sizes = {"end": END, "max_length": max_length}
    found = outwards.beam_search(model[0], middle, **sizes, beam_size=EVERY, num_return=EVERY)
    every = outwards.exhaustive_search(model[0], middle, **sizes)
    assert sorted(words(found)) == sorted(words(every))
    assert [h.score for h in found] == [h.score for h in every]


@given(models(), MAX_LENGTHS)
def test_the_probabilities_of_all_captions_sum_to_one(model, max_length):
    every = outwards.exhaustive_search(model[0], 0, end=END, max_length=max_length)
    assert len({(h.left, h.right) for h in every}) == len(every)
    assert_close(math.fsum(math.exp(sum(h.log_probs)) for h in every), 1.0)


@given(models(), BEAMS, MAX_LENGTHS, st.integers(0, 3))
def test_captions_have_their_middle_word_and_carry_their_scores(
    model, beam_size, max_length, middle
):
    found = outwards.beam_search(
        model[0], middle, end=END, beam_size=beam_size, max_length=max_length, num_return=beam_size
    )
    assert 1 <= len(found) <= beam_size
    assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)
    for h in found:
        assert words([h]) == words([outwards.teacher_forced(model[0], h.left, middle, h.right)])
        tokens = len(h.left) + 1 + len(h.right)
        assert h.score == pytest.approx(math.fsum(h.log_probs) + tokens, rel=SUMS, abs=SUMS)
        for side in LEFT_FIRST:
            assert h.finished(side, END) or len(h.half(side)) == max_length - 1
            assert END not in h.half(side)[:-1]
        caption = h.caption(END)
        if middle != END:
            ended = h.finished("left", END)
            assert caption[len(h.left) - ended] == middle
            assert len(caption) == tokens - ended - h.finished("right", END)


@given(models(), MAX_LENGTHS)
def test_a_beam_of_one_takes_the_best_word_at_each_turn(model, max_length):
    (found,) = outwards.beam_search(model[0], 0, end=END, beam_size=1, max_length=max_length)
    halves = Halves(0)
    for side in itertools.islice(itertools.cycle(LEFT_FIRST), 2 * (max_length - 1)):
        if not halves.finished(side, END):
            log_p = model[0](halves, side)
            token = int(np.argmax(log_p))
            halves = halves.extended(side, token, float(log_p[token]))
    assert words([found]) == words([halves])


@given(models(), BEAMS, MAX_LENGTHS)
def test_swapped_decoders_and_turns_mirror_what_is_found(model, beam_size, max_length):
    sizes = {"end": END, "beam_size": beam_size, "max_length": max_length}
    found = outwards.beam_search(model[0], 0, **sizes, num_return=beam_size)

    def swapped(halves, side):
        seen = Halves(halves.middle, halves.right, halves.left, halves.log_probs)
        return model[0](seen, "right" if side == "left" else "left")

    order = ("right", "left")
    mirrored = outwards.beam_search(swapped, 0, **sizes, num_return=beam_size, side_order=order)
    assert [h.caption(END)[::-1] for h in mirrored] == [h.caption(END) for h in found]
    assert [h.score for h in mirrored] == [h.score for h in found]


@given(SEEDS, st.integers(3, 4), BEAMS, st.integers(2, 6))
def test_with_the_right_side_alone_it_is_left_to_right_search_with_the_bonus(
    seed, V, beam_size, max_length
):
    rng = np.random.default_rng(seed)
    of_prefix = table_oracle(np.log(rng.dirichlet(np.ones(V), 7)))
    sizes = {"end": END, "max_length": max_length}

    def model(halves, _):
        return of_prefix((START, *halves.right))

    order = ("right",)
    found = outwards.beam_search(
        model, START, **sizes, beam_size=EVERY, num_return=EVERY, side_order=order
    )
    every = decoding.exhaustive_search(of_prefix, start=START, **sizes)
    scores = sorted((h.total + len(h.tokens) for h in every), reverse=True)
    assert_close([h.score for h in found], scores)
    assert {(START, *h.right) for h in found} == {h.tokens for h in every}
    assert not any(h.left for h in found)
    # where nothing ends, all have one length and the bonus decides nothing
    endless = table_oracle(np.where(np.arange(V) == END, -np.inf, rng.normal(size=(7, V))))
    narrow = {**sizes, "beam_size": beam_size, "num_return": beam_size}
    plain = decoding.beam_search(endless, start=START, **narrow)
    bonus = outwards.beam_search(
        lambda halves, _: endless((START, *halves.right)), START, **narrow, side_order=order
    )
    assert [(START, *h.right) for h in bonus] == [h.tokens for h in plain]


@given(SEEDS, st.integers(3, 4), MAX_LENGTHS)
def test_halves_that_do_not_know_of_each_other_are_best_each_alone(seed, V, max_length):
    rng = np.random.default_rng(seed)
    tables = {side: table_oracle(np.log(rng.dirichlet(np.ones(V), 5))) for side in LEFT_FIRST}
    sizes = {"end": END, "max_length": max_length}

    def model(halves, side):
        return tables[side]((START, *halves.half(side)))

    best = outwards.exhaustive_search(model, START, **sizes)[0]
    total = 0.0
    for side in LEFT_FIRST:
        every = decoding.exhaustive_search(tables[side], start=START, **sizes)
        total += max(h.total + len(h.tokens) - 1 for h in every)
    assert_close(best.score, total + 1)


@given(models(), BEAMS, MAX_LENGTHS)
def test_a_side_that_never_ends_is_cut_off_and_the_other_is_not(model, beam_size, max_length):
    def one_sided(halves, side):
        log_p = model[0](halves, side).copy()
        if side == "left":
            log_p[END] = -np.inf
        return log_p

    found = outwards.beam_search(
        one_sided, 0, end=END, beam_size=beam_size, max_length=max_length, num_return=beam_size
    )
    assert all(len(h.left) == max_length - 1 and END not in h.left for h in found)


@given(SEEDS, st.sampled_from(SELF_ATTENTIONS), st.lists(st.integers(0, 3), max_size=3), st.data())
def test_the_model_of_words_gives_the_rows_of_the_decoder(seed, kind, left, data):
    right = data.draw(st.lists(st.integers(0, 3), max_size=3))
    rng = np.random.default_rng(seed)
    V, d_e, d_c, d = 4, 2, 3, 2
    parameters = {"embedding.weight": rng.standard_normal((V, d_e))}
    for side in LEFT_FIRST:
        parameters |= prefixed(side, decoder_map(rng, kind, d_e, d_c, d))
        parameters |= prefixed(f"{side}.vocabulary", linear_map(rng, d, V))
    memory = (rng.standard_normal((3, d_c)), random_state(rng, d), parameters, kind)
    rows = middle_out.middle_out(left, 1, right, *memory)
    halves = outwards.teacher_forced(outwards.word_model(*memory), left, 1, right)
    turns, expected = {side: iter(rows[side]) for side in LEFT_FIRST}, []
    chosen = {"left": iter(left), "right": iter(right)}
    for side in middle_out.turns(len(left), len(right)):
        expected.append(next(turns[side])[next(chosen[side])])
    assert (halves.left, halves.right) == (tuple(left), tuple(right))
    assert list(halves.log_probs) == expected


def test_sizes_that_make_no_search_are_refused():
    def model(*_):
        return np.zeros(3)

    with pytest.raises(ValueError, match="max_length is 1, expected at least 2"):
        outwards.beam_search(model, 0, end=END, beam_size=1, max_length=1)
    with pytest.raises(ValueError, match="max_length is 1, expected at least 2"):
        outwards.exhaustive_search(model, 0, end=END, max_length=1)
    with pytest.raises(ValueError, match=r"num_return is 2, expected 1 to beam_size \(1\)"):
        outwards.beam_search(model, 0, end=END, beam_size=1, max_length=2, num_return=2)
