"""Middle-Out: attention, a decoder's step, both halves of a caption, de-noising."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.verify.cases import Array, Case
from benchmarks.verify.draw import Draw, Pins
from benchmarks.verify.operators.attention import WEIGHTS
from benchmarks.verify.operators.objectives import exact
from benchmarks.verify.operators.operator import UNEVEN, Operator
from benchmarks.verify.operators.recurrent import GATES, gates, memory_cell
from reference import denoising, metrics, middle_out
from reference.middle_out import SelfAttention
from reference.primitives import Integers, Parameters
from reference.recurrent import State

SCORE = "A row r scores h W r: W_a for the memory, W_d for the outputs, W_h for the hidden states."
ORDER = (
    "The LSTM's input is the concatenation of e_{t-1}, d_t, c_t and h~_t (those that exist), then "
    "h_{t-1}; with self_attention output there is no e_{t-1}."
)


EMPTY = "The left half may have no words."


def _sizes(draw: Draw, d: int = UNEVEN, others: int = UNEVEN) -> tuple[int, int, int]:
    """(d, d_c, d_e), of at most ``d`` and ``others``."""
    widest = {"d": d, "d_c": others, "d_e": others}
    d, d_c, d_e = (draw.size(name, 4, large=(40, 130, most)) for name, most in widest.items())
    return d, d_c, d_e


def _decoder(
    draw: Draw, kind: str, d: int, d_c: int, d_e: int, prefix: str = ""
) -> dict[str, Array]:
    words = 2 if kind == "dual" else 1
    states = d if kind in ("hidden", "dual") else 0
    found = gates(draw, d, words * d_e + d_c + states, f"{prefix}lstm.")
    found[f"{prefix}W_a"] = draw.array(d, d_c) / 4
    if kind in ("output", "dual"):
        found[f"{prefix}W_d"] = draw.array(d, d_e) / 4
    if kind in ("hidden", "dual"):
        found[f"{prefix}W_h"] = draw.array(d, d) / 4
    return found


def _large_scores(draw: Draw, rows: list[Array], weights: list[Array]) -> None:
    """In that regime the first channel of the rows adds the same to all scores of a state."""
    if draw.regime == "large_scores":
        for of in rows:
            of[:, 0] = 1
        for W in weights:
            W[:, 0] *= draw.factor("large_scores")


def _attentions(draw: Draw) -> Case:
    d, d_c, _ = _sizes(draw)
    rows = draw.inputs(draw.size("n", 5, large=(17, 33, 144, 200)), d_c)
    h, W = draw.array(d), draw.array(d, d_c)
    _large_scores(draw, [rows], [W])
    return h, rows, W


def _steps(draw: Draw) -> Case:
    (d, d_c, d_e), kind = _sizes(draw), draw.choose("kind", middle_out.SELF_ATTENTIONS)
    written = draw.size("written", 4, large=(17, 40), least=0)
    memory = draw.inputs(draw.size("n", 4, large=(33, 144, 200)), d_c)
    outputs, states = draw.inputs(written + 1, d_e), draw.inputs(written, d)
    parameters = _decoder(draw, kind, d, d_c, d_e)
    weights = [W for name, W in parameters.items() if name in ("W_a", "W_d", "W_h")]
    _large_scores(draw, [memory, outputs, states], weights)
    e = outputs[draw.random.integers(written + 1)].copy()
    return draw.array(d), memory_cell(draw, d), e, memory, outputs, states, parameters, kind


def _captions(draw: Draw) -> Case:
    (d, d_c, d_e), kind = _sizes(draw, 512, 300), draw.choose("kind", middle_out.SELF_ATTENTIONS)
    V = draw.size("V", 5, large=(130,), least=2)
    left = draw.size("left", 4, large=(17, 40), least=0)
    right = draw.size("right", 4, large=(17, 40))
    words = [draw.words(V, n) for n in (left, right)]
    memory = draw.inputs(draw.size("n", 4, large=(33, 144, 200)), d_c)
    parameters = {"embedding.weight": draw.array(V, d_e)}
    for side in ("left", "right"):
        parameters |= _decoder(draw, kind, d, d_c, d_e, f"{side}.")
        parameters |= draw.linear(f"{side}.vocabulary", V, d)
    weights = [W for name, W in parameters.items() if name[-3:] in ("W_a", "W_d", "W_h")]
    _large_scores(draw, [memory, parameters["embedding.weight"]], weights)
    middle = int(draw.random.integers(V))
    return words[0], middle, words[1], memory, draw.array(d), draw.array(d), parameters, kind


def _odd(draw: Draw) -> int:
    return 2 * draw.size("N", 5, large=(10, 992)) + 1


def _numbers(draw: Draw, n: int) -> Case:
    y_hat, y = draw.inputs(n), draw.inputs(n)
    if draw.choose("exact", (False,)):  # also mirrored
        y_hat = y_hat + y_hat[::-1]
        y = y_hat.copy()
    return y_hat, y


def middle_out_step(
    h: Array,
    c: Array,
    e: Array,
    memory: Array,
    outputs: Array,
    states: Array,
    parameters: Parameters,
    self_attention: SelfAttention,
) -> Array:
    """The oracle's step of one decoder, as (2, d): h_t above c_t."""
    rows = list(outputs), list(states)
    return np.stack(
        middle_out.decoder_step(State(h, c), e, memory, *rows, parameters, self_attention)
    )


