"""The attentive LSTM over a sequence: a sequential loop with a custom backward.

As in `lstm_loop`, the loop computes only what the next step needs; the gradients of weights and
memory are one product each for all steps. Saved for backward are the attention weights and the
query of every step; the score's hidden layer, (B, L, d_a) a step, is recomputed.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from torch_impl.common.precision import without_autocast
from torch_impl.recurrent.cell import Masks, State
from torch_impl.recurrent.inplace_cell import (
    StepInputs,
    cell_backward,
    cell_forward,
    gate_views,
)


def attentive_loop(
    inputs: Tensor,
    memory: Tensor,
    keys: Tensor,
    mask: Tensor | None,
    W_query: Tensor,
    w_score: Tensor,
    weight_z: Tensor,
    weight_h: Tensor,
    state: State,
    masks: Masks,
    squash: bool,
) -> tuple[Tensor, State]:
    """Every h (T, B, d), and the last state (ARNet 3, 4).

    Args:
        inputs: (T, B, 4 d), W x + b of the gates.
        memory: (B, L, d_s).
        keys: (B, L, d_a), W_s s_i + b.
        mask: (B, L), True for valid rows, at least one of each sequence; all if None.
        W_query: W_h of the score, (d_a, d).
        w_score: w of the score, (d_a,).
        weight_z: (4 d, d_s), of the context.
        weight_h: (4 d, d).
        state: before the first step.
        masks: (T, B, d) each.
        squash: see `cell`.
    """
    operands = memory, keys, mask, W_query, w_score, weight_z, weight_h, *state
    hs, c = _AttentiveLoop.apply(inputs, *operands, *masks, squash)
    return hs, State(hs[-1], c)


class _AttentiveLoop(torch.autograd.Function):
    """See ``attentive_loop``."""

    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,
        memory: Tensor,
        keys: Tensor,
        mask: Tensor | None,
        W_query: Tensor,
        w_score: Tensor,
        weight_z: Tensor,
        weight_h: Tensor,
        h_0: Tensor,
        c_0: Tensor,
        z_c: Tensor | None,
        z_h: Tensor | None,
        h_dropout: Tensor | None,
        g_dropout: Tensor | None,
        squash: bool,
    ) -> tuple[Tensor, Tensor]:
        (T, B, _), (_, L, d_s) = inputs.shape, memory.shape
        gates, extra = inputs.clone(), StepInputs(None, z_c, z_h, g_dropout)
        hs, cs = inputs.new_empty(T, *h_0.shape), inputs.new_empty(T, *c_0.shape)
        ms = inputs.new_empty(T, *c_0.shape) if squash or z_c is not None else cs
        queries = inputs.new_empty(T, B, keys.shape[-1])
        weights, contexts = inputs.new_empty(T, B, L), inputs.new_empty(T, B, d_s)
        views = [x.unbind(0) for x in gate_views(gates, h_0.shape[-1])]
        hidden, h, c = torch.empty_like(keys), h_0, c_0
        for t in range(T):
            torch.mm(h, W_query.mT, out=queries[t])  # (B, d_a)
            torch.add(keys, queries[t][:, None], out=hidden).tanh_()  # (B, L, d_a)
            scores = (hidden.flatten(0, 1) @ w_score[:, None]).view(B, L)
            if mask is not None:
                scores.masked_fill_(~mask, -torch.inf)
            torch.softmax(scores, -1, out=weights[t])
            torch.bmm(weights[t][:, None], memory, out=contexts[t][:, None])
            h_in = h if h_dropout is None else h * h_dropout[t]
            gates[t].addmm_(contexts[t], weight_z.mT).addmm_(h_in, weight_h.mT)
            of_step = [view[t] for view in views]
            cell_forward(of_step, h, c, hs[t], cs[t], ms[t], extra.at(t), squash)
            h, c = hs[t], cs[t]
        operands = memory, keys, W_query, w_score, weight_z, weight_h, h_0, c_0
        computed = gates, hs, cs, ms, queries, weights, contexts
        ctx.save_for_backward(*operands, z_c, z_h, h_dropout, g_dropout, *computed)
        ctx.squash = squash
        ctx.set_materialize_grads(False)
        return hs, c.clone()

    @staticmethod
    @once_differentiable
    @without_autocast
    def backward(ctx: Any, dhs: Tensor | None, dc: Tensor | None) -> tuple[Tensor | None, ...]:
        memory, keys, W_query, w_score, weight_z, weight_h, h_0, c_0, *rest = ctx.saved_tensors
        z_c, z_h, h_dropout, g_dropout, gates, hs, cs, ms, queries, weights, contexts = rest
        extra, T = StepInputs(None, z_c, z_h, g_dropout), len(hs)
        dgates, dcontexts = torch.empty_like(gates), torch.empty_like(contexts)
        dqueries, dkeys, dw = map(torch.zeros_like, (queries, keys, w_score[:, None]))
        # not in the strides of what is given: cuBLAS refuses those of one sequence
        dh = h_0.new_zeros(h_0.shape)
        if dhs is not None:
            dh += dhs[-1]
        dc = torch.zeros_like(c_0) if dc is None else dc.clone()
        dm, hidden, squares = map(torch.empty_like, (h_0, keys, keys[:, :1]))
        of_keys = torch.zeros_like(weights[0])  # (B, L)
        views, dviews = (
            [x.unbind(0) for x in gate_views(y, h_0.shape[-1])] for y in (gates, dgates)
        )
        for t in reversed(range(T)):
            zoned_h, zoned_c = cell_backward(
                [view[t] for view in views],
                [view[t] for view in dviews],
                dh,
                dc,
                cs[t - 1] if t else c_0,
                ms[t],
                dm,
                None,
                extra.at(t),
                ctx.squash,
            )
            torch.mm(dgates[t], weight_h, out=dh)
            if h_dropout is not None:
                dh *= h_dropout[t]
            torch.mm(dgates[t], weight_z, out=dcontexts[t])
            dweights = (memory @ dcontexts[t][..., None]).squeeze(-1).mul_(weights[t])  # (B, L)
            dscores = dweights.addcmul_(weights[t], dweights.sum(-1, keepdim=True), value=-1)
            torch.add(keys, queries[t][:, None], out=hidden).tanh_()
            dw.addmm_(hidden.flatten(0, 1).mT, dscores.view(-1, 1))
            # the derivative of tanh is 1 - tanh^2: its 1, and the factor w, follow after the loop
            dkeys.addcmul_(dscores[..., None], hidden.square_(), value=-1)
            torch.bmm(dscores[:, None], hidden, out=squares)
            torch.sub(dscores.sum(-1, keepdim=True), squares[:, 0], out=dqueries[t]).mul_(w_score)
            dh.addmm_(dqueries[t], W_query)
            of_keys += dscores
            if zoned_h is not None:
                dh += zoned_h
            if zoned_c is not None:
                dc += zoned_c
            if dhs is not None and t:
                dh += dhs[t - 1]
        dkeys.add_(of_keys[..., None]).mul_(w_score)
        before = torch.cat([h_0[None], hs[:-1]])  # (T, B, d), every h_{t-1}
        h_in = before if h_dropout is None else before * h_dropout
        dW_query, dweight_z, dweight_h = (
            dy.flatten(0, 1).mT @ x.flatten(0, 1)
            for dy, x in ((dqueries, before), (dgates, contexts), (dgates, h_in))
        )
        dmemory = weights.permute(1, 2, 0) @ dcontexts.transpose(0, 1)  # (B, L, d_s)
        of_weights = dW_query, dw[:, 0], dweight_z, dweight_h
        return dgates, dmemory, dkeys, None, *of_weights, dh, dc, *[None] * 5
