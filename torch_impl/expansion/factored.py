"""The expansion mechanism by fewer operations and bytes, equal to the literal form.

Which association of the products is the cheaper is a matter of shapes (``stream``), forward as
backward, and so is whether the expansion queries take over the key projection. A dynamic row (j, n)
is a sum of c_j and e_n, and M of an L x L and an L x N_E part: its E_Q is never made.

Gradients are by hand. What is kept for them is the operands, M, the inverses of its sums over rows
and columns, and the masks of dropout; the rest is made again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from torch_impl.dropout import keep, scale
from torch_impl.expansion.stream import Biases, Expanding, Mixing, Rows, Stream

_CACHED = 2**19
"""Entries of M that are worked on at a time on a CPU, whose caches hold a few times as many."""


class _Plan(NamedTuple):
    rows: Rows
    mixing: bool
    """Whether W = R_bw R_fw is the way forth."""
    mixing_back: bool
    dropout: float
    dropout_of: str


def static(
    query_vectors: Tensor,
    bias_vectors: Tensor,
    keys: Tensor,
    values_1: Tensor,
    values_2: Tensor,
    selectors: Tensor,
    groups: Sequence[int],
    mask: Tensor | None,
    dropout: float,
    dropout_of: str,
    key_bias: Tensor | None = None,
) -> Tensor:
    """``static_expansion``; with ``key_bias`` (N,) that of a folded projection, see ``fold``."""
    L, (N, d) = keys.shape[1], query_vectors.shape
    # multiply-accumulates of W: 2 N L^2 + 2 L^2 d + 2 N L d against 4 N L d;
    # with gradients, which make again what they need, 6 N L^2 + 6 L^2 d + 5 N L d against 12 N L d
    can = not (dropout and dropout_of == "values")
    plan = _Plan(
        Rows(tuple(groups)),
        can and N * L + L * d < N * d,
        can and 6 * L * (N + d) < 7 * N * d,
        dropout,
        dropout_of,
    )
    with torch.autocast(keys.device.type, enabled=False):
        M = _transposed(query_vectors, keys, key_bias)
        if mask is not None:
            M = M * mask[..., None].to(M.dtype)
        E_B = bias_vectors.to(values_1.dtype)
        out: Tensor = _Expansion.apply(M, values_1, values_2, selectors, E_B, None, plan)
        return out


def dynamic(
    query_vectors: Tensor,
    bias_vectors: Tensor,
    conditions: Tensor,
    keys: Tensor,
    values_1: Tensor,
    values_2: Tensor,
    selectors: Tensor,
    mask: Tensor | None,
    causal: bool,
    dropout: float,
    dropout_of: str,
) -> Tensor:
    """``dynamic_expansion``."""
    L, (N_E, d) = keys.shape[1], query_vectors.shape
    # likewise, 2 L^3 N_E + 4 L^2 d + 2 L N_E d against 4 L^2 N_E d,
    # and 6 L^3 N_E + 11 L^2 d + 5 L N_E d against 12 L^2 N_E d
    can = not (dropout and dropout_of == "values")
    plan = _Plan(
        Rows((L * N_E,), N_E, causal),
        can and L * L * N_E + 2 * L * d + N_E * d < 2 * L * N_E * d,
        can and 6 * L * L * N_E + 11 * L * d + 5 * N_E * d < 12 * L * N_E * d,
        dropout,
        dropout_of,
    )
    with torch.autocast(keys.device.type, enabled=False):
        M = _transposed(conditions, keys)[..., None] + _transposed(query_vectors, keys)[:, :, None]
        if mask is not None:
            M = M * (mask[:, :, None] & mask[:, None])[..., None].to(M.dtype)
        b, C = bias_vectors.to(values_1.dtype), conditions.to(values_1.dtype)
        out: Tensor = _Expansion.apply(M.flatten(2), values_1, values_2, selectors, b, C, plan)
        return out


def fold(query_vectors: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Queries that ask tokens x as E_Q asks keys x W^T + b, (N, d), and E_Q b, (N,)."""
    precise = torch.promote_types(query_vectors.dtype, torch.float32)
    with torch.autocast(query_vectors.device.type, enabled=False):
        Q = query_vectors.to(precise)
        return Q @ weight.to(precise), Q @ bias.to(precise)


def _transposed(queries: Tensor, keys: Tensor, key_bias: Tensor | None = None) -> Tensor:
    """The transposed M, (B, L, N), in float32 at least: one product for all images if it can be."""
    precise = torch.promote_types(keys.dtype, torch.float32)
    Q, K, root = queries.to(precise), keys.to(precise), math.sqrt(queries.shape[-1])
    if queries.dim() == 3:
        return (K @ Q.mT).div_(root)
    return F.linear(K, Q / root, None if key_bias is None else key_bias / root)


