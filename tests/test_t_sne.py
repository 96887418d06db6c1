"""t-SNE: the perplexity asked for, the gradient of the cost, what must not change either."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.papers.arnet import t_sne
from benchmarks.verify.strategies import generators
from benchmarks.verify.tolerances import assert_close, assert_derivative

sizes = st.tuples(st.integers(6, 20), st.integers(1, 6))


@given(generators(), sizes, st.floats(0.1, 0.9), st.sampled_from([1e-3, 1.0, 1e3]))
def test_every_point_has_the_perplexity_that_is_asked_for(generator, size, share, scale):
    x = scale * generator.standard_normal(size)
    perplexity = 2 + share * (len(x) - 4)
    p = t_sne.conditional(t_sne.squared_distances(x), perplexity)
    entropy = -(p * np.log2(np.where(p > 0, p, 1))).sum(1)
    assert_close(2**entropy, np.full(len(x), perplexity))
    assert_close(p.sum(1), np.ones(len(x)))
    assert not np.diagonal(p).any()


@given(generators(), sizes)
def test_nearer_points_are_likelier_whatever_the_scale_the_place_and_the_side(generator, size):
    x = generator.standard_normal(size)
    distances = t_sne.squared_distances(x)
    p = t_sne.conditional(distances, 3)
    for row in range(len(x)):
        others = np.delete(np.arange(len(x)), row)
        nearest_first = others[np.argsort(distances[row, others])]
        assert (np.diff(p[row, nearest_first]) <= 0).all()
    rotation, _ = np.linalg.qr(generator.standard_normal((size[1], size[1])))
    assert_close(t_sne.joint(5 * x @ rotation - 2, 3), t_sne.joint(x, 3))


@given(generators(), sizes)
def test_the_order_of_points_is_none(generator, size):
    x, y = generator.standard_normal(size), generator.standard_normal((size[0], 2))
    order = generator.permutation(len(x))
    p, permuted = t_sne.joint(x, 3), t_sne.joint(x[order], 3)
    assert_close(permuted, p[order][:, order])
    assert_close(p, p.T)
    assert_close(p.sum(), 1.0)
    assert_close(t_sne.divergence(permuted, y[order]), t_sne.divergence(p, y))
    assert_close(t_sne.gradient(permuted, y[order]), t_sne.gradient(p, y)[order])


@given(generators(), sizes)
def test_the_gradient_is_the_cost_s_by_central_differences(generator, size):
    p = t_sne.joint(generator.standard_normal(size), 3)
    y, step = generator.standard_normal((size[0], 2)), 1e-4
    numeric = np.zeros_like(y)
    for place in np.ndindex(y.shape):
        shift = np.zeros_like(y)
        shift[place] = step
        above, below = t_sne.divergence(p, y + shift), t_sne.divergence(p, y - shift)
        numeric[place] = (above - below) / (2 * step)
    assert_derivative(t_sne.gradient(p, y), numeric, "gradient")


@settings(max_examples=3)
@given(generators(), st.integers(10, 20), st.integers(0, 99))
def test_clusters_that_are_apart_stay_apart(generator, half, seed):
    x = generator.standard_normal((2 * half, 8))
    x[half:] += 20
    found = t_sne.embed(x, perplexity=4, seed=seed)
    distances = t_sne.squared_distances(found.points)
    np.fill_diagonal(distances, np.inf)
    assert ((distances.argmin(1) < half) == (np.arange(2 * half) < half)).all()
    assert_close(found.points.mean(0) + 1, np.ones(2))
    # the points have come nearer to the rows' neighbourhoods than any at random
    p = t_sne.joint(x, 4)
    assert_close(found.divergence, t_sne.divergence(p, found.points))
    assert 0 < found.divergence < t_sne.divergence(p, generator.standard_normal(found.points.shape))
    again = t_sne.embed(x, perplexity=4, seed=seed)
    assert (again.points == found.points).all()


@pytest.mark.parametrize(
    ("shape", "perplexity", "message"),
    [
        ((5,), 2, r"rows to embed are \(5,\), expected \(n, d\)"),
        ((5, 2), 1.0, "perplexity is 1.0, expected above 1 and below 4"),
        ((5, 2), 4, "perplexity is 4, expected above 1 and below 4"),
    ],
)
def test_what_cannot_be_embedded_is_refused(shape, perplexity, message):
    with pytest.raises(ValueError, match=message):
        t_sne.embed(np.ones(shape), perplexity=perplexity)


def test_rows_that_are_not_finite_are_refused():
    with pytest.raises(ValueError, match="expected finite"):
        t_sne.embed([[0.0, np.nan]] * 5, perplexity=2)
