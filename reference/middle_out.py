"""Sequence-to-sequence with self-attention, and decoding from the middle outwards (Middle-Out 1-7).

Each of the three attentions scores by eq. 4 with a matrix of its own: W_a for the encoder's states,
W_d for the embedded outputs, W_h for the decoders' hidden states.

Throughout, ``H_e`` (n, d_c) and ``state`` (d,) are the encoder's, from ``encode``. A decoder's
``parameters`` are ``lstm``, ``W_a`` (d, d_c), the linear map ``vocabulary`` to the V words and,
depending on ``self_attention``, ``W_d`` (d, d_e) and ``W_h`` (d, d).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Literal

import numpy as np

from reference.attention import alignment_weights, context_vector, general_score
from reference.checks import requires
from reference.equations import Decision, equation, passage
from reference.primitives import Array, Integers, Parameters, linear, log_softmax, select, softmax
from reference.recurrent import State, bidirectional_lstm, lstm, unroll, zero_state

Side = Literal["left", "right"]
LEFT_FIRST: tuple[Side, ...] = ("left", "right")
"""The order of turns: a word on the left, then a word on the right."""

SelfAttention = Literal["none", "output", "hidden", "dual"]
SELF_ATTENTIONS: tuple[SelfAttention, ...] = ("none", "output", "hidden", "dual")

RECURRENCE = Decision(
    "S is not defined",
    "an LSTM whose input are the other arguments, concatenated in their printed order",
    "the decoder is an LSTM",
    about="S",
)
SCORES = Decision(
    "d_t and h~_t are weighted sums, by weights that are not given",
    "by (3), with the general score of (4) and a matrix of their own each, W_d and W_h",
    "the paper's only score",
    about="scores",
)
FIRST_STEP = Decision(
    "sums over e_1 ... e_(t-1) and h_1 ... h_(t-1), which are empty at t = 1",
    "the first word's embedding, of the start token or the middle word, is among the outputs; "
    "h~_1 is zero, as the state that decoding starts from is not among the hidden states",
    "(5) has no other input; Figure 2: the middle word is attended over",
    about="first step",
)


@equation(
    "middle_out",
    1,
    r"\mathbf{h}_t^d = S(\mathbf{h}_{t-1}^d, \mathbf{e}_{t-1}, \mathbf{c}_t)",
    notes=[RECURRENCE],
)
def attention_recurrence(state: State, e: Array, c: Array, T: Parameters) -> State:
    """h_t and the memory cell (d,) from the last word's embedding (d_e,) and the context (d_c,).

    T is the LSTM's, ``weight`` (4 d, d_e + d_c + d).
    """
    return lstm(np.concatenate([e, c]), state, T)


@equation(
    "middle_out",
    5,
    r"\mathbf{h}_t^d = S(\mathbf{h}_{t-1}^d, \mathbf{d}_t, \mathbf{c}_t)",
    notes=[RECURRENCE, SCORES, FIRST_STEP],
)
def output_attention_recurrence(state: State, d: Array, c: Array, T: Parameters) -> State:
    """With d_t (d_e,), the attention over the embedded outputs, in place of e_{t-1}."""
    return lstm(np.concatenate([d, c]), state, T)


@equation(
    "middle_out",
    6,
    r"\mathbf{h}_t^d = S(\mathbf{h}_{t-1}^d, \mathbf{e}_{t-1}, \mathbf{c}_t, \tilde{\mathbf{h}}_t)",
    notes=[RECURRENCE, SCORES, FIRST_STEP],
)
def hidden_attention_recurrence(
    state: State, e: Array, c: Array, h_tilde: Array, T: Parameters
) -> State:
    """With h~_t (d,), the attention over the decoder's hidden states."""
    return lstm(np.concatenate([e, c, h_tilde]), state, T)


@equation(
    "middle_out",
    7,
    r"\mathbf{h}_t^d ="
    r" S(\mathbf{h}_{t-1}^d, \mathbf{e}_{t-1}, \mathbf{d}_t, \mathbf{c}_t, \tilde{\mathbf{h}}_t)",
    notes=[RECURRENCE, SCORES, FIRST_STEP],
)
def dual_attention_recurrence(
    state: State, e: Array, d: Array, c: Array, h_tilde: Array, T: Parameters
) -> State:
    """With both self-attentions, d_t (d_e,) and h~_t (d,)."""
    return lstm(np.concatenate([e, d, c, h_tilde]), state, T)


