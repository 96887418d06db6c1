"""The folder of a training run: configuration, vocabulary, log, last and best checkpoint."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.data.vocabulary import Vocabulary
from benchmarks.errors import InputError
from benchmarks.files import read_bytes, read_json, sha256, write_atomically
from torch_impl.checkpoints import checkpoint as checkpoints
from torch_impl.checkpoints.checkpoint import Checkpoint, CheckpointError
from torch_impl.models import BaseCaptioner

_HASH = "sha256"
# fields that may change on resuming: more epochs, and how a step is computed
_FREE = {"stage.optimisation.epochs", "computation.accumulate", "computation.compile"}


class RunFolder:
    """``config.json``, ``vocabulary.json``, ``log.jsonl``, ``last`` and ``best`` checkpoints.

    A run that was killed at any time can be resumed: files are replaced atomically, and the log is
    truncated to the last checkpoint. The previous checkpoint is kept until a step from the last one
    gave a finite loss. The configuration and each line of the log have a hash of their content;
    edited ones are refused.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self.config = self.path / "config.json"
        self.vocabulary = self.path / "vocabulary.json"
        self.log = self.path / "log.jsonl"
        self.last = self.path / "last.safetensors"
        self.best = self.path / "best.safetensors"

    @property
    def best_or_last(self) -> Path | None:
        """The best checkpoint, or the last one before any validation."""
        return next((path for path in (self.best, self.last) if path.exists()), None)

    def prepare(self, config: Mapping[str, Any], vocabulary: Vocabulary, resume: bool) -> None:
        """Create the folder of a new run, or check that it holds this run.

        Raises:
            InputError: it holds a run and ``resume`` is False; another run (differing fields are
                named); a run without its configuration or vocabulary; or it cannot be written.
        """
        if self.config.exists():
            self._check_same(config)
            # a run without a checkpoint may be overwritten
            if self.best_or_last and not resume:
                raise InputError(f"{self.path}: holds a run already, expected --resume")
            self._check_checkpoints()
            words = vocabulary.fingerprint
            if self.best_or_last and self.read_vocabulary().fingerprint != words:
                raise InputError(f"{self.vocabulary}: not the run's own, expected another --out")
        elif self.last.exists() or self.best.exists():
            raise InputError(
                f"{self.config}: missing beside a run's checkpoints, which are left as they are; "
                "expected the file, or another --out"
            )
        try:
            if not self.last.exists():
                with write_atomically(self.log):
                    pass
            with write_atomically(self.vocabulary) as file:
                json.dump(asdict(vocabulary), file, indent=1)
            with write_atomically(self.config) as file:
                json.dump(_hashed(config), file, indent=1)
        except InputError:
            if not self.last.exists():
                self.discard()
            raise

    def _check_checkpoints(self) -> None:
        """Refuse those of another run, and a lost one after the run's first validation."""
        found = {path: load(path) for path in (self.last, self.best) if path.exists()}
        for checkpoint in found.values():
            self.check_log(checkpoint)
        last = found[self.last].state if self.last in found else {}
        if last and "training" not in last:
            raise InputError(
                f"{self.last}: a best checkpoint, from which no run can be resumed; nothing is "
                "changed; expected the file as the run wrote it, or another --out"
            )
        if last.get("best") and self.best not in found:
            raise InputError(
                f"{self.best}: missing, though the run was validated; nothing is changed; expected "
                "the file, or another --out"
            )
        if self.log.exists() and not self.last.exists():
            validated = [entry for entry in self.read_log() if entry["kind"] == "validation"]
            if validated[1:]:
                raise InputError(
                    f"{self.last}: missing, though the run went on after a validation; nothing is "
                    "changed; expected the file, or another --out"
                )

    def check_run(self, checkpoint: Checkpoint) -> None:
        """Refuse a checkpoint of another configuration.

        Raises:
            InputError: it is of another run.
        """
        if checkpoint.state.get("run", self._run) != self._run:
            raise InputError(
                f"{checkpoint.path}: of another run than {self.config.name}; expected the files of "
                "one run, or another folder"
            )

    def check_log(self, checkpoint: Checkpoint) -> None:
        """Refuse a checkpoint, the best or the last one, that is not of this run.

        Raises:
            InputError: as `check_run`; the log is missing, damaged, or not what it was when the
                checkpoint was written.
        """
        self.check_run(checkpoint)
        log = read_bytes(self.log, "the log of a training run")
        self.read_log()  # names a damaged line
        mark = checkpoint.state.get("log")
        if not mark or sha256(log[: mark["bytes"]]) == mark[_HASH]:
            return
        if checkpoint.path == self.last:
            raise InputError(
                f"{self.log}: not what it was when {self.last.name} was written: lines are "
                "missing; expected the file as the run wrote it, or another --out"
            )
        if len(log) >= mark["bytes"]:  # shorter: truncated since
            raise InputError(
                f"{checkpoint.path}: of another run: {self.log.name} is not what it was when this "
                "checkpoint was written; expected the file as the run wrote it, or another folder"
            )

    def _check_same(self, config: Mapping[str, Any]) -> None:
        old = _leaves(self.read_config())
        new = _leaves(json.loads(json.dumps(config)))
        differing = [
            f"{name} is {old.get(name)!r} there and {new.get(name)!r} here"
            for name in sorted(old.keys() | new.keys())
            if old.get(name) != new.get(name) and name not in _FREE
        ]
        if differing:
            raise InputError(
                f"{self.config}: another configuration: {'; '.join(differing)}; expected the same "
                f"to resume, or --initial {self.path} and another --out"
            )

    def read_config(self) -> dict[str, Any]:
        """The run's configuration.

        Raises:
            InputError: the file is missing, damaged or edited.
        """
        config = read_json(self.config, "the configuration as the run wrote it, or another folder")
        if not isinstance(config, dict) or _hashed(config) != config:
            raise InputError(
                f"{self.config}: damaged or edited: it does not match its own hash; expected the "
                "file as the run wrote it, or another folder"
            )
        del config[_HASH]
        return config

    @property
    def _run(self) -> str | None:
        """The hash of what does not change in the configuration; None without one."""
        if not self.config.exists():
            return None
        fixed = {k: v for k, v in _leaves(self.read_config()).items() if k not in _FREE}
        return sha256(json.dumps(fixed, sort_keys=True).encode())

    def read_vocabulary(self) -> Vocabulary:
        """The run's vocabulary.

        Raises:
            InputError: the file is missing or not a vocabulary.
        """
        value = read_json(self.vocabulary, "the vocabulary of a training run")
        try:
            return Vocabulary(**value)
        except (TypeError, ValueError) as error:
            raise InputError(f"{self.vocabulary}: not a vocabulary: {error}") from error

    def discard(self) -> None:
        """Remove the files of a run without checkpoints."""
        for path in (self.config, self.vocabulary, self.log):
            with suppress(OSError):
                path.unlink()
        with suppress(OSError):
            self.path.rmdir()

    def save(self, path: Path, model: BaseCaptioner, state: Mapping[str, Any]) -> None:
        """Save the checkpoint ``path``, best or last, and keep the old one as the previous.

        The previous one is a hard link; a file system without hard links keeps none. The checkpoint
        has the hash of the configuration, and the length and hash of the log so far.

        Raises:
            InputError: the folder cannot be written, or the disk is full.
        """
        kept = path.exists() and not _previous(path).exists()
        if kept:
            with suppress(OSError):
                _previous(path).hardlink_to(path)
        try:
            log = read_bytes(self.log, "the log of a training run")
            mark = {"bytes": len(log), _HASH: sha256(log)}
            save(path, model, {**state, "run": self._run, "log": mark})
        except InputError:
            if kept:
                _previous(path).unlink(missing_ok=True)
            raise

    def drop_previous(self) -> None:
        """Remove the previous checkpoints, once a step from the new ones gave a finite loss."""
        for path in (self.best, self.last):
            _previous(path).unlink(missing_ok=True)

    def restore_previous(self, step: int, *, remove_first: bool) -> None:
        """Replace the checkpoints of ``step`` with the previous ones.

        Args:
            step: the step after which the loss was not finite.
            remove_first: whether to remove checkpoints without a previous one.

        Raises:
            InputError: the folder cannot be written.
        """
        for path in (self.best, self.last):
            if not path.exists() or load(path).state["step"] != step:
                continue
            if _previous(path).exists():
                _previous(path).replace(path)
            elif remove_first:
                path.unlink()
        if self.last.exists():
            self.truncate_log(load(self.last).state["step"])

    def read_log(self) -> list[dict[str, Any]]:
        """The log's entries, oldest first, without an unfinished last line.

        Raises:
            InputError: the file is missing, no log, or a line is damaged or edited.
        """
        data = read_bytes(self.log, "the log of a training run")
        try:
            text = data.decode("utf-8")
            lines = text[: text.rfind("\n") + 1].splitlines()
            log = [json.loads(line) for line in lines]
            _ = [(entry["kind"], entry["step"]) for entry in log]
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{self.log}: not the log of a training run ({error})") from None
        for number, (line, entry) in enumerate(zip(lines, log, strict=True), 1):
            # compare text, not values: different digits may be the same float
            if json.dumps(_hashed(entry)) != line:
                raise InputError(
                    f"{self.log}: line {number} is damaged or edited: it does not match its own "
                    "hash; expected the file as the run wrote it, or another folder"
                )
            del entry[_HASH]
        return log

    def append(self, record: Mapping[str, Any]) -> None:
        """Append an entry to the log, and sync it to disk before the next checkpoint.

        Raises:
            InputError: the disk is full.
        """
        try:
            with self.log.open("a", encoding="utf-8") as file:
                file.write(json.dumps(_hashed(record)) + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise InputError(f"{self.log}: cannot be written ({error.strerror})") from error

    def truncate_log(self, step: int) -> list[dict[str, Any]]:
        """Remove entries after ``step``, and an unfinished line; returns the entries kept.

        Raises:
            InputError: the file is no log, or cannot be written.
        """
        kept = [record for record in self.read_log() if record["step"] <= step]
        with write_atomically(self.log) as file:
            file.writelines(json.dumps(_hashed(record)) + "\n" for record in kept)
        # the run was killed between writing the best checkpoint and the last one
        if _previous(self.best).exists() and load(self.best).state["step"] > step:
            _previous(self.best).replace(self.best)
        return kept


def _hashed(record: Mapping[str, Any]) -> dict[str, Any]:
    """``record`` with the hash of its other fields."""
    content = {name: value for name, value in record.items() if name != _HASH}
    return {**content, _HASH: sha256(json.dumps(content, sort_keys=True).encode())}


def _previous(path: Path) -> Path:
    return path.with_name(f"previous-{path.name}")


def _leaves(value: Any, place: str = "") -> dict[str, Any]:
    """Flatten nested dictionaries: leaves by dotted name."""
    if not isinstance(value, dict):
        return {place: value}
    leaves: dict[str, Any] = {}
    for key, inner in value.items():
        leaves |= _leaves(inner, f"{place}.{key}" if place else key)
    return leaves


def save(path: Path, model: BaseCaptioner, state: Mapping[str, Any]) -> None:
    """`checkpoints.save` with InputErrors.

    Raises:
        InputError: the folder cannot be written, or the disk is full.
    """
    try:
        checkpoints.save(path, model, state)
    except CheckpointError as error:
        raise InputError(str(error)) from error


def load(path: Path) -> Checkpoint:
    """`checkpoints.load` with InputErrors.

    Raises:
        InputError: no such file, or not one of our checkpoints, or damaged.
    """
    try:
        return checkpoints.load(path)
    except CheckpointError as error:
        raise InputError(str(error)) from error


def load_captioner(path: Path) -> tuple[BaseCaptioner, Vocabulary]:
    """The model and the vocabulary of a run.

    Args:
        path: a checkpoint, or the run's folder for `RunFolder.best_or_last`.

    Raises:
        InputError: no such checkpoint, a damaged one, or one of another vocabulary.
    """
    path = Path(path)
    folder = RunFolder(path if path.is_dir() else path.parent)
    checkpoint = load((folder.best_or_last or folder.best) if path.is_dir() else path)
    if path.is_dir() and checkpoint.state.get("best") and not folder.best.exists():
        raise InputError(
            f"{folder.best}: missing, though the run was validated; expected the file, or "
            f"{folder.last} by name"
        )
    if path.is_dir() or folder.config.exists():
        folder.read_config()
        folder.check_run(checkpoint)
    if path.is_dir() and folder.log.exists():
        folder.check_log(checkpoint)
    vocabulary = folder.read_vocabulary()
    if checkpoint.state.get("vocabulary") != vocabulary.fingerprint:
        raise InputError(f"{checkpoint.path}: trained on other words than {folder.vocabulary}")
    try:
        return checkpoint.model(), vocabulary
    except CheckpointError as error:
        raise InputError(str(error)) from error