def middle_out_captioner(
    left: Integers,
    middle: int,
    right: Integers,
    memory: Array,
    h: Array,
    c: Array,
    parameters: Parameters,
    self_attention: SelfAttention,
) -> Array:
    """The oracle's log-probabilities of both halves, the left half first."""
    halves = left.tolist(), middle, right.tolist()
    found = middle_out.middle_out(*halves, memory, State(h, c), parameters, self_attention)
    return np.concatenate([found["left"], found["right"]])


def middle_out_loss(left: Integers, middle: int, right: Integers, *rest: Any) -> float:
    """The oracle's negative log-likelihood of the words of both halves."""
    log_p = middle_out_captioner(left, middle, right, *rest)
    words = np.concatenate([left, right])
    return float(-log_p[range(len(words)), words].sum())


CAPTION = (
    "left and right: the words of the halves from the middle outwards. memory: (n, d_c), attended "
    "to; h, c: (d,), the state that both decoders start from. parameters: embedding.weight "
    "(V, d_e); for left. and right. each lstm.weight, lstm.bias, W_a (d, d_c), W_d (d, d_e), "
    "W_h (d, d) as self_attention needs, vocabulary.weight, vocabulary.bias. self_attention: none, "
    "output, hidden, dual."
)
TURNS = "Left decodes first, then both in turn; when one half has ended, the other decodes alone."
READS = "Self-attention reads outputs and states of both halves, the middle word first."
KINDS: dict[str, tuple[Pins, str]] = {
    kind: ({"kind": kind}, f"self-attention: {kind}") for kind in middle_out.SELF_ATTENTIONS
}
WHOLE = ("left", "middle", "right", "memory", "h", "c", "parameters", "self_attention")

