"""The authors' files: their names, read as the papers' equations, give what ours give."""

from __future__ import annotations

import math
import os
import pickle
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from reference import decoding as oracle
from reference import expansion
from reference.attention import heads_concatenated
from reference.primitives import (
    Parameters,
    feed_forward,
    layer_norm,
    linear,
    log_softmax,
    select,
    word_vectors,
)
from tests import strategies, tolerances
from tests.parity import Array, assert_gradients, numpy, tensor
from tests.strategies import fill
from tests.tolerances import assert_close
from torch_impl import checkpoints
from torch_impl.checkpoints import CheckpointError, load_released
from torch_impl.decoding import beam_search
from torch_impl.models import EndToEnd, ExpansionNet
from torch_impl.swin import SwinConfiguration, SwinTransformer

IDS = {"start_id": 2, "end_id": 1, "pad_id": 0}


@dataclass(frozen=True)
class Released:
    """A state dictionary under the authors' names, in float64, and what its tensors do not tell."""

    weights: dict[str, Array]
    groups: tuple[int, ...]
    num_heads: int

    @property
    def tensors(self) -> dict[str, Tensor]:
        return {name: torch.from_numpy(x.copy()) for name, x in self.weights.items()}

    def load(self, source: Any = None, **changes: Any) -> Any:
        """``load_released`` of these weights, or of ``source``."""
        options = {"groups": self.groups, "num_heads": self.num_heads, **IDS, **changes}
        return load_released(self.tensors if source is None else source, **options)

    @property
    def d_feature(self) -> int:
        return self.weights["input_linear.weight"].shape[1]


def released(
    generator: np.random.Generator,
    *,
    d_model: int = 4,
    num_heads: int = 2,
    d_ff: int = 6,
    d_feature: int = 5,
    vocabulary: int = 7,
    groups: tuple[int, ...] = (2, 1),
    num_expansions: int = 2,
    layers: tuple[int, int] = (1, 1),
    positions: int = 8,
    pos_encoder: str = "pos_encoder.weight",
) -> Released:
    """Random weights under the names of the authors' files."""
    shapes: dict[str, tuple[int, ...]] = {
        "out_embedder.embed.weight": (vocabulary, d_model),
        pos_encoder: (positions, d_model),
    }

    def add(name: str, *shape: int) -> None:
        shapes[f"{name}.weight"], shapes[f"{name}.bias"] = shape, shape[:1]

    add("input_linear", d_model, d_feature)
    add("vocab_linear", vocabulary, d_model)
    for half, count in zip(("enc", "dec"), layers, strict=True):
        add(f"{half}_reduce_group", d_model, count * d_model)
        add(f"{half}_reduce_norm", d_model)
    for stack, count in zip(("encoders", "decoders"), layers, strict=True):
        for i in range(count):
            layer, static = f"{stack}.{i}", stack == "encoders"
            mixer = f"{layer}.stc_exp" if static else f"{layer}.dyn_exp"
            vectors = (sum(groups) if static else num_expansions, d_model)
            shapes[f"{mixer}.query_exp_vectors.weight"] = vectors
            shapes[f"{mixer}.bias_exp_vectors.weight"] = vectors
            parts = ["class_a_embed", "class_b_embed", "selector_embed"]
            parts += ["key_embed"] if static else ["key_linear", "cond_embed"]
            for part in parts:
                add(f"{mixer}.{part}", d_model, d_model)
            if not static:
                for part in ("Wq", "Wk", "Wv", "out_linear"):
                    add(f"{layer}.mha.{part}", d_model, d_model)
            add(f"{layer}.ff.linear_1", d_ff, d_model)
            add(f"{layer}.ff.linear_2", d_model, d_ff)
            for norm in ("norm_1", "norm_2") if static else ("norm_1", "norm_2", "norm_3"):
                add(f"{layer}.{norm}", d_model)
    weights = {n: fill(generator, shape) / math.sqrt(shape[-1]) for n, shape in shapes.items()}
    return Released(weights, groups, num_heads)


