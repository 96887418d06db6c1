"""Checkpoints: what is saved is loaded; what does not fit, or is damaged, is named; never half."""

import json
import os
import resource
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from tests.support.training import CONFIGURATION
from torch_impl.checkpoints import checkpoint as checkpoints
from torch_impl.checkpoints.checkpoint import CheckpointError
from torch_impl.models import Captioner

dtypes = st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool])
tensors = st.builds(
    lambda shape, dtype: torch.arange(torch.Size(shape).numel()).reshape(shape).to(dtype),
    st.lists(st.integers(0, 3), max_size=3),
    dtypes,
)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
keys = st.text("abc.", min_size=1, max_size=3)
states = st.dictionaries(
    keys,
    st.recursive(
        scalars | tensors,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
        max_leaves=6,
    ),
    max_size=4,
)


def model(**fields):
    return Captioner(replace(CONFIGURATION, **fields))


def equal(a, b):
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(equal, a, b))
    return type(a) is type(b) and a == b


@given(state=states)
def test_what_is_saved_is_loaded(tmp_path_factory, state):
    path = tmp_path_factory.mktemp("checkpoint") / "new folder" / "a.safetensors"
    one = model()
    checkpoints.save(path, one, state)
    loaded = checkpoints.load(path)
    assert equal(loaded.state, state)
    assert equal(dict(one.state_dict()), loaded.weights)
    again = loaded.model()
    assert again.configuration == CONFIGURATION
    assert equal(dict(again.state_dict()), dict(one.state_dict()))
    assert not again.training
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_model_in_double_precision_keeps_its_every_digit(tmp_path):
    one = model().double()
    checkpoints.save(tmp_path / "a.safetensors", one)
    weights = checkpoints.load(tmp_path / "a.safetensors").weights
    assert all(torch.equal(weights[name], tensor) for name, tensor in one.state_dict().items())


@settings(max_examples=15)
@given(data=st.data())
def test_every_missing_extra_and_misshapen_key_is_listed_and_nothing_is_loaded(data):
    one = model()
    before = {name: tensor.clone() for name, tensor in one.state_dict().items()}
    weights = {name: torch.full_like(tensor, 7.0) for name, tensor in before.items()}
    names = data.draw(st.permutations(sorted(weights)))
    cuts = sorted(data.draw(st.tuples(st.integers(0, 4), st.integers(0, 4))))
    missing, misshapen = names[: cuts[0]], names[cuts[0] : cuts[1]]
    extra = data.draw(st.lists(st.text("xyz", min_size=1), max_size=3, unique=True))
    for name in missing:
        del weights[name]
    for name in misshapen:
        weights[name] = torch.zeros(2, 9)
    weights |= {name: torch.zeros(()) for name in extra}
    if not (missing or misshapen or extra):
        checkpoints.load_weights(one, weights)
        assert all((tensor == 7.0).all() for tensor in one.state_dict().values())
        return
    with pytest.raises(CheckpointError) as error:
        checkpoints.load_weights(one, weights, "there.safetensors")
    problems = str(error.value).removeprefix("there.safetensors: does not fit the model: ")
    shape = {name: "x".join(map(str, tensor.shape)) for name, tensor in before.items()}
    assert sorted(problems.split("; ")) == sorted(
        [f"missing {name} {shape[name]}" for name in missing]
        + [f"misshapen {name} 2x9, expected {shape[name]}" for name in misshapen]
        + [f"extra {name} scalar" for name in extra]
    )
    for name, tensor in one.state_dict().items():
        assert torch.equal(tensor, before[name])


def test_a_checkpoint_of_another_configuration_names_all_that_differs():
    weights = model(encoder="attention", encoder_reduction="norm").state_dict()
    with pytest.raises(CheckpointError) as error:
        checkpoints.load_weights(model(), weights)
    message = str(error.value)
    assert "missing encoder.layers.0.mixer.selector.weight 8x8" in message
    assert "extra encoder.layers.0.mixer.out.weight 8x8" in message
    assert "missing encoder.reduce.weight 8x8" in message


