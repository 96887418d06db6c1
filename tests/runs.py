"""Small training runs by the command line, and what two of them must have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from benchmarks import cli
from benchmarks.training import run_folder
from benchmarks.training.run_folder import RunFolder

SIZES = ["--d-model", 8, "--d-ff", 8, "--num-heads", 2]
SIZES += ["--num-encoder-layers", 1, "--num-decoder-layers", 1]
CLOCKS = {"seconds", "validation_seconds", "captions_per_second", "waiting_share"}


def main(*words: Any) -> int:
    """The command line's exit code."""
    return cli.main([str(word) for word in words])


def log_of(folder: Path) -> list[dict[str, Any]]:
    """The log, clocks aside."""
    log = RunFolder(folder).read_log()
    return [{k: v for k, v in record.items() if k not in CLOCKS} for record in log]


def assert_same(one: Path, other: Path) -> None:
    """The same numbers, clocks aside, and the same weights, bit for bit."""
    assert log_of(one) == log_of(other)
    for name in ("last.safetensors", "best.safetensors"):
        a, b = run_folder.load(one / name), run_folder.load(other / name)
        assert a.weights.keys() == b.weights.keys()
        assert all(torch.equal(a.weights[key], b.weights[key]) for key in a.weights), name
