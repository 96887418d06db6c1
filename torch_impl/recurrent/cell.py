"""One step of an LSTM with all of its options, in the papers' order of operations."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from torch_impl.common.checks import one_of

READINGS = ("image", "previous_input")
DROPPED = ("state", "update")
"""What recurrent dropout is applied to: h_{t-1} in the gates, or g_t."""


class State(NamedTuple):
    """The recurrent state."""

    h: Tensor
    """(B, d), the hidden state; the read-only LSTM's output m."""
    c: Tensor
    """(B, d), the memory cell."""


class Masks(NamedTuple):
    """Masks of zoneout and recurrent dropout: (B, d) of one step, (T, B, d) of all; None if unused.

    A last axis of length 1 is broadcast over the units.
    """

    z_c: Tensor | None = None
    """The share of c_{t-1} in c_t: 0 or 1 in training, the rate in evaluation."""
    z_h: Tensor | None = None
    """The share of h_{t-1} in h_t, likewise."""
    h_dropout: Tensor | None = None
    """Factors on h_{t-1} in the gates: 0 or 1 / (1 - p)."""
    g_dropout: Tensor | None = None
    """Factors on g_t, likewise."""

    def at(self, t: int) -> Masks:
        """The masks of step ``t``."""
        return Masks(*(None if mask is None else mask[t] for mask in self))


NO_MASKS = Masks()


def cell(
    inputs: Tensor,
    state: State,
    weight_h: Tensor,
    read: Tensor | None = None,
    masks: Masks = NO_MASKS,
    squash: bool = True,
) -> State:
    """One step (ARNet 2; read-only 6-10, 16, 17) with zoneout and recurrent dropout.

    Args:
        inputs: (B, G d), W_x x_t + b of the gates i, f, o, r if any, g.
        state: h_{t-1} and c_{t-1}.
        weight_h: (G d, d), W_h of the gates.
        read: (B, d), the input of the read-only unit; if None there is no r and G is 4.
        masks: of this step.
        squash: whether h_t is o * tanh(c_t), or o * c_t (read-only 10).
    """
    h, c = state
    h_in = h if masks.h_dropout is None else h * masks.h_dropout
    gates = inputs + F.linear(h_in, weight_h)  # (B, G d)
    *sigmoids, g = gates.chunk(4 if read is None else 5, -1)
    i, f, o, *r = (gate.sigmoid() for gate in sigmoids)
    g = g.tanh() if masks.g_dropout is None else g.tanh() * masks.g_dropout
    c_t = f * c + i * g
    if read is not None:
        c_t = c_t + r[0] * read
    h_t = o * (c_t.tanh() if squash else c_t)
    return State(_zoneout(h_t, h, masks.z_h), _zoneout(c_t, c, masks.z_c))


def _zoneout(new: Tensor, old: Tensor, z: Tensor | None) -> Tensor:
    return new if z is None else z * old + (1 - z) * new


def unroll(
    xs: Tensor,
    state: State,
    weight_x: Tensor,
    weight_h: Tensor,
    bias: Tensor | None,
    read: Tensor | None,
    masks: Masks,
    squash: bool,
) -> tuple[Tensor, State]:
    """`cell` over xs (T, B, d_x): every h, (T, B, d), and the last state (ARNet 1)."""
    hs = []
    for t, x in enumerate(xs):
        inputs, read_t = F.linear(x, weight_x, bias), None if read is None else read[t]
        state = cell(inputs, state, weight_h, read_t, masks.at(t), squash)
        hs.append(state.h)
    return torch.stack(hs), state


def read_only_inputs(xs: Tensor, reading: str) -> Tensor:
    """The read-only unit's inputs, (B, T, d), for the LSTM's inputs (B, T, d).

    "image" is x_{-1}, the first input, at every step; "previous_input" is x_{t-1} as eq. 17 is
    printed, zeros at the first step. Sequences have no holes: x_{t-1} is the row before.

    Raises:
        ValueError: an unknown reading.
    """
    if one_of(reading, "reading", READINGS) == "image":
        return xs[:, :1].expand_as(xs)
    return F.pad(xs[:, :-1], (0, 0, 1, 0))
