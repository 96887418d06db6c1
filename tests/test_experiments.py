"""The experiments on captions: rows differ in what they are named for, and fill two tables each."""

import lzma
import pickle
from contextlib import suppress
from dataclasses import replace
from functools import partial

import pytest
from benchmarks.training.presets import Settings

from benchmarks import records
from benchmarks.cli.main import main
from benchmarks.cli.reproduce import EXPERIMENTS
from benchmarks.data import code, scenes
from benchmarks.errors import InputError
from benchmarks.papers import stages as captions
from benchmarks.papers.arnet import (
    captions as arnet,
)
from benchmarks.papers.arnet import (
    discrepancy,
    hidden_states,
    reconstruction_weight,
)
from benchmarks.papers.experiment import Place
from benchmarks.papers.lstm_readonly import read_only
from benchmarks.papers.stages import one_rate
from benchmarks.scoring import quality

STAGES = arnet._stages(one_rate(1e-2, 2, 12), one_rate(1e-2, 1, 12), captions_per_image=5)
SIZES = {"d_embedding": 8, "hidden_size": 8}


def small(_):
    return scenes.make(seed=0, train=12, val=2, test=4)


@pytest.fixture(autouse=True)
def without_java(monkeypatch):
    """METEOR is started once a run, which takes longer than all else here."""
    monkeypatch.setattr(quality, "score", partial(quality.score, metrics=("B4", "CIDEr-D")))


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path, tmp_path / "work")


@pytest.fixture
def images(monkeypatch):
    monkeypatch.setitem(arnet.IMAGES, "scenes", arnet.Form(small, "embedded", SIZES, STAGES))
    form = read_only.Form(small, "embedded", 8, Settings(read_only._recipe(1, 12)))
    monkeypatch.setitem(read_only.FORMS, "scenes", form)


def test_a_row_of_arnet_is_scored_and_measured_and_begins_as_its_baseline(images, place):
    runs = {run.row: run for run in arnet.IMAGE_CAPTIONS.runs("scenes", place, [0])}
    assert list(runs) == list(arnet.ROWS) and len({run.key for run in runs.values()}) == 8
    first = {}
    for row in ("Attentive Encoder-Decoder", "Attentive Encoder-Decoder + ARNet"):
        scored, apart = runs[row].make()
        assert (scored.what.table, apart.what.table) == ("1", "2")
        assert 0 <= scored.values["CIDEr-D"] <= 10
        assert 0 <= apart.values["d_mc"] <= 2 and 0 <= apart.values["d_pw"] <= 2
        assert scored.details.configuration["attentive"]
        first[row] = scored.details.validations[0]
    # the same training, to its seconds: it was not done again
    assert len({str(validation) for validation in first.values()}) == 1


def test_rows_side_by_side_are_what_they_are_in_turn(images, tmp_path):
    words = ["reproduce", "arnet", "--table", "1", "--seeds", "1", "--only", *arnet.ROWS[:2]]
    found = []
    for name, options in (("in turn", []), ("side by side", ["--processes", "2"])):
        out = tmp_path / f"{name}.jsonl"
        paths = ["--work", str(tmp_path / name), "--out", str(out)]
        assert main([*words, *paths, *options]) == 0
        found.append({})
        for record in records.read(out):
            scored = record.checkpoint, record.values.get("CIDEr-D")
            found[-1][record.what.table, record.what.row] = scored
    assert len(found[0]) == 4 and found[0] == found[1]


def test_every_run_can_be_sent_to_another_process(tmp_path):
    place = Place(tmp_path, tmp_path / "work", features=tmp_path)
    for experiment in EXPERIMENTS:
        for form in experiment.forms:
            with suppress(InputError):  # data that is not here
                for run in experiment.runs(form, place, [0]):
                    assert pickle.loads(pickle.dumps(run)).key == run.key


def test_arnet_s_regularisers_are_what_the_rows_say(images, place, monkeypatch):
    asked = {}

    def remember(data, configuration, stages, seed, place, *, row):
        asked[row] = configuration, stages
        raise StopIteration

    for run in arnet.IMAGE_CAPTIONS.runs("scenes", place, [0]):
        monkeypatch.setattr(arnet, "in_stages", partial(remember, row=run.row))
        with pytest.raises(StopIteration):
            run.make()
    for row, (configuration, (first, second)) in asked.items():
        assert bool(configuration.zoneout_hidden) == row.endswith("Zoneout")
        assert bool(first.sampling) == bool(second.sampling) == row.endswith("Sampling")
        assert not first.lambda_ and bool(second.lambda_) == row.endswith("ARNet")


def trainings(experiment, place, rows, form="scenes"):
    """The first record of each of ``rows``, by name."""
    made = {run.row: run for run in experiment.runs(form, place, [0])}
    return {row: made[row].make()[0] for row in rows}


