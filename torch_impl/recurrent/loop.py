"""The LSTM along a sequence as one operator, its backward written by hand.

What a loop of steps under autograd does beside the recurrence itself is done once for many steps:
the inputs' product with their weights, and all gradients of weights and inputs. The loop works in
place, and keeps for the backward the gates, c, and what o multiplies.

Steps are taken in chunks of ``CHUNK`` bytes of gates on a CPU: a chunk that was just written is
read from the cache, and memory of that size is used again without being mapped anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

CHUNK = 4 * 2**20
"""Bytes of gates that are worked on at a time on a CPU."""


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
    recurrent: Tensor | None,
    update: Tensor | None,
    squash: bool,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, list[Tensor]]:
    """h of all steps (T, B, d), the last c; and for the backward, or empty: all c, tanh(c), gates.

    Arguments as of ``cell`` and ``unroll``; masks are (T, B, d) or (T, B, 1).
    """
    with torch.autocast(xs.device.type, enabled=False):
        T, d = len(xs), h.shape[-1]
        hs = xs.new_empty(T, *h.shape)
        cs = xs.new_empty(T if keep else 2, *h.shape)
        # what o multiplies; without tanh and zoneout it is c itself
        apart = squash or z_c is not None
        ms = xs.new_empty(T if keep else 1, *h.shape) if apart else cs
        kept, beside = [], Beside(read, z_c, z_h, update)
        for steps in _chunks(xs, weight_h):
            gates = F.linear(xs[steps], weight_x, bias)
            if keep:
                kept.append(gates)
            by_step = views(gates, d)
            for k, t in enumerate(range(steps.start, steps.stop)):
                h_in = h if recurrent is None else h * recurrent[t]
                torch.addmm(gates[k], h_in, weight_h.mT, out=gates[k])
                new = cs[t if keep else t % 2]
                m = ms[t if keep else 0] if apart else new
                at_gates, at_t = [of[k] for of in by_step], beside.at(t)
                cell_forward(at_gates, h, c, hs[t], new, m, at_t, squash)
                h, c = hs[t], new
        last = c.clone()
        if not keep:
            cs, ms = xs.new_empty(0), xs.new_empty(0)
        return hs, last, cs, ms if apart and keep else xs.new_empty(0), kept


lstm_loop = torch.library.custom_op("captionbench::lstm_loop", forward, mutates_args=())


@lstm_loop.register_fake
def _(
    xs: Tensor,
    weight_x: Tensor,
    weight_h: Tensor,
    bias: Tensor | None,
    h: Tensor,
    c: Tensor,
    read: Tensor | None,
    z_c: Tensor | None,
    z_h: Tensor | None,
    recurrent: Tensor | None,
    update: Tensor | None,
    squash: bool,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, list[Tensor]]:
    shape = len(xs), *h.shape
    apart = keep and (squash or z_c is not None)
    chunks = _chunks(xs, weight_h) if keep else ()
    return (
        xs.new_empty(shape),
        torch.empty_like(c),
        xs.new_empty(shape if keep else (0,)),
        xs.new_empty(shape if apart else (0,)),
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
    recurrent: Tensor | None,
    update: Tensor | None,
    hs: Tensor,
    cs: Tensor,
    ms: Tensor,
    kept: list[Tensor],
    squash: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients by xs, W_x, W_h, the bias, h, c and what was read (empty if nothing was)."""
    with torch.autocast(xs.device.type, enabled=False):
        ms = ms if ms.numel() else cs
        dxs, dread = xs.new_empty(xs.shape), xs.new_empty(0 if read is None else cs.shape)
        dW_x, dW_h = torch.zeros_like(weight_x), torch.zeros_like(weight_h)
        db = xs.new_zeros(len(weight_h))
        # by h_t and c_t, as far as they have come from later steps
        dh = torch.zeros_like(h) if dhs is None else dhs[-1].clone()
        dc = torch.zeros_like(c) if dc is None else dc.clone()
        dm, buffer = torch.empty_like(h), torch.empty_like(kept[0])
        beside = Beside(read, z_c, z_h, update)
        for steps, gates in zip(reversed(_chunks(xs, weight_h)), reversed(kept), strict=True):
            dgates = buffer[: len(gates)]
            by_step, d_by_step = views(gates, h.shape[-1]), views(dgates, h.shape[-1])
            for t in reversed(range(steps.start, steps.stop)):
                k = t - steps.start
                past_h, past_c = cell_backward(
                    [of[k] for of in by_step],
                    [of[k] for of in d_by_step],
                    dh,
                    dc,
                    cs[t - 1] if t else c,
                    ms[t],
                    dm,
                    None if read is None else dread[t],
                    beside.at(t),
                    squash,
                )
                torch.mm(dgates[k], weight_h, out=dh)
                if recurrent is not None:
                    dh *= recurrent[t]
                if past_h is not None:
                    dh += past_h
                if past_c is not None:
                    dc += past_c
                if dhs is not None and t:
                    dh += dhs[t - 1]
            before = slice(steps.start - 1, steps.stop - 1)
            h_in = hs[before] if steps.start else torch.cat([h[None], hs[: steps.stop - 1]])
            if recurrent is not None:
                h_in = h_in * recurrent[steps]
            rows = dgates.flatten(0, 1)
            dW_h.addmm_(rows.mT, h_in.flatten(0, 1))
            dW_x.addmm_(rows.mT, xs[steps].flatten(0, 1))
            db += rows.sum(0)
            torch.mm(rows, weight_x, out=dxs[steps].view(-1, xs.shape[-1]))
        return dxs, dW_x, dW_h, db, dh, dc, dread


