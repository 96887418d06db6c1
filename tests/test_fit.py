"""What a training gives: its best weights, its log, and where it ends."""

import torch

from benchmarks.data import scenes
from benchmarks.scoring import quality
from benchmarks.scoring.caption import caption
from benchmarks.training.configuration import PRESETS
from benchmarks.training.fit import fit
from tests.support.runs import log_of


def test_fit_learns_keeps_its_best_weights_and_disturbs_no_random_numbers(tmp_path):
    data = scenes.make(train=40, val=10, test=1)
    preset = PRESETS["scenes"]
    chosen = preset.last.but(
        lr=3e-3, epochs=10, batch_size=20, warmup=10, anneal=1, validate_every=2
    )
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    result = fit(data, preset.but(d_model=32).configuration(data), chosen, 0)
    assert torch.equal(torch.rand(2), expected)
    losses = [record["loss"] for record in result.history if record["kind"] == "steps"]
    assert losses[-1] < 0.7 * losses[0]
    validations = [record for record in result.history if record["kind"] == "validation"]
    assert [record["epoch"] for record in validations] == [1, 3, 5, 7, 9]
    assert result.best == max(validations, key=lambda record: record["CIDEr-D"])
    assert result.finished
    val = data.splits["val"]
    captions = caption(result.model, data.vocabulary, val, beam_size=chosen.validation_beam)
    scores = quality.score(val.references, captions, tokeniser="words", metrics=["CIDEr-D"])
    assert scores.values["CIDEr-D"] == result.best["CIDEr-D"]


def test_captions_that_are_cut_are_counted_in_the_log(tmp_path, capsys):
    data = scenes.make(train=12, val=4, test=1)
    preset = PRESETS["scenes"]
    chosen = preset.last.but(epochs=1, batch_size=20, max_length=6)
    model = preset.but(max_length=6).configuration(data)
    lengths = [
        len(data.vocabulary.tokenise(text))
        for texts in data.splits["train"].references.values()
        for text in texts
    ]
    longer = sum(length > 5 for length in lengths)
    assert 0 < longer < len(lengths)
    fit(data, model, chosen, 0, tmp_path / "run", progress=True)
    assert log_of(tmp_path / "run")[0] == {"kind": "cut", "step": 0, "captions": longer}
    assert f"{longer} captions are longer than the limit: cut" in capsys.readouterr().err
    # a run that is resumed says it once
    fit(data, model, chosen, 0, tmp_path / "run", resume=True)
    assert [r["kind"] for r in log_of(tmp_path / "run")].count("cut") == 1


def test_training_ends_where_validation_has_not_improved_for_the_patience(tmp_path):
    """At a rate that changes nothing, the first validation stays the best."""
    data = scenes.make(train=12, val=4, test=1)
    preset = PRESETS["scenes"].but(d_model=8, d_ff=8, num_heads=2)
    chosen = preset.last.but(
        lr=1e-12, warmup=0, epochs=9, batch_size=20, validate_every=1, patience=2
    )
    run = [data, preset.configuration(data), chosen, 0, tmp_path / "run"]
    result = fit(*run)
    validations = [entry for entry in result.history if entry["kind"] == "validation"]
    assert [entry["epoch"] for entry in validations] == [0, 1, 2]
    assert result.finished and result.best["epoch"] == 0
    again = fit(*run, resume=True)
    assert again.finished and again.history == result.history
    longer = fit(data, preset.configuration(data), chosen.but(patience=None), 0)
    assert longer.history[-1]["epoch"] == 8