@st.composite
def sizes(draw: st.DrawFn) -> dict[str, Any]:
    """No two widths are equal, so that a transposed matrix is not the matrix."""
    num_heads = draw(st.integers(1, 2))
    d_model = num_heads * draw(st.integers(4 // num_heads, 3 + 3 // num_heads))
    return {
        "num_heads": num_heads,
        "d_model": d_model,
        "d_ff": d_model + draw(st.integers(1, 3)),
        "d_feature": d_model + draw(st.integers(1, 3)),
        "vocabulary": d_model + draw(st.integers(1, 3)),
        "groups": draw(strategies.groups(3, 3).filter(lambda groups: sum(groups) != d_model)),
        "num_expansions": draw(st.integers(1, 3)),
        "layers": (draw(st.integers(1, 3)), draw(st.integers(1, 3))),
        "positions": d_model + draw(st.integers(1, 3)),
        "pos_encoder": draw(st.sampled_from(("pos_encoder.weight", "pos_encoder.embed.weight"))),
    }


def cases() -> st.SearchStrategy[Released]:
    return st.builds(lambda fields, g: released(g, **fields), sizes(), strategies.generators())


# the papers' equations, on the authors' names


def encoded(weights: Parameters, groups: Sequence[int], features: Array) -> Array:
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


def decoded(weights: Parameters, num_heads: int, memory: Array, words: Array) -> Array:
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


def stack(weights: Parameters, name: str) -> list[dict[str, Array]]:
    count = len({key.split(".")[1] for key in weights if key.startswith(f"{name}.")})
    return [select(weights, f"{name}.{i}.") for i in range(count)]


def expansion_vectors(layer: Parameters, mixer: str) -> tuple[Array, Array]:
    return layer[f"{mixer}.query_exp_vectors.weight"], layer[f"{mixer}.bias_exp_vectors.weight"]


def reduced(weights: Parameters, half: str, outputs: list[Array]) -> Array:
    together = linear(np.concatenate(outputs, 1), select(weights, f"{half}_reduce_group."))
    return layer_norm(outputs[-1] + together, select(weights, f"{half}_reduce_norm."))


def through_the_oracle(case: Released, weights: Parameters, features: Array, words: Array) -> Array:
    return decoded(weights, case.num_heads, encoded(weights, case.groups, features), words)


def inputs(case: Released, generator: np.random.Generator) -> tuple[Array, Array]:
    """Features (2, 3, d_feature) and words (2, 5)."""
    features = generator.standard_normal((2, 3, case.d_feature))
    return features, generator.integers(0, len(case.weights["vocab_linear.bias"]), (2, 5))


@given(cases(), strategies.generators())
def test_a_released_model_is_the_papers_equations_on_its_names(
    case: Released, generator: np.random.Generator
) -> None:
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
def test_class_a_is_the_positive_stream(case: Released, generator: np.random.Generator) -> None:
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
def test_gradients_are_the_differences_by_the_authors_names(
    case: Released, generator: np.random.Generator
) -> None:
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

    def loss(arrays: Mapping[str, Array]) -> float:
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
def test_beams_are_those_of_the_papers_equations(
    case: Released, generator: np.random.Generator, beam_size: int
) -> None:
    features, _ = inputs(case, generator)
    options: dict[str, int] = {"beam_size": beam_size, "max_length": 5, "num_return": beam_size}
    beams = beam_search(case.load(), tensor(features), **options)
    for image, found in zip(features, beams, strict=True):
        memory = encoded(case.weights, case.groups, image)

        def next_log_probs(prefix: tuple[int, ...], memory: Array = memory) -> Array:
            return decoded(case.weights, case.num_heads, memory, np.array(prefix))[-1]

        expected = oracle.beam_search(
            next_log_probs, start=IDS["start_id"], end=IDS["end_id"], **options
        )
        assert [tuple(h.tokens) for h in found] == [h.tokens for h in expected]
        assert_close([h.score for h in found], [h.score for h in expected])


def test_the_published_size_has_158_tensors_and_the_authors_ids() -> None:
    case = released(np.random.default_rng(0), layers=(3, 3), vocabulary=81, positions=74)
    assert len(case.weights) == 158
    model = load_released(case.tensors, groups=case.groups, num_heads=case.num_heads)
    assert (model.start_id, model.end_id, model.pad_id) == (79, 77, 78)
    assert model.max_length == 74
    assert model.configuration.vocabulary_size == 81
    assert sum(p.numel() for p in model.parameters()) == sum(x.size for x in case.weights.values())


# files


@settings(max_examples=10)
@given(cases(), strategies.generators(), st.booleans(), st.booleans())
def test_a_file_a_dictionary_and_ours_are_the_same_model(
    tmp_path_factory: pytest.TempPathFactory,
    case: Released,
    generator: np.random.Generator,
    zipped: bool,
    wrapped: bool,
) -> None:
    path = tmp_path_factory.mktemp("released") / "rf_model.pth"
    content: Any = case.tensors
    if wrapped:
        content = {"epoch": 3, "model_state_dict": content, "optim_state_dict": {"state": {}}}
    torch.save(content, path, _use_new_zipfile_serialization=zipped)
    model, features = case.load(), inputs(case, generator)
    x, y = tensor(features[0]), torch.from_numpy(features[1])
    ours = path.with_name("ours.safetensors")
    checkpoints.save(ours, model)
    others = (case.load(path), case.load(str(path)), case.load(content))
    for other in (*others, checkpoints.load(ours).model()):
        assert other.configuration == model.configuration
        assert (other.start_id, other.end_id, other.pad_id) == (2, 1, 0)
        assert torch.equal(other(x, y), model(x, y))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_weights_keep_their_precision_and_are_copies(dtype: torch.dtype, tmp_path: Path) -> None:
    case = released(np.random.default_rng(0))
    weights = {name: x.to(dtype) for name, x in case.tensors.items()}
    state = torch.get_rng_state()
    model = case.load(weights)
    assert torch.equal(state, torch.get_rng_state()), "nothing is drawn that is then replaced"
    before = {name: x.clone() for name, x in model.state_dict().items()}
    assert all(x.dtype == dtype for x in before.values())
    for x in weights.values():
        x.zero_()
    assert all(torch.equal(x, before[name]) for name, x in model.state_dict().items())
    checkpoints.save(tmp_path / "a.safetensors", model)
    again = checkpoints.load(tmp_path / "a.safetensors").model().state_dict()
    assert all(x.dtype == dtype and torch.equal(x, before[name]) for name, x in again.items())


def problems_of(error: pytest.ExceptionInfo[CheckpointError]) -> dict[str, str]:
    """What the message lists: the key, and what is wrong with it."""
    _, found, listed = str(error.value).partition("does not fit the model: ")
    assert found, str(error.value)
    assert "\n" not in listed
    pairs = (problem.split(" ")[:2] for problem in listed.split("; "))
    problems = {name: what for what, name in pairs}
    assert len(problems) == listed.count("; ") + 1, "each once"
    return problems


@settings(max_examples=60)
@given(cases(), st.data())
def test_every_key_that_does_not_fit_is_listed_by_its_own_name(
    case: Released, data: st.DataObject
) -> None:
    """Dropped, added, of one axis more, or transposed; up to three at once."""
    weights, expected = case.tensors, {}
    for name in data.draw(st.lists(st.sampled_from(sorted(weights)), max_size=3, unique=True)):
        change = data.draw(st.sampled_from(("missing", "misshapen", "transposed")))
        if change == "missing":
            del weights[name]
        elif change == "misshapen":
            weights[name] = weights[name][None]
        elif weights[name].dim() == 1 or len(set(weights[name].shape)) == 1:
            continue
        else:
            weights[name] = weights[name].T
        expected[name] = "missing" if change == "missing" else "misshapen"
    extra = st.sampled_from(
        ("encoders.0.norm_3.weight", "encoders.9.colour", "vocab", "module.input_linear.weight")
    )
    for name in data.draw(st.lists(extra, max_size=2, unique=True)):
        weights[name], expected[name] = torch.zeros(3), "extra"
    if not expected:
        case.load(weights)
        return
    with pytest.raises(CheckpointError) as error:
        case.load(weights)
    assert problems_of(error) == expected


def test_a_whole_layer_that_is_missing_is_listed_key_by_key() -> None:
    case = released(np.random.default_rng(0), layers=(3, 1))
    weights = {n: x for n, x in case.tensors.items() if not n.startswith("encoders.1.")}
    with pytest.raises(CheckpointError) as error:
        case.load(weights)
    assert problems_of(error) == {n: "missing" for n in case.weights if n not in weights}
    assert len(problems_of(error)) == 18


def test_what_is_wrong_besides_shapes_is_named() -> None:
    case = released(np.random.default_rng(0))
    weights: dict[str, Any] = {**case.tensors, "norm": [1], "vocab_linear.bias": None}
    with pytest.raises(CheckpointError, match="norm is a list, expected a tensor") as error:
        case.load(weights)
    assert "missing vocab_linear.bias 7" in str(error.value)
    assert "vocab_linear.bias is a NoneType, expected a tensor" in str(error.value)
    for dtype in (torch.float16, torch.int64):
        weights = {**case.tensors, "vocab_linear.bias": torch.zeros(7, dtype=dtype)}
        message = rf"vocab_linear.bias is {dtype}, expected torch.float64"
        with pytest.raises(CheckpointError, match=message):
            case.load(weights)
    for nothing in ({}, {"weights": {}}, {"a": torch.zeros(3)}):
        with pytest.raises(CheckpointError, match=r"missing out_embedder\.embed\.weight"):
            case.load(nothing)
    with pytest.raises(CheckpointError, match="holds a list, expected a dictionary of tensors"):
        case.load({"model_state_dict": [1, 2]})
    both = {**case.tensors, "pos_encoder.embed.weight": case.tensors["pos_encoder.weight"]}
    with pytest.raises(CheckpointError, match=r"extra pos_encoder\.embed\.weight 8x4"):
        case.load(both)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"groups": (2, 2)}, r"groups \(2, 2\) add up to 4, but .* 3 static expansion vectors"),
        ({"groups": ()}, "groups must name at least one"),
        ({"groups": (3, 0)}, "at least 1, not 0"),
        ({"num_heads": 3}, "d_model 4 is not divisible by num_heads 3"),
        ({"num_heads": 0}, "num_heads must be at least 1"),
        ({"end_id": 7}, "end_id 7 is outside a vocabulary of 7 words"),
        ({"start_id": -1}, "start_id -1 is outside a vocabulary"),
    ],
)
def test_what_the_tensors_do_not_tell_must_fit_them(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        released(np.random.default_rng(0)).load(**changes)


class Shell:
    """A pickle of it runs a command when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.path}",)


class Opens(Shell):
    """A pickle of it makes a file when it is read."""

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (str(self.path), "w")


def refused(path: Path) -> str:
    """The one line that says why a file is not loaded."""
    with pytest.raises(CheckpointError) as error:
        load_released(path, groups=(3,), num_heads=1)
    message = str(error.value)
    assert message.startswith(str(path))
    assert "\n" not in message
    return message


@pytest.mark.filterwarnings("ignore:Detected pickle protocol 4")
@pytest.mark.parametrize("kind", [Shell, Opens])
@pytest.mark.parametrize("form", ["zip", "legacy", "pickle 2", "pickle 4", "key"])
def test_code_in_a_file_is_refused_and_not_executed(
    kind: type[Shell], form: str, tmp_path: Path
) -> None:
    path, proof = tmp_path / "checkpoint.pth", tmp_path / "executed"
    content: Any = {"model_state_dict": case_tensors(), "extra": kind(proof)}
    if form == "key":
        content = {"model_state_dict": {**case_tensors(), "pos_encoder.weight": kind(proof)}}
    if form.startswith("pickle"):
        path.write_bytes(pickle.dumps(content, protocol=int(form[-1])))
    else:
        torch.save(content, path, _use_new_zipfile_serialization=form != "legacy")
    assert "refused, nothing was executed" in refused(path)
    assert not proof.exists()
    if not form.startswith("pickle"):
        assert "has code in it" in refused(path)
        torch.load(path, weights_only=False)
    else:
        pickle.loads(path.read_bytes())
    assert proof.exists(), "it would have"


def case_tensors() -> dict[str, Tensor]:
    return released(np.random.default_rng(0)).tensors


@settings(max_examples=30)
@given(st.floats(0, 1, exclude_max=True), st.booleans())
def test_a_truncated_file_is_refused(
    tmp_path_factory: pytest.TempPathFactory, share: float, zipped: bool
) -> None:
    path = tmp_path_factory.mktemp("truncated") / "checkpoint.pth"
    torch.save(case_tensors(), path, _use_new_zipfile_serialization=zipped)
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data))])
    refused(path)


def test_what_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    assert "no such file" in refused(tmp_path / "nothing.pth")
    assert "no such file" in refused(tmp_path)
    path = tmp_path / "other.pth"
    path.write_text("hello world", encoding="utf-8")
    assert "not a readable PyTorch file" in refused(path)
    torch.save(torch.zeros(3), path)
    assert "holds a Tensor, expected a dictionary" in refused(path)
    checkpoints.save(path, released(np.random.default_rng(0)).load())
    assert "is no file of tensors and plain values" in refused(path)


# end to end


def end_to_end(generator: np.random.Generator, **changes: Any) -> tuple[Released, SwinTransformer]:
    """A captioner's weights and a backbone's under one roof, and that backbone."""
    fields = {
        "image_size": 16,
        "patch_size": 2,
        "embed_dim": 4,
        "depths": (2, 3),
        "num_heads": (2, 1),
        "window_size": 2,
        "mlp_ratio": 2,
    }
    backbone = SwinTransformer(SwinConfiguration(**(fields | changes))).double().eval()
    for parameter in backbone.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    case = released(generator, d_feature=backbone.d_feature)
    state = {f"swin_transf.{n}": x.numpy() for n, x in backbone.state_dict().items()}
    return Released({**case.weights, **state}, case.groups, case.num_heads), backbone


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
def test_an_end_to_end_file_captions_images(changes: dict[str, Any], tmp_path: Path) -> None:
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
    options: dict[str, int] = {"beam_size": 2, "max_length": 5}
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


def test_end_to_end_files_have_the_published_520_tensors() -> None:
    """With Swin-L's depths and geometry, all else small."""
    fields: dict[str, Any] = {
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


@settings(max_examples=40)
@given(st.data())
def test_a_backbone_s_keys_that_do_not_fit_are_listed_by_their_own_names(
    data: st.DataObject,
) -> None:
    """The last norm above all: without it the features are others."""
    case, _ = end_to_end(np.random.default_rng(0))
    weights, expected = case.tensors, {}
    names = sorted(name for name in weights if name.startswith("swin_transf."))
    chosen = data.draw(st.sampled_from(names))
    if data.draw(st.booleans()):
        del weights[chosen]
        expected[chosen] = "missing"
    else:
        weights[chosen] = weights[chosen][None]
        expected[chosen] = "misshapen"
    for name in ("swin_transf.norm.weight", "swin_transf.norm.bias"):
        weights.pop(name, None)
        expected[name] = "missing"
    weights["swin_transf.head.weight"], expected["swin_transf.head.weight"] = torch.ones(2), "extra"
    with pytest.raises(CheckpointError) as error:
        case.load(weights)
    assert problems_of(error) == expected


def test_a_backbone_that_is_none_or_another_captioner_s_is_named() -> None:
    case, _ = end_to_end(np.random.default_rng(0))
    index = "swin_transf.layers.0.blocks.1.attn.relative_position_index"
    for value, message in (
        (torch.full((4, 4), 9), "points beyond the 9 rows of its table"),
        (torch.full((4, 4), -1), "points beyond the 9 rows of its table"),
        (torch.zeros(4, 4), "is torch.float32, expected torch.int64"),
    ):
        with pytest.raises(CheckpointError, match=f"{index} {message}"):
            case.load({**case.tensors, index: value})
    other = released(np.random.default_rng(0), d_feature=3).tensors
    backbone = {n: x for n, x in case.tensors.items() if n.startswith("swin_transf.")}
    with pytest.raises(ValueError, match="the captioner's d_feature is 3, the backbone's 8"):
        case.load({**other, **backbone})
    heads = {n: x[:, :1] for n, x in case.tensors.items() if n.endswith("bias_table")}
    wrong = {n: torch.cat([x] * 3, 1) for n, x in heads.items()}
    with pytest.raises(CheckpointError, match="no Swin Transformer: stage 0: width 4 is not"):
        case.load({**case.tensors, **wrong})
