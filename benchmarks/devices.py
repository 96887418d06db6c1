"""The device that a command was told to use."""

from __future__ import annotations

import torch

from benchmarks.errors import InputError


def check_device(name: str) -> str:
    """``name``, if PyTorch can compute there.

    Raises:
        InputError: it cannot, and why.
    """
    try:
        torch.zeros(1, device=name).item()
    except (RuntimeError, AssertionError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"--device {name}: PyTorch cannot use it ({reason})") from None
    return name
