"""Exported captioners: the same beams and values without PyTorch as with it."""

import errno
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from filelock import FileLock
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import torch_impl
from benchmarks import run_folder
from benchmarks.data import scenes
from benchmarks.data.vocabulary import END_ID, PAD_ID, START_ID, Vocabulary
from benchmarks.errors import InputError
from benchmarks.scoring import captioners, export
from benchmarks.scoring.onnx_captioner import CONFIG, DECODER, ENCODER, VOCABULARY, OnnxCaptioner
from benchmarks.verify import strategies
from benchmarks.verify.tolerances import assert_close
from tests.support.parity import load, numpy, tensor
from tests.support.readme import exports
from tests.support.runs import main, refused, untrained
from torch_impl import models
from torch_impl.checkpoints.export import Graphs
from torch_impl.decoding.search import beam_search
from torch_impl.models import Captioner, Configuration

onnx = pytest.importorskip("onnx", reason="the extra 'export' is not installed")

IMAGES = (6, 2, 3)
SCENES = ["--scenes", ",".join(map(str, IMAGES))]
SIZES = {"d_ff": 5, "num_encoder_layers": 1, "max_length": 9, "dropout": 0.0}
EXPANSIONS = {
    "encoder": "static:3,2",
    "decoder": "dynamic:2",
    "encoder_reduction": "linear",
    "decoder_reduction": "linear",
    "d_model": 6,
    "num_heads": 2,
    "num_decoder_layers": 1,
}
ATTENTION = {
    "encoder": "aoa",
    "decoder": "attention",
    "encoder_reduction": "none",
    "decoder_reduction": "norm",
    "d_model": 3,
    "num_heads": 1,
    "num_decoder_layers": 2,
}


def once(tmp_path_factory, name, make):
    """A copy of what ``make`` writes into a folder, in one pytest worker: an export takes long."""
    base = tmp_path_factory.getbasetemp()
    made = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / f"export {name}"
    with FileLock(f"{made}.lock"):
        if not made.exists():
            make(unfinished := tmp_path_factory.mktemp("unfinished"))
            unfinished.rename(made)
    return shutil.copytree(made, tmp_path_factory.mktemp("exported") / name)


@pytest.fixture(scope="module", params=[EXPANSIONS, ATTENTION], ids=["expansions", "attention"])
def exported(request, tmp_path_factory):
    """A captioner in float64, and what was made of it.

    Layer norm's epsilon is an attribute of a node, which ONNX holds in 32 bits; so has the model.
    """
    model = Captioner(Configuration(vocabulary_size=9, d_feature=3, **SIZES, **request.param))
    load(model, np.random.default_rng(0))
    for module in model.modules():
        if isinstance(module, nn.LayerNorm):
            module.eps = float(np.float32(module.eps))
    model.eval()
    folder = once(
        tmp_path_factory,
        request.param["decoder"].partition(":")[0],
        lambda folder: export.write(folder, model, Vocabulary(tuple("abcde"))),
    )
    return model, OnnxCaptioner(folder), folder


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a run of attention, in float32; beside it what the README's commands made."""
    return once(tmp_path_factory, "readme", exported_run) / "runs" / "scenes"


def exported_run(folder):
    torch.manual_seed(0)
    train, val, test = IMAGES
    data = scenes.make(train=train, val=val, test=test)
    ids = {"start_id": START_ID, "end_id": END_ID, "pad_id": PAD_ID}
    sizes = {"vocabulary_size": len(data.vocabulary), **SIZES, "max_length": 20}
    d_feature = data.splits["test"].store.d_feature
    layers = {**ATTENTION, "num_decoder_layers": 1}
    model = Captioner(Configuration(d_feature=d_feature, **sizes, **layers, **ids))
    untrained(folder / "runs" / "scenes", model, data.vocabulary)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for command in exports():
            words = shlex.split(command, comments=True)
            assert main(*words, *(SCENES if "--scenes" in words else ())) == 0


@pytest.fixture(scope="module")
def graphs(run):
    """The exported folder."""
    return run.parent / "onnx"


@given(st.data(), st.integers(1, 4), st.integers(2, 9))
def test_beams_are_those_of_pytorch(exported, data, beam_size, max_length):
    """Whatever the padding holds, images without rows included."""
    model, graphs, _ = exported
    images = data.draw(strategies.tokens(graphs.d_feature, kinds=("normal",), empty=True))
    num_return = data.draw(st.integers(1, beam_size))
    options = {"beam_size": beam_size, "max_length": max_length, "num_return": num_return}
    features = images.filled(np.nan)
    expected = beam_search(model, tensor(features), torch.from_numpy(images.mask), **options)
    found = graphs.beam_search(features, images.mask, **options)
    for ours, theirs in zip(found, expected, strict=True):
        assert [h.tokens for h in ours] == [h.tokens for h in theirs]
        for one, other in zip(ours, theirs, strict=True):
            assert_close(np.array(one.log_probs), np.array(other.log_probs))


