"""Recurrent cells and their regularisers: LSTM, attentive LSTM, read-only unit, zoneout.

ARNet 1-3, the read-only LSTM's 3, 6-10, 16 and 17, zoneout (Krueger et al., 2017) and recurrent
dropout. A cell is a function of one input and a ``State``; ``unroll`` applies it along a sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from reference.attention import Score, soft_attention
from reference.checks import requires
from reference.equations import Decision, Erratum, equation, passage
from reference.primitives import Array, Mask, Parameters, select, sigmoid

ReadOnly = Literal["image", "previous_input"]
READINGS: tuple[ReadOnly, ...] = ("image", "previous_input")


class State(NamedTuple):
    """The recurrent state."""

    h: Array
    """(d,), the hidden state; the read-only LSTM's output m."""
    c: Array
    """(d,), the memory cell."""


Cell = Callable[[Array, State], State]


@passage(
    "lstm_readonly",
    "II.B, first state",
    Erratum(
        "the initial state is c_{-1}, filled with zeros",
        "c and m are zero before the image's step, t = -1",
        "that step makes c_{-1}",
    ),
)
def zero_state(d: int, dtype: npt.DTypeLike = np.float64) -> State:
    """The default initial state: h and c of zeros, (d,)."""
    return State(np.zeros(d, dtype), np.zeros(d, dtype))


@equation(
    "arnet",
    1,
    r"h_t = \operatorname{LSTM}(x_t, h_{t-1})",
    definition="a name for the transition, which (2) computes: calls its argument",
)
@equation(
    "lstm_readonly",
    3,
    r"h_{t+1} = f(h_t, x_t)",
    definition="a name for the transition, which (6) to (10) compute: calls its argument",
)
def unroll(cell: Cell, xs: Sequence[Array] | Array, state: State) -> list[State]:
    """The states after each input, starting from ``state``."""
    states = []
    for x in xs:
        state = cell(x, state)
        states.append(state)
    return states


BIAS = Decision(
    "T, a linear transformation matrix, without a bias",
    "a bias is added where the parameters have one",
    "the formulas are those of the cited work, which leaves biases out",
    about="T",
)


@equation(
    "arnet",
    2,
    r"\begin{pmatrix} i_t \\ f_t \\ o_t \\ g_t \end{pmatrix} ="
    r" \begin{pmatrix} \sigma \\ \sigma \\ \sigma \\ \tanh \end{pmatrix}"
    r" \mathbf{T} \begin{pmatrix} x_t \\ h_{t-1} \end{pmatrix}",
    r"c_t = f_t \odot c_{t-1} + i_t \odot g_t",
    r"h_t = o_t \odot \tanh(c_t)",
    notes=[BIAS],
)
def lstm(x: Array, state: State, T: Parameters) -> State:
    """h_t and c_t (d,) from x_t (d_x,) and the previous state.

    T is ``weight`` (4 d, d_x + d), rows in the order i, f, o, g, and optionally ``bias`` (4 d,).
    """
    h, c = state
    i, f, o, g = np.split(T["weight"] @ np.concatenate([x, h]) + T.get("bias", 0), 4)
    i, f, o, g = sigmoid(i), sigmoid(f), sigmoid(o), np.tanh(g)
    c_t: Array = f * c + i * g
    h_t: Array = o * np.tanh(c_t)
    return State(h_t, c_t)


@equation(
    "arnet",
    3,
    r"\begin{pmatrix} i_t \\ f_t \\ o_t \\ g_t \end{pmatrix} ="
    r" \begin{pmatrix} \sigma \\ \sigma \\ \sigma \\ \tanh \end{pmatrix}"
    r" \mathbf{T} \begin{pmatrix} x_t \\ h_{t-1} \\ z_t \end{pmatrix}",
    notes=[BIAS],
)
def attentive_lstm(x: Array, z: Array, state: State, T: Parameters) -> State:
    """``lstm`` whose gates also read the context z_t (d_z,): ``weight`` is (4 d, d_x + d + d_z)."""
    h, c = state
    i, f, o, g = np.split(T["weight"] @ np.concatenate([x, h, z]) + T.get("bias", 0), 4)
    i, f, o, g = sigmoid(i), sigmoid(f), sigmoid(o), np.tanh(g)
    c_t: Array = f * c + i * g
    h_t: Array = o * np.tanh(c_t)
    return State(h_t, c_t)


def attentive_cell(s: Array, score: Score, T: Parameters) -> Cell:
    """The attentive LSTM that attends to s (n, d_s) from its h_{t-1} (ARNet 3 with 4)."""
    return lambda x, state: attentive_lstm(x, soft_attention(state.h, s, score), state, T)


