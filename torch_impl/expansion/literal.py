"""The expansion mechanism in the papers' order of operations: what every other form must equal.

M and its normalisation are in float32 at least: epsilon is 0 in float16.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from torch_impl.common.precision import EPSILON, at_least_float32


class Operands(NamedTuple):
    """The arguments of ``functional.static_expansion`` and ``dynamic_expansion``."""

    query_vectors: Tensor
    bias_vectors: Tensor
    keys: Tensor
    values: tuple[Tensor, Tensor]
    selectors: Tensor
    mask: Tensor | None
    dropout: float
    dropout_of: str


def normalise(x: Tensor) -> Tensor:
    """Psi: divide every row by its sum plus epsilon (v1 equation 5, v2 equation 4)."""
    return x / (x.sum(-1, keepdim=True) + EPSILON)


def length_transformation(queries: Tensor, keys: Tensor) -> Tensor:
    """M = Q_E K^T / sqrt(d), (B, N, L), in float32 at least (v1 equation 6, v2 equation 2)."""
    precise = at_least_float32(keys.dtype)
    with torch.autocast(keys.device.type, enabled=False):
        return queries.to(precise) @ keys.to(precise).mT / math.sqrt(keys.shape[-1])


def broad_sum(conditions: Tensor, vectors: Tensor) -> Tensor:
    """c_j + e_n as rows j * N_E + n: (B, L, d) and (N_E, d) to (B, L * N_E, d) (v1 3, v2 1)."""
    return (conditions[:, :, None] + vectors.to(conditions.dtype)).flatten(1, 2)


def static(x: Operands, groups: Sequence[int]) -> Tensor:
    """``static_expansion`` as printed."""
    M = length_transformation(x.query_vectors, x.keys)  # (B, N, L)
    forward_mask = None if x.mask is None else x.mask[:, None, :]  # (B, 1, L)
    backward_mask = None if x.mask is None else x.mask[:, :, None]  # (B, L, 1)
    return _streams(x, M, x.bias_vectors, groups, forward_mask, backward_mask)


def dynamic(x: Operands, conditions: Tensor, causal: bool) -> Tensor:
    """``dynamic_expansion`` as printed."""
    L, N_E, mask = x.keys.shape[1], len(x.query_vectors), x.mask
    Q_E = broad_sum(conditions, x.query_vectors)  # (B, N, d), N = L N_E
    B_E = broad_sum(conditions, x.bias_vectors)  # (B, N, d)
    M = length_transformation(Q_E, x.keys)  # (B, N, L)
    pairs = None if mask is None else mask[:, :, None] & mask[:, None, :]  # (B, L, L)
    if causal:
        # row (j, n) gathers from tokens i <= j, and token j reads rows (i, n) with i <= j
        lower = torch.ones(L, L, dtype=torch.bool, device=x.keys.device).tril()
        pairs = lower[None] if pairs is None else pairs & lower
    forward_mask = backward_mask = None
    if pairs is not None:
        forward_mask = pairs.repeat_interleave(N_E, dim=1)  # (., N, L)
        backward_mask = pairs.repeat_interleave(N_E, dim=2)  # (., L, N)
    return _streams(x, M, B_E, (L * N_E,), forward_mask, backward_mask)


def _streams(
    x: Operands,
    M: Tensor,
    B_E: Tensor,
    groups: Sequence[int],
    forward_mask: Tensor | None,
    backward_mask: Tensor | None,
) -> Tensor:
    """Both streams, forward and backward, and their gated sum (v1 7-9, v2 3-8).

    ``forward_mask``, broadcast to (B, N, L), is True where an expanded row gathers from a token;
    ``backward_mask``, to (B, L, N), where a token reads an expanded row; None means everywhere.
    """
    values, dropout = x.values, x.dropout
    M = F.dropout(M, dropout)
    B_E = B_E.to(values[0].dtype)
    backward = []
    for signed, V in zip((M, -M), values, strict=True):
        P = F.relu(signed)
        R_fw = normalise(_only(P, forward_mask))  # (B, N, L)
        F_fw = R_fw.to(V.dtype) @ V + B_E  # (B, N, d)
        if x.dropout_of == "values":
            F_fw = F.dropout(F_fw, dropout)
        else:
            F_fw = F_fw * F.dropout(torch.ones_like(F_fw[..., :1]), dropout)
        transposed = _only(P.mT, backward_mask).split(list(groups), -1)  # (B, L, |group|)
        R_bw = torch.cat([normalise(group) for group in transposed], dim=-1) / len(groups)
        backward.append(F.dropout(R_bw.to(V.dtype) @ F_fw, dropout))  # (B, L, d)
    gate = x.selectors.sigmoid()
    return gate * backward[0] + (1 - gate) * backward[1]


def _only(x: Tensor, allowed: Tensor | None) -> Tensor:
    return x if allowed is None else x.masked_fill(~allowed, 0)