@given(st.data(), st.integers(1, 3), strategies.generators())
def test_steps_continue_from_the_hypothesis_that_is_named(exported, data, copies, generator):
    model, graphs, _ = exported
    images = data.draw(strategies.tokens(graphs.d_feature, kinds=("normal", "zeros")))
    mask = torch.from_numpy(images.mask)
    memory = model.encode(tensor(images.x), mask)
    expected = model.init_cache(memory, mask, copies)
    state = graphs.begin(graphs.encode(images.x, images.mask), copies)
    shape = len(images.x), copies
    beams = np.tile(np.arange(copies), (shape[0], 1))
    for _ in range(model.max_length):
        tokens = generator.integers(0, model.configuration.vocabulary_size, shape)
        log_probs, state = graphs.step(tokens, beams, state)
        assert_close(log_probs, numpy(expected.step(torch.from_numpy(tokens))))
        beams = generator.integers(0, copies, shape)
        expected.reorder(torch.from_numpy(beams))


def verified(capsys, folder, code=0):
    """What the command says, which ends with this exit code."""
    capsys.readouterr()
    assert main("verify", "--candidate", folder, "--quick", "--json") == code
    return json.loads(capsys.readouterr().out)


def test_verify_compares_the_graphs_with_the_oracle(exported, tmp_path, capsys):
    _, _, folder = exported
    assert verified(capsys, folder)["passed"] is True
    wrong = Path(shutil.copytree(folder, tmp_path / "wrong"))
    graphs = onnx.load(str(wrong / DECODER))
    node = [node for node in graphs.graph.node if node.op_type == "Relu"][-1]
    node.op_type = "Identity"
    onnx.save(graphs, str(wrong / DECODER))
    properties = verified(capsys, wrong, 1)["properties"]
    code = next(v["code"] for v in properties if v["code"])
    assert str(wrong) in code
    with pytest.raises(AssertionError):
        exec(code, {})


def test_verify_compares_the_graphs_of_a_run_with_the_oracle(graphs, capsys):
    assert verified(capsys, graphs)["passed"] is True


def test_verify_compares_the_weights_with_those_exported(graphs, tmp_path, capsys):
    altered = Path(shutil.copytree(graphs, tmp_path / "altered"))
    decoder = onnx.load(str(altered / DECODER))
    weight = next(w for w in decoder.graph.initializer if w.name.endswith("linear_1.weight"))
    value = onnx.numpy_helper.to_array(weight).copy()
    value[-1, -1] = np.nextafter(value[-1, -1], np.inf, dtype=value.dtype)
    weight.CopyFrom(onnx.numpy_helper.from_array(value, weight.name))
    onnx.save(decoder, str(altered / DECODER))
    line = refused(capsys, "verify", "--candidate", altered, "--quick")
    assert f"{altered}: its graphs have other weights than those that were exported" in line


def test_captions_are_those_of_the_run(run, graphs, tmp_path):
    made = []
    for place in (run, graphs):
        made.append(tmp_path / f"{len(made)}.json")
        words = ["--checkpoint", place, *SCENES, "--beam-size", 2, "--out", made[-1]]
        assert main("caption", *words) == 0
    ours, theirs = (json.loads(file.read_text()) for file in made)
    assert ours == theirs and len(ours) == IMAGES[2]


def test_a_stranger_captions_with_the_folder_alone(run, graphs, tmp_path):
    """In a process that has neither PyTorch nor this project."""
    train, val, test = IMAGES
    split = scenes.make(train=train, val=val, test=test).splits["test"]
    model, vocabulary = run_folder.load_captioner(run)
    folder = Path(shutil.copytree(graphs, tmp_path / "folder"))
    without = "import sys, runpy; sys.modules |= dict.fromkeys(sys.argv.pop(1).split()); "
    start = without + "del sys.argv[0]; runpy.run_path(sys.argv[0], run_name='__main__')"
    for image in split.image_ids:
        features = split.store.features(image)
        np.save(tmp_path / "features.npy", features)
        words = [folder / export.DRIVER, tmp_path / "features.npy", "--max-length", 12]
        done = subprocess.run(
            [sys.executable, "-c", start, "torch benchmarks torch_impl", *map(str, words)],
            capture_output=True,
            text=True,
            cwd=tmp_path,
        )
        ((best,),) = beam_search(
            model, torch.from_numpy(features)[None], beam_size=3, max_length=12
        )
        assert (done.stdout, done.stderr) == (vocabulary.decode(best.tokens) + "\n", "")


def test_graphs_say_nothing_of_the_machine_and_name_their_axes(graphs):
    source = str(Path(torch_impl.__file__).parents[1]).encode()
    for name in (ENCODER, DECODER):
        data = (graphs / name).read_bytes()
        assert source not in data and b".py" not in data
        graph = onnx.load_from_string(data).graph
        axes = {d.dim_param for value in graph.input for d in value.type.tensor_type.shape.dim}
        named = {"batch", "length"} if name == ENCODER else {"batch", "hypotheses", "steps"}
        assert axes >= named


