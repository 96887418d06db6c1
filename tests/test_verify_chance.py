"""Cases that are like another one: a result that is kept for it is wrong for these."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.verify import chance
from benchmarks.verify.candidate import Candidate
from benchmarks.verify.cases import float_arrays, get
from benchmarks.verify.draw import Draw
from benchmarks.verify.operators import OPERATORS
from benchmarks.verify.same import same
from tests.candidates.right_torch import cross_entropy

WITH_ARRAYS = [name for name in sorted(OPERATORS) if float_arrays(OPERATORS[name].case(Draw()))]

seeds = st.integers(0, 2**32 - 1)


def moved(before, after):
    """The arguments that differ."""
    return [i for i, pair in enumerate(zip(before, after, strict=True)) if not same(*pair)]


@given(st.sampled_from(WITH_ARRAYS), seeds)
def test_alike_are_of_the_same_shapes_and_dtypes_and_change(name, seed):
    case = OPERATORS[name].case(Draw(seed))
    chance.set_seed(seed)
    found = [*chance.all_alike(case)]
    assert len(found) == 7
    for other in found:
        for place in float_arrays(case):
            one, now = get(case, place), get(other, place)
            assert (now.dtype, now.shape) == (one.dtype, one.shape)
    sizes = [np.count_nonzero(get(case, place)) for place in float_arrays(case)]
    assert max(sizes) < 2 or any(moved(case, other) for other in found)


@given(st.sampled_from(["static_expansion", "lstm", "general_attention"]), seeds)
def test_padding_of_a_batch_stays_where_it_is(name, seed):
    """NaN and Inf, and what says which rows are valid."""
    case = OPERATORS[name].batched("mask").sample_case(Draw(seed, padding=np.nan))
    chance.set_seed(seed)
    for other in chance.all_alike(case, padded=True):
        assert np.array_equal(other[-1], case[-1])
        for place in float_arrays(case):
            one, now = get(case, place), get(other, place)
            assert np.array_equal(np.isfinite(one), np.isfinite(now))


def test_each_argument_changes_alone():
    """Of a cross-entropy: its words, too."""
    case, alone = OPERATORS["cross_entropy"].case(Draw(0, B=2, T=3, V=5, padding=False)), set()
    for seed in range(60):
        chance.set_seed(seed)
        before = case
        for after in chance.all_alike(case):
            if len(found := moved(before, after)) == 1:
                alone.add(found[0])
            before = after
    assert alone >= {0, 1}


@given(st.lists(st.lists(st.text("abc", min_size=1), min_size=2), min_size=1), seeds)
def test_words_are_exchanged_or_changed_to_others(captions, seed):
    chance.set_seed(seed)
    before = (captions,)
    for after in chance.all_alike((captions,)):
        differences = [
            (one, other)
            for line, now in zip(before[0], after[0], strict=True)
            for one, other in zip(line, now, strict=True)
            if one != other
        ]
        assert len(differences) <= 2
        before = after


def test_a_case_that_is_alike_may_have_no_oracle():
    """The only caption with words becomes the other, which is padding."""
    operator = OPERATORS["cross_entropy"]
    (prop,) = [prop for prop in operator.properties if prop.name == "gradient"]
    log_probs = np.log(np.full((2, 1, 2), 0.5))
    case = log_probs, np.array([[0], [1]]), 0, 0.0
    empty = 0
    for seed in range(40):
        chance.set_seed(seed)
        empty += not chance.alike(case)[1].any()
        chance.set_seed(seed)
        candidate = Candidate(cross_entropy, "torch")
        prop.check(candidate, operator.oracle, case, **prop.settings)
    assert empty
