"""Checkpoints: one safetensors file with the weights, the configuration and, to resume, the state.

The file holds the model's ``state_dict`` under its own names and the tensors of the state under
``state.``; its metadata holds the rest as JSON, a format version, and a SHA-256 of everything.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

from torch_impl.checkpoints.released import load_released
from torch_impl.common.files import atomic_replace
from torch_impl.common.weights import CheckpointError, fingerprint, load_weights
from torch_impl.models import BaseCaptioner, build, configuration

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "load",
    "load_released",
    "load_state",
    "load_weights",
    "save",
    "save_state",
]

FORMAT = "captionbench checkpoint"
STATE_FORMAT = "captionbench state"
VERSION = 1

_STATE = "state."
_TENSOR = "$tensor"


@dataclass(frozen=True)
class Checkpoint:
    """The contents of a file: configuration, weights by name, and the state to resume from."""

    path: Path
    configuration: dict[str, Any]
    weights: dict[str, Tensor]
    state: dict[str, Any]

    def model(self) -> BaseCaptioner:
        """The model, in evaluation mode and in the precision in which it was saved.

        Raises:
            CheckpointError: the configuration is invalid, or the weights do not fit it.
        """
        try:
            model = build(configuration(self.configuration))
        except (TypeError, ValueError, KeyError) as error:
            raise CheckpointError(
                f"{self.path}: the configuration is not valid: {error}"
            ) from error
        precisions = {t.dtype for t in self.weights.values() if t.is_floating_point()}
        if len(precisions) == 1:
            model.to(dtype=precisions.pop())
        load_weights(model, self.weights, self.path)
        return model.eval()


def save(path: Path, model: BaseCaptioner, state: Mapping[str, Any] | None = None) -> None:
    """Write ``model`` and ``state`` to ``path``, by an atomic replace.

    Args:
        model: its ``state_dict`` and ``configuration`` are saved.
        state: dictionaries (of string keys) and lists, nested, of tensors and JSON scalars.

    Raises:
        CheckpointError: the folder cannot be written, or the disk is full.
    """
    tensors = {name: _plain(tensor) for name, tensor in model.state_dict().items()}
    skeleton = _take_tensors(dict(state or {}), _STATE.rstrip("."), tensors)
    parts = {"configuration": model.configuration.to_dict(), "state": skeleton}
    _write(Path(path), FORMAT, tensors, parts)


def save_state(path: Path, state: Mapping[str, Any]) -> None:
    """Write a ``state`` as in `save`, without a captioner, by an atomic replace.

    Raises:
        CheckpointError: the folder cannot be written, or the disk is full.
    """
    tensors: dict[str, Tensor] = {}
    skeleton = _take_tensors(dict(state), _STATE.rstrip("."), tensors)
    _write(Path(path), STATE_FORMAT, tensors, {"state": skeleton})


def _write(path: Path, kind: str, tensors: Mapping[str, Tensor], parts: dict[str, Any]) -> None:
    description = json.dumps(parts)
    metadata = {
        "format": kind,
        "version": str(VERSION),
        "description": description,
        "sha256": fingerprint(tensors, description),
    }
    _replace(path, to_bytes(dict(tensors), metadata))


def load(path: Path) -> Checkpoint:
    """Read a checkpoint and verify its SHA-256.

    Raises:
        CheckpointError: no such file, not one of our checkpoints, truncated or damaged.
    """
    path = Path(path)
    tensors, parts = _read(path, FORMAT)
    return Checkpoint(
        path=path,
        configuration=parts["configuration"],
        weights={name: t for name, t in tensors.items() if not name.startswith(_STATE)},
        state=_put_tensors(parts["state"], tensors),
    )


def load_state(path: Path) -> dict[str, Any]:
    """Read a state that `save_state` wrote and verify its SHA-256.

    Raises:
        CheckpointError: no such file, not such a state, truncated or damaged.
    """
    tensors, parts = _read(Path(path), STATE_FORMAT)
    state: dict[str, Any] = _put_tensors(parts["state"], tensors)
    return state


def _read(path: Path, kind: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    if not path.is_file():
        raise CheckpointError(f"{path}: no such file, expected a checkpoint (.safetensors)")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        try:
            with path.open("rb") as unreadable:
                begins = unreadable.read(2)
        except OSError as why:
            raise CheckpointError(
                f"{path}: cannot be read ({why.strerror}), expected a checkpoint (.safetensors)"
            ) from error
        if begins == b"PK" or begins[:1] == b"\x80":
            raise CheckpointError(
                f"{path}: a PyTorch file, expected a checkpoint (.safetensors); one that the "
                "authors released takes load_released, or captionbench caption --words"
            ) from error
        raise CheckpointError(
            f"{path}: not a readable safetensors file, truncated or damaged? ({error})"
        ) from error
    if metadata.get("format") != kind:
        raise CheckpointError(f"{path}: a safetensors file, but not a {kind}")
    if metadata.get("version") != str(VERSION):
        raise CheckpointError(
            f"{path}: version {metadata.get('version')} of the format, expected {VERSION}"
        )
    description = metadata.get("description", "")
    if metadata.get("sha256") != fingerprint(tensors, description):
        raise CheckpointError(f"{path}: damaged, the contents do not match their SHA-256")
    parts: dict[str, Any] = json.loads(description)
    return tensors, parts


def _plain(tensor: Tensor) -> Tensor:
    return tensor.detach().cpu().contiguous()


def _take_tensors(value: Any, place: str, tensors: dict[str, Tensor]) -> Any:
    """``value`` with its tensors moved into ``tensors``, each replaced by its name there."""
    if isinstance(value, Tensor):
        tensors[place] = _plain(value)
        return {_TENSOR: place}
    if isinstance(value, Mapping):
        return {key: _take_tensors(v, f"{place}.{key}", tensors) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [_take_tensors(v, f"{place}.{i}", tensors) for i, v in enumerate(value)]
    return value


def _put_tensors(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The inverse of `_take_tensors`, except that tuples become lists."""
    if isinstance(value, dict):
        if set(value) == {_TENSOR}:
            return tensors[value[_TENSOR]]
        return {key: _put_tensors(v, tensors) for key, v in value.items()}
    if isinstance(value, list):
        return [_put_tensors(v, tensors) for v in value]
    return value


def _replace(path: Path, data: bytes) -> None:
    try:
        with atomic_replace(path, "wb") as file:
            file.write(data)
    except OSError as error:
        reason = error.strerror or str(error)
        raise CheckpointError(f"{path}: cannot be written ({reason})") from error
