"""The authors' files on disk: whole and of tensors alone, every key known, or refused by name."""

import os
import pickle
from contextlib import suppress

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.verify import strategies
from tests.support.parity import tensor
from tests.support.released_weights import cases, end_to_end, inputs, released
from torch_impl.checkpoints import checkpoint as checkpoints
from torch_impl.checkpoints.checkpoint import CheckpointError, load_released


@settings(max_examples=10)
@given(cases(), strategies.generators(), st.booleans(), st.booleans())
def test_a_file_a_dictionary_and_ours_are_the_same_model(
    tmp_path_factory, case, generator, zipped, wrapped
):
    path = tmp_path_factory.mktemp("released") / "rf_model.pth"
    content = case.tensors
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
def test_weights_keep_their_precision_and_are_copies(dtype, tmp_path):
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


def problems_of(error):
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
def test_every_key_that_does_not_fit_is_listed_by_its_own_name(case, data):
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
        # without it nothing says by which of its names a file had it
        is_absent = change == "missing" and name == "pos_encoder.embed.weight"
        named = "pos_encoder.weight" if is_absent else name
        expected[named] = "missing" if change == "missing" else "misshapen"
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


def test_a_whole_layer_that_is_missing_is_listed_key_by_key():
    case = released(np.random.default_rng(0), layers=(3, 1))
    weights = {n: x for n, x in case.tensors.items() if not n.startswith("encoders.1.")}
    with pytest.raises(CheckpointError) as error:
        case.load(weights)
    assert problems_of(error) == {n: "missing" for n in case.weights if n not in weights}
    assert len(problems_of(error)) == 18


def test_what_is_wrong_besides_shapes_is_named():
    case = released(np.random.default_rng(0))
    weights = {**case.tensors, "norm": [1], "vocab_linear.bias": None}
    with pytest.raises(CheckpointError, match="norm is a list, expected a tensor") as error:
        case.load(weights)
    assert "missing vocab_linear.bias 7" in str(error.value)
    assert "vocab_linear.bias is a NoneType, expected a tensor" in str(error.value)
    for dtype in (torch.float16, torch.int64):
        weights = {**case.tensors, "vocab_linear.bias": torch.zeros(7, dtype=dtype)}
        message = rf"vocab_linear.bias is {dtype}, expected torch.float64"
        with pytest.raises(CheckpointError, match=message):
            case.load(weights)
    for value in (torch.nan, -torch.inf):
        broken = case.tensors["vocab_linear.bias"].clone()
        broken[-1] = value
        with pytest.raises(
            CheckpointError, match=r"vocab_linear\.bias has values that are not fin"
        ):
            case.load({**case.tensors, "vocab_linear.bias": broken})
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
def test_what_the_tensors_do_not_tell_must_fit_them(changes, message):
    with pytest.raises(ValueError, match=message):
        released(np.random.default_rng(0)).load(**changes)


class Shell:
    """A pickle of it runs a command when it is read."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


class Opens(Shell):
    """A pickle of it makes a file when it is read."""

    def __reduce__(self):
        return open, (str(self.path), "w")


def refused(path):
    """The one line that says why a file is not loaded."""
    with pytest.raises(CheckpointError) as error:
        load_released(path, groups=(3,), num_heads=1)
    message = str(error.value)
    assert message.startswith(str(path))
    assert "\n" not in message
    return message


@pytest.mark.filterwarnings("error::UserWarning")
@pytest.mark.parametrize("kind", [Shell, Opens])
@pytest.mark.parametrize("form", ["zip", "legacy", "pickle 2", "pickle 4", "key"])
def test_code_in_a_file_is_refused_and_not_executed(kind, form, tmp_path):
    path, proof = tmp_path / "checkpoint.pth", tmp_path / "executed"
    content = {"model_state_dict": case_tensors(), "extra": kind(proof)}
    if form == "key":
        content = {"model_state_dict": {**case_tensors(), "pos_encoder.weight": kind(proof)}}
    if form.startswith("pickle"):
        path.write_bytes(pickle.dumps(content, protocol=int(form[-1])))
    else:
        torch.save(content, path, _use_new_zipfile_serialization=form != "legacy")
    with suppress(CheckpointError):
        load_released(path, groups=(3,), num_heads=1)
    assert not proof.exists()
    assert "refused, nothing was executed" in refused(path)
    if not form.startswith("pickle"):
        assert "has code in it" in refused(path)
        torch.load(path, weights_only=False)
    else:
        pickle.loads(path.read_bytes())
    assert proof.exists(), "it would have"


def case_tensors():
    return released(np.random.default_rng(0)).tensors


@settings(max_examples=30)
@given(st.floats(0, 1, exclude_max=True), st.booleans())
def test_a_truncated_file_is_refused(tmp_path_factory, share, zipped):
    path = tmp_path_factory.mktemp("truncated") / "checkpoint.pth"
    torch.save(case_tensors(), path, _use_new_zipfile_serialization=zipped)
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data))])
    refused(path)


def test_what_is_no_checkpoint_is_refused(tmp_path):
    assert "no such file" in refused(tmp_path / "nothing.pth")
    assert "a folder, expected a released checkpoint" in refused(tmp_path)
    path = tmp_path / "other.pth"
    path.write_text("hello world", encoding="utf-8")
    assert "not a readable PyTorch file" in refused(path)
    torch.save(torch.zeros(3), path)
    assert "holds a Tensor, expected a dictionary" in refused(path)
    checkpoints.save(path, released(np.random.default_rng(0)).load())
    assert "is no file of tensors and plain values" in refused(path)


@settings(max_examples=25)
@given(st.data())
def test_a_backbone_s_keys_that_do_not_fit_are_listed_by_their_own_names(data):
    """The last norm above all: without it the features are others."""
    case, _ = end_to_end(np.random.default_rng(0))
    weights, expected = case.tensors, {}
    names = sorted(name for name in weights if name.startswith("swin_transf."))
    for chosen in data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True)):
        change = data.draw(st.sampled_from(("missing", "misshapen", "transposed")))
        other = weights[chosen][None]
        if change == "transposed":
            other = weights[chosen].permute(*reversed(range(weights[chosen].dim())))
        if change == "missing":
            del weights[chosen]
            expected[chosen] = "missing"
        elif other.shape != weights[chosen].shape:
            weights[chosen] = other
            expected[chosen] = "misshapen"
    for name in ("swin_transf.norm.weight", "swin_transf.norm.bias"):
        weights.pop(name, None)
        expected[name] = "missing"
    for name in ("head.weight", "layers.7.blocks.0.norm1.weight", "layers.0.blocks.9.colour"):
        weights[f"swin_transf.{name}"], expected[f"swin_transf.{name}"] = torch.ones(2), "extra"
    with pytest.raises(CheckpointError) as error:
        case.load(weights)
    assert problems_of(error) == expected


def test_a_backbone_that_is_none_or_another_captioner_s_is_named():
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
