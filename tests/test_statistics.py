"""Bootstrap intervals: sign, coverage, and what must not change them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.statistics import (
    SEEDS,
    Interval,
    Pair,
    bootstrap_means,
    difference_of_seeds,
    kendall_tau,
    paired_difference,
    student_t,
)
from benchmarks.verify import tolerances

shapes = st.tuples(st.integers(1, 4), st.integers(1, 30))


@given(shapes, st.integers(0, 99))
def test_an_interval_holds_its_mean_and_turns_with_the_sign(shape, seed):
    generator = np.random.default_rng(seed)
    a, b = generator.random(shape), generator.random(shape)
    there, back = paired_difference(a, b, draws=200), paired_difference(b, a, draws=200)
    assert there.low <= there.high
    tolerances.assert_close(
        [back.mean, back.low, back.high], [-there.mean, -there.high, -there.low]
    )
    assert there.settled == back.settled and there.seeds == back.seeds == shape[0]


@given(shapes, st.floats(0.01, 5), st.booleans())
def test_a_constant_difference_is_certain(shape, difference, negative):
    difference = -difference if negative else difference
    base = np.zeros(shape)
    interval = paired_difference(base + difference, base, draws=100)
    tolerances.assert_close([interval.low, interval.mean, interval.high], [difference] * 3)
    assert interval.settled == (shape[0] >= SEEDS)


def test_ninety_five_percent_intervals_cover_about_that_often():
    hits = 0
    for seed in range(200):
        generator = np.random.default_rng(seed)
        noise = generator.normal(size=60)
        interval = paired_difference(noise, np.zeros_like(noise), draws=300)
        hits += not interval.settled
    assert 178 <= hits <= 199


@pytest.mark.parametrize(
    ("a", "b"), [((2, 3), (3, 2)), ((3,), (1, 3)), ((0, 3), (0, 3)), ((1, 1, 3), (1, 1, 3))]
)
def test_wrong_shapes_are_refused(a, b):
    with pytest.raises(ValueError, match="seeds, images"):
        paired_difference(np.zeros(a), np.zeros(b))


@given(shapes, st.integers(0, 99))
def test_one_seed_and_none_have_one_interval_and_only_the_latter_settles(shape, seed):
    a, b = np.random.default_rng(seed).random((2, shape[1]))
    alone, none = paired_difference(a[None], b[None], draws=50), paired_difference(a, b, draws=50)
    assert (alone.mean, alone.low, alone.high) == (none.mean, none.low, none.high)
    assert (alone.seeds, none.seeds) == (1, None)
    assert not alone.settled and none.settled == (none.low > 0 or none.high < 0)


ends = st.tuples(st.floats(-9, 9), st.floats(-9, 9)).map(sorted)


@given(ends, st.one_of(st.none(), st.integers(1, 6)))
def test_a_sign_is_settled_by_an_interval_without_zero_over_enough_seeds(pair, seeds):
    low, high = pair
    interval = Interval((low + high) / 2, low, high, seeds)
    assert interval.settled == (seeds not in range(SEEDS) and not low <= 0 <= high)
    turned = Interval(-interval.mean, -high, -low, seeds)
    assert turned.settled == interval.settled and turned.enough == interval.enough


def pairs_of(values, expected):
    """Every pair of models that is expected to differ, as intervals of no width."""
    return [
        Pair(str(i), str(j), expected[i] - expected[j], Interval(gap, gap, gap, SEEDS))
        for i in range(len(values))
        for j in range(i + 1, len(values))
        if expected[i] != expected[j]
        for gap in [values[i] - values[j]]
    ]


@given(st.lists(st.floats(-9, 9), min_size=2, max_size=6, unique=True), st.data())
def test_tau_is_one_for_the_same_order_and_turns_with_it(values, data):
    values = np.array(values)
    other = np.array(data.draw(st.permutations(range(len(values)))))
    assert kendall_tau(pairs_of(values, values)) == 1
    assert kendall_tau(pairs_of(values, -values)) == -1
    there, back = (kendall_tau(pairs_of(values, sign * other)) for sign in (1, -1))
    assert there == -back and -1 <= there <= 1
    agreeing = sum(pair.agrees for pair in pairs_of(values, other))
    tolerances.assert_close(there, 2 * agreeing / len(pairs_of(values, other)) - 1)


def test_without_pairs_there_is_no_tau():
    with pytest.raises(ValueError, match="no pairs"):
        kendall_tau([])


@given(shapes, st.integers(0, 99))
def test_resamples_are_means_of_what_was_drawn(shape, seed):
    scores = np.random.default_rng(seed).random(shape)
    means = bootstrap_means(scores, draws=20, seed=seed)
    assert means.shape == (20,)
    tolerances.assert_close(np.clip(means, scores.min(), scores.max()), means)
    # whatever was asked in between, an equal shape and seed are resampled alike
    bootstrap_means(scores.T, draws=20, seed=seed + 1)
    bootstrap_means(scores.T, draws=20, seed=seed + 2)
    shifted = bootstrap_means(1 + 2 * scores, draws=20, seed=seed)
    tolerances.assert_close(shifted, 1 + 2 * means)


@pytest.mark.parametrize("scores", [np.zeros(3), np.zeros((2, 0)), np.zeros((2, 2, 2))])
def test_scores_of_no_seeds_and_images_are_refused(scores):
    with pytest.raises(ValueError, match="seeds, images"):
        bootstrap_means(scores)


@pytest.mark.parametrize(
    ("degrees", "printed"),
    [(1, 12.7062), (2, 4.30265), (3, 3.18245), (9, 2.26216), (30, 2.04227), (1000, 1.96234)],
)
def test_quantiles_of_student_s_t_are_those_of_printed_tables(degrees, printed):
    assert f"{student_t(degrees):.6g}" == f"{printed:.6g}"


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
