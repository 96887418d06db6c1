"""``captionbench caption --split``: captions of a data set's images by a run's checkpoint."""

import json
from pathlib import Path

import pytest

from benchmarks.data import scenes
from benchmarks.data.coco import read_predictions
from benchmarks.run_folder import load_captioner
from benchmarks.scoring import quality
from benchmarks.scoring.caption import caption
from tests.support.runs import RATES, SHORT, SIZES, main

DATA = ["--scenes", "12,4,3"]
TRAIN = ["train", *DATA, *SIZES, *SHORT, *RATES]


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A training run."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert main(*TRAIN, "--out", folder) == 0
    return folder


@pytest.mark.parametrize("beam_size", [1, 3])
def test_captions_of_a_split_are_written_as_coco_results_and_are_the_models(
    whole, tmp_path, beam_size
):
    out = tmp_path / "new" / "predictions.json"
    words = ["caption", "--checkpoint", whole, *DATA, "--split", "test", "--batch-size", 2]
    assert main(*words, "--beam-size", beam_size, "--out", out) == 0
    data = scenes.make(train=12, val=4, test=3)
    model, vocabulary = load_captioner(whole / "best.safetensors")
    captions = caption(model, vocabulary, data.splits["test"], beam_size)
    assert read_predictions(out) == captions
    assert list(captions) == data.splits["test"].image_ids
    scores = quality.score(
        data.splits["test"].references, captions, tokeniser="words", metrics=["B1"]
    )
    assert scores.images == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"--checkpoint": "nowhere"}, "nowhere: no such file"),
        ({"--split": "restval"}, "no split 'restval', expected train, val, test"),
        ({"--beam-size": 0}, "--beam-size: 0, expected at least 1"),
        ({"--batch-size": 0}, "batch size is 0"),
        ({"--max-length": 1}, "--max-length is 1"),
        ({"--max-length": 99}, "--max-length is 99"),
    ],
)
def test_bad_input_to_caption_exits_2_and_writes_nothing(whole, tmp_path, capsys, change, message):
    options = {"--checkpoint": whole, "--split": "test", "--out": tmp_path / "out.json"} | change
    words = [word for option in options.items() for word in option]
    assert main("caption", *DATA, *words) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_checkpoint_with_the_words_of_another_run_is_refused(whole, tmp_path, capsys):
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("config.json", "best.safetensors", "vocabulary.json"):
        (copy / name).write_bytes((whole / name).read_bytes())
    words = json.loads((copy / "vocabulary.json").read_text())
    words["words"].reverse()
    (copy / "vocabulary.json").write_text(json.dumps(words))
    out = tmp_path / "out.json"
    assert main("caption", "--checkpoint", copy, *DATA, "--out", out) == 2
    assert "trained on other words than" in capsys.readouterr().err
    (copy / "vocabulary.json").write_text('{"words": 3, "colour": 1}')
    assert main("caption", "--checkpoint", copy, *DATA, "--out", out) == 2
    assert "not a vocabulary" in capsys.readouterr().err
    assert not out.exists()


def test_without_images_a_model_learns_one_caption_for_all(tmp_path):
    folder = tmp_path / "run"
    assert main(*TRAIN, "--mean-features", "--out", folder) == 0
    assert "mean features" in json.loads((folder / "config.json").read_text())["data"]["name"]
    out = tmp_path / "out.json"
    words = ["caption", "--checkpoint", folder, *DATA, "--mean-features", "--out", out]
    assert main(*words) == 0
    assert len(set(read_predictions(out).values())) == 1
