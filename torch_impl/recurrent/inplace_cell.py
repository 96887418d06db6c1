"""One LSTM step from the gates' pre-activations on, in place, forward and backward.

For loops with a custom backward; `cell` is the same step under autograd.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class StepInputs(NamedTuple):
    """The optional inputs of `cell`: (B, .) of one step, or (T, B, .) of all."""

    read: Tensor | None = None
    z_c: Tensor | None = None
    z_h: Tensor | None = None
    g_dropout: Tensor | None = None

    def at(self, t: int) -> StepInputs:
        """The inputs of step ``t``."""
        return StepInputs(*(None if x is None else x[t] for x in self))


NO_INPUTS = StepInputs()


def gate_views(gates: Tensor, d: int) -> tuple[Tensor, ...]:
    """Views of gates (..., G d): all sigmoids, (..., (G - 1) d); i, f, o, r (o if none), g."""
    sigmoids, g = gates[..., :-d], gates[..., -d:]
    i, f, o, *r = sigmoids.split(d, -1)
    return sigmoids, i, f, o, r[0] if r else o, g


def cell_forward(
    gates: Sequence[Tensor],
    h: Tensor,
    c: Tensor,
    h_t: Tensor,
    c_t: Tensor,
    m: Tensor,
    inputs: StepInputs,
    squash: bool,
) -> None:
    """Compute h_t, c_t and m from the gates' pre-activations, which become activations in place.

    Args:
        gates: `gate_views` of the step.
        h: h_{t-1}.
        c: c_{t-1}.
        h_t: written.
        c_t: written.
        m: written, the factor of o: tanh(c_t) or c_t, before zoneout. Pass ``c_t`` itself without
            ``squash`` and without zoneout of c.
        inputs: of this step.
        squash: see `cell`.
    """
    (sigmoids, i, f, o, r, g), (read, z_c, z_h, g_dropout) = gates, inputs
    sigmoids.sigmoid_()
    g.tanh_()
    new_c = c_t if squash else m  # before zoneout
    torch.mul(f, c, out=new_c).addcmul_(i, g if g_dropout is None else g * g_dropout)
    if read is not None:
        new_c.addcmul_(r, read)
    if squash:
        torch.tanh(new_c, out=m)
    torch.mul(o, m, out=h_t)
    if z_h is not None:
        h_t.lerp_(h, z_h.expand_as(h))
    if z_c is not None:
        torch.lerp(new_c, c, z_c.expand_as(c), out=c_t)


def cell_backward(
    gates: Sequence[Tensor],
    dgates: Sequence[Tensor],
    dh: Tensor,
    dc: Tensor,
    c: Tensor,
    m: Tensor,
    dm: Tensor,
    dread: Tensor | None,
    inputs: StepInputs,
    squash: bool,
) -> tuple[Tensor | None, Tensor | None]:
    """Backward of `cell_forward`: writes ``dgates``, of the pre-activations, and ``dread``.

    ``dc`` becomes the gradient of c_{t-1} through the cell; ``dh`` and ``dm`` are overwritten.

    Returns:
        The gradients of h_{t-1} and c_{t-1} through zoneout; None without it.
    """
    (sigmoids, i, f, o, r, g), (read, z_c, z_h, g_dropout) = gates, inputs
    dsigmoids, di, df, do, dr, dg = dgates
    zoned_h = zoned_c = None
    if z_h is not None:
        zoned_h = dh * z_h
        dh -= zoned_h
    if z_c is not None:
        zoned_c = dc * z_c
        dc -= zoned_c
    torch.mul(dh, o, out=dm)
    dc += _tanh_backward(dm, m) if squash else dm
    d_product = dc if g_dropout is None else dc * g_dropout
    torch.mul(d_product, i, out=dg)
    torch.mul(d_product, g, out=di)
    torch.mul(dc, c, out=df)
    torch.mul(dh, m, out=do)
    if read is not None and dread is not None:
        torch.mul(dc, read, out=dr)
        torch.mul(dc, r, out=dread)
    torch.ops.aten.sigmoid_backward.grad_input(dsigmoids, sigmoids, grad_input=dsigmoids)
    _tanh_backward(dg, g)
    dc *= f
    return zoned_h, zoned_c


def _tanh_backward(gradient: Tensor, out: Tensor) -> Tensor:
    """In place: the gradient of out = tanh(x) becomes that of x."""
    torch.ops.aten.tanh_backward.grad_input(gradient, out, grad_input=gradient)
    return gradient
