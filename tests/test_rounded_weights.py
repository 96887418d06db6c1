"""Rounded weights: what decodes is the captioner whose weights were rounded."""

from copy import deepcopy

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from benchmarks.verify import strategies
from benchmarks.verify.tolerances import SAME_WORK, ULPS, UNITS, error, literal_bound, scale
from tests.support.captioners import captioners
from torch_impl.decoding.ensemble import Ensemble
from torch_impl.decoding.rounded_weights import LINEAR, round_weights
from torch_impl.decoding.search import beam_search
from torch_impl.layers.rounded import Float16Linear, Int8Linear, RoundedLinear
from torch_impl.models import RecurrentCaptioner, RecurrentConfiguration

DTYPES = st.sampled_from([*LINEAR])


def linear(model):
    modules = [*model.decoder.modules(), model.vocabulary]
    return [module for module in modules if isinstance(module, nn.Linear)]


def rounded(model, dtype):
    """The same, of float32 weights, through ``dtype`` where `round_weights` rounds."""
    model = deepcopy(model)
    for layer in linear(model):
        layer.weight.data = LINEAR[dtype](layer.weight, layer.bias).weight
    return model


@given(strategies.generators(), *[st.integers(1, 80)] * 3, st.booleans(), DTYPES)
@torch.no_grad()
def test_a_product_is_as_exact_as_that_of_the_rounded_weight(generator, m, n, d, bias, dtype):
    x = torch.from_numpy(generator.standard_normal((m, d))).float()
    layer = nn.Linear(d, n, bias)
    product, b = LINEAR[dtype](layer.weight, layer.bias), layer.bias
    plain = product.weight
    right = F.linear(x.double(), plain.double(), None if b is None else b.double())
    found = [product(x), product(x[None])[0], product(x.mT.contiguous().mT)]
    # the worst of a sum of d products in float32, in any order
    bound = d * UNITS["float32"] * scale(x.abs().double() @ plain.abs().double().mT)
    if dtype == "int8":  # an input is off by half of a 127th of its row's largest
        steps = x.abs().amax(-1, keepdim=True).double() / 127
        bound = bound + scale(steps / 2 * plain.abs().double().sum(1))
    for each in found:
        assert type(each) is torch.Tensor and each.dtype == torch.float32
        assert error(each, right) <= literal_bound(bound, UNITS["float32"] * scale(right))


@given(strategies.generators(), *[st.integers(1, 80)] * 2)
def test_weights_are_the_nearest_of_their_dtype(generator, n, d):
    weight = torch.from_numpy(generator.standard_normal((n, d))).float()
    assert torch.equal(Float16Linear(weight, None).weight, weight.half().float())
    found = Int8Linear(weight, None)
    largest = weight.abs().amax(1, keepdim=True)
    half = largest / 127 / 2
    assert ((found.weight - weight).abs() <= half + ULPS * UNITS["float32"] * largest).all()
    assert torch.equal(Int8Linear(found.weight, None).weight, found.weight)


@given(strategies.generators(), st.lists(st.integers(1, 40), min_size=2, max_size=4), DTYPES)
def test_joined_layers_are_those_layers_side_by_side(generator, widths, dtype):
    x = torch.from_numpy(generator.standard_normal((3, 20))).float()
    x[0] = 0
    layers = [
        LINEAR[dtype](layer.weight, layer.bias) for layer in (nn.Linear(20, n) for n in widths)
    ]
    first, *others = layers
    right = torch.cat([layer(x) for layer in layers], -1)
    joined = first.joined(*others)
    assert joined is first.joined(*others)
    assert error(joined(x), right) <= SAME_WORK * scale(right)


@given(strategies.generators(), *[st.integers(2, 40)] * 2)
def test_a_row_of_8_bits_does_not_depend_on_the_others(generator, m, d):
    x = torch.from_numpy(generator.standard_normal((m, d))).float()
    layer = nn.Linear(d, 9)
    found = Int8Linear(layer.weight, layer.bias)
    right = found(x)
    assert torch.equal(found(x[:1]), right[:1])
    assert torch.equal(found(torch.cat([x[1:], 1000 * x[:1]]))[:-1], right[1:])


@given(captioners(), st.integers(1, 12), st.data())
@torch.no_grad()
def test_every_pass_is_that_of_weights_rounded_to_float16(drawn, num_beams, data):
    """By steps of few rows and of many, and over whole captions."""
    model, features, mask = drawn
    model, features = model.float(), features.float()
    expected, found = rounded(model, "float16"), deepcopy(model)
    round_weights(found, "float16")
    memory = expected.encode(features, mask)
    assert torch.equal(memory, found.encode(features, mask))
    seed = data.draw(st.integers(0, 99))
    shape = len(features), num_beams, model.max_length - 1
    words = model.configuration.vocabulary_size
    tokens = torch.randint(words, shape, generator=torch.Generator().manual_seed(seed))
    caches = [each.init_cache(memory, mask, num_beams) for each in (expected, found)]
    for t in range(shape[2]):
        right, log_probs = (cache.step(tokens[..., t]) for cache in caches)
        assert type(log_probs) is torch.Tensor
        assert error(log_probs, right) <= SAME_WORK * scale(right)
    right, log_probs = (each.decode(tokens[:, 0], memory, mask) for each in (expected, found))
    assert error(log_probs, right) <= SAME_WORK * scale(right)


@given(captioners(), DTYPES)
def test_an_ensemble_is_rounded_member_by_member(drawn, dtype):
    model, features, mask = drawn
    model, features = model.float(), features.float()
    together = Ensemble([deepcopy(model), deepcopy(model)])
    round_weights(together, dtype)
    apart = [deepcopy(model), deepcopy(model)]
    for member in apart:
        round_weights(member, dtype)
    found = [
        beam_search(each, features, mask, beam_size=2, max_length=3)
        for each in (Ensemble(apart), together)
    ]
    assert found[0] == found[1]


@given(captioners(), st.sampled_from([torch.float64, torch.bfloat16]), DTYPES)
def test_what_cannot_be_rounded_is_refused_whole(drawn, of, dtype):
    model, *_ = drawn
    with pytest.raises(ValueError, match="expected float32 on a CPU"):
        round_weights(model.to(of), dtype)
    model = model.float()
    last = model.vocabulary.weight.data
    for value in (float("inf") if dtype == "int8" else 1e5, float("nan")):
        before, last[0, 0] = last[0, 0].item(), value
        with pytest.raises(ValueError, match="a weight is not finite when it is rounded"):
            round_weights(model, dtype)
        assert not any(isinstance(layer, RoundedLinear) for layer in linear(model))
        last[0, 0] = before


def test_other_captioners_and_dtypes_are_refused():
    model = RecurrentCaptioner(RecurrentConfiguration(vocabulary_size=9, d_feature=4))
    with pytest.raises(ValueError, match="a RecurrentCaptioner has no decoder to round"):
        round_weights(model, "float16")
    with pytest.raises(ValueError, match="dtype is 'int4', expected float16 or int8"):
        round_weights(model, "int4")
