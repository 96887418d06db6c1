"""The LSTM over a sequence as one operator: a sequential loop with a custom backward.

The loop computes only the recurrence, in place. The input projection and the gradients of weights
and inputs are one product each per chunk of steps. Saved for backward are the gates, c and the
factor of o.

On a CPU a chunk is ``CHUNK`` bytes of gates, so that it stays in the caches and the allocator
reuses its memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from torch_impl.recurrent.inplace_cell import (
    StepInputs,
    cell_backward,
    cell_forward,
    gate_views,
)

CHUNK = 4 * 2**20
"""CPU chunk size, in bytes of gates."""


def forward(
    xs: Tensor,
    weight_x: Tensor,
    weight_h: Tensor,
    bias: Tensor | None,
    h: Tensor,
    c: Tensor,
    read: Tensor | None,
    z_c: Tensor | None,
    z_h: Tensor | None,
    h_dropout: Tensor | None,
    g_dropout: Tensor | None,
    squash: bool,
    save: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, list[Tensor]]:
    """Every h (T, B, d), the last c; all c, m and gates, each empty if not ``save``.

    For arguments see `cell` and `unroll`; masks are (T, B, d) or (T, B, 1).
    """
    with torch.autocast(xs.device.type, enabled=False):
        T, d = len(xs), h.shape[-1]
        hs = xs.new_empty(T, *h.shape)
        cs = xs.new_empty(T if save else 2, *h.shape)
        # without tanh and zoneout the factor of o, m, is c itself
        separate_m = squash or z_c is not None
        ms = xs.new_empty(T if save else 1, *h.shape) if separate_m else cs
        gates_of_chunks, inputs = [], StepInputs(read, z_c, z_h, g_dropout)
        for steps in _chunks(xs, weight_h):
            gates = F.linear(xs[steps], weight_x, bias)  # (t, B, G d)
            if save:
                gates_of_chunks.append(gates)
            views = [x.unbind(0) for x in gate_views(gates, d)]  # (B, .), by step
            for k, t in enumerate(range(steps.start, steps.stop)):
                h_in = h if h_dropout is None else h * h_dropout[t]
                torch.addmm(gates[k], h_in, weight_h.mT, out=gates[k])
                c_t = cs[t if save else t % 2]
                m = ms[t if save else 0] if separate_m else c_t
                of_step = [view[k] for view in views]
                cell_forward(of_step, h, c, hs[t], c_t, m, inputs.at(t), squash)
                h, c = hs[t], c_t
        last = c.clone()
        if not save:
            cs, ms = xs.new_empty(0), xs.new_empty(0)
        return hs, last, cs, ms if separate_m and save else xs.new_empty(0), gates_of_chunks


lstm_loop = torch.library.custom_op("captionbench::lstm_loop", forward, mutates_args=())


@lstm_loop.register_fake
def _(xs: Tensor, W_x: Tensor, weight_h: Tensor, bias: Tensor | None, *rest: Any) -> Any:
    h, c, _, z_c, *_, squash, save = rest
    shape = len(xs), *h.shape
    separate_m = save and (squash or z_c is not None)
    chunks = _chunks(xs, weight_h) if save else ()
    return (
        xs.new_empty(shape),
        torch.empty_like(c),
        xs.new_empty(shape if save else (0,)),
        xs.new_empty(shape if separate_m else (0,)),
        [xs.new_empty(s.stop - s.start, len(h), len(weight_h)) for s in chunks],
    )


def backward(
    dhs: Tensor | None,
    dc: Tensor | None,
    xs: Tensor,
    weight_x: Tensor,
    weight_h: Tensor,
    h: Tensor,
    c: Tensor,
    read: Tensor | None,
    z_c: Tensor | None,
    z_h: Tensor | None,
    h_dropout: Tensor | None,
    g_dropout: Tensor | None,
    hs: Tensor,
    cs: Tensor,
    ms: Tensor,
    gates_of_chunks: list[Tensor],
    squash: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The gradients of xs, W_x, W_h, the bias, h, c and ``read`` (empty if None)."""
    with torch.autocast(xs.device.type, enabled=False):
        ms = ms if ms.numel() else cs
        dxs, dread = xs.new_empty(xs.shape), xs.new_empty(0 if read is None else cs.shape)
        dW_x, dW_h = torch.zeros_like(weight_x), torch.zeros_like(weight_h)
        db = xs.new_zeros(len(weight_h))
        # gradients of h_t and c_t through the steps after t
        dh = torch.zeros_like(h) if dhs is None else dhs[-1].clone()
        dc = torch.zeros_like(c) if dc is None else dc.clone()
        dm, buffer = torch.empty_like(h), torch.empty_like(gates_of_chunks[0])
        inputs = StepInputs(read, z_c, z_h, g_dropout)
        for steps, gates in zip(
            reversed(_chunks(xs, weight_h)), reversed(gates_of_chunks), strict=True
        ):
            dgates = buffer[: len(gates)]
            views, dviews = (
                [x.unbind(0) for x in gate_views(y, h.shape[-1])] for y in (gates, dgates)
            )
            for t in reversed(range(steps.start, steps.stop)):
                k = t - steps.start
                zoned_h, zoned_c = cell_backward(
                    [view[k] for view in views],
                    [view[k] for view in dviews],
                    dh,
                    dc,
                    cs[t - 1] if t else c,
                    ms[t],
                    dm,
                    None if read is None else dread[t],
                    inputs.at(t),
                    squash,
                )
                torch.mm(dgates[k], weight_h, out=dh)
                if h_dropout is not None:
                    dh *= h_dropout[t]
                if zoned_h is not None:
                    dh += zoned_h
                if zoned_c is not None:
                    dc += zoned_c
                if dhs is not None and t:
                    dh += dhs[t - 1]
            before = slice(steps.start - 1, steps.stop - 1)
            h_in = hs[before] if steps.start else torch.cat([h[None], hs[: steps.stop - 1]])
            if h_dropout is not None:
                h_in = h_in * h_dropout[steps]
            rows = dgates.flatten(0, 1)  # (t B, G d)
            dW_h.addmm_(rows.mT, h_in.flatten(0, 1))
            dW_x.addmm_(rows.mT, xs[steps].flatten(0, 1))
            db += rows.sum(0)
            torch.mm(rows, weight_x, out=dxs[steps].view(-1, xs.shape[-1]))
        return dxs, dW_x, dW_h, db, dh, dc, dread


