"""Whole captioners against the oracle, and what must hold of them."""

import copy
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from benchmarks.verify import strategies
from benchmarks.verify.rounding import perturbed
from benchmarks.verify.tolerances import CHANGES, UNITS, assert_close
from reference import transformer as oracle
from tests.support.covers import covers
from tests.support.parity import flat, gradients, load, numpy, tensor
from tests.support.precision import Errors, in_precision
from torch_impl import models
from torch_impl.models import Captioner, Configuration, ExpansionNet

PRESETS = [
    models.expansionnet_v1,
    models.expansionnet_v2,
    models.transformer,
    models.transformer_aoa,
]
SMALL = {"vocabulary_size": 11, "d_feature": 5, "d_model": 6, "d_ff": 7, "num_heads": 2}


def built(fields, generator):
    """A captioner in evaluation mode, and its parameters as the oracle takes them."""
    model = Captioner(Configuration(**fields)).eval()
    return model, load(model, generator)


def through_the_oracle(fields, parameters, features, words):
    """One image (L, d_feature) and its words (T,) to log-probabilities (T, V)."""
    halves = (
        (fields[half], fields["num_heads"], fields[f"{half}_reduction"])
        for half in ("encoder", "decoder")
    )
    encoder, decoder = halves
    memory = oracle.encode(features, parameters, *encoder)
    return oracle.decode(words, memory, parameters, *decoder)


@covers(expansionnet_v1=[10, 11, 12], expansionnet_v2=[11, 12])
@given(
    st.data(),
    strategies.configurations(),
    st.sampled_from(strategies.FILLINGS),
    strategies.generators(),
)
def test_a_padded_batch_is_each_image_through_the_oracle(data, fields, filling, generator):
    """Whatever padding holds; images without regions are finite, NaN reaches no gradient."""
    model, parameters = built(fields, generator)
    images = data.draw(
        strategies.tokens(fields["d_feature"], kinds=("normal", "zeros"), empty=True)
    )
    shape = len(images.x), fields["vocabulary_size"], fields["max_length"]
    words = data.draw(strategies.words(*shape))
    mask = torch.from_numpy(images.mask)
    out = model(tensor(images.filled(filling)), torch.from_numpy(words), mask)
    torch.autograd.backward(out.sum())
    for b, valid in enumerate(images.mask):
        if valid.any():
            expected = through_the_oracle(fields, parameters, images.x[b][valid], words[b])
            assert_close(out[b].detach(), expected)
    assert np.isfinite(numpy(out)).all()
    assert np.isfinite(flat(gradients(model))).all()


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
def test_lower_precision_is_as_good_as_the_literal_form(precision):
    """In float16, where the literal form divides by an epsilon that is zero, attention only."""
    errors, dtype = Errors(precision), getattr(torch, precision)

    @settings(max_examples=24)
    @given(strategies.configurations(), strategies.generators())
    def collect(fields, generator):
        if precision == "float16":
            mixer = "aoa" if "aoa" in (fields["encoder"], fields["decoder"]) else "attention"
            fields = {**fields, "encoder": mixer, "decoder": mixer}
        model, parameters = built(fields, generator)
        features = generator.standard_normal((4, fields["d_feature"]))
        words = generator.integers(0, fields["vocabulary_size"], 5)
        exact, low = in_precision({**parameters, "features": features}, precision)

        def evaluated(arrays):
            return through_the_oracle(fields, arrays, arrays["features"], words)

        # every operation is perturbed: layers cancel what the inputs are made of
        nearby = [perturbed(evaluated, (exact,), UNITS[precision], n)[0] for n in range(CHANGES)]
        model.load_state_dict({name: tensor(exact[name]) for name in parameters})
        image = tensor(exact["features"], dtype)[None]
        out = model.to(dtype)(image, torch.from_numpy(words)[None])[0]
        errors.add(numpy(out), evaluated(low), evaluated(exact), nearby)

    collect()
    errors.check("log-probabilities")


@given(strategies.configurations(), strategies.generators(), st.booleans())
def test_low_precision_with_empty_images_is_finite(fields, generator, autocast):
    model, _ = built(fields, generator)
    words = torch.from_numpy(generator.integers(0, fields["vocabulary_size"], (3, 5)))
    for dtype in (torch.float16, torch.bfloat16):
        features = torch.randn(3, 4, fields["d_feature"])
        model.zero_grad()
        if autocast:
            with torch.autocast("cpu", dtype):
                out = model.float()(features, words, [4, 1, 0])
        else:
            out = model.to(dtype)(features.to(dtype), words, [4, 1, 0])
        assert out.dtype == torch.float32
        assert np.isfinite(numpy(out)).all()
        torch.autograd.backward(out.mean())
        assert np.isfinite(flat(gradients(model))).all()


