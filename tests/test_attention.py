"""Batched multi-head attention and the AoA gate against the oracle, and what must hold of them."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.verify import strategies
from benchmarks.verify.tolerances import assert_close
from reference import attention as oracle
from tests.support.covers import covers
from tests.support.parity import flat, gradients, load, numpy, tensor
from torch_impl.layers.attention import (
    AttentionOnAttention,
    MultiHeadAttention,
    multi_head,
    record_attention_weights,
)

KINDS = ("normal", "zeros", "nothing", "tiny")


@st.composite
def attentions(draw):
    """A module of either kind with its parameters as the oracle takes them."""
    num_heads, d_model = draw(strategies.heads())
    gated = draw(st.booleans())
    kind = AttentionOnAttention if gated else MultiHeadAttention
    module = kind(d_model, num_heads)
    return module, load(module, draw(strategies.generators()))


@covers(expansionnet_v1=[1])
@given(st.data(), strategies.widths())
def test_one_head_is_attention_by_the_scaled_dot_product(data, width):
    hd, he = (
        data.draw(strategies.arrays(data.draw(strategies.lengths()), width, kinds=KINDS))
        for _ in range(2)
    )
    expected = oracle.attend(hd, he, lambda hd_j, he_i: float(hd_j @ he_i) / width**0.5)
    assert_close(multi_head(tensor(hd)[None], tensor(he)[None], tensor(he)[None], 1)[0], expected)


@given(st.data(), attentions(), st.booleans())
def test_weights_sum_to_one_over_what_is_seen_and_make_the_output(data, pair, causal):
    """Whatever padded rows hold; a query that sees no key has no weights."""
    module, _ = pair
    case = data.draw(strategies.tokens(module.d_model, kinds=KINDS, empty=True))
    x, y, mask = tensor(case.x), tensor(case.filled(np.nan)), torch.from_numpy(case.mask)
    with torch.no_grad(), record_attention_weights(module) as seen:
        out = module(x, y, mask, causal=causal)
    (weights,) = seen
    visible = case.mask[:, None] & np.ones((x.shape[1],) * 2, dtype=bool)
    visible = (np.tril(visible) if causal else visible)[:, None]
    assert (numpy(weights) >= 0).all()
    assert (numpy(weights)[~np.broadcast_to(visible, weights.shape)] == 0).all()
    sums = np.broadcast_to(visible.any(-1), weights.shape[:-1]).astype(float)
    assert_close(weights.sum(-1), sums)
    with torch.no_grad():
        _, values = module.project(y, mask)
        by_head = values.unflatten(-1, (module.num_heads, -1)).transpose(1, 2)
        V_hat = (weights @ by_head).transpose(1, 2).flatten(2)
        assert_close(module.output(V_hat, module.query(x)), numpy(out))


def test_attention_is_watched_within_the_block_alone():
    module, x = MultiHeadAttention(4, 2), torch.randn(1, 3, 4)
    with record_attention_weights(module) as seen:
        module(x, x)
        module(x, x, causal=True)
    module(x, x)
    assert [weights.shape for weights in seen] == [(1, 2, 3, 3)] * 2
    with pytest.raises(ValueError, match="queries has shape"):
        module.weights(torch.zeros(2, 5, 3), x)


@pytest.mark.parametrize("kind", [MultiHeadAttention, AttentionOnAttention])
def test_attention_follows_autocast(kind):
    module, x = kind(6, 2), torch.randn(2, 4, 6)
    with torch.autocast("cpu", torch.bfloat16):
        out = module(x, x, [4, 0])
    torch.autograd.backward(out.float().sum())
    assert out.dtype == torch.bfloat16
    assert np.isfinite(flat(gradients(module))).all()


@given(strategies.lengths(), strategies.lengths(), st.integers(1, 3))
def test_multiply_accumulates(queries, keys, batch):
    """2 T d^2 + 2 L d^2 + 2 T L d; the gate adds 4 T d^2 and saves the T d^2 of the last map.

    Counted on the kernel made of matrix products: the fused ones of the CPU are not counted.
    """
    d, T, L = 6, queries, keys
    attention = 2 * T * d * d + 2 * L * d * d + 2 * T * L * d
    x, y = torch.randn(batch, T, d), torch.randn(batch, L, d)
    modules = [
        (MultiHeadAttention(d, 2), attention),
        (AttentionOnAttention(d, 2), attention + 3 * T * d * d),
    ]
    for module, expected in modules:
        with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
            module(x, y)
        assert counter.get_total_flops() == 2 * batch * expected


@pytest.mark.parametrize("kind", [MultiHeadAttention, AttentionOnAttention])
@pytest.mark.parametrize(
    ("d_model", "num_heads", "message"),
    [
        (6, 4, "d_model 6 is not divisible by num_heads 4"),
        (6, 0, "num_heads must be at least 1, not 0"),
        (0, 1, "d_model must be at least 1, not 0"),
    ],
)
def test_bad_settings_are_named(kind, d_model, num_heads, message):
    with pytest.raises(ValueError, match=message):
        kind(d_model, num_heads)


@pytest.mark.parametrize("module", [MultiHeadAttention(4, 2), AttentionOnAttention(4, 2)])
def test_bad_input_is_named(module):
    x = torch.zeros(2, 5, 4)
    with pytest.raises(ValueError, match="queries has shape"):
        module(torch.zeros(2, 5, 3), x)
    with pytest.raises(ValueError, match="keys_values has shape"):
        module(x, torch.zeros(5, 4))
    with pytest.raises(ValueError, match=r"lengths \[6, 1\] must lie between 0 and 5"):
        module(x, x, [6, 1])


@settings(max_examples=60)
@given(st.data(), attentions(), st.sampled_from(strategies.FILLINGS), strategies.lengths())
def test_a_query_without_a_valid_key_is_finite_and_blind_to_its_keys(data, pair, filling, queries):
    """Whatever padded rows hold."""
    module, parameters = pair
    case = data.draw(strategies.tokens(module.d_model, kinds=KINDS, empty=True))
    X = data.draw(strategies.arrays(len(case.x), queries, module.d_model, kinds=KINDS))
    x, y = tensor(X, grad=True), tensor(case.filled(filling), grad=True)
    out = module(x, y, torch.from_numpy(case.mask))
    torch.autograd.backward(out.sum())
    blind = ~case.mask.any(axis=1)
    if isinstance(module, MultiHeadAttention):
        assert_close(out[blind].detach(), np.zeros_like(X[blind]) + parameters["out.bias"])
    assert (numpy(y.grad)[~case.mask] == 0).all()
    assert np.isfinite(flat(gradients(module))).all()
    assert np.isfinite(numpy(out)).all() and np.isfinite(numpy(x.grad)).all()


@given(st.data(), attentions(), strategies.lengths())
def test_shared_keys_are_those_of_the_image_that_each_query_reads(data, pair, queries):
    """With its own mask; an image may be read several times, or not at all."""
    module, _ = pair
    case = data.draw(strategies.tokens(module.d_model, kinds=KINDS))
    images = st.lists(st.integers(0, len(case.x) - 1), min_size=1, max_size=4)
    index = torch.tensor(data.draw(images))
    x, mask = tensor(case.filled(np.nan)), torch.from_numpy(case.mask)
    q = torch.randn(len(index), queries, module.d_model, dtype=x.dtype)
    shared = module(q, x, mask, image_index=index)
    assert_close(numpy(shared), numpy(module(q, x[index], mask[index])))


@given(st.data(), attentions(), st.booleans())
def test_no_mask_is_a_mask_of_ones(data, pair, causal):
    module, _ = pair
    case = data.draw(strategies.tokens(module.d_model, kinds=KINDS))
    x, ones = tensor(case.x), torch.ones(case.mask.shape, dtype=torch.bool)
    assert_close(numpy(module(x, x, causal=causal)), numpy(module(x, x, ones, causal)))
