"""One step of an LSTM with everything that may be in it, in the papers' order of operations."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

READINGS = ("image", "previous_input")
DROPPED = ("state", "update")
"""What recurrent dropout falls on: h_{t-1} as the gates read it, or g_t."""


class State(NamedTuple):
    """What a cell carries from step to step."""

    h: Tensor
    """(B, d), the hidden state; the read-only LSTM's output m."""
    c: Tensor
    """(B, d), the memory cell."""


class Masks(NamedTuple):
    """What regularises a cell: of one step, (B, d), or of all, (T, B, d); None where nothing does.

    A last axis of length 1 stands for all units.
    """

    z_c: Tensor | None = None
    """How much of its previous value the memory cell keeps: 0 or 1 in training, the rate else."""
    z_h: Tensor | None = None
    """The same of the hidden state."""
    recurrent: Tensor | None = None
    """Factors on h_{t-1} where the gates read it: 0, or one over the probability to be kept."""
    update: Tensor | None = None
    """The same on g_t."""

    def at(self, t: int) -> Masks:
        """Those of step ``t``."""
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
    """One step (ARNet 2; read-only 6-10, 16, 17) with zoneout and recurrent dropout in it.

    Args:
        inputs: (B, G d), what x_t gives to the gates, in the order i, f, o, r if there, g.
        state: h_{t-1} and c_{t-1}.
        weight_h: (G d, d), what h_{t-1} gives to the gates.
        read: (B, d), what the read-only unit reads; without one there is no r and G is 4.
        masks: of this step.
        squash: h_t = o * tanh(c_t), or o * c_t as read-only 10 has it.
    """
    h, c = state
    gates = inputs + F.linear(h if masks.recurrent is None else h * masks.recurrent, weight_h)
    *sigmoids, g = gates.chunk(4 if read is None else 5, -1)
    i, f, o, *r = (gate.sigmoid() for gate in sigmoids)
    g = g.tanh() if masks.update is None else g.tanh() * masks.update
    c_t = f * c + i * g
    if read is not None:
        c_t = c_t + r[0] * read
    h_t = o * (c_t.tanh() if squash else c_t)
    return State(_keep(h_t, h, masks.z_h), _keep(c_t, c, masks.z_c))


def _keep(new: Tensor, old: Tensor, z: Tensor | None) -> Tensor:
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
    """``cell`` along xs (T, B, d_x): the states h, (T, B, d), and the last (ARNet 1)."""
    hs = []
    for t, x in enumerate(xs):
        inputs = F.linear(x, weight_x, bias)
        state = cell(
            inputs, state, weight_h, None if read is None else read[t], masks.at(t), squash
        )
        hs.append(state.h)
    return torch.stack(hs), state


def read_only_inputs(xs: Tensor, reading: str) -> Tensor:
    """What the read-only unit reads beside each of the inputs (B, T, d): of the same shape.

    "image" is x_{-1}, the first of them, at every step; "previous_input" is x_{t-1} as eq. 17 is
    printed, and zeros at the image's step, which has none before it.

    Raises:
        ValueError: an unknown reading.
    """
    if reading not in READINGS:
        raise ValueError(f"reading is {reading!r}, expected one of {', '.join(READINGS)}")
    if reading == "image":
        return xs[:, :1].expand_as(xs)
    return F.pad(xs[:, :-1], (0, 0, 1, 0))
