"""The oracle's layers, stacks and captioner: residual paths, causality, orders that are free."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.verify.strategies import SEEDS
from benchmarks.verify.tolerances import assert_close
from reference import transformer
from reference.attention import attention_on_attention, multi_head_attention
from reference.primitives import feed_forward, layer_norm, select
from tests.support.covers import covers
from tests.support.parameters import linear_map, prefixed

D, D_FF, HEADS, VOCABULARY, D_FEATURE, MAX_LENGTH = 4, 6, 2, 9, 3, 6
ENCODERS = st.sampled_from(["attention", "aoa", "static:3", "static:1,4,2", "dynamic:2"])
DECODERS = st.sampled_from(["attention", "aoa", "dynamic:1", "dynamic:3"])
REDUCTIONS = st.sampled_from(["linear", "norm", "none"])


def norm(rng, name):
    return {f"{name}.weight": 1 + rng.random(D), f"{name}.bias": rng.standard_normal(D)}


def mixer_parameters(rng, mixer):
    kind, coefficients = transformer.parse_mixer(mixer)
    maps = {
        "attention": ["query", "key", "value", "out"],
        "aoa": ["query", "key", "value"],
        "static": ["key", "value_1", "value_2", "selector"],
        "dynamic": ["condition", "key", "value_1", "value_2", "selector"],
    }
    parameters = {}
    for name in maps[kind]:
        parameters |= prefixed(name, linear_map(rng, D, D))
    if kind == "aoa":
        for name in ("information", "gate"):
            parameters |= prefixed(name, linear_map(rng, 2 * D, D))
    if coefficients:
        for name in ("query_vectors", "bias_vectors"):
            parameters[name] = rng.standard_normal((sum(coefficients), D))
    return parameters


def layer_parameters(rng, mixer, cross):
    aoa = mixer == "aoa"
    parameters = prefixed("mixer", mixer_parameters(rng, mixer))
    if cross:
        attention = mixer_parameters(rng, "aoa" if aoa else "attention")
        parameters |= prefixed("cross_attention", attention)
    if not aoa:
        parameters |= prefixed("feed_forward.linear_1", linear_map(rng, D, D_FF))
        parameters |= prefixed("feed_forward.linear_2", linear_map(rng, D_FF, D))
    for index in range(1, 2 + cross + (not aoa)):
        parameters |= norm(rng, f"norm_{index}")
    return parameters


def stack_parameters(rng, mixer, cross, layers, reduction):
    parameters = {}
    for index in range(layers):
        parameters |= prefixed(f"layers.{index}", layer_parameters(rng, mixer, cross))
    if reduction == "linear":
        parameters |= prefixed("reduce", linear_map(rng, layers * D, D))
    return parameters if reduction == "none" else parameters | norm(rng, "norm")


@st.composite
def captioners(draw):
    """The parameters of a small captioner and the options of its two halves."""
    rng = np.random.default_rng(draw(SEEDS))
    parameters = prefixed("input", linear_map(rng, D_FEATURE, D))
    parameters |= prefixed("vocabulary", linear_map(rng, D, VOCABULARY))
    parameters["embedding.weight"] = rng.standard_normal((VOCABULARY, D))
    parameters["positions.weight"] = rng.standard_normal((MAX_LENGTH, D))
    halves = []
    for half, mixers in (("encoder", ENCODERS), ("decoder", DECODERS)):
        mixer, reduction = draw(mixers), draw(REDUCTIONS)
        stack = stack_parameters(rng, mixer, half == "decoder", draw(st.integers(1, 3)), reduction)
        parameters |= prefixed(half, stack)
        halves.append({"mixer": mixer, "num_heads": HEADS, "reduction": reduction})
    features = rng.standard_normal((draw(st.integers(1, 5)), D_FEATURE))
    tokens = rng.integers(0, VOCABULARY, draw(st.integers(1, MAX_LENGTH)))
    return parameters, *halves, features, tokens


@covers(expansionnet_v1=[10], expansionnet_v2=[11])
@given(captioners(), SEEDS)
def test_an_encoder_has_no_order(captioner, seed):
    parameters, encoder, _, features, _ = captioner
    order = np.random.default_rng(seed).permutation(len(features))
    memory = transformer.encode(features, parameters, **encoder)
    assert_close(transformer.encode(features[order], parameters, **encoder), memory[order])


@covers(expansionnet_v1=[11], expansionnet_v2=[12])
@given(captioners(), SEEDS)
def test_a_decoder_does_not_see_the_order_of_the_memory(captioner, seed):
    parameters, encoder, decoder, features, tokens = captioner
    memory = transformer.encode(features, parameters, **encoder)
    order = np.random.default_rng(seed).permutation(len(memory))
    out = transformer.decode(tokens, memory, parameters, **decoder)
    assert_close(transformer.decode(tokens, memory[order], parameters, **decoder), out)


@covers(expansionnet_v1=[11], expansionnet_v2=[12])
@given(captioners(), st.data())
def test_words_before_a_changed_word_are_scored_the_same_to_the_bit(captioner, data):
    parameters, _, decoder, features, tokens = captioner
    memory = features @ np.ones((D_FEATURE, D))
    t = data.draw(st.integers(0, len(tokens) - 1))
    changed = tokens.copy()
    changed[t:] = (changed[t:] + data.draw(st.integers(1, VOCABULARY - 1))) % VOCABULARY
    before = transformer.decode(tokens, memory, parameters, **decoder)
    after = transformer.decode(changed, memory, parameters, **decoder)
    assert (before[:t] == after[:t]).all()
    assert (before[t] != after[t]).any()


@covers(expansionnet_v1=[11, 12], expansionnet_v2=[12])
@given(captioners(), st.data())
def test_the_next_words_distribution_is_the_last_row_of_the_whole_captions(captioner, data):
    parameters, encoder, decoder, features, tokens = captioner
    memory = transformer.encode(features, parameters, **encoder)
    log_probs = transformer.decode(tokens, memory, parameters, **decoder)
    t = data.draw(st.integers(1, len(tokens)))
    p = transformer.next_word(tokens[:t], memory, parameters, **decoder)
    assert_close(p, np.exp(log_probs[t - 1]))
    assert_close(p.sum(), 1.0)


@covers(expansionnet_v1=[10], expansionnet_v2=[11])
@given(SEEDS, ENCODERS, st.integers(1, 5))
def test_an_encoder_layer_is_two_pre_norm_residual_steps(seed, mixer, L):
    rng = np.random.default_rng(seed)
    parameters, X = layer_parameters(rng, mixer, cross=False), rng.standard_normal((L, D))
    normed = layer_norm(X, select(parameters, "norm_1."))
    expected = X + transformer.mix(normed, select(parameters, "mixer."), mixer, HEADS, False)
    if mixer != "aoa":
        normed = layer_norm(expected, select(parameters, "norm_2."))
        expected = expected + feed_forward(normed, select(parameters, "feed_forward."))
    assert_close(transformer.encoder_layer(X, parameters, mixer, HEADS), expected)


@covers(expansionnet_v1=[11], expansionnet_v2=[12])
@given(SEEDS, DECODERS, st.integers(1, 5), st.integers(1, 5))
def test_a_decoder_layer_is_three_pre_norm_residual_steps(seed, mixer, T, L):
    rng = np.random.default_rng(seed)
    parameters = layer_parameters(rng, mixer, cross=True)
    Y, O_enc = rng.standard_normal((T, D)), rng.standard_normal((L, D))
    normed = layer_norm(Y, select(parameters, "norm_1."))
    expected = Y + transformer.mix(normed, select(parameters, "mixer."), mixer, HEADS, True)
    normed = layer_norm(expected, select(parameters, "norm_2."))
    attend = attention_on_attention if mixer == "aoa" else multi_head_attention
    cross = select(parameters, "cross_attention.")
    expected = expected + attend(normed, O_enc, cross, HEADS)
    if mixer != "aoa":
        normed = layer_norm(expected, select(parameters, "norm_3."))
        expected = expected + feed_forward(normed, select(parameters, "feed_forward."))
    assert_close(transformer.decoder_layer(Y, O_enc, parameters, mixer, HEADS), expected)


@given(SEEDS, st.integers(1, 3))
def test_reductions_agree_where_they_must(seed, layers):
    rng = np.random.default_rng(seed)
    outputs = [rng.standard_normal((3, D)) for _ in range(layers)]
    parameters = prefixed("reduce", linear_map(rng, layers * D, D)) | norm(rng, "norm")
    last = transformer.reduce_layers(outputs, {}, "none")
    assert last is outputs[-1]
    normed = transformer.reduce_layers(outputs, parameters, "norm")
    assert_close(normed, layer_norm(last, select(parameters, "norm.")))
    silent = parameters | {
        f"reduce.{name}": 0 * parameters[f"reduce.{name}"] for name in ("weight", "bias")
    }
    assert_close(transformer.reduce_layers(outputs, silent, "linear"), normed)
    blocks = np.split(parameters["reduce.weight"], layers, axis=1)
    summed = last + sum(x @ W.T for x, W in zip(outputs, blocks, strict=True))
    expected = layer_norm(summed + parameters["reduce.bias"], select(parameters, "norm."))
    assert_close(transformer.reduce_layers(outputs, parameters, "linear"), expected)


def test_more_than_ten_layers_run_in_the_order_of_their_numbers():
    rng = np.random.default_rng(0)
    parameters = stack_parameters(rng, "static:2", False, 12, "none")
    X = rng.standard_normal((3, D))
    out = transformer.encoder(X, parameters, "static:2", HEADS, "none")
    for index in range(12):
        X = transformer.encoder_layer(X, select(parameters, f"layers.{index}."), "static:2", HEADS)
    assert_close(out, X)


@covers(expansionnet_v2=[10])
def test_any_backbone_that_gives_a_row_per_region_makes_the_features():
    image = np.arange(24.0).reshape(4, 6)
    patches = transformer.visual_features(image, lambda A: A.reshape(8, 3))
    assert (patches == image.reshape(8, 3)).all()
    for features in (image.ravel(), image[:0], image[None]):
        with pytest.raises(ValueError, match=r"expected \(regions, channels\)"):
            transformer.encode(features, {}, "attention")


@given(captioners())
def test_float32_parameters_give_float32_log_probabilities(captioner):
    parameters, encoder, decoder, features, tokens = captioner
    single = {name: value.astype(np.float32) for name, value in parameters.items()}
    memory = transformer.encode(features.astype(np.float32), single, **encoder)
    assert memory.dtype == np.float32
    assert transformer.decode(tokens, memory, single, **decoder).dtype == np.float32


@pytest.mark.parametrize(
    "text",
    [
        *("", "softmax", "attention:", "attention:8", "aoa:1", "dynamic", "dynamic:1,2"),
        *("dynamic:1.5", "static", "static:", "static:0", "static:4,", "static:-1", "static:a"),
    ],
)
def test_a_mixer_that_makes_no_sense_is_refused_by_its_name(text):
    with pytest.raises(ValueError, match=re.escape(repr(text))):
        transformer.parse_mixer(text)


def test_a_static_decoder_and_an_unknown_reduction_are_refused():
    X = np.ones((2, D))
    with pytest.raises(ValueError, match="static expansion cannot be causal"):
        transformer.mix(X, {}, "static:2", HEADS, causal=True)
    with pytest.raises(ValueError, match="unknown reduction 'sum'"):
        transformer.reduce_layers([X], {}, "sum")
