"""The oracle's chain rule, descent and clipping (read-only 18, 19 and its listing)."""

import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.verify.strategies import SEEDS
from benchmarks.verify.tolerances import assert_close, assert_derivative
from reference import optimisation, recurrent
from tests.support.covers import covers
from tests.support.parameters import read_only_map, state

SIZES = st.integers(1, 4)
STEP = 1e-3


def jacobian(function, x):
    """Central differences of fourth order: (outputs, inputs)."""
    columns = []
    for direction in np.eye(len(x)):
        near, far = STEP * direction, 2 * STEP * direction
        columns.append(
            8 * (function(x + near) - function(x - near)) - (function(x + far) - function(x - far))
        )
    return np.array(columns).T / (12 * STEP)


@covers(lstm_readonly=[18])
@given(SEEDS, SIZES)
def test_the_chain_rule_through_the_gates_is_the_derivative_of_the_whole(seed, N):
    """z = w . m_t, whose input x_t reaches it through three gates and the cell's update."""
    rng = np.random.default_rng(seed)
    W, x, (m, c), w = read_only_map(rng, N), rng.standard_normal(N), state(rng, N), rng.random(N)
    nodes = {
        "i": partial(recurrent.input_gate, m=m, W=W),
        "f": partial(recurrent.forget_gate, m=m, W=W),
        "o": partial(recurrent.output_gate, m=m, W=W),
        "g": lambda x: np.tanh(W["W_cx"] @ x + W["W_cm"] @ m),
    }
    y = {name: node(x) for name, node in nodes.items()}
    memory = y["f"] * c + y["i"] * y["g"]
    dz_dy = {
        "i": w * y["o"] * y["g"],
        "f": w * y["o"] * c,
        "o": w * memory,
        "g": w * y["o"] * y["i"],
    }
    dy_dx = {name: jacobian(node, x) for name, node in nodes.items()}
    found = optimisation.chain_rule([dz_dy[n] for n in nodes], [dy_dx[n] for n in nodes])

    def z(x):
        return np.array([w @ recurrent.memory_block(x, recurrent.State(m, c), W).h])

    assert_derivative(found, jacobian(z, x)[0], "x")


@covers(lstm_readonly=[18])
@given(SEEDS, SIZES, SIZES)
def test_successors_add_up_in_any_order(seed, n, d):
    rng = np.random.default_rng(seed)
    dz_dy = [rng.standard_normal(rng.integers(1, 4)) for _ in range(n)]
    dy_dx = [rng.standard_normal((len(part), d)) for part in dz_dy]
    whole = optimisation.chain_rule(dz_dy, dy_dx)
    assert_close(optimisation.chain_rule(dz_dy[::-1], dy_dx[::-1]), whole, "reversed")
    as_one = optimisation.chain_rule([np.concatenate(dz_dy)], [np.concatenate(dy_dx)])
    assert_close(as_one, whole, "as one successor")


@covers(lstm_readonly=[19])
@given(SEEDS, SIZES, st.integers(1, 4), st.floats(0.01, 0.9))
def test_descent_on_a_mini_batch_of_paraboloids_nears_their_mean(seed, d, B, alpha):
    """The loss |theta - t_b|^2 / 2 has the gradient theta - t_b."""
    rng = np.random.default_rng(seed)
    theta, targets = rng.standard_normal(d), rng.standard_normal((B, d))
    new = optimisation.gradient_descent(theta, theta - targets, alpha)
    assert_close(new, (1 - alpha) * theta + alpha * targets.mean(axis=0))


@covers(lstm_readonly=[19])
@given(SEEDS, SIZES, st.integers(1, 3))
def test_a_mini_batch_twice_over_takes_the_same_step(seed, d, B):
    rng = np.random.default_rng(seed)
    theta, gradients = rng.standard_normal(d), rng.standard_normal((B, d))
    once = optimisation.gradient_descent(theta, gradients, 0.1)
    assert_close(optimisation.gradient_descent(theta, np.r_[gradients, gradients], 0.1), once)
    assert (optimisation.gradient_descent(theta, gradients, 0.0) == theta).all()


