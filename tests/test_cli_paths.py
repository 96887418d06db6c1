"""Paths that options name: what must not be written, read, or passed over in silence."""

import os
import stat

import pytest

from benchmarks import records
from benchmarks.cli.main import main
from benchmarks.data.photographs import Photographs
from benchmarks.errors import InputError
from torch_impl.checkpoints.checkpoint import CheckpointError, load_state
from torch_impl.common.files import atomic_replace


@pytest.mark.parametrize("words", [["flops", "--plot", "/"], ["predict", "--out", "/"]])
def test_the_root_is_no_file_to_write(words, capsys):
    assert main(words) == 2
    said = capsys.readouterr().err
    assert "Traceback" not in said and said.count("\n") == 1


@pytest.mark.parametrize("name", ["best.safetensors", "config.json", "log.jsonl"])
def test_what_is_read_is_not_written(name, tmp_path, capsys):
    (tmp_path / name).write_text("kept")
    words = ["caption", "--scenes", "4,2,2", "--checkpoint", str(tmp_path), "--split", "test"]
    assert main([*words, "--out", str(tmp_path / name)]) == 2
    assert "--checkpoint reads it" in capsys.readouterr().err
    assert (tmp_path / name).read_text() == "kept"


def test_neither_through_a_link(tmp_path, capsys):
    (tmp_path / "data.json").write_text("{}")
    (tmp_path / "link.json").symlink_to("data.json")
    words = ["caption", "--karpathy", str(tmp_path / "data.json"), "--checkpoint", str(tmp_path)]
    assert main([*words, "--split", "val", "--out", str(tmp_path / "link.json")]) == 2
    assert "--karpathy reads it" in capsys.readouterr().err


def test_a_photograph_that_is_a_pipe_is_refused(tmp_path):
    os.mkfifo(tmp_path / "one.png")
    with pytest.raises(InputError, match="a pipe"):
        Photographs([tmp_path]).open("one.png")


def test_records_that_cannot_be_read_are_not_missing(tmp_path, monkeypatch):
    """By what the system would answer one who is not root."""
    monkeypatch.setattr(os, "access", lambda path, _: path != tmp_path)
    with pytest.raises(InputError, match="cannot be read"):
        records.load(tmp_path)


def test_a_checkpoint_that_cannot_be_read_is_named(tmp_path, monkeypatch):
    (tmp_path / "last.safetensors").write_bytes(b"")
    monkeypatch.setattr("pathlib.Path.open", refuse)
    with pytest.raises(CheckpointError, match="cannot be read"):
        load_state(tmp_path / "last.safetensors")


def refuse(*_, **__):
    raise PermissionError(13, "Permission denied")


def test_a_private_file_stays_private(tmp_path):
    path = tmp_path / "scores.json"
    path.write_text("old")
    path.chmod(0o600)
    with atomic_replace(path) as file:
        file.write("new")
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("new", 0o600)
