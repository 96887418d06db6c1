"""``captionbench reproduce``: rows are trained once, resume where they stopped, fill the tables."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from benchmarks import records
from benchmarks.cli.main import main
from benchmarks.papers.arnet import digits
from benchmarks.papers.queue import EXPERIMENTS

FAST = replace(digits.FORMS["reduced"], training=digits.Size(None, True, (2, 1)))


@pytest.fixture
def data(tmp_path, monkeypatch):
    """Twelve digits to learn, of 4 x 4 pixels, that are halved to four steps."""
    monkeypatch.setitem(digits.FORMS, "reduced", FAST)
    random = np.random.default_rng(0)
    (tmp_path / "data" / "mnist").mkdir(parents=True)
    images = random.integers(0, 255, (24, 4, 4), np.uint8)
    labels = np.arange(24) % 10
    parts = {"x_train": images, "y_train": labels, "x_test": images[:6], "y_test": labels[:6]}
    np.savez(tmp_path / "data" / digits.FILE, **parts)
    return tmp_path / "data"


def reproduce(data, tmp_path, *options):
    out = tmp_path / "records.jsonl"
    words = ["reproduce", "arnet", "--table", "5", "--data", data, "--work", tmp_path / "work"]
    status = main([*map(str, words), "--out", str(out), *options])
    return status, records.read(out) if out.exists() else []


def test_every_row_is_trained_once_and_is_in_the_table(data, tmp_path, capsys):
    status, made = reproduce(data, tmp_path, "--seeds", "2")
    assert status == 0
    assert sorted((r.what.row, r.seeds[0]) for r in made) == sorted(
        (row, seed) for row in digits.ROWS for seed in (0, 1)
    )
    assert all(r.status == "other data" and "14 x 14" in r.data.name for r in made)
    assert f"captionbench tables arnet --records {tmp_path} shows them" in capsys.readouterr().out
    assert reproduce(data, tmp_path, "--seeds", "2")[1] == made
    assert f"{len(made)} of {len(made)} runs are on record" in capsys.readouterr().out
    assert main(["tables", "arnet", "--table", "5", "--records", str(tmp_path), "--json"]) == 0
    cells = {cell["row"]: cell for cell in json.loads(capsys.readouterr().out)}
    for row in digits.ROWS:
        # the paper prints fractions
        of = [r.values["test accuracy"] / 100 for r in made if r.what.row == row]
        assert cells[row]["ours"] == pytest.approx(sum(of) / 2) and len(cells[row]["record"]) == 2


def test_the_records_as_json_are_those_that_were_made(data, tmp_path, capsys):
    words = "--seeds", "1", "--only", digits.PLAIN, "--json"
    _, made = reproduce(data, tmp_path, *words)
    said = json.loads(capsys.readouterr().out)
    assert said == {"on_record": 0, "made": records.to_json(made), "left": 0}
    reproduce(data, tmp_path, *words)
    assert json.loads(capsys.readouterr().out) == {"on_record": 1, "made": [], "left": 0}


def test_what_is_published_counts_beside_your_report_s_records_alone(
    data, tmp_path, monkeypatch, capsys
):
    """A file of your own has what you ask for, or there is none and nothing says so."""
    words = ["--seeds", "1", "--only", digits.PLAIN]
    assert len(made := reproduce(data, tmp_path / "a", *words)[1]) == 1
    monkeypatch.setattr(records, "PUBLISHED", tmp_path / "a")
    assert [r.key for r in reproduce(data, tmp_path / "b", *words)[1]] == [made[0].key]
    monkeypatch.setattr(records, "LOCAL", tmp_path / "c")
    capsys.readouterr()
    assert reproduce(data, tmp_path / "c", *words) == (0, [])
    said = capsys.readouterr().out
    assert "1 of 1 runs are on record" in said and "shows them" not in said


def test_a_run_goes_on_where_it_was_stopped(data, tmp_path, monkeypatch):
    whole = reproduce(data, tmp_path / "a", "--seeds", "1", "--only", digits.ARNET)[1]
    accuracy, calls = digits._Training.accuracy, []

    def stop(self, split):
        calls.append(split)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return accuracy(self, split)

    with monkeypatch.context() as patch:
        patch.setattr(digits._Training, "accuracy", stop)
        assert reproduce(data, tmp_path / "b", "--seeds", "1", "--only", digits.ARNET) == (130, [])
    again = reproduce(data, tmp_path / "b", "--seeds", "1", "--only", digits.ARNET)[1]
    assert again[0].values == whole[0].values
    assert again[0].details.history == whole[0].details.history


def test_both_rows_of_the_lstm_share_their_first_stage_and_part_in_the_second(data, tmp_path):
    made = reproduce(data, tmp_path, "--seeds", "1")[1]
    history = {r.what.row: r.details.history for r in made}
    plain, arnet = history[digits.PLAIN], history[digits.ARNET]
    assert plain[:2] == arnet[:2] and plain[2]["loss"] < arnet[2]["loss"]
    assert history["LSTM + zoneout"][0]["loss"] != plain[0]["loss"]


def test_random_numbers_are_left_alone(data, tmp_path):
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    reproduce(data, tmp_path, "--seeds", "1", "--only", digits.PLAIN)
    assert torch.equal(torch.rand(2), expected)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["reproduce", "arnet", "--table", "9"], "no table '9'"),
        (["reproduce", "arnet", "--table", "5", "--form", "huge"], "--form huge: expected one of"),
        (["reproduce", "arnet", "--table", "5", "--seeds", "0"], "--seeds: 0, expected at least 1"),
        (["reproduce", "arnet", "--table", "5", "--minutes", "0"], "--minutes: 0, expected"),
        (["reproduce", "arnet", "--table", "5", "--only", "GRU"], "; LSTM + zoneout"),
        (
            ["reproduce", "arnet", "--table", "5", "--out", "."],
            "a folder, expected a file to write",
        ),
        (
            ["reproduce", "arnet", "--table", "5", "--out", "/proc/none/r.jsonl"],
            "in a folder that can be written",
        ),
        (
            ["reproduce", "arnet", "--table", "5", "--work", __file__],
            "a folder that can be written",
        ),
        (
            ["reproduce", "lstm_readonly", "--table", "I"],
            "captionbench reproduce lstm_readonly --table losses`), of losses, words",
        ),
        (["reproduce", "arnet", "--table", "5", "--device", "gpu"], "PyTorch cannot use it"),
        (["reproduce", "nobody"], "no experiment of 'nobody'"),
        (["reproduce", "--table", "5"], "no paper, expected one of arnet"),
    ],
)
def test_bad_input_is_named(words, message, data, tmp_path, capsys):
    paths = ["--data", str(data)]
    paths += [] if "--work" in words else ["--work", str(tmp_path)]
    out = [] if "--out" in words else ["--out", str(tmp_path / "r.jsonl")]
    assert main([*words, *paths, *out]) == 2
    assert message in capsys.readouterr().err


def test_data_that_is_not_there_is_named(tmp_path, capsys):
    words = ["reproduce", "arnet", "--table", "5", "--out", str(tmp_path / "r.jsonl")]
    assert main(words) == 2
    assert "mnist.npz (--data)" in capsys.readouterr().err
    assert main([*words, "--data", str(tmp_path)]) == 2
    assert "no such file" in capsys.readouterr().err
    words = ["reproduce", "lstm_readonly", "--table", "losses", "--form", "reduced"]
    words += ["--data", str(tmp_path), "--out", str(tmp_path / "r.jsonl")]
    for given in ([], ["--features", str(tmp_path / "none")]):
        (tmp_path / "work").mkdir(exist_ok=True)
        assert main([*words, "--work", str(tmp_path / "work"), *given]) == 2
        named = "dataset_flickr8k.json" if given else "(--features)"
        assert named in capsys.readouterr().err
    assert not (tmp_path / "r.jsonl").exists()


def test_the_forms_are_listed(capsys):
    assert main(["reproduce", "arnet", "--list"]) == 0
    text = capsys.readouterr().out
    assert "table 5" in text and "reduced" in text and "full" in text
    assert main(["reproduce", "--list"]) == 0
    every = capsys.readouterr().out
    assert text in every and all(e.paper in every for e in EXPERIMENTS)
