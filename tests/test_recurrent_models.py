"""Recurrent captioners against the oracle, by steps and by whole sequences; what trains them."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.verify import strategies
from benchmarks.verify.tolerances import assert_close
from reference import attention as oracle_attention
from reference import decoding as oracle_decoding
from reference import neural_image_caption, recurrent
from reference.primitives import linear, log_softmax, select
from tests.support.covers import covers
from tests.support.parity import flat, gradients, load, numpy, tensor
from tests.support.recurrent_parity import (
    attentive_map,
    gates_map,
    printed_map,
    score_map,
    through_the_oracle,
)
from torch_impl import models
from torch_impl.checkpoints import checkpoint as checkpoints
from torch_impl.models import RecurrentCaptioner, RecurrentConfiguration, SequenceClassifier
from torch_impl.recurrent import LSTM, AttentiveLSTM
from torch_impl.training.scheduled_sampling import sampled_inputs

SMALL = {"vocabulary_size": 11, "d_feature": 5, "d_embedding": 6, "hidden_size": 6}


KINDS = ("plain", "attentive", "printed", "image", "previous_input")
"""The decoders: ARNet's two, the read-only paper's LSTM and both readings of its unit."""


@st.composite
def configurations(draw, kinds=KINDS):
    """Small recurrent captioners, as the fields of a configuration."""
    kind = draw(st.sampled_from(kinds))
    d_embedding = draw(strategies.widths(5))
    printed = kind not in ("plain", "attentive")
    rates = st.sampled_from([0.0, 0.3])
    return {
        "vocabulary_size": draw(st.integers(3, 9)),
        "d_feature": draw(strategies.widths(6)),
        "source": draw(st.sampled_from(("features", "tokens"))),
        "d_embedding": d_embedding,
        "hidden_size": d_embedding if printed else draw(strategies.widths(5)),
        "attentive": kind == "attentive",
        "read_only": kind if kind in ("image", "previous_input") else None,
        "bias": not printed,
        "squash": not printed,
        "zoneout_cell": draw(rates),
        "zoneout_hidden": draw(rates),
        "recurrent_dropout": draw(st.sampled_from([0.0, 0.4])),
        "dropout": draw(st.sampled_from([0.0, 0.2])),
        "max_length": draw(st.integers(5, 7)),
    }


@st.composite
def captioners(draw, *kinds):
    """A captioner in evaluation mode and its parameters; padded sources, their mask, unpadded."""
    fields = draw(configurations(kinds or KINDS))
    model = RecurrentCaptioner(RecurrentConfiguration(**fields)).eval()
    parameters = load(model, draw(strategies.generators()))
    if fields["source"] == "features":
        images = draw(strategies.tokens(fields["d_feature"], kinds=("normal",), empty=True))
        return model, parameters, tensor(images.filled(np.nan)), images.mask, images.x
    mask = draw(strategies.masks())
    ids = draw(strategies.generators()).integers(0, fields["d_feature"], mask.shape)
    return model, parameters, torch.from_numpy(np.where(mask, ids, -7)), mask, ids


def through_the_oracles(model, p, source, words):
    """One source and its words (T,) to log-probabilities (T, V)."""
    c, of = model.configuration, lambda prefix: select(p, prefix)
    if c.source == "features":
        memory = linear(source, of("input."))
        image = np.zeros(c.d_embedding)
        if len(source):
            W, b = p["input.weight"], p["input.bias"]
            image = neural_image_caption.image_embedding(source, W.T, b)
    else:
        begin = recurrent.zero_state(c.hidden_size)
        xs = p["source_embedding.weight"][source]
        T = gates_map(of("source."))
        memory = np.array(
            [s.h for s in recurrent.unroll(lambda x, s: recurrent.lstm(x, s, T), xs, begin)]
        )
        image = linear(memory[-1], of("input."))
    xs = np.array([image, *p["embedding.weight"][words]])
    z_c, z_h = (
        np.full((len(xs), c.hidden_size), rate) for rate in (c.zoneout_cell, c.zoneout_hidden)
    )
    state = recurrent.zero_state(c.hidden_size)
    if isinstance(model.decoder, LSTM):
        reads = None
        if c.read_only is not None:
            reads = np.array(recurrent.read_only_inputs(xs, c.read_only))
        states = through_the_oracle(model.decoder, of("decoder."), xs, state, reads, z_c, z_h)
    else:
        T, scores = attentive_map(of("decoder.lstm."), c.d_embedding), of("decoder.attention.")
        states = []
        for t, x in enumerate(xs):
            z = np.zeros(c.d_memory)
            if len(memory):
                z = oracle_attention.soft_attention(
                    state.h,
                    memory,
                    lambda h, s: oracle_attention.additive_score(h, s, score_map(scores)),
                )
            present = recurrent.attentive_lstm(x, z, state, T)
            state = recurrent.zoneout(state, present, z_c[t], z_h[t])
            states.append(state)
    hs = np.array([s.h for s in states[1:]])
    logits = hs @ p["vocabulary.weight"].T + p.get("vocabulary.bias", 0.0)
    return log_softmax(logits)


@covers(arnet=[1, 2, 3, 4, 8], lstm_readonly=[2, 4, 5, 11, 13, 14, 17])
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=15)
@given(st.data(), strategies.generators(), st.sampled_from(["literal", "auto"]))
def test_a_padded_batch_is_each_source_through_the_oracle(kind, data, generator, implementation):
    """Whatever padding holds; images without regions are finite, NaN reaches no gradient."""
    model, parameters, padded, mask, source = data.draw(captioners(kind))
    model.implement(implementation)
    T = int(generator.integers(1, model.max_length + 1))
    words = generator.integers(0, model.configuration.vocabulary_size, (len(mask), T))
    out = model(padded, torch.from_numpy(words), torch.from_numpy(mask))
    torch.autograd.backward(out.sum())
    for b, valid in enumerate(mask):
        expected = through_the_oracles(model, parameters, source[b][valid], words[b])
        assert_close(numpy(out)[b], expected)
    found = [numpy(p.grad) for p in model.parameters() if p.grad is not None]
    assert all(np.isfinite(gradient).all() for gradient in found)


@covers(lstm_readonly=[11, 14, 16, 17])
@given(strategies.generators(), st.sampled_from([None, "image", "previous_input"]))
def test_the_printed_model_is_the_oracle_s_unrolled_network(generator, reading):
    model = models.read_only_nic(**SMALL, reading=reading).eval()
    p = load(model, generator)
    W = printed_map(select(p, "decoder."), "ifoc" if reading is None else "iforc")
    W |= {"W_i": p["input.weight"].T, "b_i": p["input.bias"]}
    W |= {"W_e": p["embedding.weight"], "W_pm": p["vocabulary.weight"]}
    features, words = generator.standard_normal((4, 5)), generator.integers(0, 11, 5)
    expected = neural_image_caption.word_log_probabilities(features, words, W, reading)
    out = model(tensor(features)[None], torch.from_numpy(words)[None])
    # row 0 there is what the image alone says
    assert_close(numpy(out)[0], expected[1:])


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=10)
@given(st.data(), st.integers(1, 3), strategies.generators())
def test_incremental_steps_equal_the_prefix_under_any_reordering(kind, data, copies, generator):
    model, _, padded, mask, _ = data.draw(captioners(kind))
    valid = torch.from_numpy(mask)
    memory = model.encode(padded, valid).detach()
    state = model.init_cache(memory, valid, copies)
    repeated, repeated_mask = (x.repeat_interleave(copies, 0) for x in (memory, valid))
    prefix = torch.empty(len(memory), copies, 0, dtype=torch.int64)
    for step in range(model.max_length):
        if step:
            order = torch.from_numpy(generator.integers(copies, size=prefix.shape[:2]))
            state.reorder(order)
            prefix = prefix.gather(1, order[..., None].expand_as(prefix))
        words = generator.integers(model.configuration.vocabulary_size, size=prefix.shape[:2])
        prefix = torch.cat([prefix, torch.from_numpy(words)[..., None]], -1)
        whole = model.decode(prefix.flatten(0, 1), repeated, repeated_mask)[:, -1].detach()
        assert_close(state.step(prefix[..., -1]).flatten(0, 1), whole)
    with pytest.raises(ValueError, match="as many as max_length"):
        state.step(prefix[..., -1])


WITHOUT_SELF_ATTENTION = {**SMALL, "self_attention": "none"}
FAMILIES = {
    "nic": lambda: models.nic(**SMALL),
    "attentive": lambda: models.attentive_nic(**SMALL),
    "read-only": lambda: models.read_only_nic(**SMALL),
    "code": lambda: models.code_captioner(11, 5, attentive=True),
    "middle-out": lambda: models.middle_out_captioner(**SMALL),
    "side by side": lambda: models.middle_out_captioner(**WITHOUT_SELF_ATTENTION),
    "transformer": lambda: models.transformer(11, 5, d_model=6, num_heads=2),
    "expansion": lambda: models.expansionnet_v2(
        11, 5, d_model=6, num_heads=2, groups=(2, 3), num_expansions=2
    ),
}


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=5)
@given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 3))
def test_a_batch_of_nothing_is_read_whole_and_by_steps(family, copies, L, T):
    """No source is no caption: nothing fails, and shapes are those of a batch of none."""
    model = FAMILIES[family]().eval()
    features = torch.zeros(0, L, dtype=torch.int64) if family == "code" else torch.zeros(0, L, 5)
    lengths = torch.zeros(0, dtype=torch.int64)
    memory = model.encode(features, lengths)
    words = torch.zeros(0, T, dtype=torch.int64)
    assert model.decode(words, memory, lengths).shape == (0, T, 11)
    state = model.init_cache(memory, lengths, copies)
    for _ in range(T):
        assert state.step(torch.zeros(0, copies, dtype=torch.int64)).shape == (0, copies, 11)
        state.reorder(torch.zeros(0, copies, dtype=torch.int64))


@settings(max_examples=10)
@given(captioners(), strategies.generators())
def test_scheduled_sampling_matches_the_oracle(case, generator):
    """Coins and draws are the same; every part of the model is left in the mode it was in."""
    model, p, padded, mask, source = case
    B, T = len(mask), model.max_length
    y = generator.integers(0, model.configuration.vocabulary_size, (B, T))
    coins, uniforms, epsilon = generator.random((B, T - 1)), generator.random((B, T - 1)), 0.6
    memory = model.encode(padded, torch.from_numpy(mask))
    for module in model.modules():
        module.training = bool(generator.integers(2))
    before = [module.training for module in model.modules()]
    found = sampled_inputs(
        model,
        torch.from_numpy(y),
        memory,
        torch.from_numpy(mask),
        torch.from_numpy(coins < epsilon),
        torch.from_numpy(uniforms),
    )
    assert [module.training for module in model.modules()] == before
    model.eval()
    for b, valid in enumerate(mask):

        def next_log_probs(tokens, rows=source[b][valid]):
            return through_the_oracles(model, p, rows, np.array(tokens))[-1]

        expected = oracle_decoding.scheduled_sampling(
            next_log_probs, y[b].tolist(), epsilon, coins[b].tolist(), uniforms[b].tolist()
        )
        assert found[b].tolist() == expected


@settings(max_examples=10)
@given(configurations())
def test_training_reaches_every_parameter(fields):
    model = RecurrentCaptioner(RecurrentConfiguration(**fields)).double().train()
    features = torch.randn(3, 4, fields["d_feature"], dtype=torch.float64)
    if fields["source"] == "tokens":
        features = torch.randint(fields["d_feature"], (3, 4))
    words = torch.randint(fields["vocabulary_size"], (3, 5))
    for _ in range(10):  # dropout may take all of so few units at once
        out = model(features, words, torch.tensor([4, 2, 1]))
        torch.autograd.backward(out.square().sum())
    without = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert not without


@pytest.mark.parametrize("family", ["nic", "attentive_nic", "read_only_nic"])
@pytest.mark.parametrize("field", ["zoneout_cell", "zoneout_hidden", "recurrent_dropout"])
def test_what_regularises_acts_in_training_only_dropout_in_evaluation_not(family, field):
    """A rate of 0 is the plain model to the bit; zoneout's mixture remains in evaluation."""
    torch.manual_seed(0)
    plain = getattr(models, family)(**SMALL).eval()
    outs = {}
    for rate in (0.0, 0.5):
        model = getattr(models, family)(**SMALL, **{field: rate})
        model.load_state_dict(plain.state_dict())
        features, words = torch.ones(2, 3, 5), torch.ones(2, 6, dtype=torch.int64)
        outs[rate] = (
            model.train()(features, words),
            model.train()(features, words),
            model.eval()(features, words),
        )
    expected = plain(features, words)
    assert all(torch.equal(out, expected) for out in outs[0.0])
    assert not torch.equal(outs[0.5][0], outs[0.5][1])
    assert torch.equal(outs[0.5][2], expected) == (field == "recurrent_dropout")