def weighted_sum(h: Array, rows: Sequence[Array] | Array, W: Array) -> Array:
    """The attention (m,) of h (d,) over n rows (m,), by eqs. 2-4 with W (d, m); zeros if n = 0."""
    if len(rows) == 0:
        return np.zeros(W.shape[1], W.dtype)
    states = np.asarray(rows)
    return context_vector(alignment_weights(h, states, partial(general_score, W_a=W)), states)


@requires(
    lambda self_attention: self_attention in SELF_ATTENTIONS,
    "self_attention is {self_attention!r}, expected one of none, output, hidden, dual",
)
def decoder_step(
    state: State,
    e: Array,
    H_e: Array,
    E: Sequence[Array],
    H: Sequence[Array],
    parameters: Parameters,
    self_attention: SelfAttention,
) -> State:
    """One decoder step: the attentions of h_{t-1}, then eq. 1, 5, 6 or 7 by ``self_attention``.

    ``e`` (d_e,) is the embedding of the decoder's own last output; E are the embedded outputs so
    far, the first word included; H the hidden states so far, none before the first step.
    """
    T, h = select(parameters, "lstm."), state.h
    c = weighted_sum(h, H_e, parameters["W_a"])
    if self_attention == "none":
        return attention_recurrence(state, e, c, T)
    if self_attention == "output":
        d = weighted_sum(h, E, parameters["W_d"])
        return output_attention_recurrence(state, d, c, T)
    h_tilde = weighted_sum(h, H, parameters["W_h"])
    if self_attention == "hidden":
        return hidden_attention_recurrence(state, e, c, h_tilde, T)
    d = weighted_sum(h, E, parameters["W_d"])
    return dual_attention_recurrence(state, e, d, c, h_tilde, T)


@passage(
    "middle_out",
    "3.1, 3.3, initial state",
    Decision(
        "the final hidden state of the encoder",
        "the two directions' final hidden states side by side, and their memory cells likewise: "
        "a decoder has the channels of both",
        "a decoder's LSTM needs a memory cell too",
    ),
)
def encode(X: Array, parameters: Parameters) -> tuple[Array, State]:
    """The encoder's hidden states (n, 2 d) of X (n, d_x), and its final state, (2 d,).

    ``parameters`` are ``encoder.forward`` and ``encoder.backward``.
    """
    return bidirectional_lstm(X, select(parameters, "encoder."))


def word_log_probabilities(h: Array, parameters: Parameters) -> Array:
    """``log p(w_t | h_t)``, (V,): the log-softmax of the linear map ``vocabulary``."""
    return log_softmax(linear(h, select(parameters, "vocabulary.")))


def sequence_to_sequence(
    tokens: Integers,
    H_e: Array,
    state: State,
    parameters: Parameters,
    self_attention: SelfAttention = "none",
) -> Array:
    """The left-to-right decoder of section 3.1, optionally with the self-attention of 3.2.

    Returns log-probabilities (T, V), row t of the word after ``tokens[: t + 1]``; the tokens (T,)
    begin with the start token. ``parameters``: ``embedding.weight`` (V, d_e), ``decoder``.
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


@passage(
    "middle_out",
    "3.3, parameters",
    Decision(
        "two LSTM decoders",
        "each has its own LSTM, score matrices and layer before the softmax; they share the "
        "embeddings",
        "the self-attention reads the outputs of both without any distinction",
    ),
)
class MiddleOutDecoder:
    """Two decoders that generate one sequence from its middle outwards, step by step.

    Both start from the same state and the same embedded middle word (d_e,). Their self-attention
    reads the outputs and hidden states of both without distinction, in the order of generation.
    ``parameters``: ``left`` and ``right``, a decoder's each.
    """

    def __init__(
        self,
        e_middle: Array,
        H_e: Array,
        state: State,
        parameters: Parameters,
        self_attention: SelfAttention = "none",
    ) -> None:
        self.H_e, self.parameters, self.self_attention = H_e, parameters, self_attention
        self.states: dict[Side, State] = {"left": state, "right": state}
        self.last: dict[Side, Array] = {"left": e_middle, "right": e_middle}
        self.E: list[Array] = [e_middle]
        self.H: list[Array] = []

    def advance(self, side: Side) -> Array:
        """One step of one decoder: its hidden state (d,), which predicts its next output."""
        state, e = self.states[side], self.last[side]
        parameters = select(self.parameters, f"{side}.")
        state = decoder_step(state, e, self.H_e, self.E, self.H, parameters, self.self_attention)
        self.states[side] = state
        self.H.append(state.h)
        return state.h

    def write(self, side: Side, e: Array) -> None:
        """Append the step's embedded output, given or predicted; STOP is one too."""
        self.last[side] = e
        self.E.append(e)


