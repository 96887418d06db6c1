"""The device that a command was told to use."""

from __future__ import annotations

import torch

from benchmarks.errors import InputError


def check_device(name: str, asked: str | None = None) -> str:
    """``name``, if PyTorch can compute there; of several GPUs it becomes the current one.

    Events and streams are the current device's, whatever device tensors are on: without, a timing
    on ``cuda:1`` is of the first GPU.

    Args:
        name: the device.
        asked: the option that asked for it, if it was not ``--device``.

    Raises:
        InputError: it cannot, and why.
    """
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()
        if device.type == "cuda" and device.index is not None:
            torch.cuda.set_device(device)
    except (RuntimeError, AssertionError, ValueError) as error:
        reason = str(error).splitlines()[0]
        option, where = (asked, name) if asked else (f"--device {name}", "it")
        raise InputError(f"{option}: PyTorch cannot use {where} ({reason})") from None
    if device.type == "cpu" and device.index:
        raise InputError(f"--device {name}: there is one CPU, expected cpu")
    return name