@given(configurations())
def test_a_configuration_survives_json(fields):
    configuration = RecurrentConfiguration(**fields)
    values = json.loads(json.dumps(configuration.to_dict()))
    assert models.configuration(values) == configuration


@pytest.mark.parametrize(
    "model",
    [
        models.nic(**SMALL),
        models.attentive_nic(**SMALL),
        models.code_captioner(11, 5, d_embedding=6, attentive=True),
        models.read_only_nic(**SMALL),
        models.transformer(11, 5, d_model=6, num_heads=2),
    ],
    ids=lambda model: type(model).__name__,
)
def test_checkpoints_know_their_family(tmp_path, model):
    path = tmp_path / "model.safetensors"
    checkpoints.save(path, model)
    again = checkpoints.load(path).model()
    assert type(again) is type(model)
    assert again.configuration == model.configuration
    for name, value in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], value)
    assert ("family" in model.configuration.to_dict()) == isinstance(model, RecurrentCaptioner)


def test_an_unknown_family_is_named():
    values = RecurrentConfiguration(11, 5).to_dict()
    with pytest.raises(ValueError, match="unknown family 'convolutional' of a configuration"):
        models.configuration({**values, "family": "convolutional"})
    with pytest.raises(ValueError, match="another family than ''"):
        models.Configuration.from_dict(values)
    with pytest.raises(ValueError, match="unknown fields of a configuration: depth"):
        models.configuration({**values, "depth": 3})


