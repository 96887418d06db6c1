"""Bootstrap intervals: sign, coverage, and what must not change them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.statistics import (
    bootstrap_means,
    difference_of_seeds,
    kendall_tau,
    ordered_pairs,
    paired_difference,
    student_t,
)
from tests import tolerances

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
    assert there.excludes_zero == back.excludes_zero


@given(shapes, st.floats(0.01, 5), st.booleans())
def test_a_constant_difference_is_certain(shape, difference, negative):
    difference = -difference if negative else difference
    base = np.zeros(shape)
    interval = paired_difference(base + difference, base, draws=100)
    tolerances.assert_close([interval.low, interval.mean, interval.high], [difference] * 3)
    assert interval.excludes_zero


def test_ninety_five_percent_intervals_cover_about_that_often():
    hits = 0
    for seed in range(200):
        generator = np.random.default_rng(seed)
        noise = generator.normal(size=(1, 60))
        interval = paired_difference(noise, np.zeros_like(noise), draws=300)
        hits += not interval.excludes_zero
    assert 178 <= hits <= 199


@pytest.mark.parametrize(("a", "b"), [((2, 3), (3, 2)), ((3,), (3,)), ((0, 3), (0, 3))])
def test_wrong_shapes_are_refused(a, b):
    with pytest.raises(ValueError, match="seeds, images"):
        paired_difference(np.zeros(a), np.zeros(b))


@given(st.integers(2, 5), shapes, st.integers(0, 99))
def test_all_pairs_at_once_are_the_pairs_one_by_one(models, shape, seed):
    generator = np.random.default_rng(seed)
    scores, expected = generator.random((models, *shape)), generator.permutation(models)
    pairs = ordered_pairs(scores, expected, draws=50)
    assert len(pairs) == models * (models - 1) // 2
    for pair in pairs:
        alone = paired_difference(scores[pair.first], scores[pair.second], draws=50)
        found = pair.found
        tolerances.assert_close(
            [found.mean, found.low, found.high], [alone.mean, alone.low, alone.high]
        )
        assert pair.expected == expected[pair.first] - expected[pair.second]


@given(st.integers(2, 6), shapes, st.integers(0, 99))
def test_tau_is_one_for_the_same_order_and_turns_with_it(models, shape, seed):
    generator = np.random.default_rng(seed)
    scores = generator.random((models, *shape))
    means, other = scores.mean((1, 2)), generator.permutation(models)
    assert kendall_tau(ordered_pairs(scores, means, draws=2)) == 1
    assert kendall_tau(ordered_pairs(scores, -means, draws=2)) == -1
    there, back = (kendall_tau(ordered_pairs(scores, sign * other, draws=2)) for sign in (1, -1))
    assert there == -back and -1 <= there <= 1


def test_pairs_that_are_expected_to_be_equal_are_left_out():
    scores = np.arange(6.0).reshape(3, 1, 2)
    pairs = ordered_pairs(scores, [1.0, 1.0, 2.0], draws=2)
    assert [(pair.first, pair.second) for pair in pairs] == [(0, 2), (1, 2)]
    with pytest.raises(ValueError, match="no pairs"):
        kendall_tau(ordered_pairs(scores, [1.0] * 3, draws=2))


@given(shapes, st.integers(0, 99))
def test_resamples_are_means_of_what_was_drawn(shape, seed):
    scores = np.random.default_rng(seed).random((2, *shape))
    means = bootstrap_means(scores, draws=20, seed=seed)
    low, high = scores.min((1, 2)), scores.max((1, 2))
    assert means.shape == (20, 2)
    tolerances.assert_close(np.clip(means, low, high), means)
    alike = bootstrap_means(scores[[0, 0]], draws=20, seed=seed)
    tolerances.assert_close(alike[:, 0], alike[:, 1])


@pytest.mark.parametrize("scores", [np.zeros((2, 3)), np.zeros((2, 0, 3))])
def test_scores_of_no_seeds_and_images_are_refused(scores):
    with pytest.raises(ValueError, match="models, seeds, images"):
        bootstrap_means(scores)
    with pytest.raises(ValueError, match="are expected"):
        ordered_pairs(np.zeros((2, 1, 1)), [1.0])


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
    assert len(pairs) > 1 or not there.excludes_zero


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_intervals_over_seeds_leave_out_nothing_once_in_twenty_times(seeds):
    generator = np.random.default_rng(seeds)
    found = [difference_of_seeds(x, np.zeros(seeds)) for x in generator.normal(size=(2000, seeds))]
    assert 0.03 < np.mean([interval.excludes_zero for interval in found]) < 0.07


@pytest.mark.parametrize(("a", "b"), [([], []), ([1.0], [1.0, 2.0]), ([[1.0]], [[1.0]])])
def test_seeds_that_are_no_pairs_are_refused(a, b):
    with pytest.raises(ValueError, match=r"must be two \(seeds,\)"):
        difference_of_seeds(a, b)


def test_no_degrees_of_freedom_are_refused():
    with pytest.raises(ValueError, match="0 degrees"):
        student_t(0)
