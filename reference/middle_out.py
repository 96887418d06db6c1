"""Sequence-to-sequence with self-attention, and decoding from the middle outwards (Middle-Out 1-7).

The recurrence S is an LSTM over its arguments, concatenated in their printed order. Each of the
three attentions scores by eq. 4 with a matrix of its own: W_a for the encoder's states, W_d for the
embedded outputs, W_h for the decoders' hidden states.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Literal

import numpy as np

from reference.attention import general_score, soft_attention
from reference.equations import equation
from reference.primitives import (
    Array,
    Integers,
    Parameters,
    linear,
    log_softmax,
    select,
    softmax,
)
from reference.recurrent import (
    State,
    bidirectional_lstm,
    lstm,
    unroll,
    zero_state,
)

Side = Literal["left", "right"]
LEFT_FIRST: tuple[Side, ...] = ("left", "right")
"""The order of turns: a word on the left, then a word on the right."""

SelfAttention = Literal["none", "output", "hidden", "dual"]
SELF_ATTENTIONS: tuple[SelfAttention, ...] = ("none", "output", "hidden", "dual")


@equation("middle_out", 1)
def attention_recurrence(state: State, e: Array, c: Array, T: Parameters) -> State:
    """``h_t = S(h_{t-1}, e_{t-1}, c_t)``.

    Args:
        state: the decoder's h_{t-1} and memory cell, (d,) each.
        e: (d_e,), the embedding of the word before.
        c: (d_c,), the context vector.
        T: the LSTM's ``weight`` (4 d, d_e + d_c + d) and, if there, ``bias``.
    """
    return lstm(np.concatenate([e, c]), state, T)


@equation("middle_out", 5)
def output_attention_recurrence(state: State, d: Array, c: Array, T: Parameters) -> State:
    """``h_t = S(h_{t-1}, d_t, c_t)``: d_t (d_e,) attends over the embedded outputs."""
    return lstm(np.concatenate([d, c]), state, T)


@equation("middle_out", 6)
def hidden_attention_recurrence(
    state: State, e: Array, c: Array, h_tilde: Array, T: Parameters
) -> State:
    """``h_t = S(h_{t-1}, e_{t-1}, c_t, h~_t)``: h~_t (d,) attends over the hidden states."""
    return lstm(np.concatenate([e, c, h_tilde]), state, T)


@equation("middle_out", 7)
def dual_attention_recurrence(
    state: State, e: Array, d: Array, c: Array, h_tilde: Array, T: Parameters
) -> State:
    """``h_t = S(h_{t-1}, e_{t-1}, d_t, c_t, h~_t)``, the two self-attentions together."""
    return lstm(np.concatenate([e, d, c, h_tilde]), state, T)


def weighted_sum(h: Array, rows: Sequence[Array] | Array, W: Array) -> Array:
    """What h attends to of some rows, by eqs. 2-4 with the matrix W; of no rows it is zero.

    Args:
        h: (d,).
        rows: n of (m,), n >= 0.
        W: (d, m).

    Returns:
        (m,).
    """
    if len(rows) == 0:
        return np.zeros(W.shape[1])
    return soft_attention(h, np.asarray(rows), partial(general_score, W_a=W))


def decoder_step(
    state: State,
    e: Array,
    H_e: Array,
    E: Sequence[Array],
    H: Sequence[Array],
    parameters: Parameters,
    self_attention: SelfAttention,
) -> State:
    """One step of a decoder: what h_{t-1} attends to, then the recurrence.

    Args:
        state: the decoder's own h_{t-1} and memory cell.
        e: (d_e,), the embedding of its own last output.
        H_e: (n, d_c), the encoder's hidden states.
        E: the embedded outputs so far, (d_e,) each, the first word included.
        H: the decoders' hidden states so far, (d,) each, none before the first step.
        parameters: ``lstm``, ``W_a`` (d, d_c) and, by the self-attention, ``W_d`` (d, d_e), ``W_h``
            (d, d).
        self_attention: eq. 1 for "none", 5 for "output", 6 for "hidden", 7 for "dual".

    Raises:
        ValueError: an unknown self-attention.
    """
    T, h = select(parameters, "lstm."), state.h
    c = weighted_sum(h, H_e, parameters["W_a"])
    if self_attention == "none":
        return attention_recurrence(state, e, c, T)
    if self_attention == "output":
        d = weighted_sum(h, E, parameters["W_d"])
        return output_attention_recurrence(state, d, c, T)
    if self_attention == "hidden":
        h_tilde = weighted_sum(h, H, parameters["W_h"])
        return hidden_attention_recurrence(state, e, c, h_tilde, T)
    if self_attention == "dual":
        d = weighted_sum(h, E, parameters["W_d"])
        h_tilde = weighted_sum(h, H, parameters["W_h"])
        return dual_attention_recurrence(state, e, d, c, h_tilde, T)
    raise ValueError(
        f"self_attention is {self_attention!r}, expected one of {', '.join(SELF_ATTENTIONS)}"
    )


def encode(X: Array, parameters: Parameters) -> tuple[Array, State]:
    """The bidirectional LSTM encoder: hidden states (n, 2 d) and the final state, (2 d,).

    The decoders start from the final state, hidden state and memory cell, and so have 2 d channels.

    Args:
        X: (n, d_x), the input sequence.
        parameters: ``encoder.forward`` and ``encoder.backward``.
    """
    return bidirectional_lstm(X, select(parameters, "encoder."))


def word_log_probabilities(h: Array, parameters: Parameters) -> Array:
    """``log p(w_t | h_t)``: the softmax over the words, of the linear map ``vocabulary``: (V,)."""
    return log_softmax(linear(h, select(parameters, "vocabulary.")))


def sequence_to_sequence(
    tokens: Integers,
    H_e: Array,
    state: State,
    parameters: Parameters,
    self_attention: SelfAttention = "none",
) -> Array:
    """The left-to-right decoder of section 3.1, with the self-attention of 3.2 if wanted.

    Args:
        tokens: (T,) word ids, from the start token on.
        H_e: (n, d_c) and ``state`` (d,), as ``encode`` gives them.
        state: the state before the first step.
        parameters: ``embedding.weight`` (V, d_e) and ``decoder``, as ``decoder_step`` has them with
            the linear map ``vocabulary`` to V.
        self_attention: see ``decoder_step``.

    Returns:
        Log-probabilities (T, V): row t of the word that follows ``tokens[: t + 1]``.
    """
    decoder = select(parameters, "decoder.")
    E: list[Array] = []
    H: list[Array] = []
    log_p = []
    for token in tokens:
        E.append(parameters["embedding.weight"][token])
        state = decoder_step(state, E[-1], H_e, E, H, decoder, self_attention)
        H.append(state.h)
        log_p.append(word_log_probabilities(state.h, decoder))
    return np.array(log_p)


class MiddleOutDecoder:
    """Two decoders that write one sequence from its middle outwards, under way.

    Both start from the same state and the same middle. Their self-attention reads the outputs and
    the hidden states of both without distinction, in the order in which they came to be.
    """

    def __init__(
        self,
        e_middle: Array,
        H_e: Array,
        state: State,
        parameters: Parameters,
        self_attention: SelfAttention = "none",
    ) -> None:
        """Before the first turn.

        Args:
            e_middle: (d_e,), the embedded middle word.
            H_e: (n, d_c) and ``state`` (d,), as ``encode`` gives them.
            state: the state of both decoders before their first step.
            parameters: those of ``decoder_step`` under ``left`` and ``right``.
            self_attention: see ``decoder_step``.
        """
        self.H_e, self.parameters, self.self_attention = H_e, parameters, self_attention
        self.states: dict[Side, State] = {"left": state, "right": state}
        self.last: dict[Side, Array] = {"left": e_middle, "right": e_middle}
        self.E: list[Array] = [e_middle]
        self.H: list[Array] = []

    def advance(self, side: Side) -> Array:
        """Let one decoder take its step: (d,), the hidden state that its next output is made of."""
        state = decoder_step(
            self.states[side],
            self.last[side],
            self.H_e,
            self.E,
            self.H,
            select(self.parameters, f"{side}."),
            self.self_attention,
        )
        self.states[side] = state
        self.H.append(state.h)
        return state.h

    def write(self, side: Side, e: Array) -> None:
        """Take note of the embedded output that followed, whoever chose it; STOP is one too."""
        self.last[side] = e
        self.E.append(e)


def turns(left: int, right: int, order: Sequence[Side] = LEFT_FIRST) -> Iterator[Side]:
    """Whose turn it is, while ``left`` and ``right`` outputs are written.

    The sides of ``order`` alternate; one that is through leaves the turns to the other. A side that
    is not in ``order`` never writes: ("right",) is a left-to-right decoder.

    Raises:
        ValueError: outputs of a side that is not in ``order``.
    """
    outputs = {"left": left, "right": right}
    for side, number in outputs.items():
        if number and side not in order:
            raise ValueError(f"{number} outputs on the {side}, which is not among {order}")
    for k in range(max(left, right)):
        yield from (side for side in order if k < outputs[side])


def middle_out(
    left: Sequence[int],
    middle: int,
    right: Sequence[int],
    H_e: Array,
    state: State,
    parameters: Parameters,
    self_attention: SelfAttention = "none",
    order: Sequence[Side] = LEFT_FIRST,
) -> dict[Side, Array]:
    """The middle-out decoder of section 3.3 over given words.

    Args:
        left: the words of the left half from the middle outwards, the end token last if it ends.
        middle: the middle word.
        right: the words of the right half, likewise.
        H_e: (n, d_c) and ``state`` (d,), as ``encode`` gives them.
        state: the state of both decoders before their first step.
        parameters: ``embedding.weight`` (V, d_e), shared; ``left`` and ``right``, each with the
            parameters of ``decoder_step`` and the linear map ``vocabulary`` to V.
        self_attention: see ``decoder_step``.
        order: whose turn comes first.

    Returns:
        For each half the log-probabilities (words, V), each row given all that was written before
        its turn.
    """
    embedding = parameters["embedding.weight"]
    decoder = MiddleOutDecoder(embedding[middle], H_e, state, parameters, self_attention)
    words = {"left": iter(left), "right": iter(right)}
    log_p: dict[Side, list[Array]] = {"left": [], "right": []}
    for side in turns(len(left), len(right), order):
        h = decoder.advance(side)
        log_p[side].append(word_log_probabilities(h, select(parameters, f"{side}.")))
        decoder.write(side, embedding[next(words[side])])
    V = len(embedding)
    return {side: np.array(rows).reshape(-1, V) for side, rows in log_p.items()}


def middle_word(X: Array, parameters: Parameters) -> Array:
    """The middle-word classifier: an LSTM over the input, a softmax of its final hidden state.

    Args:
        X: (n, d_x), the input sequence.
        parameters: ``lstm``, its T, and the linear map ``vocabulary`` to the candidates.

    Returns:
        The probability of each candidate.
    """
    T = select(parameters, "lstm.")
    h = unroll(partial(lstm, T=T), X, zero_state(len(T["weight"]) // 4))[-1].h
    return softmax(linear(h, select(parameters, "vocabulary.")))