@covers(expansionnet_v1=[12])
@given(strategies.configurations(), strategies.generators())
def test_later_words_change_nothing_before_them(fields, generator):
    """Neither other words at the end nor none at all; and every row is a distribution."""
    model, _ = built(fields, generator)
    features = tensor(generator.standard_normal((2, 3, fields["d_feature"])))
    words = torch.from_numpy(generator.integers(0, fields["vocabulary_size"], (2, 6)))
    t, memory = int(generator.integers(6)), model.encode(features, [3, 1])
    whole = model.decode(words, memory, [3, 1]).detach()
    assert_close(whole.exp().sum(-1), np.ones((2, 6)))
    later = words.clone()
    later[:, t + 1 :] = torch.randint(fields["vocabulary_size"], (2, 5 - t))
    assert_close(model.decode(later, memory, [3, 1])[:, : t + 1].detach(), whole[:, : t + 1])
    prefix = model.decode(words[:, : t + 1], memory, [3, 1]).detach()
    assert_close(prefix, whole[:, : t + 1])


@given(strategies.configurations())
def test_a_configuration_survives_json(fields):
    configuration = Configuration(**fields)
    assert Configuration.from_dict(json.loads(json.dumps(configuration.to_dict()))) == configuration


@given(strategies.configurations())
def test_parameters_start_xavier_uniform(fields):
    """sqrt(6 / (fan_in + fan_out)) bounds every tensor of more than one dimension, and is used."""
    model = Captioner(Configuration(**fields))
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            bound = (6 / sum(parameter.shape)) ** 0.5
            assert parameter.abs().max() <= bound, name
            assert parameter.numel() < 50 or parameter.abs().max() > 0.8 * bound, name


@pytest.mark.parametrize("preset", PRESETS)
def test_training_reaches_every_parameter(preset):
    model = preset(**SMALL, max_length=5).double()
    features = torch.randn(2, 4, 5, dtype=torch.float64)
    words, lengths = torch.randint(11, (2, 5)), torch.tensor([4, 1])
    out = model(features, words, lengths)
    assert not torch.equal(out, model(features, words, lengths))
    torch.autograd.backward(out.square().sum())
    without = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert not [name for name in without if not name.endswith("key.bias")], without


def test_dropout_of_words_spares_their_positions(monkeypatch):
    """dropout(E[y] sqrt(d)) + p: with no words left, what the decoder reads is the positions."""
    model = models.transformer(**SMALL, max_length=5, dropout=0.9).train()
    nn.init.zeros_(model.embedding.weight)
    read = []

    def forward(x, *_):
        read.append(x)
        return x

    monkeypatch.setattr(model.decoder, "forward", forward)
    model.decode(torch.randint(11, (2, 5)), torch.randn(2, 3, 6))
    assert torch.equal(read[0], model.positions.weight.expand(2, 5, 6))


@pytest.mark.parametrize(
    ("encoder", "decoder"), [("static:2,3", "aoa"), ("static:8,16", "dynamic:3")]
)
def test_models_and_their_gradients_compile_whole(encoder, decoder):
    """Of few expansion vectors a token and of many."""
    model = models.transformer(**SMALL, num_encoder_layers=1, num_decoder_layers=1)
    mixers = {"encoder": encoder, "decoder": decoder}
    model = Captioner(replace(model.configuration, **mixers)).double().eval()
    features = torch.randn(2, 4, 5, dtype=torch.float64)
    words, lengths = torch.randint(11, (2, 5)), torch.tensor([4, 1])
    outs, found = [], []
    for form in (torch.compile(model, backend="aot_eager", fullgraph=True), model):
        model.zero_grad()
        outs.append(form(features, words, lengths))
        torch.autograd.backward(outs[-1].square().sum())
        found.append(flat(gradients(model)))
    assert_close(outs[0].detach(), outs[1].detach())
    assert_close(found[0], found[1], "gradients")


