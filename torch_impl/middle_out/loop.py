"""`run` as a sequential loop over time with a custom backward.

Shapes: G lanes, T steps, B sequences, P sides; d is the width of the states, m of the memory, e of
a word. Each step is one product per lane, on (G, n, .) for its n active sequences; the weights'
gradients are one product per lane for all steps. Attention is batched over N = B G pairs of
sequence and lane, sequence first, so that the active ones come first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from torch_impl.common.precision import without_autocast
from torch_impl.recurrent.inplace_cell import (
    NO_INPUTS,
    cell_backward,
    cell_forward,
    gate_views,
)


def run_loop(
    X: Tensor,
    W: Tensor,
    h_0: Tensor,
    c_0: Tensor,
    counts: Sequence[int],
    *,
    words: Tensor | None = None,
    W_d: Tensor | None = None,
    keys: Tensor | None = None,
    values: Tensor | None = None,
    mask: Tensor | None = None,
    W_h: Tensor | None = None,
    attend_mask: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The states h and c after every step, (G, T, B, d) each; 0 where a sequence is not active.

    Args:
        X: (G, T, B, 4 d), the words' part of the gates' pre-activations, with the bias.
        W: (P, G, z, 4 d), rows for d_t, c_t, h~_t and h_{t-1}.
        h_0: (G, B, d).
        c_0: (G, B, d).
        counts: the number of active sequences at each step; they come first in the batch.
        words: (G, T, B, e), attended to by ``W_d``.
        W_d: (P, G, d, e).
        keys: (P, B, G, L, d), the memory's rows times W_a^T.
        values: (B, G, L, m), the memory's rows.
        mask: (B, G, L), True for valid rows of the memory.
        W_h: (P, G, d, d), of the attention to states.
        attend_mask: (B, G, T), True for the steps that may be attended to.
    """
    h, c = _Loop.apply(X, W, h_0, c_0, counts, words, W_d, keys, values, mask, W_h, attend_mask)
    return h, c