def bidirectional_lstm(X: Array, parameters: Parameters) -> tuple[Array, State]:
    """A forward and a backward LSTM over the rows of X (n, d_x), their states concatenated.

    ``parameters`` are ``forward`` and ``backward``, each an LSTM's T of d channels. Returns the
    hidden states (n, 2 d) and the final state (2 d,): of the forward LSTM after the last row, of
    the backward LSTM after the first.
    """
    T, T_back = select(parameters, "forward."), select(parameters, "backward.")
    zeros = zero_state(len(T["weight"]) // 4, X.dtype)
    forward = unroll(partial(lstm, T=T), X, zeros)
    backward = unroll(partial(lstm, T=T_back), X[::-1], zeros)
    final = [np.concatenate(halves) for halves in zip(forward[-1], backward[-1], strict=True)]
    both = zip(forward, backward[::-1], strict=True)
    return np.stack([np.concatenate([a.h, b.h]) for a, b in both]), State(*final)


@requires(lambda z_c: np.min(z_c) >= 0 and np.max(z_c) <= 1, "z_c is {z_c}, expected in [0, 1]")
@requires(lambda z_h: np.min(z_h) >= 0 and np.max(z_h) <= 1, "z_h is {z_h}, expected in [0, 1]")
def zoneout(previous: State, present: State, z_c: Array | float, z_h: Array | float) -> State:
    """``c_t = z_c * c_{t-1} + (1 - z_c) * c_t`` and so for h (Krueger et al., 2017).

    In training z_c and z_h (d,) are masks, 1 where a unit keeps its previous value; in evaluation
    they are the rates. ``present.h`` is computed from the memory cell before zoneout.
    """
    return State(z_h * previous.h + (1 - z_h) * present.h, z_c * previous.c + (1 - z_c) * present.c)


probability = requires(lambda p: 0 <= p < 1, "p is {p}, expected in [0, 1)")


@passage(
    "arnet",
    "Table 5, recurrent dropout",
    Decision(
        "the reference is to dropout in general; which connection is dropped is not said",
        "both recurrent ones: the gates read h_{t-1} times a mask over the probability of keeping "
        "it, while the memory cell is left alone; and, as a row of its own, the update g_t dropped",
        "the name fits the former, and is that of the latter in Semeniuta et al. (2016)",
    ),
)
@probability
def recurrent_dropout(cell: Cell, keep: Mask, p: float) -> Cell:
    """The cell, reading ``keep * h_{t-1} / (1 - p)``; in evaluation the cell itself is used.

    ``keep`` (d,) is True where a unit of h_{t-1} is kept; p is the probability that it is not.
    """
    return lambda x, state: cell(x, State(keep * state.h / (1 - p), state.c))


@probability
def update_dropout(x: Array, state: State, T: Parameters, keep: Mask, p: float) -> State:
    """``lstm`` with ``keep * g_t / (1 - p)`` in place of g_t (Semeniuta et al., 2016).

    ``keep`` (d,) is True where a unit of g_t is kept; in evaluation ``lstm`` is used.
    """
    h, c = state
    i, f, o, g = np.split(T["weight"] @ np.concatenate([x, h]) + T.get("bias", 0), 4)
    i, f, o, g = sigmoid(i), sigmoid(f), sigmoid(o), np.tanh(g)
    c_t: Array = f * c + i * (keep * g / (1 - p))
    h_t: Array = o * np.tanh(c_t)
    return State(h_t, c_t)


# The read-only LSTM: matrices W_ix (N, N_e) and W_im (N, N) by their printed names, no biases


@equation(
    "lstm_readonly",
    6,
    r"i_t = \sigma(W_{ix}x_t + W_{im}m_{t-1})",
    notes=[
        Erratum(
            "i_t, o_t, f_t, c_t and m_t are those of (7) to (11)",
            "of (6) to (11)",
            "(6) defines i_t",
            about="text of II.A",
        )
    ],
)
def input_gate(x: Array, m: Array, W: Parameters) -> Array:
    """i_t (N,) from x_t (N_e,) and m_{t-1} (N,)."""
    return sigmoid(W["W_ix"] @ x + W["W_im"] @ m)


@equation("lstm_readonly", 7, r"f_t = \sigma(W_{fx}x_t + W_{fm}m_{t-1})")
def forget_gate(x: Array, m: Array, W: Parameters) -> Array:
    """f_t (N,) from x_t (N_e,) and m_{t-1} (N,)."""
    return sigmoid(W["W_fx"] @ x + W["W_fm"] @ m)


@equation("lstm_readonly", 8, r"o_t = \sigma(W_{ox}x_t + W_{om}m_{t-1})")
def output_gate(x: Array, m: Array, W: Parameters) -> Array:
    """o_t (N,) from x_t (N_e,) and m_{t-1} (N,)."""
    return sigmoid(W["W_ox"] @ x + W["W_om"] @ m)


@equation("lstm_readonly", 9, r"c_t = f_t \odot c_{t-1} + i_t \odot h(W_{cx}x_t + W_{cm}m_{t-1})")
def memory_cell(f: Array, i: Array, c: Array, x: Array, m: Array, W: Parameters) -> Array:
    """c_t (N,) from the gates, c_{t-1} (N,), x_t (N_e,) and m_{t-1} (N,); the printed h is tanh."""
    c_t: Array = f * c + i * np.tanh(W["W_cx"] @ x + W["W_cm"] @ m)
    return c_t


@equation(
    "lstm_readonly",
    10,
    r"m_t = o_t \odot c_t",
    notes=[Decision("no tanh", "as printed", "the model is defined so, unlike the usual LSTM")],
)
def memory_output(o: Array, c: Array) -> Array:
    """The output m_t (N,)."""
    return o * c


@equation("lstm_readonly", 16, r"r_t = \sigma(W_{rx}x_t + W_{rm}m_{t-1})")
def read_only_gate(x: Array, m: Array, W: Parameters) -> Array:
    """r_t (N,) from x_t (N_e,) and m_{t-1} (N,)."""
    return sigmoid(W["W_rx"] @ x + W["W_rm"] @ m)


@equation(
    "lstm_readonly",
    17,
    r"c_t = f_t \odot c_{t-1} + r_t \odot x_{t-1} + i_t \odot h(W_{cx}x_t + W_{cm}m_{t-1})",
    notes=[
        Erratum(
            "r_t * x_{t-1}",
            "r_t * x_{-1}, the image embedding; `previous_input` gives the printed form",
            "the text: a new LSTM state which depends on the image content",
        ),
        Decision(
            "the input before the image's is not defined",
            "the image's embedding x_{-1} at every step, the image's own included; in "
            "`previous_input` the image's step reads zeros",
            "what is read-only is there from the start; before the first input there is none. At "
            "t = 0 the readings agree",
            about="first step",
        ),
        Decision(
            "r_t * x_{t-1} is added to c_t",
            "embeddings have as many channels as the memory",
            "the product is element by element",
            about="sizes",
        ),
    ],
)
@requires(
    lambda r, read: read.shape == r.shape,
    "a memory of {r.size} channels reads vectors of {read.size}, expected as many",
)
def read_only_memory_cell(
    f: Array, i: Array, r: Array, c: Array, x: Array, m: Array, read: Array, W: Parameters
) -> Array:
    """c_t (N,) of ``memory_cell`` plus r_t times the vector read (N,): x_{-1} or x_{t-1}."""
    c_t: Array = f * c + r * read + i * np.tanh(W["W_cx"] @ x + W["W_cm"] @ m)
    return c_t


@requires(
    lambda reading: reading in READINGS,
    "reading is {reading!r}, expected 'image' or 'previous_input'",
)
def read_only_inputs(xs: Sequence[Array] | Array, reading: ReadOnly) -> list[Array]:
    """The vector that the read-only unit reads at each of the inputs x_{-1}, x_0, ..., (N_e,) each.

    ``image`` is x_{-1} at every step; ``previous_input`` is x_{t-1}, and zeros at the image's step.
    """
    image, nothing = xs[0], np.zeros_like(xs[0])
    if reading == "image":
        return [image for _ in xs]
    return [xs[t - 1] if t > 0 else nothing for t in range(len(xs))]


def memory_block(x: Array, state: State, W: Parameters, read: Array | None = None) -> State:
    """One step of the paper's LSTM (6-10); with ``read`` (N,), of its read-only form (16-17)."""
    m, c = state  # State.h is m of the paper
    i, f, o = input_gate(x, m, W), forget_gate(x, m, W), output_gate(x, m, W)
    if read is None:
        c = memory_cell(f, i, c, x, m, W)
    else:
        c = read_only_memory_cell(f, i, read_only_gate(x, m, W), c, x, m, read, W)
    return State(memory_output(o, c), c)


def memory_blocks(
    xs: Sequence[Array] | Array, W: Parameters, reading: ReadOnly | None = None
) -> list[State]:
    """``memory_block`` over x_{-1}, x_0, ... from zeros; ``reading`` None: no read-only unit."""
    state = zero_state(len(W["W_im"]), W["W_im"].dtype)
    reads = read_only_inputs(xs, reading) if reading else [None for _ in xs]
    states = []
    for x, read in zip(xs, reads, strict=True):
        state = memory_block(x, state, W, read)
        states.append(state)
    return states