@given(strategies.generators(), st.lists(st.integers(0, 5), min_size=1, max_size=3))
def test_a_classifier_reads_the_last_state(generator, lengths):
    model = SequenceClassifier(2, 3, 4, zoneout=(0.1, 0.3)).eval()
    p = load(model, generator)
    xs = generator.standard_normal((len(lengths), 5, 2))
    out = numpy(model(tensor(xs), lengths))
    for b, n in enumerate(lengths):
        z_c, z_h = np.full((n, 3), 0.1), np.full((n, 3), 0.3)
        start = recurrent.zero_state(3)
        states = through_the_oracle(
            model.lstm, select(p, "lstm."), xs[b, :n], start, None, z_c, z_h
        )
        h = [start, *states][-1].h
        assert_close(out[b], log_softmax(linear(h, select(p, "classes."))))


@pytest.mark.parametrize("family", ["nic", "attentive_nic", "read_only_nic"])
def test_models_compile_whole(family):
    model = getattr(models, family)(**SMALL).double().eval()
    features = torch.randn(2, 4, 5, dtype=torch.float64)
    words, lengths = torch.randint(11, (2, 3)), torch.tensor([4, 1])
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    expected = numpy(model(features, words, lengths))
    assert_close(numpy(compiled(features, words, lengths)), expected)


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("family", ["nic", "attentive_nic", "read_only_nic"])
def test_low_precision_is_finite_and_returns_float32(family, autocast):
    dtype = torch.float32 if autocast else torch.bfloat16
    model = getattr(models, family)(**SMALL).to(dtype)
    features, words = torch.randn(3, 4, 5, dtype=dtype), torch.ones(3, 5, dtype=torch.int64)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        out = model(features, words, [4, 1, 0])
        state = model.eval().init_cache(model.encode(features), num_beams=2)
        step = state.step(torch.ones(3, 2, dtype=torch.int64))
    torch.autograd.backward(out.mean())
    for log_probs in (out, step):
        assert log_probs.dtype == torch.float32
        assert np.isfinite(numpy(log_probs)).all()
    assert np.isfinite(flat(gradients(model))).all()


