"""v2 Table I and v1 Table 3: what a row is, trained once, stopped and gone on with."""

from dataclasses import replace
from functools import partial

import pytest

from benchmarks import papers, records
from benchmarks.cli.main import main
from benchmarks.data import scenes
from benchmarks.papers.expansionnet_v2 import ablation as expansion
from benchmarks.papers.expansionnet_v2.ablation import (
    BASELINE,
    BOTH,
    OF_VALUES,
    OF_VECTORS,
    TABLES,
    V1,
    V2,
)
from benchmarks.papers.experiment import Place
from benchmarks.report import build
from benchmarks.scoring import quality
from benchmarks.training import configuration

SIZES = {**configuration.SMALL, "d_model": 8, "d_ff": 8, "num_heads": 2}
EXPERIMENTS = {V1: expansion.V1_COEFFICIENTS, V2: expansion.V2_COEFFICIENTS}


@pytest.fixture
def tiny(monkeypatch):
    """A few scenes in place of the photographs, a tiny model, and no Java, which is slow."""
    made = scenes.make(seed=0, train=12, val=2, test=4)
    given = expansion.FORMS["reduced"]
    first = given.training.first().each(
        lambda stage: stage.but(batch_size=12, images=10, validation_images=None)
    )
    form = replace(
        given, load=lambda _: made, sizes="tiny sizes", training=replace(first, model=SIZES)
    )
    monkeypatch.setitem(expansion.FORMS, "reduced", form)
    monkeypatch.setattr(quality, "score", partial(quality.score, metrics=("B4", "CIDEr-D")))
    return made


@pytest.mark.parametrize("paper", TABLES)
def test_the_rows_are_those_that_the_paper_prints(paper):
    printed = papers.load(paper).table(TABLES[paper]).rows
    rows = expansion.rows(paper)
    ours = {OF_VALUES, OF_VECTORS} if paper == V2 else set()
    assert set(rows) == {row.name for row in printed} | ours
    assert next(iter(rows)) == BASELINE


@pytest.mark.parametrize("form", expansion.FORMS)
def test_the_models_are_each_paper_s_own(form, tiny):
    chosen = expansion.FORMS[form]
    for paper in TABLES:
        for row, mixers in expansion.rows(paper).items():
            model = expansion.training(paper, chosen, row).configuration(tiny)
            halves = (model.encoder, model.decoder)
            assert halves == mixers
            reductions = model.encoder_reduction, model.decoder_reduction
            layers = model.num_encoder_layers, model.num_decoder_layers
            if paper == V2:
                sums = ["norm" if half == "attention" else "linear" for half in halves]
                assert list(reductions) == sums and len(set(layers)) == 1
            else:
                assert reductions == ("norm", "norm")
                other = expansion.training(paper, chosen, BOTH).configuration(tiny)
                factor = 2 if row == BASELINE else 1
                assert layers[0] == factor * other.num_encoder_layers


def test_a_row_is_trained_once_and_stands_in_the_table(tiny, tmp_path, capsys):
    out = tmp_path / "records.jsonl"
    words = ["reproduce", V2, "--table", "I", "--only", BOTH, OF_VECTORS, "--seeds", "1"]
    words += ["--work", str(tmp_path / "work"), "--out", str(out)]
    for _ in range(2):
        assert main(words) == 0
        made = {record.what.row: record for record in records.read(out)}
        assert list(made) == [BOTH, OF_VECTORS] and len(records.read(out)) == 2
    for row, dropout in {BOTH: (0.0, "values"), OF_VECTORS: (0.3, "vectors")}.items():
        details = made[row].details
        for given in (details.configuration, details.stages[0]["optimisation"]):
            assert (given["dropout"], given["dropout_of"]) == dropout
        assert details.stages[0]["images"] == 10
        assert details.form == "reduced" and details.beam_size == 3
        assert made[row].data.name == f"{tiny.name}, tiny sizes"
        assert (made[row].status, made[row].seeds) == ("other data", [0])
    capsys.readouterr()
    assert main(["tables", V2, "--table", "I", "--records", str(tmp_path)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "122.2" in said and f"(row {BOTH})" not in said  # one source: said of no row
    assert "other data (scenes, tiny sizes, " in said and ", beam 3, 1 seed, reduced form)" in said
    build.pages(records.read(out))


def test_a_run_that_was_stopped_goes_on_to_the_same_numbers(tiny, tmp_path, monkeypatch):
    def run(folder):
        place = Place(tmp_path, tmp_path / folder)
        runs = EXPERIMENTS[V1].runs("reduced", place, [1])
        return next(run for run in runs if run.row == BOTH).make()

    def stop(*_, **__):
        raise KeyboardInterrupt

    (whole,) = run("whole")
    assert whole.what == records.What(paper=V1, table="3", row=BOTH)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(expansion, "evaluate", stop)
        run("stopped")
    (trained,) = (tmp_path / "stopped").glob("*/last.safetensors")
    made = trained.stat().st_mtime_ns
    (again,) = run("stopped")
    assert trained.stat().st_mtime_ns == made
    assert again.values == whole.values and again.checkpoint == whole.checkpoint


def test_keys_tell_papers_rows_forms_seeds_and_trials_apart(tiny, tmp_path, monkeypatch):
    place = Place(None, tmp_path)
    for name, form in expansion.FORMS.items():
        monkeypatch.setitem(expansion.FORMS, name, replace(form, load=lambda _: tiny))
    keys = [
        run.key
        for experiment in EXPERIMENTS.values()
        for form in experiment.forms
        for run in experiment.runs(form, place, [0, 1])
    ]
    assert len(set(keys)) == len(keys)


def test_data_that_is_not_there_is_named(tmp_path, capsys):
    words = ["reproduce", V2, "--table", "I", "--work", str(tmp_path), "--out", str(tmp_path / "r")]
    assert main(words) == 2
    assert "flickr8k (--data)" in capsys.readouterr().err
    assert main([*words, "--data", str(tmp_path)]) == 2
    assert "(--features)" in capsys.readouterr().err
    assert main([*words, "--data", str(tmp_path), "--features", str(tmp_path)]) == 2
    assert "dataset_flickr8k.json" in capsys.readouterr().err