def test_weights_of_the_reconstruction_share_table_1_s_trainings(images, place):
    attentive = "Attentive Encoder-Decoder"
    table = trainings(arnet.IMAGE_CAPTIONS, place, (attentive, f"{attentive} + ARNet"))
    rows = ("lambda = 0", "lambda = 0.01", "lambda = 0.1")
    figure = trainings(reconstruction_weight.EXPERIMENT, place, rows)
    for row, same in zip(rows, table.values(), strict=False):
        assert figure[row].details.validations == same.details.validations
        assert figure[row].values == same.values
    weights = [figure[row].details.stages[1]["lambda_"] for row in rows]
    assert weights == [0, 0.01, 0.1]
    assert len({r.checkpoint for r in figure.values()}) == 3


def test_a_batch_s_states_are_in_the_plane_in_both_modes(images, place, monkeypatch):
    monkeypatch.setattr(hidden_states, "BATCH", 3)
    monkeypatch.setattr(hidden_states, "PERPLEXITY", 2.0)
    made = trainings(hidden_states.EXPERIMENT, place, hidden_states.ROWS)
    for record in made.values():
        points = record.details.points
        assert list(points) == ["training", "inference"] and record.n == 3
        assert all(len(of) == 3 and len(set(map(tuple, of))) == 3 for of in points.values())
    plain, regularised = (record.details for record in made.values())
    assert plain.points != regularised.points
    assert plain["validations"][0] == regularised["validations"][0]


def test_small_models_of_flickr8k_are_told_apart_by_the_data_s_name(monkeypatch):
    data = small(None)
    monkeypatch.setattr(captions, "flickr8k", lambda place: data)
    reduced = captions.flickr8k_reduced(None)
    assert reduced.name != data.name and reduced.fingerprint == data.fingerprint
    lstms = {name: form.lstm for name, form in discrepancy.FORMS.items()}
    for forms in (arnet.IMAGES, lstms, read_only.FORMS):
        assert len({form.load for form in forms.values()}) == len(forms)


def test_code_is_captioned_by_the_same_rows(place, monkeypatch):
    folder = place.data / "habeascorpus"
    folder.mkdir()
    lines = "".join(f"int x{i} ;\ta list of {i} items\n" for i in range(6))
    for name in code.FILES.values():
        (folder / name).write_bytes(lzma.compress(lines.encode()))
    sizes = {**SIZES, "source": "tokens"}
    stages = tuple(replace(stage, captions_per_image=1, metric="B4") for stage in STAGES)
    form = arnet.Form(partial(arnet._code, length=5, words=4), "other data", sizes, stages)
    monkeypatch.setitem(arnet.CODE, "reduced", form)
    run = arnet.CODE_CAPTIONS.runs("reduced", place, [1])[3]
    scored, apart = run.make()
    assert scored.data.name == "habeascorpus, 5 tokens, 4 words" and scored.seeds == [1]
    assert set(apart.values) == {"d_mc", "d_pw", "d_pw, two images"}
    assert run.make()[0].values == scored.values


def test_the_read_only_unit_is_read_in_both_ways_and_not_at_all(images, place):
    losses = {}
    for run in read_only.EXPERIMENT.runs("scenes", place, [0]):
        lost, scored = run.make()
        assert lost.what.table == "losses" and scored.what.table == "scores"
        configuration = scored.details.configuration
        assert configuration["read_only"] == read_only.ROWS[run.row]
        assert not configuration["bias"] and not configuration["squash"]
        losses[run.row] = lost.values["training loss"], lost.values["evaluation loss"]
        # the images are settled before there are captions; of each the whole beam, its best first
        shown = scored.details.examples
        assert [example.image for example in shown] == small(None).splits["test"].image_ids
        for example in shown:
            assert len(set(example.beam)) > 1 and len(example.beam) == read_only.BEAM
            assert example.beam[0] == example.caption
    assert len(set(losses.values())) == 3 and all(x > 0 for pair in losses.values() for x in pair)


def test_a_row_has_the_rate_of_the_least_validation_loss_with_the_first_seed(
    images, place, monkeypatch
):
    form = replace(read_only.FORMS["scenes"], rates=(1e-3, 0.5, 1e6))
    monkeypatch.setitem(read_only.FORMS, "scenes", form)
    runs = [r for r in read_only.EXPERIMENT.runs("scenes", place, [0, 1]) if r.row == "LSTM"]
    first, second = (run.make()[0].details for run in runs)
    losses = first.validation_losses
    assert list(losses) == ["0.001", "0.5", "1e+06"] and losses == second.validation_losses
    best = float(min(losses, key=losses.get))
    assert first.stages[0]["recipe"]["lr"] == second.stages[0]["recipe"]["lr"] == best


def test_the_mean_loss_is_a_mean_over_words_whatever_the_batches(images, place):
    run = read_only.EXPERIMENT.runs("scenes", place, [0])[0]
    run.make()
    data = small(None)
    form = read_only.FORMS["scenes"]
    configuration = read_only.configuration(data, form.size, "LSTM")
    (result,) = captions.in_stages(data, configuration, [form.settings], 0, place)
    whole, parts = (captions.mean_loss(result.model, data, "test", n) for n in (100, 3))
    assert whole == pytest.approx(parts)
