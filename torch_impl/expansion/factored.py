"""The expansion mechanism by fewer operations and bytes, equal to the literal form.

Which association of the products is the cheaper is a matter of shapes (``stream``), forward as
backward, and so is whether the expansion queries take over the key projection. A dynamic row (j, n)
is a sum of c_j and e_n, and M of an L x L and an L x N_E part: its E_Q is never made.

Gradients are by hand. What is kept for them is the operands, M, the inverses of its sums over rows
and columns, and the masks of dropout; the rest is made again. Where W and B_1 - B_2 are no more
numbers than M, they are kept in its place, and M is made again, by fewer operations than they.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from torch_impl.common.dropout import keep_mask, keep_scale
from torch_impl.common.precision import without_autocast
from torch_impl.expansion.stream import (
    Biases,
    Expanding,
    Mixing,
    Rows,
    Stream,
)

_CACHED = 2**19
"""Entries of M that a thread works on at a time on a CPU, whose caches hold a few times as many."""


class _Plan(NamedTuple):
    rows: Rows
    mixing: bool
    """Whether W = R_bw R_fw is the cheaper way forth."""
    mixing_back: bool
    remaking: bool
    """Whether M is made again on the way back."""
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
    # with gradients, which make again what they need, 6 N L^2 + 6 L^2 d + 5 N L d against 12 N L d,
    # or 4 N L^2 + 4 L^2 d + 5 N L d where W, 2 L^2, and B_1 - B_2, L d, are kept and M is not, N L
    mixing, smaller = N * L + L * d < N * d, 2 * L + d <= N and not dropout
    remaking = mixing and smaller and 4 * L * (N + d) < 7 * N * d and torch.is_grad_enabled()
    mixing_back = remaking or 6 * L * (N + d) < 7 * N * d
    plan = _Plan(Rows(tuple(groups)), mixing, mixing_back, remaking, dropout, dropout_of)
    with torch.autocast(keys.device.type, enabled=False):
        source = _Source(query_vectors, keys, key_bias, mask)
        E_B = bias_vectors.to(values_1.dtype)
        operands = source.M(), values_1, values_2, selectors, E_B, None, plan
        out: Tensor = _Expansion.apply(*operands, *(source if remaking else ()))
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
    plan = _Plan(
        Rows((L * N_E,), N_E, causal),
        L * L * N_E + 2 * L * d + N_E * d < 2 * L * N_E * d,
        6 * L * L * N_E + 11 * L * d + 5 * N_E * d < 12 * L * N_E * d,
        False,
        dropout,
        dropout_of,
    )
    with torch.autocast(keys.device.type, enabled=False):
        M = _transposed(conditions, keys)[..., None] + _transposed(query_vectors, keys)[:, :, None]
        if mask is not None:
            M = M.masked_fill(~(mask[:, :, None] & mask[:, None])[..., None], 0)
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


class _Source(NamedTuple):
    """What a static expansion makes M of: vectors that ask (N, d) and (N,), and tokens."""

    queries: Tensor
    keys: Tensor
    key_bias: Tensor | None
    mask: Tensor | None

    def M(self) -> Tensor:
        """M, transposed, (B, L, N)."""
        M = _transposed(self.queries, self.keys, self.key_bias)
        return M if self.mask is None else M.masked_fill(~self.mask[..., None], 0)


class _Operands(NamedTuple):
    """What both passes work on and all that is kept from one for the other, by image.

    The fields of a stream end in its number; those of dropout are None without it.
    """

    M: Tensor
    """As dropout leaves it; while W is kept in its place, there are no numbers in it."""
    selectors: Tensor
    conditions: Tensor | None
    V_1: Tensor
    V_2: Tensor
    r_1: Tensor | None = None
    """The inverse sums of rows, (B, 1, N)."""
    r_2: Tensor | None = None
    c_1: Tensor | None = None
    """The inverse sums of columns, for each group, (B, L, |G|)."""
    c_2: Tensor | None = None
    kept_1: Tensor | None = None
    """Where an expanded value is kept, (B, N, d), or vector, (B, N, 1)."""
    kept_2: Tensor | None = None
    back_1: Tensor | None = None
    """Where a backward value is kept, (B, L, d)."""
    back_2: Tensor | None = None
    F_1: Tensor | None = None
    """The expanded vectors, (B, N, d): made once, where their values are dropped."""
    F_2: Tensor | None = None
    W_1: Tensor | None = None
    """R_bw R_fw, (B, L, L): made once, where M is made again."""
    W_2: Tensor | None = None
    D: Tensor | None = None
    """B_1 - B_2, (B, L, d): made once, with dropout or where M is made again."""

    def parts(self) -> list[_Operands]:
        """Parts of the batch that a CPU's caches hold; elsewhere the whole of it."""
        if self.M.device.type != "cpu" or torch.compiler.is_compiling():
            return [self]
        B, L, N = self.M.shape
        size = max(1, _CACHED * torch.get_num_threads() // max(L * N, 1))
        if size >= B:
            return [self]
        fields = {name: x for name, x in self._asdict().items() if x is not None}
        return [
            self._replace(**{name: x[first : first + size] for name, x in fields.items()})
            for first in range(0, B, size)
        ]

    def streams(
        self, vectors: Tensor, plan: _Plan, masks: tuple[Tensor, Tensor] | None, *, back: bool
    ) -> tuple[Stream, Stream]:
        """Both streams; ``back`` knows what the way forth has made."""
        biases, mixing = Biases(vectors, self.conditions), plan.mixing_back if back else plan.mixing

        def stream(
            sign: int,
            V: Tensor,
            r: Tensor | None,
            c: Tensor | None,
            kept: Tensor | None,
            F: Tensor | None,
            W: Tensor | None,
        ) -> Stream:
            inverse_sums = None if r is None or c is None else (r, c)
            arguments = (self.M, sign, V, biases, plan.rows, masks, inverse_sums, kept)
            if mixing and F is None:  # W has no expanded values to drop
                return Mixing(*arguments, W=W)
            return Expanding(*arguments, F=F, known=back and F is not None)

        first = stream(1, self.V_1, self.r_1, self.c_1, self.kept_1, self.F_1, self.W_1)
        second = stream(-1, self.V_2, self.r_2, self.c_2, self.kept_2, self.F_2, self.W_2)
        return first, second


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
        *source: Tensor | None,
    ) -> Tensor:
        x = _Operands(M, selectors, conditions, values_1, values_2)
        if p := plan.dropout:
            (B, L, d), N = values_1.shape, M.shape[2]
            of_values, device = plan.dropout_of == "values", M.device
            rows = (B, N, d if of_values else 1)
            x = x._replace(
                M=(M * keep_mask(M.shape, p, device)).mul_(keep_scale(p)),
                kept_1=keep_mask(rows, p, device),
                kept_2=keep_mask(rows, p, device),
                back_1=keep_mask((B, L, d), p, device),
                back_2=keep_mask((B, L, d), p, device),
                F_1=values_1.new_empty(rows) if of_values else None,
                F_2=values_1.new_empty(rows) if of_values else None,
            )
        masks, parts = plan.rows.masks(M), []
        for part in x.parts():
            first, second = part.streams(vectors, plan, masks, back=False)
            B_1 = _dropped(first.values(), part.back_1, p)
            B_2 = _dropped(second.values(), part.back_2, p)
            sums = zip(first.inverse_sums, second.inverse_sums, strict=True)
            parts.append([torch.lerp(B_2, B_1, part.selectors.sigmoid()), *chain(*sums)])
            if p or plan.remaking:
                parts[-1].append(B_1 - B_2)
            if isinstance(first, Mixing) and isinstance(second, Mixing) and plan.remaking:
                parts[-1] += first.W, second.W
        out, r_1, r_2, c_1, c_2, *made = (_whole(of_parts) for of_parts in zip(*parts, strict=True))
        x = x._replace(r_1=r_1, r_2=r_2, c_1=c_1, c_2=c_2, D=made[0] if made else None)
        if plan.remaking:
            x = x._replace(M=M.new_empty(0), W_1=made[1], W_2=made[2])
        ctx.save_for_backward(vectors, *(masks or (None, None)), *x, *source)
        ctx.plan = plan
        return out

    @staticmethod
    @without_autocast
    def backward(ctx: Any, dO: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            raise RuntimeError(
                "the factored implementation has a first derivative only (create_graph=True); "
                "expected implementation='literal' to differentiate twice"
            )
        plan, (vectors, gathering, reading, *operands) = ctx.plan, ctx.saved_tensors
        masks = None if gathering is None else (gathering, reading)
        operands, source = operands[: len(_Operands._fields)], operands[len(_Operands._fields) :]
        x, parts, d_vectors = _Operands(*operands), [], []
        if plan.remaking:
            x = x._replace(M=_Source(*source).M())
        of_x = x.parts()
        of_dO = dO.split(len(of_x[0].M)) if len(of_x) > 1 else (dO,)
        for part, dout in zip(of_x, of_dO, strict=True):
            first, second = part.streams(vectors, plan, masks, back=True)
            gate = part.selectors.sigmoid()
            dB_1 = gate * dout
            dB_2 = dout - dB_1
            D = _difference(first, second) if part.D is None else part.D
            dS = D.mul(dB_2).mul_(gate)
            of_1 = first.gradients(_dropped(dB_1, part.back_1, plan.dropout))
            of_2 = second.gradients(_dropped(dB_2, part.back_2, plan.dropout))
            dM = of_1.M.sub_(of_2.M)
            parts.append(
                [dM.mul_(keep_scale(plan.dropout)) if plan.dropout else dM, of_1.V, of_2.V, dS]
            )
            if of_1.conditions is not None and of_2.conditions is not None:
                parts[-1].append(of_1.conditions.add_(of_2.conditions))
            d_vectors.append(of_1.vectors.add_(of_2.vectors))
        dM, dV_1, dV_2, dS, *dC = (_whole(of_parts) for of_parts in zip(*parts, strict=True))
        if len(d_vectors) > 1:
            d_vectors = [torch.stack(d_vectors).sum(0, dtype=x.M.dtype).to(vectors.dtype)]
        # M is what hands its gradient on to its source
        to_source = (None,) * len(source)
        return dM, dV_1, dV_2, dS, d_vectors[0], dC[0] if dC else None, None, *to_source


def _whole(parts: Sequence[Tensor]) -> Tensor:
    """The batch of its parts."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


def _dropped(x: Tensor, kept: Tensor | None, dropout: float) -> Tensor:
    """Backward values, or their gradient, as dropout leaves them."""
    return x if kept is None else x * kept * keep_scale(dropout) ** 2


def _difference(first: Stream, second: Stream) -> Tensor:
    """B_1 - B_2, (b, L, d)."""
    if isinstance(first, Mixing) and isinstance(second, Mixing):
        return first.less(second)
    return first.values() - second.values()
