"""Recurrent cells and what regularises them: LSTM, attentive LSTM, read-only unit, zoneout.

ARNet 1-3, the read-only LSTM's 3, 6-10, 16 and 17, zoneout (Krueger et al., 2017) and recurrent
dropout. A cell is a function of one input and a ``State``; ``unroll`` applies it along a sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal, NamedTuple

import numpy as np

from reference.attention import Score, soft_attention
from reference.equations import equation
from reference.primitives import (
    Array,
    Mask,
    Parameters,
    select,
    sigmoid,
)

ReadOnly = Literal["image", "previous_input"]
READINGS: tuple[ReadOnly, ...] = ("image", "previous_input")


class State(NamedTuple):
    """What a cell carries from step to step."""

    h: Array
    """(d,), the hidden state; the read-only LSTM's output m."""
    c: Array
    """(d,), the memory cell."""


Cell = Callable[[Array, State], State]


def zero_state(d: int) -> State:
    """A memory filled with zeros, from which a network starts where nothing else is said."""
    return State(np.zeros(d), np.zeros(d))


@equation("arnet", 1)
@equation("lstm_readonly", 3)
def unroll(cell: Cell, xs: Sequence[Array] | Array, state: State) -> list[State]:
    """``h_t = LSTM(x_t, h_{t-1})`` along a sequence; read-only 3: ``h_{t+1} = f(h_t, x_t)``.

    Args:
        cell: the transition.
        xs: T inputs.
        state: the state before the first input.

    Returns:
        The T states after each input.
    """
    states = []
    for x in xs:
        state = cell(x, state)
        states.append(state)
    return states


def _gated(T: Parameters, inputs: Sequence[Array], c: Array, factors: Array | float = 1.0) -> State:
    """The gates (i, f, o, g) from T times the concatenated inputs, the memory cell, the output.

    ``factors`` are on the update g.
    """
    preactivations: Array = T["weight"] @ np.concatenate(inputs)
    if "bias" in T:
        preactivations = preactivations + T["bias"]
    i, f, o, g = np.split(preactivations, 4)
    c_t: Array = sigmoid(f) * c + sigmoid(i) * (factors * np.tanh(g))
    return State(sigmoid(o) * np.tanh(c_t), c_t)


@equation("arnet", 2)
def lstm(x: Array, state: State, T: Parameters) -> State:
    """``(i, f, o, g) = (sigma, sigma, sigma, tanh) T [x_t; h_{t-1}]``, then the memory cell.

    ``c_t = f * c_{t-1} + i * g`` and ``h_t = o * tanh(c_t)``.

    Args:
        x: (d_x,), x_t.
        state: h_{t-1} and c_{t-1}, (d,) each.
        T: ``weight`` (4 d, d_x + d), the gates' rows in the order i, f, o, g, and, if there,
            ``bias`` (4 d,).
    """
    return _gated(T, [x, state.h], state.c)


@equation("arnet", 3)
def attentive_lstm(x: Array, z: Array, state: State, T: Parameters) -> State:
    """The LSTM whose gates also see the context: T acts on ``[x_t; h_{t-1}; z_t]``.

    Args:
        x: (d_x,), x_t.
        z: (d_z,), the context vector z_t.
        state: h_{t-1} and c_{t-1}, (d,) each.
        T: ``weight`` (4 d, d_x + d + d_z) and, if there, ``bias`` (4 d,), as ``lstm`` has them.
    """
    return _gated(T, [x, state.h, z], state.c)


def attentive_cell(s: Array, score: Score, T: Parameters) -> Cell:
    """The attentive LSTM that reads s by soft attention from its h_{t-1} (ARNet 3 with 4).

    Args:
        s: (n, d_s), the local information vectors.
        score: how relevant one of them is to a state, ``attention.additive_score`` say.
        T: as ``attentive_lstm`` has it.
    """
    return lambda x, state: attentive_lstm(x, soft_attention(state.h, s, score), state, T)


