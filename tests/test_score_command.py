"""``captionbench score``: what it prints, how it fails, and the published scores from real data."""

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from benchmarks.cli.main import main
from benchmarks.scoring import java
from tests.support.tolerances import PERCENT

HAS_JAVA = java.has_java()
COLUMNS = ["B1", "B2", "B3", "B4", "METEOR", "ROUGE-L", "CIDEr-D", "SPICE"]

REFERENCES = {
    "images": [
        {"imgid": 0, "split": split, "sentences": [{"raw": "A man rides."}, {"raw": "A dog runs!"}]}
        for split in ("val", "test")
    ]
}
TWO_IMAGES = {
    "images": [
        {"imgid": i, "split": "val", "sentences": [{"raw": "A man rides."}]} for i in range(2)
    ]
}
PREDICTIONS = [{"image_id": 0, "caption": "a man rides a dog"}]


@pytest.fixture
def score(tmp_path, capfd):
    """Run the command on the files' contents: (exit code, stdout, stderr)."""

    def run(*options, references=REFERENCES, predictions=PREDICTIONS):
        paths = tmp_path / "references.json", tmp_path / "predictions.json"
        for path, content in zip(paths, (references, predictions), strict=True):
            path.write_text(json.dumps(content))
        words = ["--references", str(paths[0]), "--predictions", str(paths[1]), *options]
        code = main(["score", *words])
        return code, *capfd.readouterr()

    return run


def test_json_is_all_that_stdout_has_and_scores_are_times_100(score):
    code, out, err = score("--split", "test", "--tokeniser", "words", "--metrics", "B1", "--json")
    assert code == 0 and err == ""
    # 4 of the 5 words match: a second "a" is in no reference
    assert json.loads(out) == {
        "B1": pytest.approx(80, **PERCENT),
        "images": 1,
        "tokeniser": "words",
        "signature": None,
        "missing": {},
    }


def test_text_prints_two_digits_and_the_signature(score):
    metrics = ("--metrics", "CIDEr-D", "B1")
    code, out, err = score("--split", "val", "--tokeniser", "words", *metrics)
    assert code == 0 and err == ""
    assert out.splitlines() == [
        "images 1, tokeniser words, scores x 100",
        "B1          80.00",
        "CIDEr-D      0.00",
        "signature NO<EOS>_wInit+Cider-D[n4,s6.0]+df[1]+words+pycocoevalcap1.2",
    ]


def test_without_java_nothing_stands_in_for_the_ptb_tokeniser(score, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    code, out, err = score("--split", "test", "--json")
    scores = json.loads(out)
    assert code == 1 and err == ""
    assert [name for name in scores if name in COLUMNS] == COLUMNS
    assert all(scores[name] is None for name in COLUMNS)
    assert set(scores["missing"]) == set(COLUMNS) and scores["signature"] is None
    code, out, _ = score("--split", "test")
    assert code == 1 and "missing   B1, B2, B3, B4, METEOR" in out and "needs Java" in out
    assert "signature" not in out


@pytest.mark.parametrize(
    ("options", "files", "message"),
    [
        ((), {}, "no split named, expected one of test, val"),
        (("--split", "train"), {}, "no split 'train', expected one of test, val"),
        (("--split", "val", "--metrics", "BLEU"), {}, "metrics: 'BLEU' given, expected some of"),
        (("--split", "val"), {"predictions": []}, "an empty list, expected at least one"),
        (("--split", "val"), {"predictions": PREDICTIONS * 2}, "image_id 0 stands twice"),
        (
            ("--split", "val"),
            {"predictions": [*PREDICTIONS, {"image_id": 3, "caption": ""}]},
            "predictions.json: image_id 3 has no references",
        ),
        (
            ("--split", "val"),
            {"predictions": [{"image_id": 3, "caption": ""}]},
            "predictions.json: image_id 3 has no references",
        ),
        (("--split", "val"), {"references": TWO_IMAGES}, "predictions.json: image_id 1 has no"),
        (("--split", "val"), {"references": []}, "expected references in Karpathy's layout"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(score, options, files, message):
    code, out, err = score(*options, "--tokeniser", "words", "--json", **files)
    assert code == 2 and out == ""
    assert message in err and err.count("\n") == 1 and err.startswith("captionbench: error: ")


def test_ctrl_c_ends_the_command_and_its_java(tmp_path):
    # enough captions for METEOR to be at work when the signal comes
    count = 3000
    references, predictions = tmp_path / "references.json", tmp_path / "predictions.json"
    images = [
        {"imgid": i, "split": "test", "sentences": [{"raw": f"a man rides {i} dogs"}]}
        for i in range(count)
    ]
    references.write_text(json.dumps({"images": images}))
    captions = [{"image_id": i, "caption": "a man rides"} for i in range(count)]
    predictions.write_text(json.dumps(captions))
    # a java that notes its process id, then becomes the real one, or waits where there is none
    pid_file = tmp_path / "pid"
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "java"
    real = java.find_java("METEOR") if HAS_JAVA else "sleep 600 #"
    program.write_text(f'#!/bin/sh\necho $$ > {pid_file}\nexec {real} "$@"\n')
    program.chmod(0o755)

    command = [sys.executable, "-m", "benchmarks", "score", "--tokeniser", "words", "--json"]
    command += ["--references", str(references), "--predictions", str(predictions)]
    process = subprocess.Popen(
        command,
        env={**os.environ, "JAVA_HOME": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # what a shell starts in the background ignores Ctrl-C, and so would its children
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 50
    while not (pid_file.exists() and pid_file.read_text().endswith("\n")):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=50)
    assert (process.returncode, out, err) == (130, "", "captionbench: interrupted\n")
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)


DATA = os.environ.get("CAPTIONBENCH_DATA")
PUBLISHED = {
    "expansionnet_v1": {"B1": 80.70, "B4": 39.14, "ROUGE-L": 58.76, "CIDEr-D": 131.46},
    "puret": {"B1": 82.13, "B4": 40.89, "METEOR": 30.19, "ROUGE-L": 60.13, "CIDEr-D": 138.16},
}


@pytest.mark.parametrize("system", PUBLISHED)
def test_released_predictions_give_the_published_scores(system, capfd):
    """All digits of the known scores, METEOR, which takes its time, for one of the two systems."""
    folder = Path(DATA or "no-data-folder") / "coco_karpathy"
    expected = PUBLISHED[system]
    command = ["score", "--json", "--split", "test", "--metrics", *expected]
    command += ["--references", str(folder / "dataset_coco_karpathy_test.json")]
    command += ["--predictions", str(folder / "predictions" / f"{system}.json")]
    code = main(command)
    out, err = capfd.readouterr()
    if DATA is None:
        assert code == 2 and out == "" and "no such file, expected references" in err
    elif not HAS_JAVA:
        assert code == 1 and "needs Java" in json.loads(out)["missing"]["CIDEr-D"]
    else:
        scores = json.loads(out)
        assert code == 0 and scores["images"] == 5000 and scores["missing"] == {}
        assert {name: round(scores[name], 2) for name in expected} == expected
