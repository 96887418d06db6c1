"""The README's commands, run as pasted: on a small data folder, and with short trainings."""

import json
import math
import os
import re
import shlex
import textwrap
import zipfile
from collections import Counter
from concurrent.futures import Future
from contextlib import contextmanager

import pytest

from benchmarks import records
from benchmarks.cli import counts
from benchmarks.cli import main as cli
from benchmarks.perf.compare import worker_process
from benchmarks.scoring import java
from benchmarks.verify import conformance, table
from tests.support.pictures import encoded, layout, picture
from tests.support.readme import README, commands, exports
from tests.support.regressions import FAKE
from tests.support.runs import SIZES
from tests.support.speed import QUICK, counted_elsewhere

__all__ = ["counted_elsewhere"]

SHORT = ["--epochs", "1", "--batch-size", "10", *SIZES]
SCENES = ["--scenes", "6,2,2"]
SHORTER = {
    "train": SHORT,
    "time": [*QUICK, "--only", "static-layer forward"],
    "scale": [*QUICK, "--only", "static-vectors"],
    "record": [*QUICK, "--minutes", "0.01"],
    "reproduce": ["--seeds", "1"],
    "predict": ["--tiny", "--only", "static-layer forward"],
    "scenes": ["--num-images", "3"],
    "score": ["--metrics", "B4", "CIDEr-D"],
    "compare": ["--counts-only", "--only", "reward"],
}
"""What is said beside a command so that it is quick."""


def shown():
    """The lines of the README's example of a wrong candidate, without what random cases decide."""
    (block,) = re.findall(r"^```\n(.*?)^```", README.read_text(), re.DOTALL | re.MULTILINE)
    return [line for line in block.splitlines() if "..." not in line and "error" not in line]


def test_the_readme_is_short_and_what_it_names_is_there():
    text = README.read_text()
    assert len(text.splitlines()) <= 150
    for name in re.findall(r"\]\(([^)]+)\)", text):
        assert (records.ROOT / name).exists(), name


def test_the_test_in_the_readme_works_as_pasted(monkeypatch):
    (pasted,) = re.findall(r"^(    from .*?)\n\n\S", README.read_text(), re.DOTALL | re.MULTILINE)
    found = {}
    exec(textwrap.dedent(pasted), found)
    monkeypatch.chdir(records.ROOT)
    found["test_my_layer"]()


@pytest.fixture
def data(tmp_path):
    """A data folder as the README describes it."""
    flickr, coco = tmp_path / "data" / "flickr8k", tmp_path / "data" / "coco_karpathy"
    (coco / "predictions").mkdir(parents=True)
    flickr.mkdir()
    images = [
        (n, split, f"{n}.png") for n, split in enumerate(["train"] * 3 + ["val"] * 2 + ["test"] * 2)
    ]
    layout(flickr / "dataset_flickr8k.json", images)
    with zipfile.ZipFile(flickr / "images.zip", "w") as file:
        for n, _, name in images:
            file.writestr(name, encoded(picture(n)))
    layout(coco / "dataset_coco_karpathy_test.json", [(7, "test", "7.png")])
    predictions = json.dumps([{"image_id": 7, "caption": "a dog runs"}])
    (coco / "predictions" / "puret.json").write_text(predictions)
    return tmp_path / "data"


@contextmanager
def meteor(candidates, references):
    """In place of METEOR's program, which takes longer to start than all else here."""
    running = Future()
    running.set_result((0.5, [0.5] * len(candidates)))
    yield running


def test_every_command_works_as_pasted(data, tmp_path, monkeypatch, capsys, counted_elsewhere):
    monkeypatch.setattr(java, "meteor", meteor)
    monkeypatch.setattr(conformance, "PATIENCE", math.inf)
    # processes of real revisions are those of test_compare.py
    fake = tmp_path / "fake.py"
    fake.write_text(FAKE.replace('self.of["SECONDS"]', "1.0"))
    monkeypatch.setattr(worker_process, "WORKER", (str(fake),))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CAPTIONBENCH_DATA", str(data))
    monkeypatch.setattr(records, "LOCAL", tmp_path / "local")
    # `record` begins with it; all rows are those of test_conformance.py
    rows = table.rows
    monkeypatch.setattr(
        table, "rows", lambda *args, **of: rows(*args[:2], ("layer_norm",), *args[3:], **of)
    )
    # what is counted is that of test_counts_gate.py
    monkeypatch.setattr(counts, "counted", lambda: json.loads(counts.BASELINE.read_text()))
    (tmp_path / "tests").symlink_to(records.ROOT / "tests")
    pasted = commands()
    for command in pasted:
        words = shlex.split(os.path.expandvars(command), comments=True)
        of_a_candidate = words[0] == "time" and "--candidate" in words
        words += QUICK[1:] if of_a_candidate else SHORTER.get(words[0], [])
        if "--threads" in words:  # threads that share cores with other tests wait for each other
            words += ["--threads", "1"]
        if "--scenes" in words:
            words += SCENES
        if command in exports():
            continue  # pasted in test_export.py
        expected = 1 if "wrong.py" in command else 0
        code = cli.main(words)
        said = capsys.readouterr()
        assert code == expected, (command, said.err)
        if command.startswith("dataset"):
            following = said.out.splitlines()[-1].removeprefix("next: captionbench ")
            assert following.split() == pasted[pasted.index(command) + 1].split()
        if expected == 1:
            for line in shown():
                assert " ".join(line.split()) in " ".join(said.out.split())
    assert {command.split()[0] for command in pasted} >= {
        *("verify", "flops", "time", "compare", "counts", "scale", "predict", "record", "tables"),
        *("reproduce", "score", "train", "caption", "features", "evaluate"),
        *("scenes", "dataset"),
    }
    assert (tmp_path / "runs" / "scenes" / "test.json").exists()
    measured = [record.what for record in records.load(tmp_path / "local")]
    papers = Counter(what.paper for what in measured)
    assert papers == {"expansionnet_v2": 1, "lstm_readonly": 6}
