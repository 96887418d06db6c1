"""The expansion operators as Triton kernels."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from torch_impl.kernels import dynamic, static
from torch_impl.kernels.support import interpreted, kept, prepared, unsupported

__all__ = ["dynamic_expansion", "interpreted", "static_expansion", "unsupported"]


def static_expansion(
    query_vectors: Tensor,
    bias_vectors: Tensor,
    keys: Tensor,
    values_1: Tensor,
    values_2: Tensor,
    selectors: Tensor,
    groups: Sequence[int],
    mask: Tensor | None = None,
    *,
    store_m: bool = True,
    tf32: bool = False,
) -> Tensor:
    """Static or Block Static Expansion (v1 4-9; v2 2-9).

    Args:
        query_vectors: Q_E, (N, d), the groups one after the other.
        bias_vectors: E_B, (N, d).
        keys: K, (B, L, d).
        values_1: V_1, (B, L, d).
        values_2: V_2, (B, L, d).
        selectors: S, (B, L, d).
        groups: the expansion coefficients G, which add up to N.
        mask: (B, L) booleans, True for valid tokens; padded rows must hold finite values.
        store_m: whether M and W are kept for the backward, or computed in it again.
        tf32: whether products of float32 may round their operands to TF32.

    Returns:
        (B, L, d), zero in padded rows.

    Raises:
        ValueError: what ``unsupported`` says.
    """
    tensors = (query_vectors, bias_vectors, keys, values_1, values_2, selectors)
    _check(*tensors, mask=mask)
    mask = None if mask is None else mask.contiguous()
    args = (*prepared(tensors), mask, list(groups), tf32, kept(tensors), store_m)
    return static.static_expansion(*args)[0]


def dynamic_expansion(
    query_vectors: Tensor,
    bias_vectors: Tensor,
    conditions: Tensor,
    keys: Tensor,
    values_1: Tensor,
    values_2: Tensor,
    selectors: Tensor,
    mask: Tensor | None = None,
    *,
    causal: bool = True,
    tf32: bool = False,
) -> Tensor:
    """Dynamic Expansion (v1 3, 5-9; v2 1-8).

    Args:
        query_vectors: q^E, (N_E, d).
        bias_vectors: b^E, (N_E, d).
        conditions: C, (B, L, d).
        keys: K, (B, L, d).
        values_1: V_1, (B, L, d).
        values_2: V_2, (B, L, d).
        selectors: S, (B, L, d).
        mask: (B, L) booleans, True for valid tokens; padded rows must hold finite values.
        causal: the auto-regressive form; else the bidirectional one.
        tf32: whether products of float32 may round their operands to TF32.

    Returns:
        (B, L, d), zero in padded rows.

    Raises:
        ValueError: what ``unsupported`` says.
    """
    tensors = (query_vectors, bias_vectors, conditions, keys, values_1, values_2, selectors)
    _check(*tensors, mask=mask)
    mask = None if mask is None else mask.contiguous()
    args = (*prepared(tensors), mask, causal, tf32, kept(tensors))
    return dynamic.dynamic_expansion(*args)[0]


def _check(*tensors: Tensor, mask: Tensor | None) -> None:
    reason = unsupported(*tensors, mask=mask)
    if reason is not None:
        raise ValueError(f"no kernel for this call: {reason}")
