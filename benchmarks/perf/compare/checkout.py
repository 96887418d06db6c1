"""Revisions of a git repository, unpacked into a scratch folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.errors import InputError
from benchmarks.files import scratch_folder

PACKAGE = "torch_impl"
"""The package that is measured of a revision; everything else is the running checkout's."""
SHOWN = 9
"""Characters of an abbreviated commit."""


@dataclass(frozen=True)
class Revision:
    """A commit, or the working tree on top of it."""

    name: str  # as on the command line
    commit: str  # full hash
    dirty: bool = False  # whether the measured code differs from the commit's
    working: bool = False  # whether the working tree is meant, not the commit

    @property
    def label(self) -> str:
        """The abbreviated commit, with a plus if dirty."""
        return label(self.commit, self.dirty)


def label(commit: str, dirty: bool) -> str:
    """See `Revision.label`."""
    return commit[:SHOWN] + ("+" if dirty else "")


@dataclass(frozen=True)
class Tree:
    """A revision's files: ``folder`` contains its ``torch_impl``."""

    revision: Revision
    folder: Path


def git(repository: Path, *arguments: str) -> str:
    """Run git and return its output.

    Raises:
        InputError: git is missing, there is no repository, or git fails.
    """
    # within a hook, GIT_* would name another repository; hooks must not run
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    command = ["git", "-C", str(repository), "-c", f"core.hooksPath={os.devnull}", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    except FileNotFoundError:
        raise InputError("git: no such program, expected it to check revisions out") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(f"git {arguments[0]}: {error}") from None
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise InputError(f"git {arguments[0]}: {said.removeprefix('fatal: ')}")
    return done.stdout.strip()


def check_repository(repository: Path) -> None:
    """Raise InputError unless ``repository`` is the top of a git checkout."""
    try:
        top = git(repository, "rev-parse", "--show-toplevel")
    except InputError as error:
        if "no such program" in str(error):
            raise
        top = ""
    if not top or Path(top).resolve() != repository.resolve():
        raise InputError(f"{repository}: not a git checkout, expected a clone with its history")


def resolve(repository: Path, name: str | None) -> Revision:
    """The revision called ``name``; None is the working tree.

    Raises:
        InputError: there is no such revision, or no repository.
    """
    check_repository(repository)
    try:
        what = f"{'HEAD' if name is None else name}^{{commit}}"
        commit = git(repository, "rev-parse", "--verify", "--quiet", "--end-of-options", what)
    except InputError:
        asked = "HEAD" if name is None else name or "(empty)"
        raise InputError(
            f"{asked}: no such revision, expected a commit, a tag or a branch"
        ) from None
    if name is not None:
        return Revision(name[:SHOWN] if name == commit else name, commit)
    changes = git(repository, "status", "--porcelain", "--untracked-files=all", "--", PACKAGE)
    return Revision("the working tree", commit, bool(changes), working=True)


@contextmanager
def checked_out(repository: Path, revisions: Sequence[Revision]) -> Iterator[list[Tree]]:
    """Unpack the revisions' packages into a scratch folder, until the block ends.

    The working tree is copied, so that edits meanwhile change no measurement. All paths have one
    length: the size of the environment, which affects memory layout, is the same for all.

    Raises:
        InputError: git fails, or a revision has no ``torch_impl``.
    """
    with scratch_folder() as scratch:
        trees = []
        for i, revision in enumerate(revisions):
            folder = scratch / "abcdefgh"[i]
            folder.mkdir()
            if revision.working:
                _copy(repository / PACKAGE, folder / PACKAGE)
            elif git(repository, "ls-tree", "--name-only", revision.commit, "--", PACKAGE):
                packed = folder.with_suffix(".tar")
                git(repository, "archive", f"--output={packed}", revision.commit, "--", PACKAGE)
                with tarfile.open(packed) as archive:
                    archive.extractall(folder, filter="data")
            if not (folder / PACKAGE / "__init__.py").is_file():
                raise InputError(f"{revision.name}: has no {PACKAGE}, expected a package to time")
            trees.append(Tree(revision, folder))
        yield trees


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))


def order(repository: Path) -> list[str]:
    """HEAD and its ancestors, the oldest first; empty without git."""
    try:
        check_repository(repository)
        return git(repository, "rev-list", "--topo-order", "--reverse", "HEAD").split()
    except InputError:
        return []
