"""Intervals and verdicts: sign, coverage, and what must not change them."""

import numpy as np
import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.statistics import (
    SEEDS,
    Interval,
    difference_of_seeds,
    geometric_mean,
    holm,
    paired_difference,
    student_t,
)
from benchmarks.verify import tolerances

shapes = st.tuples(st.integers(1, 4), st.integers(1, 30))


@given(shapes, st.integers(0, 99))
def test_an_interval_holds_its_mean_and_turns_with_the_sign(shape, seed):
    generator = np.random.default_rng(seed)
    a, b = generator.random(shape), generator.random(shape)
    there, back = paired_difference(a, b), paired_difference(b, a)
    assert there.low <= there.mean <= there.high
    assert (back.mean, back.low, back.high) == (-there.mean, -there.high, -there.low)
    assert (there.p, there.seeds) == (back.p, back.seeds) and there.seeds == shape[0]


@given(shapes, st.floats(0.01, 5), st.booleans())
def test_a_constant_difference_is_certain(shape, difference, negative):
    difference = -difference if negative else difference
    base = np.zeros(shape)
    interval = paired_difference(base + difference, base)
    if base.size > 1:
        tolerances.assert_close([interval.low, interval.mean, interval.high], [difference] * 3)
    assert interval.settled == (shape[0] >= SEEDS)


@given(shapes, st.integers(0, 99))
def test_both_sources_of_chance_widen_an_interval(shape, seed):
    scores = np.random.default_rng(seed).normal(size=shape)
    both = paired_difference(scores, np.zeros(shape))
    half = (both.high - both.low) / 2 * (1 + tolerances.SUMS)
    if shape[0] > 1:
        of_seeds = difference_of_seeds(scores.mean(1), np.zeros(shape[0]))
        assert half >= (of_seeds.high - of_seeds.low) / 2
    if shape[1] > 1:
        assert half >= 1.95 * scores.mean(0).std(ddof=1) / shape[1] ** 0.5


@given(st.lists(st.floats(-3, 3), min_size=2, max_size=8), st.floats(0, 4))
def test_p_is_below_a_twentieth_where_the_interval_excludes_zero(values, shift):
    found = difference_of_seeds(np.add(values, shift), np.zeros(len(values)))
    assert (found.p < 0.05) == (found.low > 0 or found.high < 0)
    spread = np.std(values, ddof=1)
    if spread > 1e-3 and found.p > 1e-9:
        expected = scipy.stats.ttest_1samp(np.add(values, shift), 0).pvalue
        tolerances.assert_close(found.p, expected)


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), max_size=12))
def test_holm_settles_less_than_each_alone_and_more_than_bonferroni(each):
    found = [Interval(1.0, 0.0, 2.0, p, SEEDS if enough else 1) for p, enough in each]
    family = [one.p for one in found if one.enough]
    for one, settled in zip(found, holm(found), strict=True):
        assert settled <= (one.enough and one.p <= 0.05)
        assert settled >= (one.enough and one.p * len(family) <= 0.05)
    kept = [one.p for one, settled in zip(found, holm(found), strict=True) if settled]
    lost = [p for p in family if p not in kept]
    assert max(kept, default=0) <= min(lost, default=1)
    if lost and kept:
        assert min(lost) * len(lost) > 0.05 * (1 - tolerances.SUMS)


@pytest.mark.parametrize(
    ("a", "b"), [((2, 3), (3, 2)), ((3,), (1, 3)), ((0, 3), (0, 3)), ((1, 1, 3), (1, 1, 3))]
)
def test_wrong_shapes_are_refused(a, b):
    with pytest.raises(ValueError, match="seeds, images"):
        paired_difference(np.zeros(a), np.zeros(b))


@given(shapes, st.integers(0, 99))
def test_one_seed_and_none_have_one_interval_and_only_the_latter_settles(shape, seed):
    a, b = np.random.default_rng(seed).random((2, shape[1]))
    alone, none = paired_difference(a[None], b[None]), paired_difference(a, b)
    assert (alone.mean, alone.low, alone.high) == (none.mean, none.low, none.high)
    assert (alone.seeds, none.seeds) == (1, None)
    assert not alone.settled and none.settled == (none.low > 0 or none.high < 0)


ends = st.tuples(st.floats(-9, 9), st.floats(-9, 9)).map(sorted)


@given(ends, st.one_of(st.none(), st.integers(1, 6)))
def test_a_sign_is_settled_by_an_interval_without_zero_over_enough_seeds(pair, seeds):
    low, high = pair
    interval = Interval((low + high) / 2, low, high, 0.0, seeds)
    assert interval.settled == (seeds not in range(SEEDS) and not low <= 0 <= high)
    turned = Interval(-interval.mean, -high, -low, 0.0, seeds)
    assert turned.settled == interval.settled and turned.enough == interval.enough


@pytest.mark.parametrize(
    ("degrees", "in_95", "in_99"),
    [
        (1, 12.7062, 63.6567),
        (2, 4.30265, 9.92484),
        (3, 3.18245, 5.84091),
        (9, 2.26216, 3.24984),
        (30, 2.04227, 2.75),
        (1000, 1.96234, 2.58075),
    ],
)
def test_quantiles_of_student_s_t_are_those_of_printed_tables(degrees, in_95, in_99):
    assert f"{student_t(degrees):.6g}" == f"{in_95:.6g}"
    assert f"{student_t(degrees, 99):.6g}" == f"{in_99:.6g}"


@given(st.lists(st.tuples(st.floats(-9, 9), st.floats(-9, 9)), min_size=1, max_size=6))
def test_seeds_differ_by_their_mean_and_turn_with_the_sign(pairs):
    a, b = zip(*pairs, strict=True)
    there, back = difference_of_seeds(a, b), difference_of_seeds(b, a)
    assert there.low <= there.mean <= there.high
    tolerances.assert_close(there.mean, np.subtract(a, b).mean())
    assert (there.low, there.mean, there.high) == (-back.high, -back.mean, -back.low)
    assert there.seeds == len(pairs) and (len(pairs) >= SEEDS or not there.settled)


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_intervals_over_seeds_leave_out_nothing_once_in_twenty_times(seeds):
    generator = np.random.default_rng(seeds)
    found = [difference_of_seeds(x, np.zeros(seeds)) for x in generator.normal(size=(2000, seeds))]
    assert 0.03 < np.mean([not i.low <= 0 <= i.high for i in found]) < 0.07


@pytest.mark.parametrize(("a", "b"), [([], []), ([1.0], [1.0, 2.0]), ([[1.0]], [[1.0]])])
def test_seeds_that_are_no_pairs_are_refused(a, b):
    with pytest.raises(ValueError, match=r"must be two \(seeds,\)"):
        difference_of_seeds(a, b)


def test_no_degrees_of_freedom_are_refused():
    with pytest.raises(ValueError, match="0 degrees"):
        student_t(0)


@given(st.lists(st.floats(1e-6, 1e-3), min_size=2, max_size=6), st.floats(0.1, 10))
def test_geometric_means_scale_and_ratios_are_paired(errors, factor):
    found, scaled = geometric_mean(errors), geometric_mean(np.multiply(errors, factor))
    tolerances.assert_close(
        [scaled.value, scaled.low, scaled.high],
        np.multiply(factor, [found.value, found.low, found.high]),
    )
    ratio = geometric_mean(np.multiply(errors, factor), errors)
    tolerances.assert_close([ratio.value, ratio.low, ratio.high], [factor] * 3)