def norm(parts):
    return math.sqrt(sum((part**2).sum() for part in parts))


@covers(lstm_readonly=["gradient clipping"])
@given(SEEDS, st.lists(st.integers(1, 4), min_size=1, max_size=3), st.floats(0.01, 100))
def test_clipping_shortens_what_is_too_long_and_never_turns_it(seed, sizes, threshold):
    rng = np.random.default_rng(seed)
    g = [rng.standard_normal(size) for size in sizes]
    clipped = optimisation.clip_gradients(g, threshold)
    assert_close([norm(clipped)], [min(norm(g), threshold)])
    for part, before in zip(clipped, g, strict=True):
        assert_close(part, before * norm(clipped) / norm(g))
    again = optimisation.clip_gradients(clipped, threshold)
    assert_close(np.concatenate(again), np.concatenate(clipped), "again")


@covers(lstm_readonly=["gradient clipping"])
@given(SEEDS, st.integers(1, 4))
def test_a_gradient_below_the_threshold_is_left_to_the_bit(seed, size):
    g = [np.random.default_rng(seed).standard_normal(size), np.zeros((2, 2))]
    assert all(
        (a == b).all() for a, b in zip(optimisation.clip_gradients(g, norm(g) + 1), g, strict=True)
    )


@pytest.mark.parametrize("threshold", [0.0, -1.0, float("nan")])
def test_a_threshold_that_is_not_above_zero_is_refused(threshold):
    with pytest.raises(ValueError, match=f"threshold is {threshold}, expected above 0"):
        optimisation.clip_gradients([np.ones(2)], threshold)


@given(st.integers(1, 300), st.sampled_from([0.7, 0.9, 0.98, 0.999]))
def test_the_window_of_radam_is_its_closed_form(t, beta_2):
    """rho_t = rho_inf - 2 t beta^t / (1 - beta^t), and r_t in terms of it (Liu et al. 2019)."""
    rho_inf = 2 / (1 - beta_2) - 1
    rho = rho_inf - 2 * t * beta_2**t / (1 - beta_2**t)
    r = optimisation.rectification(t, beta_2)
    assert (r is None) == (rho < 5)
    if r is not None:
        assert_close(r**2 * (rho_inf - 4) * (rho_inf - 2) / rho_inf, (rho - 4) * (rho - 2) / rho)


SCHEDULES = st.fixed_dictionaries(
    {
        "lr": st.sampled_from([2e-4, 1.0]),
        "warmup": st.integers(0, 20),
        "batches_per_epoch": st.integers(1, 9),
        "anneal": st.sampled_from([0.55, 0.8]),
        "anneal_every": st.integers(1, 3),
    }
)


@given(SCHEDULES, st.integers(0, 60))
def test_a_schedule_is_its_rise_times_a_factor_for_every_few_epochs(options, iteration):
    stairs = options["anneal"] ** (
        iteration // (options["batches_per_epoch"] * options["anneal_every"])
    )
    remaining = max(options["warmup"] - iteration, 1)
    risen = min((iteration + 1) / max(options["warmup"], 1), 1)
    expected = options["lr"] / remaining * stairs
    assert_close(optimisation.hyperbolic_warmup(iteration, **options, floor=0.0), expected)
    assert_close(optimisation.linear_warmup(iteration, **options), options["lr"] * risen * stairs)
    floored = optimisation.hyperbolic_warmup(iteration, **options, floor=10.0)
    assert floored == 10.0 if iteration >= options["warmup"] else floored <= options["lr"]


def test_a_gradient_that_does_not_change_moves_radam_by_r_times_the_rate():
    """Both moments, bias-corrected, are then the gradient and its square."""
    run = (np.zeros(()), [np.array(-3.0)] * 9, [0.1] * 9)
    moved = np.diff([0.0, *optimisation.radam(*run, epsilon=0.0)])
    assert_close(moved, [0.1 * (optimisation.rectification(t, 0.98) or 0) for t in range(1, 10)])
    published = np.diff([0.0, *optimisation.radam(*run, epsilon=0.0, published=True)])
    assert_close(published, [*[0.1 * 3.0] * 5, *moved[5:]])