def test_presets_are_the_papers():
    v1 = models.expansionnet_v1(11, 5, d_model=6, num_heads=2).configuration
    assert (v1.encoder, v1.decoder) == ("static:64", "dynamic:16")
    assert (v1.encoder_reduction, v1.decoder_reduction) == ("linear", "linear")
    v2 = models.expansionnet_v2(11, 5, d_model=6, num_heads=2).configuration
    assert (v2.encoder, v2.decoder) == ("static:32,64,128,256,512", "dynamic:16")
    assert (v2.num_encoder_layers, v2.num_decoder_layers, v2.d_ff) == (3, 3, 2048)
    base = models.transformer(11, 5, d_model=6, num_heads=2, num_encoder_layers=6).configuration
    assert (base.encoder, base.decoder, base.num_encoder_layers) == ("attention", "attention", 6)
    assert (base.encoder_reduction, base.decoder_reduction) == ("norm", "norm")
    aoa = models.transformer_aoa(11, 5, d_model=6, num_heads=2)
    assert not [name for name in aoa.state_dict() if "feed_forward" in name]
    custom = ExpansionNet(groups=[3, 4], num_expansions=2, **SMALL, start_id=9, end_id=8, pad_id=7)
    assert custom.configuration.encoder == "static:3,4"
    assert (custom.start_id, custom.end_id, custom.pad_id) == (9, 8, 7)


def test_a_model_can_be_copied_and_restored():
    model = models.expansionnet_v1(**SMALL).eval()
    other = Captioner(Configuration.from_dict(model.configuration.to_dict())).eval()
    other.load_state_dict(model.state_dict())
    features, words = torch.randn(2, 4, 5), torch.randint(11, (2, 3))
    expected = model(features, words)
    assert torch.equal(other(features, words), expected)
    assert torch.equal(copy.deepcopy(model)(features, words), expected)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"encoder": "static:0"}, "at least 1, not 0"),
        ({"encoder": "lstm"}, "unknown mixer 'lstm'"),
        ({"decoder": "static:3"}, "static expansion sees later words"),
        ({"decoder": "dynamic:-1"}, "at least 1, not -1"),
        ({"num_heads": 4}, "d_model 6 is not divisible by num_heads 4"),
        ({"encoder_reduction": "sum"}, "reduction is 'sum'"),
        ({"num_encoder_layers": 0}, "num_encoder_layers must be at least 1"),
        ({"vocabulary_size": 0}, "vocabulary_size must be at least 1"),
        ({"d_feature": -1}, "d_feature must be at least 1"),
        ({"d_model": -8}, "d_model must be at least 1, not -8"),
        ({"dropout": float("nan")}, r"dropout is nan, expected in \[0, 1\)"),
        ({"max_length": 0}, "max_length must be at least 1"),
        ({"end_id": 11}, "end_id 11 is outside a vocabulary of 11 words"),
        ({"dropout": -0.1}, "dropout"),
    ],
)
def test_bad_settings_are_named(changes, message):
    base = models.transformer(**SMALL).configuration.to_dict()
    with pytest.raises(ValueError, match=message):
        Captioner(Configuration(**{**base, **changes}))


def test_bad_configurations_are_named():
    base = models.transformer(**SMALL).configuration.to_dict()
    with pytest.raises(ValueError, match="unknown fields of a configuration: depth"):
        Configuration.from_dict({**base, "depth": 3})
    del base["encoder"]
    with pytest.raises(ValueError, match="missing fields of a configuration: encoder"):
        Configuration.from_dict(base)


def test_bad_input_is_named():
    model = models.transformer(**SMALL, max_length=4)
    features, words = torch.zeros(2, 3, 5), torch.zeros(2, 4, dtype=torch.long)
    with pytest.raises(ValueError, match="features has shape"):
        model.encode(torch.zeros(2, 3, 6))
    with pytest.raises(ValueError, match=r"lengths \[4, 3\] must lie between 0 and 3"):
        model.encode(features, [4, 3])
    memory = model.encode(features)
    with pytest.raises(ValueError, match=r"lengths \[3, 4\] must lie between 0 and 3"):
        model.decode(words, memory, [3, 4])
    for wrong in (11, -1):
        with pytest.raises(ValueError, match="token ids must lie between 0 and 10"):
            model.decode(torch.full((2, 1), wrong), memory)
    with pytest.raises(ValueError, match="5 tokens are more than max_length 4"):
        model.decode(torch.zeros(2, 5, dtype=torch.long), memory)
    with pytest.raises(ValueError, match=r"tokens has shape \(3, 4\), expected \(2, T\)"):
        model.decode(torch.zeros(3, 4, dtype=torch.long), memory)
    with pytest.raises(ValueError, match="memory has shape"):
        model.decode(words, torch.zeros(2, 3, 5))
