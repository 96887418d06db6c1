"""The authors' files: their names, read as the papers' equations, give what ours give."""

import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.verify import strategies, tolerances
from benchmarks.verify.tolerances import assert_close
from reference import decoding as oracle
from reference import expansion
from reference.attention import heads_concatenated
from reference.primitives import feed_forward, layer_norm, linear, log_softmax, select, word_vectors
from tests.support.parity import assert_gradients, numpy, tensor
from tests.support.released_weights import IDS, Released, cases, end_to_end, inputs, released
from torch_impl.checkpoints import checkpoint as checkpoints
from torch_impl.checkpoints.checkpoint import load_released
from torch_impl.decoding.search import beam_search
from torch_impl.models import EndToEnd, ExpansionNet

# the papers' equations, on the authors' names


def encoded(weights, groups, features):
    """The encoder's output (L, d) of an image (L, d_feature)."""
    X, outputs = linear(features, select(weights, "input_linear.")), []
    for layer in stack(weights, "encoders"):
        normed = layer_norm(X, select(layer, "norm_1."))
        E_Q, E_B = expansion_vectors(layer, "stc_exp")
        parts = ("key_embed", "class_a_embed", "class_b_embed", "selector_embed")
        K, V_1, V_2, S = (linear(normed, select(layer, f"stc_exp.{part}.")) for part in parts)
        X = X + expansion.static_expansion(E_Q, E_B, K, V_1, V_2, S, groups)
        X = X + feed_forward(layer_norm(X, select(layer, "norm_2.")), select(layer, "ff."))
        outputs.append(X)
    return reduced(weights, "enc", outputs)


def decoded(weights, num_heads, memory, words):
    """Log-probabilities (T, V) of the word after each of (T,) words."""
    positions = [name for name in weights if name.startswith("pos_encoder.")]
    X = word_vectors(words, weights["out_embedder.embed.weight"], weights[positions[0]])
    outputs = []
    for layer in stack(weights, "decoders"):
        normed = layer_norm(X, select(layer, "norm_1."))
        E_Q, E_B = expansion_vectors(layer, "dyn_exp")
        parts = ("cond_embed", "key_linear", "class_a_embed", "class_b_embed", "selector_embed")
        C, K, V_1, V_2, S = (linear(normed, select(layer, f"dyn_exp.{part}.")) for part in parts)
        X = X + expansion.dynamic_expansion(E_Q, E_B, C, K, V_1, V_2, S)
        Q = linear(layer_norm(X, select(layer, "norm_2.")), select(layer, "mha.Wq."))
        K, V = (linear(memory, select(layer, f"mha.{part}.")) for part in ("Wk", "Wv"))
        X = X + linear(heads_concatenated(Q, K, V, num_heads), select(layer, "mha.out_linear."))
        X = X + feed_forward(layer_norm(X, select(layer, "norm_3.")), select(layer, "ff."))
        outputs.append(X)
    return log_softmax(linear(reduced(weights, "dec", outputs), select(weights, "vocab_linear.")))


def stack(weights, name):
    count = len({key.split(".")[1] for key in weights if key.startswith(f"{name}.")})
    return [select(weights, f"{name}.{i}.") for i in range(count)]


def expansion_vectors(layer, mixer):
    return layer[f"{mixer}.query_exp_vectors.weight"], layer[f"{mixer}.bias_exp_vectors.weight"]


def reduced(weights, half, outputs):
    together = linear(np.concatenate(outputs, 1), select(weights, f"{half}_reduce_group."))
    return layer_norm(outputs[-1] + together, select(weights, f"{half}_reduce_norm."))


def through_the_oracle(case, weights, features, words):
    return decoded(weights, case.num_heads, encoded(weights, case.groups, features), words)


@given(cases(), strategies.generators())
def test_a_released_model_is_the_papers_equations_on_its_names(case, generator):
    model = case.load()
    assert isinstance(model, ExpansionNet) and not model.training
    features, words = inputs(case, generator)
    memory = model.encode(tensor(features), [3, 1])
    out = model.decode(torch.from_numpy(words), memory, [3, 1])
    for b, length in enumerate((3, 1)):
        expected = encoded(case.weights, case.groups, features[b, :length])
        assert_close(numpy(memory[b, :length]), expected)
        assert_close(numpy(out[b]), decoded(case.weights, case.num_heads, expected, words[b]))


@given(cases(), strategies.generators())
def test_class_a_is_the_positive_stream(case, generator):
    """Exchanged classes are another model; with the key's and the selector's sign too, the same."""
    features, words = inputs(case, generator)
    x, y = tensor(features), torch.from_numpy(words)
    expected = numpy(case.load()(x, y))
    exchanged = {
        name.replace("class_a", "class_#").replace("class_b", "class_a").replace("_#", "_b"): value
        for name, value in case.weights.items()
    }
    other = numpy(Released(exchanged, case.groups, case.num_heads).load()(x, y))
    assert tolerances.error(other, expected) > tolerances.float64_bound(expected)
    # M is linear in K
    signed = re.compile(r"(key_embed|key_linear|selector_embed)\.")
    relabelled = {n: -value if signed.search(n) else value for n, value in exchanged.items()}
    again = numpy(Released(relabelled, case.groups, case.num_heads).load()(x, y))
    assert_close(again, expected)


