"""Small runs by the command line: trained ones, untrained ones, refused ones, and comparing two."""

import torch

from benchmarks import run_folder
from benchmarks.cli import main as cli
from benchmarks.run_folder import RunFolder

SIZES = ["--d-model", "8", "--d-ff", "8", "--num-heads", "2"]
SIZES += ["--num-encoder-layers", "1", "--num-decoder-layers", "1"]
SHORT = ["--epochs", "2", "--batch-size", "5", "--log-every", "1", "--checkpoint-seconds", "0"]
RATES = ["--learning-rate", "1e-2", "--warm-up", "2"]
CLOCKS = {"seconds", "validation_seconds", "captions_per_second", "waiting_share"}


class CtrlC(KeyboardInterrupt):
    """Ctrl-C, pressed by a test."""


def main(*words):
    """The command line's exit code."""
    return cli.main([str(word) for word in words])


def refused(capsys, *words):
    """The one line that refuses a command, nothing else being printed."""
    capsys.readouterr()
    assert main(*words) == cli.EXIT_BAD_INPUT
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("\n") == 1
    return printed.err


def untrained(path, model, vocabulary, seed=0):
    """A run's folder, validated once, whose best weights are those that it began with."""
    run = RunFolder(path)
    run.prepare({"seed": seed}, vocabulary, resume=False)
    run.append({"kind": "validation", "step": 1, "epoch": 0, "CIDEr-D": 0.5, "seconds": 2.0})
    run_folder.save(run.best, model, {"vocabulary": vocabulary.fingerprint})


def log_of(folder):
    """The log, clocks aside."""
    log = RunFolder(folder).read_log()
    return [{k: v for k, v in record.items() if k not in CLOCKS} for record in log]


def assert_same(one, other):
    """The same numbers, clocks aside, and the same weights, bit for bit."""
    assert log_of(one) == log_of(other)
    for name in ("last.safetensors", "best.safetensors"):
        a, b = run_folder.load(one / name), run_folder.load(other / name)
        assert a.weights.keys() == b.weights.keys()
        assert all(torch.equal(a.weights[key], b.weights[key]) for key in a.weights), name
