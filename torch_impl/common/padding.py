"""Padding masks of ragged batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

Lengths = Tensor | Sequence[int]
"""(B,) numbers of valid tokens, or (B, L) booleans where True means valid."""


_checking = ContextVar("_checking", default=False)


@contextmanager
def checking_values() -> Iterator[None]:
    """Check values on every device within the block, not only on a CPU, where it costs little."""
    before = _checking.set(True)
    try:
        yield
    finally:
        _checking.reset(before)


def can_check_values(x: Tensor) -> bool:
    """Whether the values of ``x`` may be read to check them: never in a compiled graph.

    On a CPU always; on other devices, where it would synchronise, only within ``checking_values``.
    """
    if torch.compiler.is_compiling():
        return False
    if x.device.type == "cpu":
        return True
    capturing = torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
    return _checking.get() and not capturing


def padding_mask(lengths: Lengths | None, x: Tensor) -> Tensor | None:
    """``lengths`` of ``x`` (B, L, d) as booleans (B, L), True for valid tokens; None if None.

    Raises:
        ValueError: a shape that does not fit ``x``, a length below 0 or above L.
        TypeError: lengths that are neither integers nor booleans.
    """
    if lengths is None:
        return None
    lengths = torch.as_tensor(lengths)
    batch, length = x.shape[:2]
    if lengths.dtype == torch.bool:
        if lengths.shape != (batch, length):
            raise ValueError(
                f"the mask has shape {tuple(lengths.shape)}, expected {(batch, length)}"
            )
        return lengths.to(x.device)
    if lengths.is_floating_point() or lengths.is_complex():
        raise TypeError(f"lengths must be integers or booleans, not {lengths.dtype}")
    if lengths.shape != (batch,):
        raise ValueError(f"lengths has shape {tuple(lengths.shape)}, expected {(batch,)}")
    if can_check_values(lengths) and ((lengths < 0) | (lengths > length)).any():
        raise ValueError(f"lengths {lengths.tolist()} must lie between 0 and {length}")
    return torch.arange(length, device=x.device) < lengths.to(x.device)[:, None]


def zero_padding(x: Tensor, mask: Tensor | None) -> Tensor:
    """``x`` (B, L, d) with zeros in padded rows, even where they were NaN."""
    return x if mask is None else x.masked_fill(~mask[..., None], 0)


def check_tokens(x: Tensor, features: int, name: str = "x") -> None:
    """Raise ValueError unless ``x`` has shape (B, L, features)."""
    if x.dim() != 3 or x.shape[-1] != features:
        raise ValueError(f"{name} has shape {tuple(x.shape)}, expected (B, L, {features})")