def bidirectional_lstm(X: Array, parameters: Parameters) -> tuple[Array, State]:
    """One LSTM from the first row to the last, another back, their states side by side.

    Args:
        X: (n, d_x), n >= 1.
        parameters: ``forward`` and ``backward``, each an LSTM's T of d channels.

    Returns:
        (n, 2 d), row i both hidden states at row i; and the final state, (2 d,): the forward
        LSTM's after the last row beside the backward LSTM's after the first.
    """
    halves = []
    for name, rows in (("forward.", X), ("backward.", X[::-1])):
        T = select(parameters, name)
        zeros = zero_state(len(T["weight"]) // 4)
        halves.append(unroll(partial(lstm, T=T), rows, zeros))
    forward, backward = halves
    both = zip(forward, reversed(backward), strict=True)
    final = (np.concatenate(pair) for pair in zip(forward[-1], backward[-1], strict=True))
    return np.array([np.concatenate([a.h, b.h]) for a, b in both]), State(*final)


def zoneout(previous: State, present: State, z_c: Array | float, z_h: Array | float) -> State:
    """``c_t = z_c * c_{t-1} + (1 - z_c) * c_t`` and so for h (Krueger et al., 2017).

    In training z_c and z_h are masks, 1 where a unit keeps its previous value; in evaluation they
    are the masks' expectations, the rates. The present h is the cell's own, of its memory cell
    before zoneout.

    Args:
        previous: the state at t - 1.
        present: the cell's state at t.
        z_c: of the memory cell, (d,) or one number, in [0, 1].
        z_h: of the hidden state, likewise.

    Raises:
        ValueError: a mask or rate outside [0, 1].
    """
    for name, z in (("z_c", z_c), ("z_h", z_h)):
        if not (np.greater_equal(z, 0) & np.less_equal(z, 1)).all():
            raise ValueError(f"{name} is {z}, expected in [0, 1]")
    return State(
        z_h * previous.h + (1 - z_h) * present.h,
        z_c * previous.c + (1 - z_c) * present.c,
    )


def recurrent_dropout(cell: Cell, keep: Mask, p: float) -> Cell:
    """The cell with its recurrent connection dropped out: it reads ``keep * h_{t-1} / (1 - p)``.

    The memory cell is left alone. In evaluation the cell itself is used. One of two readings of the
    name, see ``update_dropout``.

    Args:
        cell: the transition.
        keep: (d,), True where a unit of h_{t-1} is kept.
        p: the probability that one is not, in [0, 1).

    Raises:
        ValueError: ``p`` out of range.
    """
    _check_probability(p)
    return lambda x, state: cell(x, State(keep * state.h / (1 - p), state.c))


def update_dropout(x: Array, state: State, T: Parameters, keep: Mask, p: float) -> State:
    """``c_t = f * c_{t-1} + i * (keep * g / (1 - p))``: the LSTM with its update dropped out.

    The other reading of recurrent dropout (Semeniuta et al., 2016). In evaluation ``lstm``.

    Args:
        x, state, T: as ``lstm`` has them.
        keep: (d,), True where a unit of g_t is kept.
        p: the probability that one is not, in [0, 1).

    Raises:
        ValueError: ``p`` out of range.
    """
    _check_probability(p)
    return _gated(T, [x, state.h], state.c, keep / (1 - p))


def _check_probability(p: float) -> None:
    if not 0 <= p < 1:
        raise ValueError(f"p is {p}, expected in [0, 1)")


# The read-only LSTM: matrices W_ix (N, N_e) and W_im (N, N) by their printed names, no biases


def _gate(name: str, x: Array, m: Array, W: Parameters) -> Array:
    return sigmoid(W[f"W_{name}x"] @ x + W[f"W_{name}m"] @ m)


@equation("lstm_readonly", 6)
def input_gate(x: Array, m: Array, W: Parameters) -> Array:
    """``i_t = sigma(W_ix x_t + W_im m_{t-1})``: (N,)."""
    return _gate("i", x, m, W)


@equation("lstm_readonly", 7)
def forget_gate(x: Array, m: Array, W: Parameters) -> Array:
    """``f_t = sigma(W_fx x_t + W_fm m_{t-1})``: (N,)."""
    return _gate("f", x, m, W)


@equation("lstm_readonly", 8)
def output_gate(x: Array, m: Array, W: Parameters) -> Array:
    """``o_t = sigma(W_ox x_t + W_om m_{t-1})``: (N,)."""
    return _gate("o", x, m, W)


@equation("lstm_readonly", 16)
def read_only_gate(x: Array, m: Array, W: Parameters) -> Array:
    """``r_t = sigma(W_rx x_t + W_rm m_{t-1})``: (N,)."""
    return _gate("r", x, m, W)


@equation("lstm_readonly", 9)
def memory_cell(f: Array, i: Array, c: Array, x: Array, m: Array, W: Parameters) -> Array:
    """``c_t = f_t * c_{t-1} + i_t * tanh(W_cx x_t + W_cm m_{t-1})``: (N,)."""
    new: Array = np.tanh(W["W_cx"] @ x + W["W_cm"] @ m)
    return f * c + i * new


@equation("lstm_readonly", 17)
def read_only_memory_cell(
    f: Array, i: Array, r: Array, c: Array, x: Array, m: Array, read: Array, W: Parameters
) -> Array:
    """``c_t = f_t * c_{t-1} + r_t * read + i_t * tanh(W_cx x_t + W_cm m_{t-1})``: (N,).

    Args:
        f, i, r: (N,), the gates.
        c: (N,), c_{t-1}.
        x: (N_e,), x_t.
        m: (N,), m_{t-1}.
        read: (N_e,), what the unit reads: see ``read_only_inputs``.
        W: ``W_cx``, ``W_cm``.

    Raises:
        ValueError: N_e is not N, and the gate does not fit what it is to let through.
    """
    if read.shape != r.shape:
        raise ValueError(
            f"a memory of {len(r)} channels reads vectors of {len(read)}, expected as many"
        )
    return memory_cell(f, i, c, x, m, W) + r * read


@equation("lstm_readonly", 10)
def memory_output(o: Array, c: Array) -> Array:
    """``m_t = o_t * c_t``, without a tanh: (N,)."""
    return o * c


def read_only_inputs(xs: Sequence[Array] | Array, reading: ReadOnly) -> list[Array]:
    """What the read-only unit reads beside each input: eq. 17's vector at t = -1, 0, ..., T - 2.

    "image" is x_{-1} at every step, the image's own included; "previous_input" is x_{t-1}, as
    printed, and zeros at the image's step, which has none before it. At t = 0 they agree.

    Args:
        xs: T inputs, the image's embedding x_{-1} first.
        reading: which of the two.

    Raises:
        ValueError: an unknown reading.
    """
    if reading not in READINGS:
        raise ValueError(f"reading is {reading!r}, expected {' or '.join(map(repr, READINGS))}")
    if reading == "image":
        return [xs[0] for _ in xs]
    return [np.zeros_like(xs[0]), *xs[:-1]]


def memory_block(x: Array, state: State, W: Parameters, read: Array | None = None) -> State:
    """One step of the paper's LSTM, eqs. 6-10; with ``read`` that of its read-only unit, 16-17.

    Args:
        x: (N_e,), x_t.
        state: m_{t-1} and c_{t-1}, (N,) each.
        W: ``W_ix``, ``W_im`` and so on for f, o, c and, with ``read``, r.
        read: (N_e,), see ``read_only_inputs``.
    """
    m, c = state
    i, f, o = input_gate(x, m, W), forget_gate(x, m, W), output_gate(x, m, W)
    if read is None:
        c = memory_cell(f, i, c, x, m, W)
    else:
        c = read_only_memory_cell(f, i, read_only_gate(x, m, W), c, x, m, read, W)
    return State(memory_output(o, c), c)


def memory_blocks(
    xs: Sequence[Array] | Array, W: Parameters, reading: ReadOnly | None = None
) -> list[State]:
    """``memory_block`` along a sequence, from zeros.

    Args:
        xs: T inputs, (N_e,) each, the image's embedding x_{-1} first.
        W: the matrices.
        reading: of eq. 17, or None for the LSTM without the unit.
    """
    state = zero_state(len(W["W_im"]))
    reads = read_only_inputs(xs, reading) if reading else [None for _ in xs]
    states = []
    for x, read in zip(xs, reads, strict=True):
        state = memory_block(x, state, W, read)
        states.append(state)
    return states
