"""The de-noising regressors against the oracle, batched over seeds against each seed alone."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.verify.tolerances import assert_close
from reference import denoising as oracle
from reference import metrics
from tests.support.covers import covers
from tests.support.middle_out import oracle_lstm, oracle_side
from tests.support.parity import numpy
from torch_impl.middle_out import SELF_ATTENTION
from torch_impl.models.denoising import (
    MAX_LENGTH,
    NOISE,
    Denoiser,
    Sequences,
    draw_sequences,
    mse,
    orders,
    symmetric,
    symmetric_mse,
)

SEEDS = st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=3, unique=True)
READINGS = st.fixed_dictionaries(
    {
        "middle_out": st.booleans(),
        "self_attention": st.sampled_from(SELF_ATTENTION),
        "hidden_size": st.integers(1, 3).map(lambda half: 2 * half),
    }
)


def draw(seeds, count=3):
    """Sequences of each seed."""
    each = (torch.Generator().manual_seed(seed) for seed in seeds)
    return Sequences.stack([draw_sequences(count, generator) for generator in each])


def oracle_parameters(model, s):
    """Seed ``s``'s weights by the oracle's names."""
    weights = {name: numpy(x[s]) for name, x in model.named_parameters()}
    parameters = {
        "initial.weight": weights["initial_w"][None],
        "initial.bias": weights["initial_b"],
    }
    for way, name in enumerate(("forward", "backward")):
        lstm = oracle_lstm(weights["encoder_W"][way], weights["encoder_b"][way])
        parameters |= {f"encoder.{name}.{key}": value for key, value in lstm.items()}
    for p, side in enumerate(order(model)):
        own = {
            name.removeprefix("decoder_"): value[p]
            for name, value in weights.items()
            if name.startswith("decoder_")
        }
        parameters |= {f"{side}.{name}": value for name, value in oracle_side(own).items()}
        parameters[f"{side}.output.weight"] = weights["output_w"][p][None]
        parameters[f"{side}.output.bias"] = weights["output_b"][p]
    return {name: np.atleast_1d(value) for name, value in parameters.items()}


def order(model):
    return ("left", "right") if model.middle_out else ("right",)


@covers(middle_out=[8])
@given(st.lists(st.tuples(st.floats(-1, 1), st.integers(1, 12)), min_size=1, max_size=4))
def test_a_padded_batch_of_sequences_is_equation_8_each(pairs):
    mu = torch.tensor([mu for mu, _ in pairs], dtype=torch.float64)
    N = torch.tensor([N for _, N in pairs])
    y = symmetric(mu, N, 25)
    for row, (middle, half) in zip(y, pairs, strict=True):
        assert_close(numpy(row[: 2 * half + 1]), oracle.symmetric_sequence(middle, half))
        assert not row[2 * half + 1 :].any()


@given(st.integers(0, 2**32 - 1))
def test_drawn_sequences_are_the_papers(seed):
    data = draw_sequences(200, torch.Generator().manual_seed(seed))
    N = (data.lengths - 1) // 2
    assert set(N.tolist()) == set(range(5, 11))
    middle = data.y.gather(1, N[:, None]).squeeze(1)
    assert torch.equal(data.y, symmetric(middle, N, MAX_LENGTH))
    noise = data.x - data.y
    assert noise.abs().max() <= NOISE and noise.abs().max() > 0.9 * NOISE
    assert not noise[torch.arange(MAX_LENGTH) >= data.lengths[:, None]].any()
    assert middle.abs().max() <= 1 and middle.min() < -0.5 and middle.max() > 0.5


@covers(middle_out=[1, 2, 3, 4, 5, 6, 7, 8])
@settings(max_examples=25)
@given(SEEDS, READINGS)
def test_every_sequence_of_every_seed_is_the_oracles(seeds, reading):
    """Teacher-forced by the loop, and fed back its own output by single steps."""
    model, data = Denoiser(seeds, **reading).double(), draw(seeds)
    forced = numpy(model(data.x, data.lengths, data.y))
    own = numpy(model.generate(data.x, data.lengths))
    for s in range(len(seeds)):
        parameters = oracle_parameters(model, s)
        for b in range(data.x.shape[1]):
            one = data[s, b]
            x, y = (numpy(a[: one.lengths]) for a in (one.x, one.y))
            options = {"self_attention": reading["self_attention"], "side_order": order(model)}
            expected = oracle.denoise(x, parameters, y=y, **options)
            assert_close(forced[s, b, : len(x)], expected, "teacher-forced")
            assert_close(own[s, b, : len(x)], oracle.denoise(x, parameters, **options), "own")


@settings(max_examples=20)
@given(SEEDS, READINGS)
def test_a_seed_is_itself_whichever_train_beside_it(seeds, reading):
    """Its initial weights to the bit, its outputs and gradients to rounding."""
    together, data = Denoiser(seeds, **reading).double(), draw(seeds)
    mse(together(data.x, data.lengths, data.y), data.y, data.lengths).mean(1).sum().backward()
    for s, seed in enumerate(seeds):
        alone, own = Denoiser([seed], **reading).double(), data[s : s + 1]
        mse(alone(own.x, own.lengths, own.y), own.y, own.lengths).mean(1).sum().backward()
        for (name, one), every in zip(alone.named_parameters(), together.parameters(), strict=True):
            assert torch.equal(one[0], every[s])
            if one.grad is not None and every.grad is not None:
                assert_close(numpy(every.grad[s]), numpy(one.grad[0]), name)


@settings(max_examples=20)
@given(SEEDS, READINGS, st.sampled_from((0.0, 1.0, 1e4)))
def test_padding_beyond_a_sequences_end_reaches_nothing(seeds, reading, filling):
    model, data = Denoiser(seeds, **reading).double(), draw(seeds)
    padding = torch.arange(MAX_LENGTH) >= data.lengths[..., None]
    x, y = (a.masked_fill(padding, filling) for a in (data.x, data.y))
    for filled, plain in (
        (model(x, data.lengths, y), model(data.x, data.lengths, data.y)),
        (model.generate(x, data.lengths), model.generate(data.x, data.lengths)),
    ):
        assert torch.equal(filled.masked_fill(padding, 0), plain.masked_fill(padding, 0))


@given(st.integers(0, 2**32 - 1))
def test_errors_are_the_oracles_over_each_sequence(seed):
    data = draw([seed])
    found = data.y + torch.randn(data.y.shape, generator=torch.Generator().manual_seed(seed))
    for b in range(data.y.shape[1]):
        n = int(data.lengths[0, b])
        one, y = numpy(found[0, b, :n]), numpy(data.y[0, b, :n])
        assert_close(numpy(mse(found, data.y, data.lengths)[0, b]), metrics.mse(one, y))
        expected = metrics.symmetric_mse(one)
        assert_close(numpy(symmetric_mse(found, data.lengths)[0, b]), expected)


@given(st.integers(1, 20), st.integers(1, 30), st.integers(1, 7), st.integers(0, 99))
def test_orders_are_whole_passes_cut_into_batches(count, steps, batch_size, seed):
    found = orders(count, steps, batch_size, torch.Generator().manual_seed(seed)).flatten()
    assert len(found) == steps * batch_size
    for whole in found.split(count):
        assert len(set(whole.tolist())) == len(whole)


@pytest.mark.parametrize(
    ("seeds", "changes", "message"),
    [
        ([], {}, "seeds is empty"),
        ([0], {"hidden_size": 5}, "hidden_size is 5, expected even"),
        ([0], {"self_attention": "both"}, "self_attention is 'both', expected one of"),
    ],
)
def test_a_bad_regressor_is_named(seeds, changes, message):
    with pytest.raises(ValueError, match=message):
        Denoiser(seeds, **{"middle_out": True, **changes})


def test_a_half_of_nothing_is_named():
    with pytest.raises(ValueError, match="N must lie between 1 and 10"):
        symmetric(torch.tensor([0.5]), torch.tensor([0]), MAX_LENGTH)
