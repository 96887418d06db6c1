"""The oracle's decodings: scheduled sampling, the printed beam search, grid beam search."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.verify.strategies import SEEDS
from benchmarks.verify.tolerances import SUMS
from reference import decoding
from reference.grid_beam import grid_beam_search
from tests.support.covers import covers
from tests.support.tables import END, START, plain, table_oracle

BEAMS = st.integers(1, 5)
MAX_LENGTHS = st.integers(2, 6)
IDS = {"start": START, "end": END}
EVERY = 10_000
"""A beam that holds every hypothesis of the models here."""


@st.composite
def models(draw, vocabulary=(3, 5), impossible=0.2):
    """A table of log-probabilities, multiples of 1/8 that tie at times, some minus infinity."""
    rng = np.random.default_rng(draw(SEEDS))
    V = draw(st.integers(*vocabulary))
    table = -rng.integers(0, 40, (draw(st.integers(1, 9)), V)) / 8
    table[rng.random(table.shape) < draw(st.sampled_from([0, impossible]))] = -np.inf
    table[:, rng.integers(V)] = -1.0
    return table_oracle(table), V


@st.composite
def distributions(draw):
    """A model whose probabilities are above zero and sum to one, and its vocabulary."""
    rng = np.random.default_rng(draw(SEEDS))
    table = np.log(rng.dirichlet(np.ones(draw(st.integers(3, 5))), draw(st.integers(1, 9))))
    return table_oracle(table), table.shape[1]


def uniforms(seed, size):
    return np.random.default_rng(seed).random((2, size))


@given(distributions(), st.lists(st.integers(0, 2), min_size=1, max_size=6), SEEDS)
def test_scheduled_sampling_at_no_rate_reads_the_ground_truth(model, y, seed):
    coins, u = uniforms(seed, len(y) - 1)
    assert decoding.scheduled_sampling(model[0], y, 0.0, coins, u) == y


@given(distributions(), st.integers(0, 5), SEEDS)
def test_scheduled_sampling_at_the_full_rate_is_sampling(model, steps, seed):
    coins, u = uniforms(seed, steps)
    read = decoding.scheduled_sampling(model[0], [START] * (steps + 1), 1.0, coins, u)
    sampled = decoding.sample(model[0], u, **IDS)
    assert tuple(read[: len(sampled.tokens)]) == sampled.tokens


@given(distributions(), st.lists(st.integers(0, 2), min_size=2, max_size=6), SEEDS, st.data())
def test_each_coin_decides_about_its_word_alone(model, y, seed, data):
    epsilon = data.draw(st.sampled_from([0.1, 0.5, 0.9]))
    coins, u = uniforms(seed, len(y) - 1)
    read = decoding.scheduled_sampling(model[0], y, epsilon, coins, u)
    assert len(read) == len(y)
    assert read[0] == y[0]
    for t, coin in enumerate(coins, start=1):
        drawn = decoding.inverse_cdf(model[0](tuple(read[:t])), u[t - 1])
        assert read[t] == (drawn if coin < epsilon else y[t])
    longer = decoding.scheduled_sampling(model[0], [*y, 0], epsilon, [*coins, 0.5], [*u, 0.5])
    assert longer[:-1] == read


@pytest.mark.parametrize("epsilon", [-0.1, 1.1, float("nan")])
def test_a_sampling_rate_out_of_range_is_refused(epsilon):
    with pytest.raises(ValueError, match=f"epsilon is {epsilon}, expected in"):
        decoding.scheduled_sampling(lambda _: np.zeros(2), [0, 1], epsilon, [0.5], [0.5])


@covers(lstm_readonly=["beam search"])
@given(models(), MAX_LENGTHS)
def test_the_printed_search_of_one_sequence_is_greedy(model, max_length):
    (found,) = decoding.printed_beam_search(model[0], **IDS, beam_size=1, max_length=max_length)
    assert plain([found]) == plain([decoding.greedy(model[0], **IDS, max_length=max_length)])


@covers(lstm_readonly=["beam search"])
@given(models(), MAX_LENGTHS)
def test_the_printed_search_of_every_sequence_is_exhaustive(model, max_length):
    found = decoding.printed_beam_search(model[0], **IDS, beam_size=EVERY, max_length=max_length)
    every = decoding.exhaustive_search(model[0], **IDS, max_length=max_length)
    assert sorted(plain(found)) == sorted(plain(every))
    assert [h.total for h in found] == sorted((h.total for h in every), reverse=True)


@covers(lstm_readonly=["beam search"])
@given(models(), BEAMS, MAX_LENGTHS)
def test_printed_sequences_carry_their_scores_and_are_through(model, beam_size, max_length):
    found = decoding.printed_beam_search(
        model[0], **IDS, beam_size=beam_size, max_length=max_length
    )
    assert 1 <= len(found) <= beam_size
    assert len({h.tokens for h in found}) == len(found)
    for h in found:
        assert plain([h]) == plain([decoding.teacher_forced(model[0], h.tokens)])
        assert h.finished(END) or len(h.tokens) == max_length
        assert END not in h.tokens[1:-1]


@covers(lstm_readonly=["beam search"])
@given(models(), BEAMS, MAX_LENGTHS)
def test_where_nothing_ends_both_beam_searches_are_one(model, beam_size, max_length):
    def endless(prefix):
        log_p = model[0](prefix).copy()
        log_p[END] = -np.inf
        return log_p if (log_p > -np.inf).any() else np.where(np.arange(len(log_p)) == 0, 0, log_p)

    sizes = {"beam_size": beam_size, "max_length": max_length}
    printed = decoding.printed_beam_search(endless, **IDS, **sizes)
    competing = decoding.beam_search(endless, **IDS, **sizes, num_return=beam_size)
    assert sorted(plain(printed)) == sorted(plain(competing))


@covers(lstm_readonly=["beam search"])
@given(models(), BEAMS, MAX_LENGTHS)
def test_what_has_ended_keeps_its_place(model, beam_size, max_length):
    """Searching one step further leaves every ended sequence in, whatever comes after it."""
    sizes = {"beam_size": beam_size}
    short = decoding.printed_beam_search(model[0], **IDS, **sizes, max_length=max_length)
    long = decoding.printed_beam_search(model[0], **IDS, **sizes, max_length=max_length + 1)
    ended = {h.tokens for h in short if h.finished(END)}
    assert ended <= {h.tokens for h in long}


def test_in_a_printed_search_a_sequence_that_ended_cannot_be_displaced_but_in_ours_it_can():
    log_p = {(START,): [-1.0, -2.0, -2.5], (START, 0): [-0.1, -0.2, -0.3]}

    def model(prefix):
        return np.array(log_p.get(prefix, [-0.1, -0.2, -5.0]))

    sizes = {"beam_size": 3, "max_length": 3}
    printed = decoding.printed_beam_search(model, **IDS, **sizes)
    competing = decoding.beam_search(model, **IDS, **sizes, num_return=3)
    ended = (START, END)
    assert ended in {h.tokens for h in printed}
    assert ended not in {h.tokens for h in competing}


def test_a_beam_of_nothing_is_refused():
    with pytest.raises(ValueError, match="beam_size is 0, expected at least 1"):
        decoding.printed_beam_search(lambda _: np.zeros(3), **IDS, beam_size=0, max_length=3)
    with pytest.raises(ValueError, match="max_length is 1, expected at least 2"):
        decoding.printed_beam_search(lambda _: np.zeros(3), **IDS, beam_size=1, max_length=1)


# Grid beam search


def disjoint(constraints, tokens):
    """Whether every run of tokens is there, at places that do not overlap."""
    places = [
        [
            set(range(i, i + len(run)))
            for i in range(len(tokens))
            if tokens[i : i + len(run)] == tuple(run)
        ]
        for run in constraints
    ]
    size = sum(map(len, constraints))
    return any(len(set.union(*chosen)) == size for chosen in itertools.product(*places))


@st.composite
def constrained(draw):
    """A model, constraints of its words, a length that has room for them."""
    model, V = draw(models())
    words = st.sampled_from([word for word in range(V) if word != END])
    runs = st.lists(st.lists(words, min_size=1, max_size=2), min_size=1, max_size=2)
    constraints = draw(runs)
    room = sum(map(len, constraints))
    return model, constraints, draw(st.integers(room + 1, room + 3))


@given(models(), BEAMS, MAX_LENGTHS)
def test_a_grid_without_constraints_is_plain_beam_search(model, beam_size, max_length):
    sizes = {"beam_size": beam_size, "max_length": max_length, "num_return": beam_size}
    grid = grid_beam_search(model[0], [], **IDS, **sizes)
    assert plain(grid) == plain(decoding.beam_search(model[0], **IDS, **sizes))


@given(constrained(), BEAMS)
def test_every_caption_of_the_grid_has_every_constraint_and_carries_its_score(case, beam_size):
    model, constraints, max_length = case
    sizes = {"beam_size": beam_size, "max_length": max_length, "num_return": beam_size}
    for h in grid_beam_search(model, constraints, **IDS, **sizes):
        assert disjoint(constraints, h.tokens[1:])
        assert plain([h]) == plain([decoding.teacher_forced(model, h.tokens)])
        assert h.finished(END) or len(h.tokens) == max_length
        assert END not in h.tokens[1:-1]


@given(constrained())
def test_a_grid_of_every_hypothesis_is_exhaustive_search_among_captions_that_fit(case):
    model, constraints, max_length = case
    sizes = {"beam_size": EVERY, "max_length": max_length, "num_return": EVERY}
    found = grid_beam_search(model, constraints, **IDS, **sizes)
    every = decoding.exhaustive_search(model, **IDS, max_length=max_length)
    fitting = [h for h in every if disjoint(constraints, h.tokens[1:])]
    assert sorted(h.tokens for h in found) == sorted(h.tokens for h in fitting)
    best = max((h.score for h in fitting), default=-math.inf)
    assert (found[0].score if found else -math.inf) == pytest.approx(best, rel=SUMS)


@given(constrained())
def test_the_order_in_which_constraints_are_given_does_not_matter_to_a_full_grid(case):
    model, constraints, max_length = case
    sizes = {"beam_size": EVERY, "max_length": max_length}
    one = grid_beam_search(model, constraints, **IDS, **sizes)
    other = grid_beam_search(model, constraints[::-1], **IDS, **sizes)
    assert [h.score for h in one] == [h.score for h in other]


def test_constraints_that_cannot_be_met_are_refused():
    def model(_):
        return np.log(np.full(4, 0.25))

    sizes = {"beam_size": 2, "max_length": 3}
    with pytest.raises(ValueError, match=r"constraint \[\]: expected words, no end token"):
        grid_beam_search(model, [[]], **IDS, **sizes)
    with pytest.raises(ValueError, match=r"constraint \[3, 2\]: expected words, no end token"):
        grid_beam_search(model, [[3, END]], **IDS, **sizes)
    with pytest.raises(ValueError, match="3 constraint tokens do not fit into max_length 3"):
        grid_beam_search(model, [[3, 3], [0]], **IDS, **sizes)
    with pytest.raises(ValueError, match="num_return is 3, expected 1 to beam_size"):
        grid_beam_search(model, [[3]], **IDS, **sizes, num_return=3)
    # room for the constraint but not for the end: cut off, it is whole
    (found,) = grid_beam_search(model, [[3, 3]], **IDS, **sizes)
    assert found.tokens == (START, 3, 3)
