"""The factored form: its operations, its saved activations, a batch in chunks."""

from unittest import mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.verify import strategies
from benchmarks.verify.strategies import StaticCase
from benchmarks.verify.tolerances import assert_close
from tests.support.expansion import CASES, batched, operator, run
from tests.support.parity import flat, tensor
from torch_impl.expansion import (
    DynamicExpansion,
    StaticExpansion,
    dynamic_expansion,
    factored,
    static_expansion,
)


def multiply_accumulates(run):
    with FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops() // 2


@given(strategies.groups(), st.integers(1, 4), st.integers(1, 3), strategies.lengths())
def test_multiply_accumulates_of_a_layer(groups, num_expansions, batch, length):
    """Literally 5 N L d and 5 N_E L^2 d beside the projections; factored never takes more."""
    d, N, N_E, L, B = 6, sum(groups), num_expansions, length, batch
    x = torch.randn(B, L, d)

    def count(layer, form):
        layer.implementation = form
        return multiply_accumulates(lambda: layer(x))

    static = StaticExpansion(d, groups)
    assert count(static, "literal") == B * (4 * L * d * d + 5 * N * L * d)
    key = min(B * L, N) * d * d  # the projection of the tokens, or of the queries
    read = min(4 * N * L * d, 2 * N * L * d + 2 * N * L * L + 2 * L * L * d)
    assert count(static, "factored") == key + B * (3 * L * d * d + N * L * d + read)
    dynamic, projections = DynamicExpansion(d, N_E), 5 * L * d * d
    assert count(dynamic, "literal") == B * (projections + 5 * N_E * L * L * d)
    read = min(4 * N_E * L * L * d, 4 * L * L * d + 2 * N_E * L * d + 2 * L**3 * N_E)
    assert count(dynamic, "factored") == B * (projections + L * L * d + N_E * L * d + read)
    assert count(static, "factored") <= count(static, "literal")
    if min(L, N_E) > 1:  # else M's two parts take more than their sum
        assert count(dynamic, "factored") <= count(dynamic, "literal")


@given(CASES)
def test_multiply_accumulates_of_gradients(case):
    """Twice the forward products, and what is recomputed."""
    arrays = {name: tensor(x, grad=name != "dO") for name, x in case.arrays.items()}
    dO = arrays.pop("dO")
    out = operator(case, arrays, implementation="factored")
    (B, L, d), N = case.K.shape, len(case.E_Q)
    if isinstance(case, StaticCase):
        mixing = 6 * N * L * L + 6 * L * L * d + 5 * N * L * d
        if 2 * L + d <= N and N * L + L * d < N * d:  # W and B_1 - B_2 are saved in M's place
            mixing -= 2 * N * L * L + 2 * L * L * d
        expected = 2 * N * L * d + min(mixing, 12 * N * L * d)
    else:
        mixing = 6 * N * L**3 + 11 * L * L * d + 5 * N * L * d
        expected = 2 * (L * L * d + N * L * d) + min(mixing, 12 * N * L * L * d)
    assert multiply_accumulates(lambda: torch.autograd.backward(out, dO)) == B * expected


@given(strategies.static_cases(many=True), st.integers(1, 60), st.integers(1, 4))
def test_m_is_recomputed_where_it_is_larger_than_what_it_is_for(case, chunk, threads):
    """Of few tokens and many vectors, by the oracle, whatever the chunks of the batch."""
    out, dX = batched(case)
    several = mock.patch.object(torch, "get_num_threads", lambda: threads)
    with mock.patch.object(factored, "CHUNK", chunk), several:
        out_recomputed, dX_recomputed = run(case, implementation="factored")
    assert_close(out_recomputed, out)
    assert_close(flat(dX_recomputed), flat(dX), "gradients")


@given(CASES)
def test_factored_saves_m_and_its_sums_alone(case):
    """Beside the operands: nothing as long as the expansion and as wide as the model."""
    arrays = {name: tensor(x, grad=name != "dO") for name, x in case.arrays.items()}
    saved = {}

    def save(x):
        saved[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes() // x.itemsize
        return x

    with torch.autograd.graph.saved_tensors_hooks(save, lambda x: x):
        out = operator(case, arrays, implementation="factored")
    for x in (*arrays.values(), out):
        saved.pop(x.untyped_storage().data_ptr(), None)
    (B, L, _), N = case.K.shape, len(case.E_Q)
    groups = case.groups if isinstance(case, StaticCase) else (1,)
    rows = N if isinstance(case, StaticCase) else L * N
    sums = 2 * B * (rows + L * len(groups))
    scaled_queries = case.E_Q.size + (0 if isinstance(case, StaticCase) else case.K.size)
    masks = B * L if isinstance(case, StaticCase) else B * L * L + 2 * L * rows
    assert sum(saved.values()) <= B * L * rows + sums + scaled_queries + masks


@pytest.mark.parametrize("form", ["literal", "factored"])
def test_whatever_finite_numbers_padding_holds_stays_there(form):
    """Even where their products overflow."""
    q, x = torch.randn(4, 3), torch.randn(2, 5, 3)
    keys, mask = x.clone(), torch.ones(2, 5, dtype=torch.bool)
    keys[0, 4], mask[0, 4] = 3e38, False
    static = static_expansion(4 * q, q, keys, x, x, x, (1, 3), mask, implementation=form)
    dynamic = dynamic_expansion(q, q, keys, keys, x, x, x, mask, implementation=form)
    assert static[mask].isfinite().all()
    assert dynamic[mask].isfinite().all()