def test_presets_are_the_papers():
    assert models.nic(11, 5).configuration == RecurrentConfiguration(11, 5)
    assert isinstance(models.attentive_nic(11, 5).decoder, AttentiveLSTM)
    code = models.code_captioner(11, 5).configuration
    assert (code.source, code.d_embedding, code.hidden_size) == ("tokens", 512, 256)
    printed = models.read_only_nic(11, 5)
    assert printed.configuration.read_only == "image"
    assert not [n for n in printed.state_dict() if "bias" in n and not n.startswith("input.")]
    assert models.read_only_nic(11, 5, reading=None).configuration.read_only is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocabulary_size": 0}, "vocabulary_size must be at least 1"),
        ({"hidden_size": -2}, "hidden_size must be at least 1, not -2"),
        ({"source": "video"}, "source is 'video', expected one of features, tokens"),
        ({"zoneout_cell": 1.1}, r"zoneout_cell is 1.1, expected in \[0, 1\]"),
        ({"zoneout_hidden": -0.1}, r"zoneout_hidden is -0.1, expected in \[0, 1\]"),
        ({"recurrent_dropout": 1.0}, r"recurrent_dropout is 1.0, expected in \[0, 1\)"),
        ({"dropout": float("nan")}, r"dropout is nan, expected in \[0, 1\)"),
        ({"read_only": "both"}, "read_only is 'both', expected None or one of image, previous"),
        ({"read_only": "image", "attentive": True}, "read_only and attentive: expected one"),
        ({"read_only": "image", "hidden_size": 7}, "hidden_size 7 reads vectors of d_embedding 6"),
        ({"end_id": 11}, "end_id 11 is outside a vocabulary of 11 words"),
    ],
)
def test_bad_settings_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        RecurrentConfiguration(**{**SMALL, **changes})