OPERATORS = (
    Operator(
        "general_attention",
        ("h", "rows", "W"),
        "(d_c,)",
        "What a state h: (d,) attends to of rows: (n, d_c), which score h W r. W: (d, d_c).",
        middle_out.weighted_sum,
        _attentions,
        {"middle_out": (2, 3, 4)},
        conventions=(WEIGHTS,),
        special={"one_row": ({"n": 1}, "a single row")},
        regimes=("zeros", "huge", "large_scores"),
        by=("h", "rows", "W"),
        sequences=2,
        lengths=("n",),
        rows=False,
        empty=False,
        sizes=(
            {"n": 144, "d": 130, "d_c": 130},
            {"n": 33, "d": 512, "d_c": 512},
            {"n": 5, "d_c": 2050},
        ),
    ),
    Operator(
        "middle_out_step",
        ("h", "c", "e", "memory", "outputs", "states", "parameters", "self_attention"),
        "(2, d): h_t above c_t",
        "One step of a decoder. h, c: (d,), the state before; e: (d_e,), its newest embedded word; "
        "memory: (n, d_c); outputs: (t, d_e), all embedded words so far, the first included; "
        "states: (t - 1, d). parameters: lstm.weight, lstm.bias, W_a (d, d_c), W_d (d, d_e), "
        "W_h (d, d) as self_attention needs: none, output, hidden, dual.",
        middle_out_step,
        _steps,
        {"middle_out": (1, 2, 3, 4, 5, 6, 7)},
        conventions=(
            GATES,
            WEIGHTS,
            SCORE,
            ORDER,
            "h~_1 is zero: there are no states before the first.",
        ),
        special={**KINDS, "first_step": ({"written": 0}, "the first step, without states")},
        regimes=("zeros", "huge", "large_scores"),
        by=("h", "c", "e", "memory", "outputs", "states", "parameters"),
        gates=("c",),
        sizes=(
            {"kind": "dual", "written": 40, "d": 130, "d_c": 130},
            {"kind": "dual", "written": 17, "d": 512, "d_c": 512, "d_e": 512},
            {"kind": "dual", "written": 31},
            {"n": 5, "d_c": 2050},
        ),
    ),
    Operator(
        "middle_out_captioner",
        WHOLE,
        "(left + right words, V)",
        f"Log-probabilities of each word of the left half, then of the right half. {CAPTION}",
        middle_out_captioner,
        _captions,
        {"middle_out": (1, 2, 3, 4, 5, 6, 7)},
        conventions=(GATES, WEIGHTS, SCORE, ORDER, TURNS, READS, EMPTY),
        special={
            **KINDS,
            "left_to_right": ({"left": 0}, "no left half"),
            "longer_left": ({"left": 4, "right": 1}, "a left half that goes on alone"),
        },
        regimes=("zeros", "huge", "large_scores"),
        by=("memory", "h", "c", "parameters"),
        sizes=(
            {"kind": "dual", "left": 20, "right": 20, "d": 130, "d_c": 130},
            {"kind": "dual", "left": 5, "right": 5, "d": 256, "d_c": 256, "d_e": 256},
            {"left": 20, "right": 20, "V": 10_000},
        ),
    ),
    Operator(
        "middle_out_loss",
        WHOLE,
        "a number",
        "Minus the sum of the log-probabilities of the words of both halves, the middle word's not "
        f"among them. {CAPTION}",
        middle_out_loss,
        _captions,
        {"middle_out": (7,)},
        conventions=(GATES, WEIGHTS, SCORE, ORDER, TURNS, READS, EMPTY),
        regimes=("zeros", "huge", "large_scores"),
        by=("memory", "h", "c", "parameters"),
        sizes=(
            {"kind": "dual", "left": 20, "right": 20, "d": 130, "d_c": 130},
            {"kind": "dual", "left": 5, "right": 5, "d": 256, "d_c": 256, "d_e": 256},
            {"left": 20, "right": 20, "V": 10_000},
        ),
    ),
    Operator(
        "symmetric_sequence",
        ("mu", "N"),
        "(2 N + 1,)",
        "The numbers that fall from mu in the middle to mu - mu^2 at both ends.",
        denoising.symmetric_sequence,
        lambda draw: (
            float(draw.random.integers(-15, 16)) / 17,
            draw.size("N", 10, large=(100, 992)),
        ),
        {"middle_out": (8,)},
    ),
    Operator(
        "mse",
        ("y_hat", "y"),
        "a number",
        "The mean squared error of a de-noised sequence y_hat: (n,) of y: (n,).",
        metrics.mse,
        lambda draw: _numbers(draw, draw.size("n", 11, large=(21, 200, 999))),
        regimes=("huge",),
        extra_properties=exact(0, 1),
        by=("y_hat", "y"),
    ),
    Operator(
        "symmetric_mse",
        ("y_hat",),
        "a number",
        "The mean squared difference of the two halves of y_hat: (2 N + 1,), one mirrored.",
        metrics.symmetric_mse,
        lambda draw: _numbers(draw, _odd(draw))[:1],
        regimes=("huge",),
        conventions=("The middle number does not count.",),
        extra_properties=exact(0),
        by=("y_hat",),
    ),
)
