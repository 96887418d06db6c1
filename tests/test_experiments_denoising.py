"""Middle-Out Table 1: records of all seeds, resumable, exact about what is printed."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from msgspec import structs

from benchmarks import records
from benchmarks.cli import main as cli
from benchmarks.cli import tables
from benchmarks.errors import InputError
from benchmarks.papers.middle_out import denoising
from benchmarks.papers.middle_out.denoising import MODELS, RATIOS, Settings, Training, train
from benchmarks.papers.middle_out.denoising import record as record_of

SMALL = Settings(
    steps=4, batch_size=3, hidden_size=4, training_sequences=5, test_sequences=3, learning_rate=0.01
)
ROW = MODELS["seq2seq"][0]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    form = replace(denoising.FORMS["quick"], training=SMALL)
    monkeypatch.setitem(denoising.FORMS, "quick", form)
    monkeypatch.setattr(denoising, "EVALUATIONS", 2)


def reproduce(folder, *options):
    out = folder / "records" / "r.jsonl"
    words = ["reproduce", "middle_out", "--table", "1", "--out", str(out), "--seeds", "2"]
    status = cli.main([*words, "--work", str(folder / "work"), *options])
    return status, records.read(out) if out.exists() else []


def test_a_run_fills_the_table_and_says_what_the_paper_does_not(tmp_path, capsys):
    status, made = reproduce(tmp_path)
    assert status == 0
    assert "Times smaller, seeds 0 to 1: MSE" in capsys.readouterr().out
    rows = [record.what.row for record in made]
    assert sorted(rows[:4]) == sorted(row for row, _ in MODELS.values())
    assert rows[4:] == list(RATIOS)
    for record in made:
        kind = "denoising-ratio" if record.what.row in RATIOS else "denoising"
        assert (record.kind, record.status, record.seeds) == (kind, "embedded", [0, 1])
        assert set(record.values) == {"MSE", "symmetric MSE"}
        assert record.data.name == "equation 8, 4 steps, 2 seeds"
    for row, _ in MODELS.values():
        (record,) = (one for one in made if one.what.row == row)
        for column, value in record.values.items():
            each = record.details.per_seed[column]
            assert value == pytest.approx(np.exp(np.mean(np.log(each))))
            low, high = record.details.interval[column]
            assert low <= value <= high
        assert [entry["step"] for entry in record.details.history] == [2, 4]
    errors = {record.what.row: record.values for record in made}
    for row, (baseline, ours) in RATIOS.items():
        for column, ratio in errors[row].items():
            a, b = (errors[MODELS[name][0]][column] for name in (baseline, ours))
            assert ratio == pytest.approx(a / b)
    filled = tables.cells("middle_out", made, "1")
    assert len(filled) == 4 and all(cell.ours is not None and cell.interval for cell in filled)
    capsys.readouterr()
    words = ["tables", "middle_out", "--table", "1", "--records", str(tmp_path / "records")]
    assert cli.main(words) == 0
    out = capsys.readouterr().out
    assert "570 times smaller" in out and "Times smaller" in out
    assert reproduce(tmp_path)[1] == made  # what is on record is not done again


def test_an_example_is_one_noisy_sequence_with_each_model_s_own_answer(tmp_path):
    made = [r for r in reproduce(tmp_path)[1] if r.what.row not in RATIOS]
    examples = [record.details.example for record in made]
    length = len(examples[0].y)
    assert length % 2
    assert all(len(values) == length for e in examples for values in structs.astuple(e))
    test = Training("seq2seq", [0], SMALL).test
    for found in examples:
        for name, drawn in (("x", test.x), ("y", test.y)):
            assert getattr(found, name) == drawn[0, 0, :length].tolist()
    assert len({str(found.y_hat) for found in examples}) == len(MODELS)


def test_a_folder_of_checkpoints_is_gone_on_with_and_becomes_records(tmp_path):
    """``config.json`` and a checkpoint a model, wherever they were trained."""
    folder = tmp_path / "work" / "denoising-4-steps-2-seeds"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"settings": asdict(SMALL), "seeds": 2}))
    for name in ("seq2seq", "middle-out-dual"):
        begun = Training(name, range(2), SMALL)
        train(begun, folder / f"{name}.safetensors", evaluate_every=2)
    kept = {path: path.read_bytes() for path in folder.glob("*.safetensors")}
    status, made = reproduce(tmp_path, "--only", ROW, MODELS["middle-out-dual"][0], "Times smaller")
    assert status == 0 and [r.what.row for r in made][-1] == "Times smaller"
    assert (
        len(made) == 3
        and {path: path.read_bytes() for path in folder.glob("*.safetensors")} == kept
    )
    histories = {r.what.row: getattr(r.details, "history", None) for r in made}
    assert histories[MODELS["middle-out-dual"][0]] == begun.history


def test_an_interrupted_run_goes_on_as_if_it_had_not_been(tmp_path):
    whole = Training("middle-out-dual", [3, 1], SMALL)
    train(whole, tmp_path / "whole.safetensors", evaluate_every=2)
    cut = Training("middle-out-dual", [3, 1], SMALL)
    cut.step()
    cut.save(tmp_path / "cut.safetensors")
    resumed = Training("middle-out-dual", [3, 1], SMALL)
    resumed.load(tmp_path / "cut.safetensors")
    train(resumed, tmp_path / "cut.safetensors", evaluate_every=2)
    for a, b in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(a, b)
    assert whole.history == resumed.history


def test_a_seed_trains_on_its_own_data_in_its_own_order_whichever_are_beside_it():
    together, alone = Training("seq2seq", [5, 7], SMALL), Training("seq2seq", [7], SMALL)
    assert torch.equal(together.data.x[1], alone.data.x[0])
    assert torch.equal(together.test.x[1], alone.test.x[0])
    assert torch.equal(together.order[:, 1], alone.order[:, 0])
    assert not torch.equal(together.data.x[0], together.data.x[1])
    other = Training("middle-out", [5, 7], SMALL)
    assert torch.equal(together.test.x, other.test.x)  # the comparison of two models is paired


def test_training_lowers_the_error():
    training = Training("middle-out", [0], replace(SMALL, steps=60))
    before = training.evaluate()["MSE"]
    for _ in range(60):
        training.step()
    assert training.evaluate()["MSE"] < before


@pytest.mark.parametrize("field", [None, *Settings.__dataclass_fields__])
def test_same_data_only_as_printed(field):
    settings = Settings()
    if field is not None:
        value = getattr(settings, field)
        settings = replace(
            settings, **{field: value / 2 if isinstance(value, float) else value // 2}
        )
    training = Training("seq2seq", [0], replace(settings, hidden_size=2))
    training.settings = settings
    made = record_of(ROW, [training], "key")
    assert made.status == ("embedded" if field else "same data")


def test_another_run_and_a_damaged_one_are_named(tmp_path, capsys):
    only = "--only", ROW
    assert reproduce(tmp_path, *only)[0] == 0
    (tmp_path / "records" / "r.jsonl").unlink()
    folder = tmp_path / "work" / "denoising-4-steps-2-seeds"
    (folder / "seq2seq.safetensors").write_bytes(b"no checkpoint")
    assert reproduce(tmp_path, *only) == (2, [])
    assert "not a readable safetensors file, truncated or damaged?" in capsys.readouterr().err
    config = {"settings": asdict(SMALL), "seeds": 3}
    for content, message in ((config, "another configuration: seeds"), ([], "not one of ours")):
        (folder / "config.json").write_text(json.dumps(content))
        assert reproduce(tmp_path, *only) == (2, [])
        err = capsys.readouterr().err
        assert message in err and err.splitlines()[-1].startswith("captionbench: error")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 0}, "steps is 0, expected more than 0"),
        ({"learning_rate": float("nan")}, "learning_rate is nan, expected more than 0"),
        ({"hidden_size": 5}, "hidden_size is 5, expected even"),
    ],
)
def test_bad_settings_are_named(changes, message):
    with pytest.raises(InputError, match=message):
        replace(SMALL, **changes)


def test_a_loss_that_is_not_finite_ends_the_run(tmp_path):
    training = Training("seq2seq", [0], SMALL)
    training.data.x[:] = float("nan")
    with pytest.raises(InputError, match=r"step 1: the loss is \[nan\]"):
        train(training, tmp_path / "x.safetensors", evaluate_every=1)
