"""Checkpoints of trainings other than captioners': one safetensors file with a checksum."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.errors import InputError
from torch_impl.checkpoints import checkpoint
from torch_impl.checkpoints.checkpoint import CheckpointError


def save(
    path: Path,
    modules: Mapping[str, nn.Module],
    optimiser: torch.optim.Optimizer,
    values: Mapping[str, Any],
) -> None:
    """Save the modules' weights, the optimiser's state, and values: JSON, or tensors by name.

    Raises:
        InputError: the folder cannot be written, or the disk is full.
    """
    moments = optimiser.state_dict()
    state = {
        "modules": {name: dict(module.state_dict()) for name, module in modules.items()},
        "moments": {str(place): moment for place, moment in moments["state"].items()},
        "groups": moments["param_groups"],
        "values": dict(values),
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        checkpoint.save_state(path, state)
    except (CheckpointError, OSError) as error:
        raise InputError(str(error)) from error


def load(
    path: Path, modules: Mapping[str, nn.Module], optimiser: torch.optim.Optimizer
) -> dict[str, Any]:
    """Load the states of modules and optimiser saved by `save`; returns the values.

    Raises:
        InputError: the file is damaged, or of other modules.
    """
    try:
        state = checkpoint.load_state(path)
        for name, module in modules.items():
            module.load_state_dict(state["modules"][name])
        moments = {int(place): moment for place, moment in state["moments"].items()}
        optimiser.load_state_dict({"state": moments, "param_groups": state["groups"]})
        values: dict[str, Any] = state["values"]
    except CheckpointError as error:
        raise InputError(str(error)) from error
    except (RuntimeError, ValueError, KeyError) as error:
        raise InputError(f"{path}: the work of another training ({error!r:.80})") from error
    return values
