"""Batched encoder and decoder layers and stacks against the oracle, and what must hold of them."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.verify import strategies
from benchmarks.verify.tolerances import assert_close
from reference import transformer as oracle
from tests.support.covers import covers
from tests.support.parity import flat, gradients, load, numpy, tensor
from torch_impl.layers.transformer import (
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    FeedForward,
    Mixer,
)


@st.composite
def sizes(draw):
    """The keywords that layers share."""
    num_heads, d_model = draw(strategies.heads())
    return {"d_model": d_model, "d_ff": draw(strategies.widths()), "num_heads": num_heads}


@given(strategies.encoder_mixers())
def test_a_mixer_is_its_text(text):
    mixer = Mixer.parse(text)
    assert str(mixer) == text
    assert Mixer.parse(str(mixer)) == mixer
    assert (mixer.kind, mixer.coefficients) == oracle.parse_mixer(text)


@pytest.mark.parametrize("mixer", ["attention", "static:2", "dynamic:2"])
def test_dropout_is_on_every_residual_branch_and_in_the_feed_forward(mixer):
    """Dropping all leaves the residual stream alone; evaluation drops nothing."""
    layer = EncoderLayer(6, Mixer.parse(mixer), d_ff=5, num_heads=2, dropout=1.0)
    x = torch.randn(2, 4, 6)
    assert torch.equal(layer(x), x)
    assert not torch.equal(layer.eval()(x), x)
    feed_forward = FeedForward(6, 5, dropout=1.0)
    assert torch.equal(feed_forward(x), feed_forward.linear_2.bias.expand_as(x))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "unknown mixer ''"),
        ("lstm", "unknown mixer 'lstm'"),
        ("attention:3", "attention takes no expansion coefficients"),
        ("static", "static needs expansion coefficients"),
        ("static:", "whole numbers"),
        ("static:32,", "whole numbers"),
        ("static:32,x", "whole numbers"),
        ("static:32,0", "must be at least 1, not 0"),
        ("static:-4", "must be at least 1, not -4"),
        ("dynamic", "dynamic needs expansion coefficients"),
        ("dynamic:0", "must be at least 1, not 0"),
        ("dynamic:1,2", "takes one coefficient"),
    ],
)
def test_bad_mixers_are_named(text, message):
    with pytest.raises(ValueError, match=message):
        Mixer.parse(text)


def test_bad_settings_are_named():
    sizes = {"d_ff": 5, "num_heads": 2}
    stack = {**sizes, "reduction": "norm"}
    attention = Mixer("attention")
    with pytest.raises(ValueError, match="static expansion sees later words"):
        Mixer.parse("static:3", causal=True)
    with pytest.raises(ValueError, match="static expansion sees later words"):
        DecoderLayer(6, Mixer("static", (3,)), **sizes)
    with pytest.raises(ValueError, match="d_model 7 is not divisible by num_heads 2"):
        EncoderLayer(7, attention, **sizes)
    with pytest.raises(ValueError, match="d_model 7 is not divisible by num_heads 2"):
        DecoderLayer(7, Mixer("dynamic", (2,)), **sizes)
    with pytest.raises(ValueError, match="d_ff must be at least 1, not 0"):
        EncoderLayer(6, attention, d_ff=0, num_heads=2)
    with pytest.raises(ValueError, match="num_layers must be at least 1, not 0"):
        Encoder(6, attention, 0, **stack)
    with pytest.raises(ValueError, match=r"reduction is 'sum'.* linear, norm, none"):
        Decoder(6, attention, 1, **{**stack, "reduction": "sum"})


def test_bad_input_is_named():
    sizes = {"d_ff": 5, "num_heads": 2}
    encoder = EncoderLayer(6, Mixer("attention"), **sizes)
    decoder = DecoderLayer(6, Mixer("dynamic", (2,)), **sizes)
    x = torch.zeros(2, 3, 6)
    with pytest.raises(ValueError, match="x has shape"):
        encoder(torch.zeros(2, 3, 5))
    with pytest.raises(ValueError, match=r"lengths \[4, 1\] must lie between 0 and 3"):
        encoder(x, [4, 1])
    with pytest.raises(ValueError, match=r"lengths \[4, 1\] must lie between 0 and 3"):
        decoder(x, x, None, [4, 1])


@covers(expansionnet_v1=[11], expansionnet_v2=[12])
@given(
    st.data(),
    sizes(),
    strategies.decoder_mixers(),
    st.sampled_from(strategies.FILLINGS),
    strategies.generators(),
)
def test_a_decoder_layer_is_the_oracle_s_whatever_padding_holds(
    data, sizes, mixer, filling, generator
):
    """Padding in the memory and among the words; NaN there reaches nothing."""
    layer = DecoderLayer(mixer=Mixer.parse(mixer), **sizes)
    parameters, num_heads = load(layer, generator), sizes["num_heads"]
    memory = data.draw(strategies.tokens(sizes["d_model"], kinds=("normal", "zeros"), empty=True))
    lengths = data.draw(st.lists(st.integers(0, 5), min_size=len(memory.x), max_size=len(memory.x)))
    Y = generator.standard_normal((len(memory.x), 5, sizes["d_model"]))
    valid = np.arange(5) < np.array(lengths)[:, None]
    y = tensor(np.where(valid[..., None], Y, filling))
    out = layer(y, tensor(memory.filled(filling)), lengths, torch.from_numpy(memory.mask))
    torch.autograd.backward(out.sum())
    for b, seen in enumerate(memory.mask):
        if seen.any() and lengths[b]:
            words, image = Y[b, : lengths[b]], memory.x[b][seen]
            expected = oracle.decoder_layer(words, image, parameters, mixer, num_heads)
            assert_close(out[b, : lengths[b]].detach(), expected)
    assert np.isfinite(numpy(out)).all()
    assert np.isfinite(flat(gradients(layer))).all()
