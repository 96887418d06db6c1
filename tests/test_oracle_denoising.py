"""The oracle's de-noising task: symmetric data, two regressors, their errors."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.verify.strategies import SEEDS
from benchmarks.verify.tolerances import SUMS, assert_close
from reference import denoising, metrics
from reference.middle_out import LEFT_FIRST, SELF_ATTENTIONS
from tests.support.covers import covers
from tests.support.parameters import decoder_map, encoder_map, linear_map, prefixed

KINDS = st.sampled_from(SELF_ATTENTIONS)
ORDERS = st.sampled_from([LEFT_FIRST, ("right", "left"), ("right",)])
HALF = st.integers(1, 4)
D = 4


def side(rng, kind):
    output = prefixed("output", linear_map(rng, D, 1))
    return decoder_map(rng, kind, 1, D, D) | output


def regressor(rng, kind):
    return {
        **encoder_map(rng, 1, D),
        **prefixed("initial", linear_map(rng, D, 1)),
        **prefixed("left", side(rng, kind)),
        **prefixed("right", side(rng, kind)),
    }


@covers(middle_out=[8])
@given(st.floats(-1, 1), st.integers(1, 12))
def test_a_sequence_falls_evenly_from_mu_to_mu_minus_its_square_on_both_sides(mu, N):
    y = denoising.symmetric_sequence(mu, N)
    assert len(y) == 2 * N + 1
    assert (y == y[::-1]).all()
    assert y[N] == y.max() == mu
    assert_close(y[N:], np.linspace(mu, mu - mu**2, N + 1))


@covers(middle_out=[8])
@given(SEEDS)
def test_drawn_data_are_symmetric_sequences_with_bounded_noise(seed):
    pairs = denoising.denoising_data(np.random.default_rng(seed), 200)
    assert len(pairs) == 200
    for x, y in pairs:
        assert len(x) == len(y)
        N = len(y) // 2
        assert 5 <= N <= 10
        assert -1 <= y[N] <= 1
        assert (y == denoising.symmetric_sequence(y[N], N)).all()
        assert abs(x - y).max() <= denoising.NOISE
        assert metrics.symmetric_mse(y) == 0
    assert {len(y) // 2 for _, y in pairs} == set(range(5, 11))


@given(SEEDS, KINDS, ORDERS, HALF)
def test_teacher_forced_by_its_own_output_it_gives_its_own_output(seed, kind, order, N):
    rng = np.random.default_rng(seed)
    x, parameters = rng.standard_normal(2 * N + 1), regressor(rng, kind)
    own = denoising.denoise(x, parameters, self_attention=kind, side_order=order)
    forced = denoising.denoise(x, parameters, y=own, self_attention=kind, side_order=order)
    assert_close(forced, own)


@given(SEEDS, KINDS, HALF, st.data())
def test_teacher_forcing_from_the_left_shows_earlier_values_alone(seed, kind, N, data):
    t = data.draw(st.integers(0, 2 * N))
    rng = np.random.default_rng(seed)
    x, y, parameters = rng.standard_normal(2 * N + 1), rng.random(2 * N + 1), regressor(rng, kind)

    def forced(y):
        return denoising.denoise(x, parameters, y=y, self_attention=kind, side_order=("right",))

    before = forced(y)
    y[t] += 1
    after = forced(y)
    assert (before[: t + 1] == after[: t + 1]).all()
    assert t == 2 * N or (before[t + 1 :] != after[t + 1 :]).any()


@given(SEEDS, HALF)
def test_twin_decoders_that_do_not_look_at_each_other_write_a_symmetric_sequence(seed, N):
    rng = np.random.default_rng(seed)
    parameters, twin = regressor(rng, "none"), side(rng, "none")
    parameters |= prefixed("left", twin) | prefixed("right", twin)
    y = denoising.denoise(rng.standard_normal(2 * N + 1), parameters)
    assert metrics.symmetric_mse(y) == 0
    assert (y == y[::-1]).all()


@given(SEEDS, KINDS, HALF)
def test_swapped_decoders_and_turns_mirror_the_values(seed, kind, N):
    rng = np.random.default_rng(seed)
    x, parameters = rng.standard_normal(2 * N + 1), regressor(rng, kind)
    left = {n.removeprefix("left."): v for n, v in parameters.items() if n.startswith("left.")}
    right = {n.removeprefix("right."): v for n, v in parameters.items() if n.startswith("right.")}
    swapped = parameters | prefixed("left", right) | prefixed("right", left)
    plain = denoising.denoise(x, parameters, self_attention=kind)
    mirrored = denoising.denoise(x, swapped, self_attention=kind, side_order=("right", "left"))
    assert (mirrored[::-1] == plain).all()


@given(SEEDS, KINDS, HALF)
def test_the_initial_value_is_linear_in_the_encoders_final_state_wherever_it_stands(seed, kind, N):
    rng = np.random.default_rng(seed)
    x, parameters = rng.standard_normal(2 * N + 1), regressor(rng, kind)
    parameters |= {"initial.weight": np.zeros((1, D)), "initial.bias": np.array([0.7])}
    assert denoising.denoise(x, parameters, self_attention=kind)[N] == 0.7
    assert denoising.denoise(x, parameters, self_attention=kind, side_order=("right",))[0] == 0.7


def test_an_even_length_has_no_middle():
    parameters = regressor(np.random.default_rng(0), "none")
    with pytest.raises(ValueError, match="4 values have no middle, expected an odd number"):
        denoising.denoise(np.ones(4), parameters)
    assert len(denoising.denoise(np.ones(4), parameters, side_order=("right",))) == 4


@given(SEEDS, HALF, st.integers(-24, 24).map(lambda n: n / 8))
def test_the_errors_of_sequences(seed, N, shift):
    rng = np.random.default_rng(seed)
    y_hat, y = rng.standard_normal((2, 2 * N + 1))
    assert_close(metrics.mse(y_hat, y), np.linalg.norm(y_hat - y) ** 2 / (2 * N + 1))
    assert_close([metrics.mse(y + shift, y)], [shift**2], "shifted")
    assert_close(metrics.symmetric_mse(y_hat + shift), metrics.symmetric_mse(y_hat))
    assert_close(metrics.symmetric_mse(y_hat[::-1]), metrics.symmetric_mse(y_hat))
    # the middle has no twin, and each other value one
    mirrored = metrics.mse(y_hat, y_hat[::-1]) * (2 * N + 1) / (2 * N)
    assert metrics.symmetric_mse(y_hat) == pytest.approx(mirrored, rel=SUMS)


def test_errors_of_what_does_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"\(2,\) values for a target of \(3,\)"):
        metrics.mse(np.ones(2), np.ones(3))
    for size in (0, 1, 4):
        with pytest.raises(ValueError, match=f"{size} values have no two halves"):
            metrics.symmetric_mse(np.ones(size))
