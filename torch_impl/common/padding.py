"""Padding masks of ragged batches."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

Lengths = Tensor | Sequence[int]
"""(B,) numbers of valid tokens, or (B, L) booleans where True means valid."""


def can_check_values() -> bool:
    """Whether tensors' values may be checked, which synchronises: not in a compiled graph."""
    if torch.compiler.is_compiling():
        return False
    return not (torch.cuda.is_available() and torch.cuda.is_current_stream_capturing())


def padding_mask(lengths: Lengths | None, x: Tensor) -> Tensor | None:
    """``lengths`` of ``x`` (B, L, d) as booleans (B, L), True for valid tokens; None if None.

    Raises:
        ValueError: a shape that does not fit ``x``, a length below 0 or above L.
        TypeError: lengths that are neither integers nor booleans.
    """
    if lengths is None:
        return None
    lengths = torch.as_tensor(lengths, device=x.device)
    batch, length = x.shape[:2]
    if lengths.dtype == torch.bool:
        if lengths.shape != (batch, length):
            raise ValueError(
                f"the mask has shape {tuple(lengths.shape)}, expected {(batch, length)}"
            )
        return lengths
    if lengths.is_floating_point() or lengths.is_complex():
        raise TypeError(f"lengths must be integers or booleans, not {lengths.dtype}")
    if lengths.shape != (batch,):
        raise ValueError(f"lengths has shape {tuple(lengths.shape)}, expected {(batch,)}")
    if can_check_values() and ((lengths < 0) | (lengths > length)).any():
        raise ValueError(f"lengths {lengths.tolist()} must lie between 0 and {length}")
    return torch.arange(length, device=x.device) < lengths[:, None]


def zero_padding(x: Tensor, mask: Tensor | None) -> Tensor:
    """``x`` (B, L, d) with zeros in padded rows, even where they were NaN."""
    return x if mask is None else x.masked_fill(~mask[..., None], 0)


def check_tokens(x: Tensor, features: int, name: str = "x") -> None:
    """Raise ValueError unless ``x`` has shape (B, L, features)."""
    if x.dim() != 3 or x.shape[-1] != features:
        raise ValueError(f"{name} has shape {tuple(x.shape)}, expected (B, L, {features})")
