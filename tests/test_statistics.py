"""Bootstrap intervals: sign, coverage, and what must not change them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.statistics import paired_difference
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