def test_bad_input_is_named():
    model, code = models.nic(**SMALL, max_length=4), models.code_captioner(11, 5)
    with pytest.raises(
        ValueError, match="'fast', expected one of auto, literal, custom_backward, library"
    ):
        model.implement("fast")
    features, words = torch.zeros(2, 3, 5), torch.zeros(2, 4, dtype=torch.long)
    with pytest.raises(ValueError, match="features has shape"):
        model.encode(torch.zeros(2, 3, 6))
    with pytest.raises(ValueError, match=r"lengths \[4, 3\] must lie between 0 and 3"):
        model.encode(features, [4, 3])
    with pytest.raises(ValueError, match=r"features are torch.float32 .*expected token ids \(B, L"):
        code.encode(features)
    ids = torch.zeros(2, 3, dtype=torch.long)
    with pytest.raises(ValueError, match="ids of the source must lie between 0 and 4"):
        code.encode(ids + 5)
    for empty in ((ids, [3, 0]), (ids[:, :0], None)):
        with pytest.raises(ValueError, match="a source is empty, expected at least 1 row"):
            code.encode(*empty)
    memory = model.encode(features)
    with pytest.raises(ValueError, match="token ids must lie between 0 and 10"):
        model.decode(words + 11, memory)
    with pytest.raises(ValueError, match="5 tokens are more than max_length 4"):
        model.decode(torch.zeros(2, 5, dtype=torch.long), memory)
    with pytest.raises(ValueError, match=r"tokens has shape \(3, 4\), expected \(2, T\)"):
        model.decode(torch.zeros(3, 4, dtype=torch.long), memory)
    with pytest.raises(ValueError, match="memory has shape"):
        model.decode(words, torch.zeros(2, 3, 5))
    with pytest.raises(ValueError, match=r"expected model\.eval\(\)"):
        models.nic(**SMALL, dropout=0.5).train().init_cache(memory)
    model.eval()
    for name in ("num_beams", "max_length"):
        with pytest.raises(ValueError, match=f"{name} must be at least 1, not 0"):
            model.init_cache(memory, **{name: 0})
    with pytest.raises(ValueError, match="max_length is 5, the model's is 4"):
        model.init_cache(memory, max_length=5)
    state = model.init_cache(memory, num_beams=2)
    with pytest.raises(ValueError, match=r"tokens has shape \(2, 3\), expected \(2, 2\)"):
        state.step(torch.zeros(2, 3, dtype=torch.int64))
    with pytest.raises(IndexError):
        state.step(torch.full((2, 2), 11))
    assert state.length == 0
    coins = torch.zeros(2, 4, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"coins has shape \(2, 4\), expected \(2, 3\)"):
        sampled_inputs(model, words, memory, None, coins, coins.double())