lstm_loop_backward = torch.library.custom_op(
    "captionbench::lstm_loop_backward", backward, mutates_args=()
)


@lstm_loop_backward.register_fake
def _(dhs: Tensor | None, dc: Tensor | None, *saved: Any) -> tuple[Tensor, ...]:
    xs, weight_x, weight_h, h, c, read = saved[:6]
    dxs, db = xs.new_empty(xs.shape), xs.new_empty(len(weight_h))
    dW_x, dW_h, dh, dc_0 = (torch.empty_like(x) for x in (weight_x, weight_h, h, c))
    return dxs, dW_x, dW_h, db, dh, dc_0, xs.new_empty(0 if read is None else (len(xs), *h.shape))


def _chunks(xs: Tensor, weight_h: Tensor) -> list[slice]:
    """The steps of xs (T, B, d_x) in chunks of at most ``CHUNK`` bytes of gates."""
    T, B = xs.shape[:2]
    size = T
    if xs.device.type == "cpu":
        size = max(1, CHUNK // max(1, B * len(weight_h) * xs.element_size()))
    return [slice(start, min(start + size, T)) for start in range(0, T, size)]


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
    xs, weight_x, weight_h, bias, *given, squash, _ = inputs
    hs, _, cs, ms, gates_of_chunks = output
    ctx.save_for_backward(xs, weight_x, weight_h, *given, hs, cs, ms, *gates_of_chunks)
    ctx.squash, ctx.has_bias = squash, bias is not None
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, dhs: Tensor | None, dc: Tensor | None, *_: Any) -> tuple[Any, ...]:
    saved = ctx.saved_tensors
    read = saved[5]
    dhs = None if dhs is None else dhs.contiguous()
    gradients = lstm_loop_backward(dhs, dc, *saved[:13], list(saved[13:]), ctx.squash)
    dxs, dW_x, dW_h, db, dh, dc, dread = gradients
    db, dread = db if ctx.has_bias else None, None if read is None else dread
    return dxs, dW_x, dW_h, db, dh, dc, dread, None, None, None, None, None, None


lstm_loop.register_autograd(_backward, setup_context=_setup_context)


@register_flop_formula(torch.ops.captionbench.lstm_loop)
def forward_flops(
    xs_shape: Sequence[int], weight_x: Sequence[int], weight_h: Sequence[int], *_: Any, **__: Any
) -> int:
    """2 T B G d (d_x + d): W_x x_t and W_h h_{t-1} of every step."""
    T, B = xs_shape[:2]
    return 2 * T * B * weight_h[0] * (weight_x[1] + weight_h[1])


@register_flop_formula(torch.ops.captionbench.lstm_loop_backward)
def backward_flops(*shapes: Any, **_: Any) -> int:
    """Twice the forward pass: the gradients of both operands of each product."""
    return 2 * forward_flops(*shapes[2:5])
