"""Weights of 16 bits: what decodes is the captioner whose weights were rounded."""

from copy import deepcopy

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from benchmarks.verify.tolerances import SAME_WORK, UNITS, error, literal_bound, scale
from tests.support import strategies
from tests.support.captioners import captioners
from torch_impl.decoding.ensemble import Ensemble
from torch_impl.decoding.half_weights import LARGEST, HalfLinear, to_float16_weights
from torch_impl.decoding.search import beam_search
from torch_impl.models import RecurrentCaptioner, RecurrentConfiguration


def linear(model):
    modules = [*model.decoder.modules(), model.vocabulary]
    return [module for module in modules if isinstance(module, nn.Linear)]


def rounded(model):
    """The same, of float32 weights, through float16 where `to_float16_weights` rounds."""
    model = deepcopy(model)
    for layer in linear(model):
        layer.weight.data = layer.weight.half().float()
    return model


@given(strategies.generators(), *[st.integers(1, 80)] * 3, st.booleans())
@torch.no_grad()
def test_a_product_is_as_exact_as_that_of_the_rounded_weight_in_float32(generator, m, n, d, bias):
    x = torch.from_numpy(generator.standard_normal((m, d))).float()
    layer = nn.Linear(d, n, bias)
    half, b = HalfLinear(layer), layer.bias
    plain = layer.weight.half().float()
    assert torch.equal(half.weight, plain)
    right = F.linear(x.double(), plain.double(), None if b is None else b.double())
    found = [half(x), half(x[None])[0], half(x.mT.contiguous().mT)]
    # the worst of a sum of d products in float32, in any order
    terms = scale(x.abs().double() @ plain.abs().double().mT)
    bound = literal_bound(d * UNITS["float32"] * terms, UNITS["float32"] * scale(right))
    for each in found:
        assert type(each) is torch.Tensor and each.dtype == torch.float32
        assert error(each, right) <= bound


@given(captioners(), st.integers(1, 12), st.data())
@torch.no_grad()
def test_every_pass_is_that_of_the_rounded_weights(drawn, num_beams, data):
    """By steps of few rows and of many, and over whole captions."""
    model, features, mask = drawn
    model, features = model.float(), features.float()
    expected, halved = rounded(model), deepcopy(model)
    to_float16_weights(halved)
    memory = expected.encode(features, mask)
    assert torch.equal(memory, halved.encode(features, mask))
    seed = data.draw(st.integers(0, 99))
    shape = len(features), num_beams, model.max_length - 1
    words = model.configuration.vocabulary_size
    tokens = torch.randint(words, shape, generator=torch.Generator().manual_seed(seed))
    caches = [each.init_cache(memory, mask, num_beams) for each in (expected, halved)]
    for t in range(shape[2]):
        right, found = (cache.step(tokens[..., t]) for cache in caches)
        assert type(found) is torch.Tensor
        assert error(found, right) <= SAME_WORK * scale(right)
    right, found = (each.decode(tokens[:, 0], memory, mask) for each in (expected, halved))
    assert error(found, right) <= SAME_WORK * scale(right)


@given(captioners())
def test_an_ensemble_is_halved_member_by_member(drawn):
    model, features, mask = drawn
    model, features = model.float(), features.float()
    expected, halved = (Ensemble([deepcopy(model), make(model)]) for make in (rounded, deepcopy))
    to_float16_weights(expected)
    to_float16_weights(halved)
    found = [
        beam_search(each, features, mask, beam_size=2, max_length=3) for each in (expected, halved)
    ]
    assert found[0] == found[1]


@given(captioners(), st.sampled_from([torch.float64, torch.bfloat16]))
def test_what_cannot_be_halved_is_refused_whole(drawn, dtype):
    model, *_ = drawn
    with pytest.raises(ValueError, match="expected float32 on a CPU"):
        to_float16_weights(model.to(dtype))
    model = model.float()
    last = model.vocabulary.weight.data
    for value in (2 * LARGEST, float("nan")):
        before, last[0, 0] = last[0, 0].item(), value
        with pytest.raises(ValueError, match=f"beyond float16's {LARGEST:g} or not finite"):
            to_float16_weights(model)
        assert not any(isinstance(layer, HalfLinear) for layer in linear(model))
        last[0, 0] = before


def test_other_captioners_are_refused():
    model = RecurrentCaptioner(RecurrentConfiguration(vocabulary_size=9, d_feature=4))
    with pytest.raises(ValueError, match="a RecurrentCaptioner has no decoder to round"):
        to_float16_weights(model)