@pytest.mark.parametrize(
    "model",
    [
        models.nic(9, 3, d_embedding=4, hidden_size=4),
        models.middle_out_captioner(9, 3, d_embedding=4, hidden_size=4),
    ],
)
def test_a_family_without_an_export_is_named(model, tmp_path, capsys):
    vocabulary = Vocabulary(tuple("abcde"))
    untrained(tmp_path / "run", model, vocabulary)
    words = ["--checkpoint", tmp_path / "run", "--out", tmp_path / "onnx"]
    family = model.configuration.family
    assert f"a captioner of the family {family} cannot be exp" in refused(capsys, "export", *words)
    assert not (tmp_path / "onnx").exists()


def test_a_missing_package_is_named(run, graphs, tmp_path, monkeypatch, capsys):
    install = "expected the extra: pip install 'captionbench[export]'"
    with monkeypatch.context() as patch:
        patch.delitem(sys.modules, "torch_impl.checkpoints.onnx_scalars", raising=False)
        patch.setitem(sys.modules, "onnxscript", None)
        words = ["--checkpoint", run, "--out", tmp_path / "onnx"]
        assert install in refused(capsys, "export", *words)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    words = [*SCENES, "--out", tmp_path / "x.json"]
    assert install in refused(capsys, "caption", "--checkpoint", graphs, *words)


@pytest.mark.parametrize("written", range(5))
def test_a_full_disk_leaves_the_export_before(run, graphs, tmp_path, monkeypatch, capsys, written):
    folder = tmp_path / "old"
    shutil.copytree(graphs, folder)
    kept = {path: path.read_bytes() for path in folder.iterdir()}
    synced = []

    def full(descriptor):
        synced.append(descriptor)
        if len(synced) > written:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(export.os, "fsync", full)
    monkeypatch.setattr(export, "to_onnx", lambda model: Graphs(b"new", b"new"))
    assert "No space left" in refused(capsys, "export", "--checkpoint", run, "--out", folder)
    assert {path: path.read_bytes() for path in folder.iterdir()} == kept


def test_bad_input_is_a_line(run, graphs, tmp_path, capsys):
    out = [*SCENES, "--out", tmp_path / "x.json"]
    exported = ["--checkpoint", graphs]
    line = refused(capsys, "caption", *exported, "--checkpoint", run, *out)
    assert "an exported model is no member of an ensemble" in line
    line = refused(capsys, "caption", *exported, *out, "--device", "meta")
    assert "--device meta" in line
    line = refused(capsys, "caption", *exported, *out, "--beam-size", 0)
    assert "--beam-size: 0, expected at least 1" in line
    line = refused(capsys, "evaluate", *exported, *SCENES)
    assert "an exported model has no training to record, expected runs" in line
    line = refused(capsys, "verify", "--candidate", graphs, "--operator", "captioner")
    assert "--operator and --framework are for functions" in line
    line = refused(capsys, "verify", "--candidate", run)
    assert f"--candidate {run}: expected a folder of captionbench export" in line
    line = refused(capsys, "export", "--checkpoint", run, "--out", run)
    assert "holds other files, expected a new folder" in line
    line = refused(capsys, "export", "--checkpoint", run, "--out", run / "config.json")
    assert "config.json: expected a folder that can be written" in line
    line = refused(capsys, "export", "--checkpoint", run, "--checkpoint", run, "--out", tmp_path)
    assert "an ensemble is not exported, expected one" in line
    for name, message in ((DECODER, "no such file, expected an exported model"), (ENCODER, "")):
        broken = Path(shutil.copytree(graphs, tmp_path / name))
        if message:
            (broken / name).unlink()
        else:
            (broken / name).write_bytes(b"nonsense")
            message = "ONNX Runtime cannot load it"
            assert message in refused(capsys, "verify", "--candidate", broken)
            message = f"{broken / name}: damaged or edited: its SHA-256 is not the one in"
        assert message in refused(capsys, "caption", "--checkpoint", broken, *out)


@given(st.data())
@settings(max_examples=10)
def test_a_flipped_bit_anywhere_is_refused_by_the_file_s_name(exported, data):
    _, _, folder = exported
    path = folder / data.draw(st.sampled_from([ENCODER, DECODER, CONFIG, VOCABULARY]))
    whole = path.read_bytes()
    place, bit = data.draw(st.integers(0, len(whole) - 1)), data.draw(st.integers(0, 7))
    try:
        path.write_bytes(whole[:place] + bytes([whole[place] ^ (1 << bit)]) + whole[place + 1 :])
        with pytest.raises(InputError, match=re.escape(str(path))):
            captioners.load_exported(folder)
    finally:
        path.write_bytes(whole)
    captioners.load_exported(folder)


@settings(max_examples=10)
@given(st.integers(1, 3), st.integers(0, 4), st.integers(1, 4))
def test_features_that_do_not_fit_are_named(exported, batch, length, width):
    _, graphs, _ = exported
    with pytest.raises(ValueError, match=rf"expected \(B, L, {graphs.d_feature}\)"):
        graphs.encode(np.zeros((batch, length, graphs.d_feature + width)))
    with pytest.raises(ValueError, match="the mask is"):
        graphs.encode(
            np.zeros((batch, length, graphs.d_feature)), np.ones((batch, length + 1), np.bool_)
        )
