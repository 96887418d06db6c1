"""The auto-reconstructor against the oracle; the distances between training and inference."""

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.verify import strategies
from benchmarks.verify.tolerances import assert_close
from reference import auto_reconstructor as oracle
from tests.support.covers import covers
from tests.support.parity import flat, gradients, load, numpy, tensor
from tests.support.recurrent_parity import reconstructor_map
from torch_impl.models import (
    RecurrentCaptioner,
    RecurrentConfiguration,
    nic,
    transformer,
)
from torch_impl.recurrent.auto_reconstructor import (
    AutoReconstructor,
    cosine_distance,
    joint_loss,
    last_states,
    point_wise_distance,
)

LENGTHS = st.lists(st.integers(0, 5), min_size=1, max_size=4)


@covers(arnet=[5, 6, 7])
@given(LENGTHS, st.integers(1, 4), strategies.generators(), st.sampled_from([0.0, np.nan]))
def test_errors_of_a_padded_batch_are_the_oracle_s(lengths, d, generator, filling):
    """Of every step but the first, 0 in padding, whatever it holds; of any size of its own."""
    reconstructor = AutoReconstructor(d, int(generator.integers(1, 5)))
    parameters = reconstructor_map(load(reconstructor, generator))
    hs = generator.standard_normal((len(lengths), 6, d))
    mask = np.arange(6) < np.array(lengths)[:, None]
    errors = reconstructor(tensor(np.where(mask[..., None], hs, filling)), lengths)
    torch.autograd.backward(errors.sum())
    assert np.isfinite(flat(gradients(reconstructor))).all()
    for b, length in enumerate(lengths):
        expected = oracle.reconstruction_errors(hs[b, :length], parameters)
        assert_close(numpy(errors)[b, : max(length - 1, 0)], expected)
        assert (numpy(errors)[b, max(length - 1, 0) :] == 0).all()


def test_without_lambda_the_loss_is_the_likelihood_s_own():
    nll = torch.tensor(2.5)
    assert joint_loss(nll, torch.tensor([float("nan")]), 0.0) is nll


SIZES = {"vocabulary_size": 7, "d_feature": 3, "max_length": 6}


@pytest.mark.parametrize("kind", ["recurrent", "mixers"])
@settings(max_examples=10)
@given(st.lists(st.integers(2, 6), min_size=1, max_size=4), strategies.generators())
def test_last_states_are_those_that_emit_the_last_token(kind, sizes, generator):
    """Of any captioner; each caption alone, cut before its last token, has the same last state."""
    if kind == "recurrent":
        model = nic(**SIZES, d_embedding=4, hidden_size=5)
    else:
        model = transformer(**SIZES, d_model=4, d_ff=5, num_heads=2)
    load(model.eval(), generator)
    B = len(sizes)
    features = tensor(generator.standard_normal((B, 3, 3)))
    lengths = torch.from_numpy(generator.integers(1, 4, B))
    tokens = torch.from_numpy(generator.integers(0, 7, (B, 6)))
    found = last_states(model, features, lengths, tokens, torch.tensor(sizes))
    for b, size in enumerate(sizes):
        memory = model.encode(features[b : b + 1, : lengths[b]])
        states = model.states(tokens[b : b + 1, : size - 1], memory)
        assert_close(numpy(found)[b], numpy(states)[0, -1])


@given(strategies.generators())
def test_the_reconstructor_is_no_part_of_the_captioner(generator):
    """Its gradient reaches the captioner, its parameters are not among the captioner's."""
    model = RecurrentCaptioner(RecurrentConfiguration(7, 3, d_embedding=4, hidden_size=5)).double()
    reconstructor = AutoReconstructor(5).double()
    features, tokens = tensor(generator.standard_normal((2, 3, 3))), torch.ones(2, 4, dtype=int)
    torch.autograd.backward(reconstructor(model.states(tokens, model.encode(features))).sum())
    grads = {n: numpy(p.grad) for n, p in model.named_parameters() if p.grad is not None}
    assert set(model.state_dict()) - set(grads) == {"vocabulary.weight", "vocabulary.bias"}
    assert all(gradient.any() for gradient in grads.values())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: AutoReconstructor(0), "input_size must be at least 1, not 0"),
        (lambda: AutoReconstructor(3, 0), "hidden_size must be at least 1, not 0"),
        (lambda: AutoReconstructor(3)(torch.zeros(2, 4, 2)), r"xs has shape \(2, 4, 2\)"),
        (lambda: AutoReconstructor(3)(torch.zeros(2, 4, 3), [5, 1]), r"lengths \[5, 1\]"),
        *(
            (partial(loss, *arguments, lambda_), f"lambda is {lambda_}, expected at least 0")
            for loss, arguments in (
                (joint_loss, (torch.ones(1), torch.ones(1, 2))),
                (oracle.joint_loss, (1.0, [1.0, 1.0])),
            )
            for lambda_ in (-0.1, float("nan"), float("inf"))
        ),
        (lambda: cosine_distance(torch.zeros(2), torch.ones(2)), "norm 0 has no cosine distance"),
        (lambda: point_wise_distance(torch.ones(2, 2), torch.ones(3, 2)), r"\(2, 2\) and \(3, 2\)"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("sizes", [[1, 3], [2, 5], [3]])
def test_captions_without_a_state_are_named(sizes):
    model = nic(**SIZES).eval()
    tokens = torch.ones(2, 4, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"expected 2 of 2 to 4"):
        last_states(model, torch.zeros(2, 3, 3), None, tokens, torch.tensor(sizes))
