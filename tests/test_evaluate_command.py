"""``captionbench evaluate`` and ``caption`` on captioners of every family, alone and together."""

import json
import shutil

import pytest
import torch

from benchmarks import run_folder
from benchmarks.data import scenes
from benchmarks.data.batches import padded_features
from benchmarks.data.vocabulary import END_ID, PAD_ID, START_ID, Vocabulary
from benchmarks.scoring import captioners, java
from benchmarks.scoring.evaluate import place_of
from tests.support.records import from_json
from tests.support.runs import main, refused, untrained
from torch_impl import models
from torch_impl.decoding.ensemble import Ensemble
from torch_impl.decoding.middle_out import middle_out_beam_search
from torch_impl.decoding.search import beam_search

IMAGES = (6, 2, 3)
SCENES = ["--scenes", ",".join(map(str, IMAGES))]
SIZES = {"d_model": 8, "d_ff": 8, "num_heads": 2, "num_encoder_layers": 1, "num_decoder_layers": 1}
UNITS = {"d_embedding": 8, "hidden_size": 8}
FAMILIES = {
    "transformer": (models.transformer, SIZES, "expansionnet_v2", "I"),
    "expansion": (models.expansionnet_v1, SIZES, "expansionnet_v2", "I"),
    "nic": (models.nic, UNITS, "arnet", "scores"),
    "attentive": (models.attentive_nic, UNITS, "arnet", "scores"),
    "read-only": (models.read_only_nic, UNITS, "lstm_readonly", "scores"),
    "one side": (models.sequence_to_sequence, UNITS, "middle_out", "scores"),
    "middle-out": (
        models.middle_out_captioner,
        UNITS | {"middle_words": (4, 5, 6)},
        "middle_out",
        "scores",
    ),
}


@pytest.fixture(scope="module")
def data():
    train, val, test = IMAGES
    return scenes.make(train=train, val=val, test=test)


@pytest.fixture(scope="module")
def runs(data, tmp_path_factory):
    """A run's folder of each family, with the weights that it began with."""
    place = tmp_path_factory.mktemp("runs")
    ids = {"start_id": START_ID, "end_id": END_ID, "pad_id": PAD_ID}
    for seed, (name, (make, sizes, *_)) in enumerate(FAMILIES.items()):
        torch.manual_seed(seed)
        d_feature = data.splits["test"].store.d_feature
        model = make(len(data.vocabulary), d_feature, **sizes, **ids)
        untrained(place / name, model, data.vocabulary, seed)
    return place


@pytest.fixture
def evaluated(tmp_path, monkeypatch, capsys):
    """Evaluate some runs: the record."""
    monkeypatch.setattr("benchmarks.records.LOCAL", tmp_path)

    def unavailable(*_):
        raise java.UnavailableError("slow, and not what is tested")

    for scorer in ("meteor", "spice"):
        monkeypatch.setattr(java, scorer, unavailable)

    def evaluate(*folders):
        capsys.readouterr()
        assert main("evaluate", *given(folders), *SCENES, "--tokeniser", "words", "--json") == 0
        return from_json(json.loads(capsys.readouterr().out))

    return evaluate


def given(folders):
    return [word for folder in folders for word in ("--checkpoint", folder)]


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_is_captioned_by_its_own_search_and_stands_in_its_own_row(
    runs, data, evaluated, name
):
    _, _, paper, table = FAMILIES[name]
    record = evaluated(runs / name)
    assert (record.what.paper, record.what.table) == (paper, table)
    assert record.seeds == [list(FAMILIES).index(name)]
    assert record.details.epochs == 1
    model, vocabulary = run_folder.load_captioner(runs / name)
    split = data.splits["test"]
    features, lengths = padded_features(split.store, split.image_ids)
    sizes = {"beam_size": 3, "max_length": 20}
    if name == "middle-out":
        found = middle_out_beam_search(model, features, lengths, **sizes)
        expected = [vocabulary.decode(best.caption(END_ID)) for (best,) in found]
    else:
        found = beam_search(model, features, lengths, **sizes)
        expected = [vocabulary.decode(best.tokens) for (best,) in found]
    examples = record.details.examples
    assert [example.caption for example in examples] == expected
    looked = record.details.attention
    assert (looked is None) == (name not in ("transformer", "expansion"))
    if looked:
        assert (looked.image, " ".join(looked.words)) == (examples[0].image, expected[0])
        assert len(looked.weights) == SIZES["num_heads"]
        assert {len(of_head) for of_head in looked.weights} == {len(looked.words)}