lstm_loop_backward = torch.library.custom_op(
    "captionbench::lstm_loop_backward", backward, mutates_args=()
)


@lstm_loop_backward.register_fake
def _(
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
    recurrent: Tensor | None,
    update: Tensor | None,
    hs: Tensor,
    cs: Tensor,
    ms: Tensor,
    kept: list[Tensor],
    squash: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    return (
        xs.new_empty(xs.shape),
        torch.empty_like(weight_x),
        torch.empty_like(weight_h),
        xs.new_empty(len(weight_h)),
        torch.empty_like(h),
        torch.empty_like(c),
        xs.new_empty(0 if read is None else cs.shape),
    )


class Beside(NamedTuple):
    """What a step has beside its gates, see ``cell``; of one step or, (T, ., .), of all."""

    read: Tensor | None
    z_c: Tensor | None
    z_h: Tensor | None
    update: Tensor | None

    def at(self, t: int) -> Beside:
        """That of step ``t``."""
        return Beside(*(None if x is None else x[t] for x in self))


def cell_forward(
    gates: Sequence[Tensor],
    h: Tensor,
    c: Tensor,
    h_t: Tensor,
    new: Tensor,
    m: Tensor,
    beside: Beside,
    squash: bool,
) -> None:
    """One step of ``cell`` from its gates on, which become what their non-linearities give.

    Args:
        gates: `views` of the step.
        h: of the step before.
        c: likewise.
        h_t: written.
        new: written, c_t.
        m: written, what o multiplies: tanh(c_t), or c_t before zoneout; ``new`` itself where c_t is
            multiplied and nothing keeps a part of c.
        beside: of this step.
        squash: see ``cell``.
    """
    (sigmoids, i, f, o, r, g), (read, z_c, z_h, update) = gates, beside
    sigmoids.sigmoid_()
    g.tanh_()
    c_t = new if squash else m
    torch.mul(f, c, out=c_t).addcmul_(i, g if update is None else g * update)
    if read is not None:
        c_t.addcmul_(r, read)
    if squash:
        torch.tanh(c_t, out=m)
    torch.mul(o, m, out=h_t)
    if z_h is not None:
        h_t.lerp_(h, z_h.expand_as(h))
    if z_c is not None:
        torch.lerp(c_t, c, z_c.expand_as(c), out=new)


def cell_backward(
    gates: Sequence[Tensor],
    dgates: Sequence[Tensor],
    dh: Tensor,
    dc: Tensor,
    c: Tensor,
    m: Tensor,
    dm: Tensor,
    dread: Tensor | None,
    beside: Beside,
    squash: bool,
) -> tuple[Tensor | None, Tensor | None]:
    """``cell_forward``'s gradients, by the gates before their non-linearities.

    ``dc`` becomes what reaches c of the step before through the cell, ``dh`` is used up, and ``dm``
    is for intermediate values.

    Returns:
        What reaches h and c of the step before because zoneout kept them; None where it is not.
    """
    (sigmoids, i, f, o, r, g), (read, z_c, z_h, update) = gates, beside
    dsigmoids, di, df, do, dr, dg = dgates
    past_h = past_c = None
    if z_h is not None:
        past_h = dh * z_h
        dh -= past_h
    if z_c is not None:
        past_c = dc * z_c
        dc -= past_c
    torch.mul(dh, o, out=dm)
    dc += _tanh_backward(dm, m) if squash else dm
    by_product = dc if update is None else dc * update
    torch.mul(by_product, i, out=dg)
    torch.mul(by_product, g, out=di)
    torch.mul(dc, c, out=df)
    torch.mul(dh, m, out=do)
    if read is not None and dread is not None:
        torch.mul(dc, read, out=dr)
        torch.mul(dc, r, out=dread)
    torch.ops.aten.sigmoid_backward.grad_input(dsigmoids, sigmoids, grad_input=dsigmoids)
    _tanh_backward(dg, g)
    dc *= f
    return past_h, past_c


def _tanh_backward(gradient: Tensor, out: Tensor) -> Tensor:
    """``gradient`` by tanh(x) = ``out`` made that by x, in place."""
    torch.ops.aten.tanh_backward.grad_input(gradient, out, grad_input=gradient)
    return gradient


def _chunks(xs: Tensor, weight_h: Tensor) -> list[slice]:
    """The steps of xs (T, B, d_x), in as few parts as ``CHUNK`` allows."""
    T, B = xs.shape[:2]
    size = T
    if xs.device.type == "cpu":
        size = max(1, CHUNK // max(1, B * len(weight_h) * xs.element_size()))
    return [slice(start, min(start + size, T)) for start in range(0, T, size)]


def views(gates: Tensor, d: int) -> tuple[Sequence[Tensor], ...]:
    """Of gates (t, B, G d), step by step: all sigmoids side by side; i, f, o, r if there; g."""
    sigmoids, g = gates[..., :-d], gates[..., -d:]
    i, f, o, *r = sigmoids.split(d, -1)
    return tuple(x.unbind(0) for x in (sigmoids, i, f, o, r[0] if r else o, g))


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
    xs, weight_x, weight_h, bias, *given, squash, _ = inputs
    hs, _, cs, ms, kept = output
    ctx.save_for_backward(xs, weight_x, weight_h, *given, hs, cs, ms, *kept)
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
    """Both products of every step, 2 a multiply-accumulate."""
    T, B = xs_shape[:2]
    return 2 * T * B * weight_h[0] * (weight_x[1] + weight_h[1])


@register_flop_formula(torch.ops.captionbench.lstm_loop_backward)
def backward_flops(*shapes: Any, **_: Any) -> int:
    """Twice the forward's: the gradients of both operands of each product."""
    return 2 * forward_flops(*shapes[2:5])
