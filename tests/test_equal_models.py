"""Equal models are called different as seldom as is said, with variances of published records."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import records
from benchmarks.cli import claims as command
from benchmarks.papers.equal_models import Spread, false_verdicts, simulate, spread, tables
from tests.support.tolerances import BETWEEN, RESIDUAL

deviations = st.floats(0.1, 9)


@given(st.tuples(deviations, deviations, deviations), st.integers(0, 9))
def test_deviations_are_found_again_in_what_was_drawn_with_them(of, seed):
    generator = np.random.default_rng(seed)
    rows, seeds, images = 2, 60, 60
    half = np.array(of) / 2**0.5  # of a row: a difference has two
    scores = half[0] * generator.normal(size=(rows, seeds, 1))
    scores = scores + half[1] * generator.normal(size=(rows, 1, images))
    scores = scores + half[2] * generator.normal(size=(rows, seeds, images))
    found = spread(scores)
    assert found.rest == pytest.approx(of[2], **RESIDUAL)
    noise = of[2] / 60**0.5
    assert found.seeds == pytest.approx(of[0], **BETWEEN, abs=noise)
    assert found.images == pytest.approx(of[1], **BETWEEN, abs=noise)


@pytest.mark.parametrize("seeds", [3, 5])
def test_published_variances_give_few_false_verdicts_and_covering_intervals(seeds):
    """At most 6 of 100 equal models are called different, and 95 % intervals cover at least 93."""
    found = tables(records.load(records.PUBLISHED))
    assert len(found) >= 10
    every = [r for place in found for r in simulate_quickly(found[place], seeds)]
    rates = [each["false settled"] for each in every]
    assert np.mean(rates) <= command.MOST_FALSE
    sampling = 3 * (6 * 94 / DRAWS) ** 0.5  # three standard errors of a rate of 6 %
    assert max(rates) <= command.MOST_FALSE + sampling
    assert min(each["coverage"] for each in every) >= 93 - sampling


DRAWS = 300


def simulate_quickly(each, seeds):
    made = simulate(each, draws=2)
    wanted = next(r for r in made if r.what.row.endswith(f"{seeds} seeds"))
    of = Spread(**wanted.details.spread)
    return [false_verdicts(of, seeds, wanted.n, DRAWS)]


def test_seeds_alone_call_models_different_that_differ_by_their_images():
    found = false_verdicts(Spread(0.3, 15.0, 9.0), 5, 300, 200)
    assert found["false settled, over seeds alone"] > 20 > found["false settled"]