@settings(max_examples=40)
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_any_flipped_bit_is_noticed(tmp_path_factory, place, bit):
    path = tmp_path_factory.mktemp("checkpoint") / "a.safetensors"
    checkpoints.save(path, model(), {"step": 3})
    data = bytearray(path.read_bytes())
    data[int(place * len(data))] ^= 1 << bit
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=r"a\.safetensors: "):
        checkpoints.load(path)


@settings(max_examples=20)
@given(share=st.floats(0, 1, exclude_max=True))
def test_a_truncated_file_is_noticed(tmp_path_factory, share):
    path = tmp_path_factory.mktemp("checkpoint") / "a.safetensors"
    checkpoints.save(path, model())
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data))])
    with pytest.raises(CheckpointError, match="truncated or damaged"):
        checkpoints.load(path)


def test_foreign_files_are_named_for_what_they_are(tmp_path):
    path = tmp_path / "foreign.safetensors"
    with pytest.raises(CheckpointError, match="no such file, expected a checkpoint"):
        checkpoints.load(path)
    with pytest.raises(CheckpointError, match="no such file"):
        checkpoints.load(tmp_path)
    save_file({"weight": torch.zeros(3)}, path)
    with pytest.raises(CheckpointError, match="but not a captionbench checkpoint"):
        checkpoints.load(path)
    for old in (False, True):
        torch.save({"weight": torch.zeros(3)}, path, _use_new_zipfile_serialization=not old)
        with pytest.raises(CheckpointError, match="a PyTorch file, expected a checkpoint"):
            checkpoints.load(path)
    for content in (b"", b"text"):
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match="not a readable safetensors file"):
            checkpoints.load(path)
    save_file({}, path, {"format": checkpoints.FORMAT, "version": "2"})
    with pytest.raises(CheckpointError, match="version 2 of the format, expected 1"):
        checkpoints.load(path)


def test_a_configuration_that_no_model_has_is_an_error_that_names_the_field(tmp_path):
    path = tmp_path / "a.safetensors"
    one = model()
    checkpoints.save(path, one)
    loaded = checkpoints.load(path)
    for change, message in (
        ({"colour": "red"}, "colour"),
        ({"encoder": "static:0"}, "coefficient"),
        ({"num_heads": 3}, "d_model"),
    ):
        broken = replace(loaded, configuration=loaded.configuration | change)
        with pytest.raises(CheckpointError, match=f"configuration is not valid.*{message}"):
            broken.model()


def test_a_full_disk_leaves_the_old_checkpoint_and_no_litter(tmp_path):
    path = tmp_path / "a.safetensors"
    old = model()
    checkpoints.save(path, old, {"step": 1})
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    # the kernel refuses to write beyond this, as it does on a full disk
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(CheckpointError, match=r"a\.safetensors: cannot be written"):
            checkpoints.save(path, model(), {"step": 2})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    loaded = checkpoints.load(path)
    assert loaded.state == {"step": 1}
    assert equal(loaded.weights, dict(old.state_dict()))
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_an_interruption_leaves_the_old_checkpoint_and_no_litter(tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    path = tmp_path / "a.safetensors"
    checkpoints.save(path, model(), {"step": 1})
    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        checkpoints.save(path, model(), {"step": 2})
    assert checkpoints.load(path).state == {"step": 1}
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_a_folder_that_is_a_file_is_an_error(tmp_path):
    (tmp_path / "file").write_text("here")
    with pytest.raises(CheckpointError, match="cannot be written"):
        checkpoints.save(tmp_path / "file" / "a.safetensors", model())


def test_the_metadata_can_be_read_without_this_project(tmp_path):
    from safetensors import safe_open

    checkpoints.save(tmp_path / "a.safetensors", model(), {"step": 4})
    with safe_open(tmp_path / "a.safetensors", framework="np") as file:
        assert set(file.keys()) == set(model().state_dict())
        description = json.loads(file.metadata()["description"])
    assert description == {"configuration": CONFIGURATION.to_dict(), "state": {"step": 4}}