def _attend(
    query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Weights (N, 1, L) of query (N, 1, d) on keys (N, L, d), and the mean of values, (N, 1, m)."""
    scores = query @ keys.transpose(1, 2)  # (N, 1, L)
    if mask is None:
        weights = scores.softmax(-1)
    else:
        hidden, lowest = ~mask.unsqueeze(1), torch.finfo(scores.dtype).min
        weights = scores.masked_fill_(hidden, lowest).softmax(-1).masked_fill_(hidden, 0)
    return weights, weights @ values


def _attend_backward(weights: Tensor, values: Tensor, d_mean: Tensor) -> Tensor:
    """The gradient of the scores, (N, 1, L)."""
    product = (d_mean @ values.transpose(1, 2)).mul_(weights)
    return product.addcmul_(weights, product.sum(-1, keepdim=True), value=-1)


def _by_pair(x: Tensor) -> Tensor:
    """(G, n, d) to (N = n G, 1, d)."""
    return x.transpose(0, 1).reshape(-1, 1, x.shape[-1])


def _by_lane(x: Tensor, G: int) -> Tensor:
    """The inverse of `_by_pair`: (N, 1, d) to (G, n, d)."""
    return x.view(-1, G, x.shape[-1]).transpose(0, 1)


def _all_pairs(x: Tensor) -> Tensor:
    """(G, T, B, d) to (N, T, d)."""
    return x.permute(2, 0, 1, 3).flatten(0, 1)


def _weight_gradient(x: Tensor, dy: Tensor, P: int) -> Tensor:
    """The gradient (P, G, in, out) of W in y = x W: one product per side and lane."""
    sides = [(x[:, p::P].flatten(1, 2), dy[:, p::P].flatten(1, 2)) for p in range(P)]
    return torch.stack([a.transpose(1, 2) @ b for a, b in sides])


class _MemoryAttention:
    """Attention to the encoder's states; stores all steps' weights and gradients of scores."""

    def __init__(self, T: int, keys: Tensor, values: Tensor, mask: Tensor | None) -> None:
        self.G, self.shape = values.shape[1], values.shape[:2]
        # (P, N, L, d) and (N, L, m)
        self.keys, self.values = keys.flatten(1, 2), values.flatten(0, 1)
        self.mask = None if mask is None else mask.flatten(0, 1)
        self.weights = values.new_empty(T, *self.values.shape[:2])  # (T, N, L)
        self.d_scores = torch.empty_like(self.weights)

    def forward(self, t: int, p: int, h: Tensor) -> Tensor:
        """c_t (G, n, m) from h_{t-1} (G, n, d)."""
        N = self.G * h.shape[1]
        mask = None if self.mask is None else self.mask[:N]
        weights, mean = _attend(_by_pair(h), self.keys[p, :N], self.values[:N], mask)
        self.weights[t, :N], self.weights[t, N:] = weights.squeeze(1), 0
        return _by_lane(mean, self.G)

    def backward(self, t: int, p: int, d_mean: Tensor) -> Tensor:
        """The gradient of h_{t-1}, (G, n, d)."""
        N = self.G * d_mean.shape[1]
        weights = self.weights[t, :N].unsqueeze(1)
        d_scores = _attend_backward(weights, self.values[:N], _by_pair(d_mean))
        self.d_scores[t, :N], self.d_scores[t, N:] = d_scores.squeeze(1), 0
        return _by_lane(d_scores @ self.keys[p, :N], self.G)

    def gradient_of_keys(self, h: Tensor, P: int) -> Tensor:
        """(P, B, G, L, d), from every h_{t-1} (G, T, B, d)."""
        rows = _all_pairs(h)
        sides = [self.d_scores[p::P].permute(1, 2, 0) @ rows[:, p::P] for p in range(P)]
        return torch.stack(sides).unflatten(1, self.shape)

    def gradient_of_values(self, d_means: Tensor) -> Tensor:
        """(B, G, L, m), from the gradients of every c_t (G, T, B, m)."""
        return (self.weights.permute(1, 2, 0) @ _all_pairs(d_means)).unflatten(0, self.shape)


class _SelfAttention:
    """Attention of step t to the first t + ``ahead`` of the rows (N, T, r), words or states."""

    def __init__(self, rows: Tensor, W: Tensor, mask: Tensor | None, ahead: int) -> None:
        self.rows, self.W, self.mask, self.ahead = rows, W, mask, ahead
        N, T, _ = rows.shape
        # weights: (N, row, step)
        self.weights, self.queries = rows.new_zeros(N, T, T), torch.zeros_like(rows)
        self.d_scores, self.d_means = torch.zeros_like(self.weights), torch.zeros_like(rows)
        self.d_queries = rows.new_zeros(W.shape[1], T, N // W.shape[1], rows.shape[-1])

    def forward(self, t: int, p: int, h: Tensor) -> Tensor:
        """d_t or h~_t (G, n, r) from h_{t-1} (G, n, d)."""
        N, seen = h.shape[0] * h.shape[1], t + self.ahead
        query, rows = _by_pair(h @ self.W[p]), self.rows[:N, :seen]
        mask = None if self.mask is None else self.mask[:N, :seen]
        weights, mean = _attend(query, rows, rows, mask)
        self.weights[:N, :seen, t], self.queries[:N, t] = weights.squeeze(1), query.squeeze(1)
        return _by_lane(mean, len(h))

    def backward(self, t: int, p: int, d_mean: Tensor) -> Tensor:
        """The gradient of h_{t-1} through the query, (G, n, d)."""
        (G, n, _), seen = d_mean.shape, t + self.ahead
        N, d_means = G * n, _by_pair(d_mean)
        weights, rows = self.weights[:N, :seen, t].unsqueeze(1), self.rows[:N, :seen]
        d_scores = _attend_backward(weights, rows, d_means)
        self.d_scores[:N, :seen, t], self.d_means[:N, t] = d_scores.squeeze(1), d_means.squeeze(1)
        d_query = _by_lane(d_scores @ rows, G)
        self.d_queries[:, t, :n] = d_query
        return d_query @ self.W[p].transpose(1, 2)

    def gradient_of_rows(self, rows: slice, N: int) -> Tensor:
        """The gradient of these rows, (N, ., r), as keys and values of later steps."""
        d_rows = self.weights[:N, rows] @ self.d_means[:N]
        return d_rows.baddbmm_(self.d_scores[:N, rows], self.queries[:N])


class _Loop(torch.autograd.Function):
    """See ``run_loop``."""

    @staticmethod
    def forward(
        ctx: Any,
        X: Tensor,
        W: Tensor,
        h_0: Tensor,
        c_0: Tensor,
        counts: Sequence[int],
        words: Tensor | None,
        W_d: Tensor | None,
        keys: Tensor | None,
        values: Tensor | None,
        mask: Tensor | None,
        W_h: Tensor | None,
        attend_mask: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        (G, T, B, width), P = X.shape, W.shape[0]
        d = width // 4
        states_mask = None if attend_mask is None else attend_mask.flatten(0, 1)
        outputs = memory = states = None
        if words is not None and W_d is not None:
            outputs_mask = None if states_mask is None else F.pad(states_mask, (1, 0), value=True)
            outputs = _SelfAttention(_all_pairs(words), W_d, outputs_mask, ahead=1)
        if keys is not None and values is not None:
            memory = _MemoryAttention(T, keys, values, mask)
        if W_h is not None:
            states = _SelfAttention(X.new_zeros(B * G, T, d), W_h, states_mask, ahead=0)
        widths = (
            0 if words is None or outputs is None else words.shape[-1],
            0 if values is None else values.shape[-1],
            0 if states is None else d,
            d,
        )
        Z, gates = X.new_empty(G, T, B, sum(widths)), torch.empty_like(X)
        h, c, tanh_c = (X.new_empty(G, T, B, d) for _ in range(3))
        parts = list(zip((outputs, memory, states), Z.split(widths, -1), strict=False))
        for t, n in enumerate(counts):
            p = t % P
            for x in (Z, h, c):
                x[:, t, n:] = 0
            h_past, c_past = (h_0, c_0) if t < P else (h[:, t - P], c[:, t - P])
            past = h_past[:, :n], c_past[:, :n]
            Z[:, t, :n, -d:] = past[0]  # Z (G, T, B, z): the inputs of W
            for attention, mean in parts:
                if attention is not None:
                    mean[:, t, :n] = attention.forward(t, p, past[0])
            of_step = gates[:, t, :n]  # (G, n, 4 d)
            torch.baddbmm(X[:, t, :n], Z[:, t, :n], W[p], out=of_step)
            now = h[:, t, :n], c[:, t, :n], tanh_c[:, t, :n]
            cell_forward(gate_views(of_step, d), *past, *now, NO_INPUTS, True)
            if states is not None:
                states.rows[: n * G, t] = _by_pair(h[:, t, :n]).squeeze(1)
        ctx.save_for_backward(W, c_0, Z, gates, c, tanh_c)
        ctx.set_materialize_grads(False)
        ctx.counts, ctx.widths, ctx.attentions = counts, widths, (outputs, memory, states)
        return h, c

    @staticmethod
    @once_differentiable
    @without_autocast
    def backward(ctx: Any, d_h: Tensor | None, d_c: Tensor | None) -> tuple[Tensor | None, ...]:
        """The loop computes only what the gradient of the step before needs."""
        W, c_0, Z, gates, c, tanh_c = ctx.saved_tensors
        outputs, memory, states = ctx.attentions
        P, (G, T, B, d) = W.shape[0], c.shape
        dh = torch.zeros_like(c)
        if d_h is not None:
            dh.copy_(d_h)
        dh_0, dc = torch.zeros_like(c_0), [torch.zeros_like(c_0) for _ in range(P)]
        dZ, dgates = torch.empty_like(Z), torch.empty_like(gates)
        parts = list(zip(ctx.attentions, dZ.split(ctx.widths, -1), strict=False))
        for t in reversed(range(T)):
            p, n = t % P, ctx.counts[t]
            for x in (dZ, dgates):
                x[:, t, n:] = 0
            dh_t, dc_t = dh[:, t, :n], dc[p][:, :n]
            if states is not None:
                dh_t += _by_lane(states.gradient_of_rows(slice(t, t + 1), n * G), G)
            if d_c is not None:
                dc_t += d_c[:, t, :n]
            before = (c_0 if t < P else c[:, t - P])[:, :n]
            views, dviews = (gate_views(x[:, t, :n], d) for x in (gates, dgates))
            dm, m = torch.empty_like(dh_t), tanh_c[:, t, :n]
            cell_backward(views, dviews, dh_t, dc_t, before, m, dm, None, NO_INPUTS, True)
            torch.bmm(dgates[:, t, :n], W[p].transpose(1, 2), out=dZ[:, t, :n])
            dh_before = dZ[:, t, :n, -d:]
            for attention, d_mean in parts:
                if attention is not None:
                    dh_before += attention.backward(t, p, d_mean[:, t, :n])
            (dh_0 if t < P else dh[:, t - P])[:, :n] += dh_before
        h_before, d_keys, d_values, d_words, dW_d, dW_h = Z[..., -d:], *[None] * 5
        if outputs is not None:
            dW_d = _weight_gradient(h_before, outputs.d_queries, P)
            if ctx.needs_input_grad[5]:
                rows = outputs.gradient_of_rows(slice(None), B * G)
                d_words = rows.unflatten(0, (B, G)).permute(1, 2, 0, 3)
        if memory is not None:
            d_keys, d_values = (
                memory.gradient_of_keys(h_before, P),
                memory.gradient_of_values(parts[1][1]),
            )
        if states is not None:
            dW_h = _weight_gradient(h_before, states.d_queries, P)
        dc_0 = torch.stack(dc).sum(0)
        own = (d_words, dW_d, d_keys, d_values, None, dW_h, None)
        return dgates, _weight_gradient(Z, dgates, P), dh_0, dc_0, None, *own
