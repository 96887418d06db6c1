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
        device = torch.device(name)
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"--device {name}: PyTorch cannot use it ({reason})") from None
    if device.type == "cpu" and device.index:
        raise InputError(f"--device {name}: there is one CPU, expected cpu")
    return name