@settings(max_examples=10)
@given(cases(), strategies.generators())
def test_gradients_are_the_differences_by_the_authors_names(case, generator):
    """Every tensor has its own, under its own name: it is known again by its values."""
    model = case.load()
    features, words = inputs(case, generator)
    dO = generator.standard_normal((*words.shape, len(case.weights["vocab_linear.bias"])))
    x = tensor(features, grad=True)
    torch.autograd.backward(model(x, torch.from_numpy(words)), tensor(dO))
    found = {"features": numpy(x.grad)}
    for parameter in model.parameters():
        values = numpy(parameter)
        (name,) = (n for n, theirs in case.weights.items() if np.array_equal(theirs, values))
        found[name] = numpy(parameter.grad)

    def loss(arrays):
        weights = {name: arrays[name] for name in case.weights}
        return sum(
            float(
                (dO[b] * through_the_oracle(case, weights, arrays["features"][b], words[b])).sum()
            )
            for b in range(len(words))
        )

    arrays = {**case.weights, "features": features}
    assert_gradients(loss, arrays, found, generator, directions=2)


@given(cases(), strategies.generators(), st.integers(1, 3))
def test_beams_are_those_of_the_papers_equations(case, generator, beam_size):
    features, _ = inputs(case, generator)
    options = {"beam_size": beam_size, "max_length": 5, "num_return": beam_size}
    beams = beam_search(case.load(), tensor(features), **options)
    for image, found in zip(features, beams, strict=True):
        memory = encoded(case.weights, case.groups, image)

        def next_log_probs(prefix, memory=memory):
            return decoded(case.weights, case.num_heads, memory, np.array(prefix))[-1]

        expected = oracle.beam_search(
            next_log_probs, start=IDS["start_id"], end=IDS["end_id"], **options
        )
        assert [tuple(h.tokens) for h in found] == [h.tokens for h in expected]
        assert_close([h.score for h in found], [h.score for h in expected])


def test_the_published_size_has_158_tensors_and_the_authors_ids():
    case = released(np.random.default_rng(0), layers=(3, 3), vocabulary=81, positions=74)
    assert len(case.weights) == 158
    model = load_released(case.tensors, groups=case.groups, num_heads=case.num_heads)
    assert (model.start_id, model.end_id, model.pad_id) == (79, 77, 78)
    assert model.max_length == 74
    assert model.configuration.vocabulary_size == 81
    assert sum(p.numel() for p in model.parameters()) == sum(x.size for x in case.weights.values())


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"depths": (1, 2)},
        {"depths": (2,), "num_heads": (4,)},
        {"image_size": 8},
        {"image_size": 12, "window_size": 6, "depths": (2, 1)},
        {"patch_size": 1, "mlp_ratio": 1, "in_channels": 1},
    ],
)
def test_an_end_to_end_file_captions_images(changes, tmp_path):
    case, backbone = end_to_end(np.random.default_rng(0), **changes)
    model = case.load()
    assert isinstance(model, EndToEnd) and not model.training
    assert model.configuration.backbone == backbone.configuration
    c = backbone.configuration
    images = torch.randn(2, c.in_channels, c.image_size, c.image_size).double()
    features = backbone(images)
    words = torch.randint(7, (2, 5))
    body = {n: x for n, x in case.weights.items() if not n.startswith("swin_transf.")}
    expected = [
        through_the_oracle(case, body, numpy(features[b]), words[b].numpy()) for b in range(2)
    ]
    assert_close(numpy(model(images, words)), np.stack(expected))
    captioner = Released(body, case.groups, case.num_heads).load()
    options = {"beam_size": 2, "max_length": 5}
    of_images = beam_search(model, images, **options)
    of_features = beam_search(captioner, features.detach(), **options)
    for (one,), (other,) in zip(of_images, of_features, strict=True):
        assert one.tokens == other.tokens
        assert_close(one.log_probs, other.log_probs)
    checkpoints.save(tmp_path / "ours.safetensors", model)
    again = checkpoints.load(tmp_path / "ours.safetensors").model()
    assert again.configuration == model.configuration
    assert torch.equal(again(images, words), model(images, words))
    torch.autograd.backward(model(images, words).sum())
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_end_to_end_files_have_the_published_520_tensors():
    """With Swin-L's depths and geometry, all else small."""
    fields = {
        "depths": (2, 2, 18, 2),
        "num_heads": (1, 2, 4, 8),
        "embed_dim": 8,
        "image_size": 2 * 8 * 2,
        "window_size": 2,
    }
    _, backbone = end_to_end(np.random.default_rng(0), **fields)
    case = released(np.random.default_rng(0), layers=(3, 3), d_feature=backbone.d_feature)
    state = {f"swin_transf.{n}": x for n, x in backbone.state_dict().items()}
    assert (len(case.weights), len(state)) == (158, 362)
    model = case.load({**case.tensors, **state})
    assert model.configuration.backbone == backbone.configuration
