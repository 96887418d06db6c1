"""Weights by name: loaded into a module, all of them or none, and identified by a hash."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn


class CheckpointError(ValueError):
    """A checkpoint that cannot be read, written, or loaded into this model; says which and why."""


def load_weights(
    module: nn.Module, weights: Mapping[str, Tensor], where: Path | str = "checkpoint"
) -> None:
    """Copy ``weights`` into ``module``: all of them, or none.

    Raises:
        CheckpointError: lists every missing, extra and misshapen key; the module is untouched.
    """
    expected = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    raise_if_any(state_dict_problems(expected, weights), where)
    module.load_state_dict(dict(weights))


def state_dict_problems(
    expected: Mapping[str, Sequence[int | str]], weights: Mapping[str, Tensor]
) -> list[str]:
    """Every missing, extra and misshapen key.

    A string in ``expected`` is an unknown size, which no tensor fits.
    """
    problems = [
        f"missing {name} {shape_text(shape)}"
        for name, shape in expected.items()
        if name not in weights
    ]
    problems += [
        f"extra {name} {shape_text(tensor.shape)}"
        for name, tensor in weights.items()
        if name not in expected
    ]
    problems += [
        f"misshapen {name} {shape_text(weights[name].shape)}, expected {shape_text(shape)}"
        for name, shape in expected.items()
        if name in weights and tuple(weights[name].shape) != tuple(shape)
    ]
    return problems


def raise_if_any(problems: Sequence[str], where: Path | str) -> None:
    """Raise a CheckpointError that lists the problems, if there are any."""
    if problems:
        raise CheckpointError(f"{where}: does not fit the model: " + "; ".join(problems))


def shape_text(shape: Sequence[int | str]) -> str:
    """``(2, 3)`` as ``2x3``."""
    return "x".join(map(str, shape)) or "scalar"


def fingerprint(weights: Mapping[str, Tensor], description: str = "") -> str:
    """A SHA-256 of a description and of every tensor's name, dtype, shape and values."""
    digest = hashlib.sha256(description.encode())
    for name in sorted(weights):
        tensor = weights[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {shape_text(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
