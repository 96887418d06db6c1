"""Revisions for tests: a throw-away repository, and a process that has what its revision says.

A revision's ``torch_impl`` is a file of constants, SECONDS a call and so on; instead of the worker
that imports PyTorch, one that only reads them. All else is the real thing: git, pipes, signals.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import records
from benchmarks.cli import compare, history, track
from benchmarks.perf.compare import worker_process

FAKE = """
import random
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from benchmarks.perf.compare.worker import serve

class Fake:
    def __init__(self, tree):
        self.of = {}
        exec((Path(tree) / "torch_impl" / "__init__.py").read_text(), self.of)
        self.own = random.lognormvariate(0, 0.002)
    def verify(self, **what):
        return self.of.get("WRONG", [])
    def prepare(self, **what):
        if "prepare" in self.of:
            self.of["prepare"](**what)
        return self.of["SECONDS"]
    def count(self):
        return self.of.get("COUNTS", {"operators": 7})
    def turn(self, calls, clock, planted):
        usual = self.of["SECONDS"] * self.own * (1 + planted)
        seconds = [usual * random.lognormvariate(0, 0.002) for _ in range(calls)]
        return seconds, 1.0, 1.0 + self.of.get("JUMP", 0.0)

descriptor, tree = sys.argv[1:3]
serve(Connection(int(descriptor)), lambda: Fake(tree))
"""


def git(folder: Path, *words: str) -> str:
    """As a user would, who has no configuration."""
    identity = {
        f"GIT_{who}_{what}": value
        for who in ("AUTHOR", "COMMITTER")
        for what, value in (("NAME", "A"), ("EMAIL", "a@b"))
    }
    environment = {**os.environ, **identity, "GIT_CONFIG_GLOBAL": os.devnull}
    command = ["git", "-C", str(folder), *words]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return done.stdout.strip()


class Repository:
    """A repository of tiny revisions."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.package = folder / "torch_impl"
        self.package.mkdir(parents=True)
        git(folder, "init", "-q", "-b", "main")

    def write(self, **constants: object) -> None:
        """Change the working tree."""
        lines = [f"{name} = {value!r}\n" for name, value in constants.items()]
        (self.package / "__init__.py").write_text("".join(lines))

    def commit(self, *options: str, **constants: object) -> str:
        """Change the working tree and commit it: the commit's hash."""
        self.write(**constants)
        git(self.folder, "add", "-A")
        git(self.folder, "commit", "-q", "--allow-empty", "-m", "x", *options)
        return git(self.folder, "rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path, monkeypatch) -> Iterator[Repository]:
    """The commands' repository for a test: one without commits."""
    folder = tmp_path / "repository"
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    for module in (compare, track, history):
        monkeypatch.setattr(module, "ROOT", folder)
    monkeypatch.setattr(records, "LOCAL", tmp_path / "local")
    monkeypatch.setattr(history, "LOCAL", tmp_path / "local")
    monkeypatch.setattr(history, "PUBLISHED", tmp_path / "published")
    fake = tmp_path / "fake.py"
    fake.write_text(FAKE)
    monkeypatch.setattr(worker_process, "WORKER", (str(fake),))
    made = Repository(folder)
    yield made
    assert not list(scratch.iterdir()), "scratch folders were left behind"