@passage(
    "middle_out",
    "3.3, turns",
    Decision(
        "alternates between generating a word on the left and a word on the right",
        "left first; a side that is through leaves the turns to the other. The self-attention "
        "reads all outputs, STOP included, and all states in the order in which they came to be",
        "the order of the sentence; without any distinction, as the text has it",
    ),
)
@requires(
    lambda left, side_order: not left or "left" in side_order,
    "{left} outputs on the left, which is not among {side_order}",
)
@requires(
    lambda right, side_order: not right or "right" in side_order,
    "{right} outputs on the right, which is not among {side_order}",
)
def turns(left: int, right: int, side_order: Sequence[Side] = LEFT_FIRST) -> Iterator[Side]:
    """The side of each turn, for as many outputs on each side as ``left`` and ``right`` say.

    The sides of ``side_order`` alternate; when one is finished, every turn is the other's. A side
    that is not in ``side_order`` has no turns: ("right",) is a left-to-right decoder.
    """
    outputs = {"left": left, "right": right}
    for k in range(max(left, right)):
        yield from (side for side in side_order if k < outputs[side])


def middle_out(
    left: Sequence[int],
    middle: int,
    right: Sequence[int],
    H_e: Array,
    state: State,
    parameters: Parameters,
    self_attention: SelfAttention = "none",
    side_order: Sequence[Side] = LEFT_FIRST,
) -> dict[Side, Array]:
    """The middle-out decoder of section 3.3, teacher-forced.

    Returns each half's log-probabilities (words, V), each row given all words before its turn.
    ``left`` and ``right`` are the halves' words from the middle outwards, the end token last if
    they end; ``side_order`` is that of the turns. ``parameters``: ``embedding.weight`` (V, d_e),
    shared; ``left`` and ``right``, a decoder's each.
    """
    embedding = parameters["embedding.weight"]
    decoder = MiddleOutDecoder(embedding[middle], H_e, state, parameters, self_attention)
    words = {"left": iter(left), "right": iter(right)}
    log_p: dict[Side, list[Array]] = {"left": [], "right": []}
    for side in turns(len(left), len(right), side_order):
        h = decoder.advance(side)
        log_p[side].append(word_log_probabilities(h, select(parameters, f"{side}.")))
        decoder.write(side, embedding[next(words[side])])
    none = np.empty((0, len(embedding)), embedding.dtype)
    return {side: np.vstack([none, *rows]) for side, rows in log_p.items()}


@passage(
    "middle_out",
    "4.2, middle word",
    Decision(
        "the most-common verb, a word in -ing, among all of the captions of a video",
        "of a caption without that word its own commonest in -ing; a caption without any is not "
        "learned, a video without any is in no split, for whichever model; 40 candidates, the "
        "commonest",
        "the text does not say what such captions and videos become; of the captions of MSVD's "
        "training videos 57 % lack the word and 24 % any; the videos have 211 different ones",
    ),
)
def middle_word(X: Array, parameters: Parameters) -> Array:
    """The middle-word classifier: an LSTM over X (n, d_x), a softmax on its final hidden state.

    Returns the candidates' probabilities. ``parameters`` are ``lstm``, its T, and the linear map
    ``vocabulary`` to the candidates.
    """
    T = select(parameters, "lstm.")
    h = unroll(partial(lstm, T=T), X, zero_state(len(T["weight"]) // 4, X.dtype))[-1].h
    return softmax(linear(h, select(parameters, "vocabulary.")))
