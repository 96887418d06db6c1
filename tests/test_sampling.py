"""Multinomial samples: the inverse of the cumulated distribution, draw by draw."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from reference import decoding as oracle
from tests.support.tables import (
    END,
    START,
    Table,
    max_lengths,
    one_row,
    oracles,
    plain,
    sizes,
    tables,
)
from torch_impl.decoding import search as decoding


@given(tables(), sizes, max_lengths, st.integers(0, 2**32 - 1))
def test_samples_are_the_oracles_on_the_same_uniform_draws(model, num_samples, max_length, seed):
    shape = (len(model[0]), num_samples, max_length - 1)
    uniforms = torch.rand(shape, dtype=torch.float64, generator=torch.manual_seed(seed)).numpy()
    options = {"max_length": max_length, "num_samples": num_samples}
    found, again = (
        decoding.sample(Table(), *model, **options, generator=torch.manual_seed(seed)).hypotheses()
        for _ in range(2)
    )
    assert found == again
    for b, next_log_probs in enumerate(oracles(*model)):
        expected = [oracle.sample(next_log_probs, u, start=START, end=END) for u in uniforms[b]]
        assert plain(found[b]) == plain(expected)


@given(tables(images=(2, 4)), max_lengths)
def test_samples_of_a_split_batch_continue_the_same_random_stream(model, max_length):
    features, lengths = model
    options = {"max_length": max_length, "num_samples": 3}
    whole = decoding.sample(Table(), *model, **options, generator=torch.manual_seed(0))
    generator = torch.Generator().manual_seed(0)
    parts = []
    for b in range(len(features)):
        image = slice(b, b + 1)
        parts += decoding.sample(
            Table(), features[image], lengths[image], **options, generator=generator
        ).hypotheses()
    assert parts == whole.hypotheses()


PROBABILITIES = [0.0, 0.25, 0.125, 0.0, 0.5, 0.125, 0.0]


def test_evenly_spread_draws_are_shared_out_in_proportion(monkeypatch):
    """The distribution itself, exactly: probabilities in eighths, 64 draws at the midpoints."""
    draws = (np.arange(64) + 0.5) / 64
    with np.errstate(divide="ignore"):
        log_p = np.log(PROBABILITIES)
    expected = [oracle.inverse_cdf(log_p, u) for u in draws]
    assert np.bincount(expected, minlength=7).tolist() == [64 * p for p in PROBABILITIES]
    monkeypatch.setattr(torch, "rand", lambda shape, **_: torch.tensor(draws).view(shape))
    found = decoding.sample(Table(), *one_row(*log_p), max_length=2, num_samples=64)
    assert found.tokens[0, :, 1].tolist() == expected


@pytest.mark.parametrize("scale", [1.0, 0.9, 1e-300])
@pytest.mark.parametrize(("u", "token"), [(0.0, 1), (1 - 2**-53, 5)])
def test_the_extreme_draws_give_the_first_and_last_possible_token(u, token, scale, monkeypatch):
    with np.errstate(divide="ignore"):
        log_p = np.log(np.array(PROBABILITIES) * scale)
    assert oracle.inverse_cdf(log_p, u) == token
    uniform = torch.tensor(u, dtype=torch.float64)
    monkeypatch.setattr(torch, "rand", lambda shape, **_: uniform.expand(shape))
    found = decoding.sample(Table(), *one_row(*log_p), max_length=2, num_samples=1)
    assert found.tokens[0, 0, 1] == token