def test_rows_tell_families_apart(runs):
    rows = {place_of([run_folder.load_captioner(runs / name)[0]]) for name in FAMILIES}
    assert len(rows) == len(FAMILIES)


def test_an_ensemble_s_record_names_every_member(runs, data, evaluated):
    names = ("transformer", "expansion", "attentive", "one side")
    alone = [evaluated(runs / name) for name in names]
    record = evaluated(*(runs / name for name in names))
    members = record.details.members
    assert [member["checkpoint"] for member in members] == [r.checkpoint for r in alone]
    assert record.seeds == [seed for r in alone for seed in r.seeds]
    assert record.checkpoint not in [r.checkpoint for r in alone]
    rows = [r.what.row for r in alone]
    assert (record.what.paper, record.what.table) == ("expansionnet_v2", "scores")
    assert record.what.row == f"ensemble of {' + '.join(rows)}"
    together = Ensemble([run_folder.load_captioner(runs / name)[0] for name in names])
    split = data.splits["test"]
    features, lengths = padded_features(split.store, split.image_ids)
    found = beam_search(together, features, lengths, beam_size=3, max_length=20)
    expected = [data.vocabulary.decode(best.tokens) for (best,) in found]
    assert [e.caption for e in record.details.examples] == expected


@pytest.mark.parametrize("name", ["expansion", "nic"])
def test_copies_of_a_run_caption_as_the_run(runs, tmp_path, name):
    files = []
    for copies in (1, 3):
        files.append(tmp_path / f"{copies}.json")
        words = [*given([runs / name] * copies), *SCENES, "--split", "val", "--out", files[-1]]
        assert main("caption", *words) == 0
    one, three = (json.loads(file.read_text()) for file in files)
    assert one == three and len(one) == IMAGES[1]


@pytest.mark.parametrize("command", ["caption", "evaluate"])
def test_runs_that_are_no_ensemble_are_named(runs, data, tmp_path, capsys, command):
    model, _ = run_folder.load_captioner(runs / "transformer")
    words = (*data.vocabulary.words[1:], data.vocabulary.words[0])
    untrained(tmp_path / "other", model, Vocabulary(words))
    narrow = models.transformer(len(data.vocabulary), 3, **SIZES)
    untrained(tmp_path / "narrow", narrow, data.vocabulary)
    options = [*SCENES, *(["--out", tmp_path / "x.json"] if command == "caption" else [])]
    first = runs / "transformer"
    for second, message in (
        (tmp_path / "other", f"other: knows other words than {first}, expected the same of all"),
        (runs / "middle-out", "member 1 decodes from the middle, expected from left to right"),
        (tmp_path / "narrow", "the members' d_feature are ["),
        (tmp_path / "nothing", "no such file, expected a checkpoint"),
    ):
        assert message in refused(capsys, command, *given([first, second]), *options)
    assert not (tmp_path / "x.json").exists()


def test_what_cannot_caption_features_says_so_in_a_line(runs, data, tmp_path, capsys):
    width = data.splits["test"].store.d_feature
    size = len(data.vocabulary)
    for name, model, message in (
        ("code", models.code_captioner(size, width, **UNITS), "expected token ids (B, L)"),
        ("no words", models.middle_out_captioner(size, width, **UNITS), "middle_words is empty"),
    ):
        untrained(tmp_path / name, model, data.vocabulary)
        line = refused(capsys, "evaluate", *given([tmp_path / name]), *SCENES)
        assert message in line


def test_a_run_without_its_log_is_named(runs, tmp_path, capsys):
    copy = shutil.copytree(runs / "nic", tmp_path / "nic")
    (copy / "log.jsonl").unlink()
    message = refused(capsys, "evaluate", *given([runs / "transformer", copy]), *SCENES)
    assert "log.jsonl: no such file" in message


def test_an_ensemble_of_one_is_the_run_itself(runs):
    model, _ = captioners.load([runs / "nic"])
    assert isinstance(model, models.RecurrentCaptioner)
