"""Operators that compute in the precision of their weights, whatever autocast says."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

P = ParamSpec("P")
T = TypeVar("T")


def without_autocast(backward: Callable[P, T]) -> Callable[P, T]:
    """An autograd function's ``backward`` for which autocast is off, where it is called or not."""

    @wraps(backward)
    def called(*given: P.args, **options: P.kwargs) -> T:
        devices = [x.device.type for x in given if isinstance(x, Tensor)]
        with torch.autocast(devices[0] if devices else "cpu", enabled=False):
            return backward(*given, **options)

    return called
