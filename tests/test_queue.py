"""``captionbench reproduce --all``: in the order of what it settles, killed anywhere, tried."""

from dataclasses import replace
from functools import partial

import pytest

from benchmarks import records
from benchmarks.cli.main import main
from benchmarks.data import scenes
from benchmarks.kinds import Captions, Trial
from benchmarks.papers import queue
from benchmarks.papers.expansionnet_v2 import ablation
from benchmarks.papers.expansionnet_v2.ablation import BASELINE, BOTH, V1, V2
from benchmarks.papers.experiment import TRIAL_SEEDS, Place
from benchmarks.scoring import quality
from benchmarks.training.configuration import SMALL

GRID = ({"lr": 1e-3, "dropout": 0.1}, {"lr": 1e-2, "dropout": 0.0})
ROWS = (BASELINE, BOTH)
COMMAND = ["reproduce", "--all", "--form", "converged", "--seeds", "2"]


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    """Two rows of both papers' ablations of a few scenes, converged in an epoch or two."""
    made = scenes.make(seed=0, train=12, val=2, test=4)
    usual = ablation.FORMS["converged"]
    training = usual.training.first().each(
        lambda stage: stage.but(epochs=2, batch_size=20, warmup=0, patience=1)
    )
    training = replace(training, model={**SMALL, "d_model": 8, "d_ff": 8, "num_heads": 2})
    form = replace(usual, load=lambda _: made, training=training, grid=GRID, trial={"epochs": 1})
    experiments = tuple(
        replace(experiment, rows=ROWS, forms={"converged": form})
        for experiment in (ablation.V1_COEFFICIENTS, ablation.V2_COEFFICIENTS)
    )
    monkeypatch.setattr(queue, "EXPERIMENTS", experiments)
    monkeypatch.setattr(quality, "score", partial(quality.score, metrics=("B4", "CIDEr-D")))
    return experiments


def reproduce(folder, *options):
    out = folder / "records.jsonl"
    status = main([*COMMAND, "--work", str(folder / "work"), "--out", str(out), *options])
    return status, records.read(out) if out.exists() else []


def values(made):
    """By place, row, and seed: the scores and the weights."""
    return {
        (r.what.paper, r.what.table, r.what.row, tuple(r.seeds)): (r.values, r.checkpoint)
        for r in made
    }


@pytest.fixture(scope="module")
def kept():
    """What the module's tests share: the records of an uninterrupted queue."""
    return {}


@pytest.fixture
def whole(kept, tmp_path_factory, capsys):
    if not kept:
        status, kept["records"] = reproduce(tmp_path_factory.mktemp("whole"))
        assert status == 0
        kept["said"] = capsys.readouterr().err
    return kept


def test_first_come_all_seeds_of_what_rows_are_compared_with(tiny, tmp_path):
    runs = queue.plan(tiny, "converged", Place(None, tmp_path), seeds=2, by_row=True)
    rows = [(run.row, run.trial is None) for run in runs]
    assert rows[: 2 * len(GRID)] == [(BASELINE, False)] * 2 * len(GRID)
    reported = [(run.row, run.paper, run.seed) for run in runs if run.trial is None]
    assert reported == [(row, paper, seed) for row in ROWS for paper in (V1, V2) for seed in (0, 1)]
    for run in runs:  # no process waits for a trial of its own row
        tried = [
            i for i, r in enumerate(runs) if r.trial and (r.row, r.paper) == (run.row, run.paper)
        ]
        assert run.trial or max(tried) < runs.index(run)


def test_every_row_is_trained_by_the_best_of_its_trials_which_are_records(whole):
    made = whole["records"]
    trials, rows = records.of_kind(made, Trial), records.of_kind(made, Captions)
    assert len(trials) == 2 * len(ROWS) * len(GRID) and len(rows) == 2 * len(ROWS) * 2
    assert {tuple(r.seeds) for r in trials} == {TRIAL_SEEDS[:1]}
    assert not set(TRIAL_SEEDS) & {seed for r in rows for seed in r.seeds}
    for row in rows:
        own = [
            t
            for t in trials
            if (t.what.paper, t.what.row.split(", lr")[0]) == (row.what.paper, row.what.row)
        ]
        assert len(own) == len(GRID)
        best = max(own, key=lambda t: t.values["validation CIDEr-D"])
        (stage,), (tried,) = row.details.stages, best.details.stages
        epochs = stage["optimisation"]["epochs"], tried["optimisation"]["epochs"]
        assert epochs == (2, 1)
        assert stage == {**tried, "optimisation": {**tried["optimisation"], "epochs": 2}}
        assert all("trials" in t.what.table for t in own)
    assert "rows done 4, left 0; runs left 0" in whole["said"]


def test_killed_again_and_again_it_resumes_to_the_same_records(
    whole, tmp_path, monkeypatch, capsys
):
    """In a trial, between a row's trials and its seeds, and in a later row."""
    make = queue.RowRun.make
    for more, done in ((1, 1), (4, 5), (4, 9)):
        calls = iter(range(more))

        def interrupted(run, calls=calls):
            if next(calls, None) is None:
                raise KeyboardInterrupt
            return make(run)

        with monkeypatch.context() as patch:
            patch.setattr(queue.RowRun, "make", interrupted)
            status, made = reproduce(tmp_path)
        assert status == 130 and len(made) == done
    status, made = reproduce(tmp_path)
    assert status == 0 and values(made) == values(whole["records"])
    assert "9 of 16 runs are on record" in capsys.readouterr().out
    assert reproduce(tmp_path) == (0, made)


def test_without_time_nothing_is_begun_and_what_is_left_is_said(tmp_path, capsys):
    assert reproduce(tmp_path, "--minutes", "1e-9") == (0, [])
    printed = capsys.readouterr()
    assert "16 runs not done; run the same command to resume" in printed.out
    assert "rows done 0, left 4; runs left 16" in printed.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["reproduce", "--all", "arnet"], "--all is of all papers"),
        (["reproduce", "--all", "--form", "huge"], "--form huge: expected one of"),
    ],
)
def test_what_does_not_go_with_all_is_named(words, message, tmp_path, capsys):
    assert main([*words, "--out", str(tmp_path / "r.jsonl")]) == 2
    assert message in capsys.readouterr().err
