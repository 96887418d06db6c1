"""The experiments on captions: rows differ in what they are named for, and fill two tables each."""

import lzma
import pickle
from contextlib import suppress
from dataclasses import replace
from functools import partial

import pytest

from benchmarks import records
from benchmarks.cli.main import main
from benchmarks.data import code, scenes
from benchmarks.errors import InputError
from benchmarks.papers import caption_experiments as captions
from benchmarks.papers.arnet import captions as arnet
from benchmarks.papers.arnet import hidden_states, reconstruction_weight
from benchmarks.papers.experiment import Form, Place
from benchmarks.papers.lstm_readonly import read_only
from benchmarks.papers.queue import EXPERIMENTS
from benchmarks.scoring import quality

TINY = arnet._lstm(8, 8, (1e-2, 2), (1e-2, 1), 12, captions_per_image=5)


def small(_):
    return scenes.make(seed=0, train=12, val=2, test=4)


@pytest.fixture(autouse=True)
def without_java(monkeypatch):
    """METEOR is started once a run, which takes longer than all else here."""
    monkeypatch.setattr(quality, "score", partial(quality.score, metrics=("B4", "CIDEr-D")))
    monkeypatch.setenv("PATH", "")  # in worker processes too
    monkeypatch.delenv("JAVA_HOME", raising=False)


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path, tmp_path / "work")


@pytest.fixture
def images(monkeypatch):
    form = Form("", small, TINY, "embedded")
    monkeypatch.setitem(arnet.IMAGES, "scenes", form)
    training = read_only._training(8, 1).each(lambda stage: stage.but(batch_size=12))
    form = replace(form, training=training, grid=read_only.RATES, trial_seeds=(0,))
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

    def remember(data, training, seed, place, *, row):
        asked[row] = training.configuration(data), training.stages.values()
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
        assert set(points) == {"training", "inference"} and record.n == 3
        assert all(len(of) == 3 and len(set(map(tuple, of))) == 3 for of in points.values())
    plain, regularised = (record.details for record in made.values())
    assert plain.points != regularised.points
    assert plain.validations[0] == regularised.validations[0]


def test_forms_are_told_apart_by_the_data_s_name_or_content():
    for experiment in EXPERIMENTS:
        forms = [f for f in experiment.forms.values() if not isinstance(f.load, partial)]
        names = [(form.load, form.sizes, form.training) for form in forms]
        assert all(one not in names[:i] for i, one in enumerate(names))
        of_flickr8k = [form.sizes for form in forms if form.load is captions.flickr8k]
        assert len(set(of_flickr8k)) == len(of_flickr8k)


def test_a_key_has_the_data_s_content_and_its_training(images, place, monkeypatch):
    """Nothing but code, training, seeds and data: the same key wherever the work is kept."""

    def keys(place):
        return [run.key for run in read_only.EXPERIMENT.runs("scenes", place, [0])]

    before = keys(place)
    assert keys(replace(place, work=place.work / "other", progress=True)) == before
    form = read_only.FORMS["scenes"]
    for changed in (
        replace(form, load=lambda _: scenes.make(seed=0, train=13, val=2, test=4)),
        replace(form, training=form.training.each(lambda stage: stage.but(epochs=2))),
        replace(form, grid=form.grid[1:]),
    ):
        monkeypatch.setitem(read_only.FORMS, "scenes", changed)
        assert not set(keys(place)) & set(before)
    monkeypatch.setitem(read_only.FORMS, "scenes", replace(form, about="said otherwise"))
    assert keys(place) == before


def test_code_is_captioned_by_the_same_rows(place, monkeypatch):
    folder = place.data / "habeascorpus"
    folder.mkdir()
    lines = "".join(f"int x{i} ;\ta list of {i} items\n" for i in range(6))
    for name in code.FILES.values():
        (folder / name).write_bytes(lzma.compress(lines.encode()))
    training = TINY.each(lambda stage: stage.but(captions_per_image=1, metric="B4"))
    form = Form("", partial(arnet._code, length=5, words=4), training.but(source="tokens"))
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
    grid = tuple({"lr": rate} for rate in (1e-3, 0.5, 1e6))
    form = replace(read_only.FORMS["scenes"], grid=grid)
    monkeypatch.setitem(read_only.FORMS, "scenes", form)
    runs = [r for r in read_only.EXPERIMENT.runs("scenes", place, [0, 1]) if r.row == "LSTM"]
    first, second = (run.make()[0].details for run in runs)
    losses = first.validation_losses
    assert list(losses) == ["0.001", "0.5", "1e+06"] and losses == second.validation_losses
    best = float(min(losses, key=losses.get))
    assert first.stages[0]["optimisation"]["lr"] == second.stages[0]["optimisation"]["lr"] == best


def test_a_rate_counts_by_the_worse_of_its_trial_seeds(images, place):
    run = read_only.EXPERIMENT.runs("scenes", place, [0])[0]
    grid = tuple({"lr": rate} for rate in (1.0, 0.5))
    run = replace(run, form=replace(run.form, grid=grid, trial_seeds=(5, 6)))
    given = iter((3.0, 0.0, 2.0, 1.0))  # the first rate has the best seed, and the worst
    training, scores = captions.chosen(run, small(None), score=lambda *_: next(given))
    assert scores == {"lr 1": 0.0, "lr 0.5": 1.0} and not list(given)
    (stage,) = training.stages.values()
    assert stage.optimisation.lr == 0.5


def test_the_mean_loss_is_a_mean_over_words_whatever_the_batches(images, place):
    run = read_only.EXPERIMENT.runs("scenes", place, [0])[0]
    run.make()
    data = small(None)
    training, _ = captions.chosen(run, data)
    (result,) = captions.in_stages(data, training, 0, place)
    whole, parts = (captions.mean_loss(result.model, data, "test", n) for n in (100, 3))
    assert whole == pytest.approx(parts)
