"""Precision: the dtype of sums, Psi's epsilon, and backward passes outside autocast."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

P = ParamSpec("P")
T = TypeVar("T")

EPSILON = 1e-9
"""Added to the sums that Psi divides by (v1 equation 5, v2 equation 4)."""


def at_least_float32(dtype: torch.dtype) -> torch.dtype:
    """Float32 in place of a lower precision, where ``EPSILON`` would be 0 or a sum inexact."""
    return torch.promote_types(dtype, torch.float32)


def log_probabilities(logits: Tensor) -> Tensor:
    """The log-softmax of the last axis, in float32 at least."""
    return F.log_softmax(logits, -1, dtype=at_least_float32(logits.dtype))


def without_autocast(backward: Callable[P, T]) -> Callable[P, T]:
    """Turn autocast off in an autograd function's ``backward``, wherever it is called."""

    @wraps(backward)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        devices = [x.device.type for x in args if isinstance(x, Tensor)]
        with torch.autocast(devices[0] if devices else "cpu", enabled=False):
            return backward(*args, **kwargs)

    return called
