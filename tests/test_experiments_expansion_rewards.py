"""v1 Tables 2 and 4, v2 Tables II and III: two stages, both scored, nothing trained twice."""

import re
from dataclasses import replace
from functools import partial

import pytest

from benchmarks import papers, records
from benchmarks.cli.main import main
from benchmarks.data import scenes
from benchmarks.papers.expansionnet_v2 import ablation as expansion
from benchmarks.papers.expansionnet_v2.rewards import MODELS, TABLES, V1, V2
from benchmarks.scoring import quality
from benchmarks.training import configuration
from benchmarks.training.configuration import TrainingConfig
from tests.support.tolerances import KEPT_PERCENT
from torch_impl.training.sampling import SAMPLINGS

SIZES = {**configuration.SMALL, "d_model": 8, "d_ff": 8, "num_heads": 2}
SINGLE, BOTH = "ExpansionNet_{64,16}", "ExpansionNet_{64,16} (ensemble of 2)"

BASE = "Base (ours)"
OF_SAMPLING = [f"ExpansionNet v2, sampling {name}" for name in SAMPLINGS]


@pytest.fixture
def tiny(monkeypatch):
    """A few scenes in place of the photographs, a tiny model, and no Java, which is slow."""
    made = scenes.make(seed=0, train=12, val=2, test=4)
    given = expansion.FORMS["reduced"]
    first, second = given.training.stages.values()
    training = TrainingConfig.of(
        first.but(batch_size=20, images=None, validation_images=None),
        second.but(batch_size=1, num_samples=2, max_length=6, images=10, validation_images=None),
        **SIZES,
    )
    form = replace(given, load=lambda _: made, sizes="tiny sizes", training=training)
    monkeypatch.setitem(expansion.FORMS, "reduced", form)
    monkeypatch.setattr(quality, "score", partial(quality.score, metrics=("B4", "CIDEr-D")))
    return made


@pytest.fixture
def reproduce(tiny, tmp_path):
    def run(paper, table, *only):
        out = tmp_path / "records.jsonl"
        words = ["reproduce", paper, "--table", table, "--seeds", "1", "--only", *only]
        assert main([*words, "--work", str(tmp_path / "work"), "--out", str(out)]) == 0
        return records.read(out)

    return run


def stages(tmp_path):
    return sum(path.is_dir() for path in (tmp_path / "work").iterdir())


@pytest.mark.parametrize(("paper", "table"), TABLES)
def test_every_model_is_a_row_that_the_paper_prints(paper, table):
    printed = [row.name for row in papers.load(paper).table(table).rows]
    mine = [model.name for model in MODELS if (paper, table) in model.places]
    assert len(set(mine)) == len(mine)
    # v2 beside v1's ablations, in the table that has both stages
    ours = {(V1, "2"): {"ExpansionNet v2"}, (V2, "II"): set(OF_SAMPLING)}
    assert set(mine) - set(printed) == ours.get((paper, table), set())


def test_both_stages_are_scored_and_an_ensemble_is_of_models_that_are_trained_once(
    reproduce, tmp_path, capsys
):
    (single,) = reproduce(V1, "4", SINGLE)
    assert stages(tmp_path) == 2
    _, together = reproduce(V1, "4", SINGLE, BOTH)
    assert stages(tmp_path) == 4
    assert (single.seeds, together.seeds) == ([0], [0, 1])
    names = {f"{stage} {metric}" for stage in ("XE", "RL") for metric in ("B4", "CIDEr-D")}
    for record in (single, together):
        assert set(record.values) == names
        before = record.details.cross_entropy
        assert before.checkpoint != record.checkpoint
        for stage, scores in (("XE", before.cider_d), ("RL", record.details.cider_d)):
            mean = 100 * sum(scores) / len(scores)
            assert record.values[f"{stage} CIDEr-D"] == pytest.approx(mean, **KEPT_PERCENT)
        first, second = record.details.stages
        assert (first["objective"], second["objective"]) == ("cross_entropy", "self_critical")
    assert len(together.details.validations) == 2
    capsys.readouterr()
    assert main(["tables", V1, "--table", "4", "--records", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    printed = next(
        i for i, line in enumerate(lines) if re.match(rf"  {re.escape(BOTH)} .*133", line)
    )
    assert f" {together.values['RL CIDEr-D']:.2f} " in lines[printed + 1]


def test_ways_of_sampling_begin_with_the_same_weights_and_end_with_others(reproduce, tmp_path):
    made = reproduce(V2, "II", *OF_SAMPLING)
    assert [r.what.row for r in made] == OF_SAMPLING and stages(tmp_path) == 4
    assert len({r.details.cross_entropy.checkpoint for r in made}) == 1
    assert len({r.checkpoint for r in made}) == 3
    assert all(r.details.stages[1]["optimisation"]["dropout"] == 0.1 for r in made)


def test_a_row_of_two_tables_is_trained_for_both(reproduce):
    made = reproduce(V1, "2", BASE)
    assert [r.what.table for r in made] == ["2", "4"]
    assert made[0].values == made[1].values and made[0].key == made[1].key
    assert reproduce(V1, "4", BASE) == made
