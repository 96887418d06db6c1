"""The expansion mechanism in fewer operations and bytes, equal to the literal form.

The shapes decide how products associate (`stream`), in the forward and in the backward pass, and
whether the key projection is folded into the queries. A dynamic row (j, n) is c_j + e_n, so M is
the sum of an L x L and an L x N_E part, and Q_E is never materialised.

The backward pass is hand-written. Saved for it are the operands, M, its inverse sums and dropout's
masks; the rest is recomputed. Where W and B_1 - B_2 are smaller than M, they are saved instead and
M is recomputed, which takes fewer operations than recomputing them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from torch_impl.common.dropout import keep_factors, keep_scale
from torch_impl.common.precision import at_least_float32, without_autocast
from torch_impl.expansion.literal import Operands
from torch_impl.expansion.stream import (
    Biases,
    Expanded,
    Mixed,
    Rows,
    Stream,
    StreamTensors,
)

CHUNK = 2**19
"""CPU chunk size, in elements of M per thread; caches hold a few times as many."""


class _Plan(NamedTuple):
    rows: Rows
    mixed_forward: bool
    """Use the L x L product W = R_bw R_fw in the forward pass."""
    mixed_backward: bool
    recompute_M: bool
    """Save W and B_1 - B_2 instead of M, and recompute M in backward."""
    dropout: float
    dropout_of: str


def static(x: Operands, groups: Sequence[int], key_bias: Tensor | None = None) -> Tensor:
    """``static_expansion``; ``key_bias`` (N,) is that of a folded projection, see `fold`."""
    L, (N, d) = x.keys.shape[1], x.query_vectors.shape
    # multiply-accumulates per token without those of M; in backward recomputation is included
    macs_literal, macs_mixed = 4 * N * d, 2 * L * (N + d) + 2 * N * d
    macs_literal_backward, macs_mixed_backward = 12 * N * d, 6 * L * (N + d) + 5 * N * d
    recompute_M = recomputes(L, N, d) and not x.dropout and torch.is_grad_enabled()
    mixed = recompute_M or macs_mixed < macs_literal
    mixed_backward = recompute_M or macs_mixed_backward < macs_literal_backward
    rows = Rows(tuple(groups))
    plan = _Plan(rows, mixed, mixed_backward, recompute_M, x.dropout, x.dropout_of)
    with torch.autocast(x.keys.device.type, enabled=False):
        inputs = _InputsOfM(x.query_vectors, x.keys, key_bias, x.mask)
        E_B = x.bias_vectors.to(x.values[0].dtype)
        operands = inputs.M(), *x.values, x.selectors, E_B, None, plan
        out: Tensor = _Expansion.apply(*operands, *(inputs if recompute_M else ()))
        return out


def recomputes(L: int, N: int, d: int) -> bool:
    """Whether W and D are saved instead of M, which takes less memory and fewer operations."""
    macs_literal, macs_mixed = 4 * N * d, 2 * L * (N + d) + 2 * N * d
    macs_literal_backward, macs_backward_with_W = 12 * N * d, 4 * L * (N + d) + 5 * N * d
    is_smaller = 2 * L + d <= N  # 2 L^2 + L d elements against N L
    is_quicker = macs_mixed < macs_literal and macs_backward_with_W < macs_literal_backward
    return is_smaller and is_quicker


def dynamic(x: Operands, conditions: Tensor, causal: bool) -> Tensor:
    """``dynamic_expansion``."""
    L, (N_E, d), mask = x.keys.shape[1], x.query_vectors.shape, x.mask
    # per token, as in `static`
    macs_literal, macs_mixed = 4 * L * N_E * d, 2 * L * L * N_E + 4 * L * d + 2 * N_E * d
    macs_literal_backward = 12 * L * N_E * d
    macs_mixed_backward = 6 * L * L * N_E + 11 * L * d + 5 * N_E * d
    mixed, mixed_backward = macs_mixed < macs_literal, macs_mixed_backward < macs_literal_backward
    rows = Rows((L * N_E,), N_E, causal)
    plan = _Plan(rows, mixed, mixed_backward, False, x.dropout, x.dropout_of)
    with torch.autocast(x.keys.device.type, enabled=False):
        # (B, L, L) and (B, L, N_E)
        A, P = _transposed_M(conditions, x.keys), _transposed_M(x.query_vectors, x.keys)
        M = A[..., None] + P[:, :, None]  # (B, L, L, N_E)
        if mask is not None:
            M = M.masked_fill(~(mask[:, :, None] & mask[:, None])[..., None], 0)
        b, C = (y.to(x.values[0].dtype) for y in (x.bias_vectors, conditions))
        out: Tensor = _Expansion.apply(M.flatten(2), *x.values, x.selectors, b, C, plan)
        return out


def folds(B: int, L: int, N: int) -> bool:
    """Whether `fold` takes fewer operations than the projection of all tokens."""
    return B * L > N


def fold(query_vectors: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """The key projection folded into the queries: E_Q W, (N, d), and E_Q b, (N,)."""
    precise = at_least_float32(query_vectors.dtype)
    with torch.autocast(query_vectors.device.type, enabled=False):
        Q = query_vectors.to(precise)
        return Q @ weight.to(precise), Q @ bias.to(precise)


def _transposed_M(queries: Tensor, keys: Tensor, key_bias: Tensor | None = None) -> Tensor:
    """K Q^T / sqrt(d), (B, L, N), for queries (B, N, d), or (N, d) shared by all images."""
    precise = at_least_float32(keys.dtype)
    Q, K, root = queries.to(precise), keys.to(precise), math.sqrt(queries.shape[-1])
    if queries.dim() == 3:
        return (K @ Q.mT).div_(root)
    return F.linear(K, Q / root, None if key_bias is None else key_bias.to(precise) / root)


class _InputsOfM(NamedTuple):
    queries: Tensor
    keys: Tensor
    key_bias: Tensor | None
    mask: Tensor | None

    def M(self) -> Tensor:
        """The transposed M of a static expansion, (B, L, N)."""
        M = _transposed_M(self.queries, self.keys, self.key_bias)
        return M if self.mask is None else M.masked_fill(~self.mask[..., None], 0)


class _Saved(NamedTuple):
    """The batched operands of both passes, and what forward saves for backward."""

    M: Tensor
    """(B, L, N), after dropout; empty in what is saved if M is recomputed."""
    selectors: Tensor
    conditions: Tensor | None
    D: Tensor | None
    """B_1 - B_2, (B, L, d), saved with dropout or where M is recomputed."""
    first: StreamTensors
    second: StreamTensors

    def tensors(self) -> tuple[Tensor | None, ...]:
        """All fields, flat, for ``save_for_backward``."""
        return *self[:4], *self.first, *self.second

    @classmethod
    def from_tensors(cls, tensors: Sequence[Any]) -> _Saved:
        """The inverse of `tensors`."""
        M, selectors, conditions, D, *of_streams = tensors
        n = len(StreamTensors._fields)
        first, second = StreamTensors(*of_streams[:n]), StreamTensors(*of_streams[n:])
        return cls(M, selectors, conditions, D, first, second)

    def chunks(self) -> list[_Saved]:
        """The batch in chunks that fit a CPU's caches; on other devices a single chunk."""
        if self.M.device.type != "cpu" or torch.compiler.is_compiling():
            return [self]
        B, L, N = self.M.shape
        size = max(1, CHUNK * torch.get_num_threads() // max(L * N, 1))
        if size >= B:
            return [self]
        starts = range(0, B, size)
        parts = [[x if x is None else x[i : i + size] for x in self.tensors()] for i in starts]
        return [self.from_tensors(part) for part in parts]

    def streams(
        self,
        vectors: Tensor,
        plan: _Plan,
        masks: tuple[Tensor, Tensor] | None,
        *,
        backward: bool = False,
    ) -> tuple[Stream, Stream]:
        """Both streams; in backward, from what forward saved."""
        biases = Biases(vectors, self.conditions)

        def stream(sign: int, x: StreamTensors) -> Stream:
            arguments = self.M, sign, x, biases, plan.rows, masks
            # element-wise dropout needs the expanded values F, which `Mixed` does not compute
            mixed = plan.mixed_backward if backward else plan.mixed_forward
            return (Mixed if mixed and x.F is None else Expanded)(*arguments, saved=backward)

        return stream(1, self.first), stream(-1, self.second)


class _Expansion(torch.autograd.Function):
    """Both streams of the transposed M (B, L, N), and their gated sum.

    M's dropout mask is not saved: where M is 0, P's gradient is 0. A path has three dropouts, on M,
    F and B; of their factors 1 / (1 - p), one is applied to M and two to B.
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
        *inputs_of_M: Tensor | None,
    ) -> Tensor:
        first, second = StreamTensors(values_1), StreamTensors(values_2)
        if p := plan.dropout:
            (B, L, d), N = values_1.shape, M.shape[2]
            of_values = plan.dropout_of == "values"
            M = (M * keep_factors(M.shape, p, M.device)).mul_(keep_scale(p))
            rows = B, N, d if of_values else 1
            shapes = rows, rows, (B, L, d), (B, L, d)
            keep = [keep_factors(shape, p, M.device) for shape in shapes]
            F_1, F_2 = (V.new_empty(rows) if of_values else None for V in (values_1, values_2))
            first = first._replace(keep_F=keep[0], keep_B=keep[2], F=F_1)
            second = second._replace(keep_F=keep[1], keep_B=keep[3], F=F_2)
        x = _Saved(M, selectors, conditions, None, first, second)
        masks, chunks = plan.rows.masks(M), []
        for chunk in x.chunks():
            one, two = chunk.streams(vectors, plan, masks)
            B_1 = _dropped(one.values(), chunk.first.keep_B, p)  # (b, L, d)
            B_2 = _dropped(two.values(), chunk.second.keep_B, p)
            out = torch.lerp(B_2, B_1, chunk.selectors.sigmoid())
            found = [out, *one.inverse_sums, *two.inverse_sums]
            if p or plan.recompute_M:
                found.append(B_1 - B_2)
            if plan.recompute_M:
                assert isinstance(one, Mixed) and isinstance(two, Mixed)
                found += one.W, two.W
            chunks.append(found)
        out, r_1, c_1, r_2, c_2, *saved = (_whole(parts) for parts in zip(*chunks, strict=True))
        first = first._replace(inverse_rows=r_1, inverse_columns=c_1)
        second = second._replace(inverse_rows=r_2, inverse_columns=c_2)
        if plan.recompute_M:
            M, first, second = (
                M.new_empty(0),
                first._replace(W=saved[1]),
                second._replace(W=saved[2]),
            )
        x = _Saved(M, selectors, conditions, saved[0] if saved else None, first, second)
        ctx.save_for_backward(vectors, *(masks or (None, None)), *inputs_of_M, *x.tensors())
        ctx.plan, ctx.inputs = plan, len(inputs_of_M)
        return out

    @staticmethod
    @without_autocast
    def backward(ctx: Any, dO: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            raise RuntimeError(
                "the factored implementation has a first derivative only (create_graph=True); "
                "expected implementation='literal' to differentiate twice"
            )
        plan, (vectors, forward_mask, backward_mask, *saved) = ctx.plan, ctx.saved_tensors
        inputs_of_M, saved = saved[: ctx.inputs], saved[ctx.inputs :]
        masks = None if forward_mask is None else (forward_mask, backward_mask)
        x, p = _Saved.from_tensors(saved), plan.dropout
        if plan.recompute_M:
            x = x._replace(M=_InputsOfM(*inputs_of_M).M())
        chunks, gradients, d_vectors = x.chunks(), [], []
        of_dO = dO.split(len(chunks[0].M)) if len(chunks) > 1 else (dO,)
        for chunk, dout in zip(chunks, of_dO, strict=True):
            first, second = chunk.streams(vectors, plan, masks, backward=True)
            gate = chunk.selectors.sigmoid()  # (b, L, d)
            dB_1 = gate * dout
            dB_2 = dout - dB_1
            D = first.minus(second) if chunk.D is None else chunk.D
            dS = D.mul(dB_2).mul_(gate)  # dB_2 has the factor 1 - gate
            of_1 = first.gradients(_dropped(dB_1, chunk.first.keep_B, p))
            of_2 = second.gradients(_dropped(dB_2, chunk.second.keep_B, p))
            dM = of_1.M.sub_(of_2.M)  # (b, L, N)
            found = [dM.mul_(keep_scale(p)) if p else dM, of_1.V, of_2.V, dS]
            if of_1.conditions is not None and of_2.conditions is not None:
                found.append(of_1.conditions.add_(of_2.conditions))
            gradients.append(found)
            d_vectors.append(of_1.vectors.add_(of_2.vectors))
        dM, dV_1, dV_2, dS, *dC = (_whole(parts) for parts in zip(*gradients, strict=True))
        if len(d_vectors) > 1:
            d_vectors = [torch.stack(d_vectors).sum(0, dtype=x.M.dtype).to(vectors.dtype)]
        # the inputs of M get their gradients from dM, by autograd
        of_inputs = (None,) * len(inputs_of_M)
        return dM, dV_1, dV_2, dS, d_vectors[0], dC[0] if dC else None, None, *of_inputs


def _whole(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


def _dropped(x: Tensor, keep: Tensor | None, p: float) -> Tensor:
    """Dropout of backward values, or of their gradient, with the factors of F and B."""
    return x if keep is None else (x * keep).mul_(keep_scale(p) ** 2)