def _slices(M: Tensor) -> list[slice]:
    """Parts of the batch that a CPU's caches hold; else the whole of it."""
    B, L, N = M.shape
    size = B
    if M.device.type == "cpu" and not torch.compiler.is_compiling():
        size = max(1, _CACHED // max(L * N, 1))
    return [slice(first, first + size) for first in range(0, max(B, 1), max(size, 1))]


class _Operands(NamedTuple):
    """What both passes work on, and all that is kept from one for the other."""

    M: Tensor
    values_1: Tensor
    values_2: Tensor
    selectors: Tensor
    vectors: Tensor
    conditions: Tensor | None
    of_rows: Tensor
    """The inverse sums of each stream's rows, (2, B, 1, N)."""
    of_columns: Tensor
    """Likewise of columns, for each group, (2, B, L, |G|)."""
    kept: Tensor | None = None
    """Where dropout leaves an expanded value, (2, B, N, d), or vector, (2, B, N, 1)."""
    kept_back: Tensor | None = None
    """Where it leaves a backward value, (2, B, L, d)."""
    D: Tensor | None = None
    """B_1 - B_2 (B, L, d): with dropout, which takes much memory anyway, it is not made again."""
    F: Tensor | None = None
    """The expanded vectors, (2, B, N, d): likewise, where their values are dropped."""

    def streams(self, part: slice, plan: _Plan, *, back: bool) -> tuple[Stream, Stream]:
        """Both streams of a part of the batch; ``back`` knows what the way forth has made."""

        def stream(k: int, sign: int, V: Tensor) -> Stream:
            sums = (self.of_rows[k, part], self.of_columns[k, part]) if back else None
            kept = None if self.kept is None else self.kept[k, part]
            arguments = (self.M[part], sign, V[part], biases, plan.rows, sums, kept)
            if plan.mixing_back if back else plan.mixing:
                return Mixing(*arguments)
            F = None if self.F is None else self.F[k, part]
            return Expanding(*arguments, F=F, known=back and F is not None)

        biases = Biases(self.vectors, None if self.conditions is None else self.conditions[part])
        return stream(0, 1, self.values_1), stream(1, -1, self.values_2)


class _Expansion(torch.autograd.Function):
    """Both streams and their selection, of the transposed M (B, L, N), tokens first.

    Dropout leaves zeros in M, where P's gradient is zero, so that they need no mask. The scale of
    the three dropouts on a path waits for its ends: M, and twice that of the backward values.
    """

    @staticmethod
    def forward(
        ctx: Any,
        M: Tensor,
        values_1: Tensor,
        values_2: Tensor,
        selectors: Tensor,
        vectors: Tensor,
        conditions: Tensor | None,
        plan: _Plan,
    ) -> Tensor:
        (B, L, N), d, p = M.shape, values_1.shape[2], plan.dropout
        sums = M.new_empty(2, B, 1, N), M.new_empty(2, B, L, len(plan.rows.groups))
        x = _Operands(M, values_1, values_2, selectors, vectors, conditions, *sums)
        if p:
            of_values = plan.dropout_of == "values"
            x = x._replace(
                M=(M * keep(M.shape, p, M.device)).mul_(scale(p)),
                kept=keep((2, B, N, d if of_values else 1), p, M.device),
                kept_back=keep((2, B, L, d), p, M.device),
                D=torch.empty_like(values_1),
                F=values_1.new_empty(2, B, N, d) if of_values else None,
            )
        out = []
        for part in _slices(M):
            streams, backward = x.streams(part, plan, back=False), []
            for k, stream in enumerate(streams):
                x.of_rows[k, part], x.of_columns[k, part] = stream.inverse_sums
                backward.append(_dropped(stream.values(), x, k, part, plan))
            out.append(torch.lerp(backward[1], backward[0], selectors[part].sigmoid()))
            if x.D is not None:
                x.D[part] = backward[0] - backward[1]
        ctx.save_for_backward(*x)
        ctx.plan = plan
        return _whole(out)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dO: Tensor) -> tuple[Tensor | None, ...]:
        x, plan = _Operands(*ctx.saved_tensors), ctx.plan
        d_vectors = torch.zeros_like(x.vectors, dtype=x.M.dtype)
        parts = []
        for part in _slices(x.M):
            streams, gate = x.streams(part, plan, back=True), x.selectors[part].sigmoid()
            D = _difference(*streams) if x.D is None else x.D[part]
            shares = gate * dO[part], (1 - gate) * dO[part]
            first, second = (
                stream.gradients(_dropped(share, x, k, part, plan))
                for k, (stream, share) in enumerate(zip(streams, shares, strict=True))
            )
            d_vectors += first.vectors
            d_vectors += second.vectors
            dM = (first.M - second.M) * scale(plan.dropout)
            parts.append([dM, first.V, second.V, D * shares[1] * gate])
            if first.conditions is not None and second.conditions is not None:
                parts[-1].append(first.conditions + second.conditions)
        dM, dV_1, dV_2, dS, *dC = (_whole(part) for part in zip(*parts, strict=True))
        d_vectors = d_vectors.to(x.vectors.dtype)
        return dM, dV_1, dV_2, dS, d_vectors, dC[0] if dC else None, None


def _whole(parts: Sequence[Tensor]) -> Tensor:
    """The batch of its parts."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


def _dropped(x: Tensor, operands: _Operands, k: int, part: slice, plan: _Plan) -> Tensor:
    """Stream k's backward values, or their gradient, as dropout leaves them."""
    if operands.kept_back is None:
        return x
    return x * operands.kept_back[k, part] * scale(plan.dropout) ** 2


def _difference(first: Stream, second: Stream) -> Tensor:
    """B_1 - B_2, (b, L, d)."""
    if isinstance(first, Mixing) and isinstance(second, Mixing):
        return first.less(second)
    return first.values() - second.values()
