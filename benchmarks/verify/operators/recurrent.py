"""LSTMs: ARNet's with attention, zoneout and recurrent dropout; with the read-only unit."""

from __future__ import annotations

from functools import partial

import numpy as np

from benchmarks.verify.cases import Array, Case
from benchmarks.verify.draw import REGIMES, Draw
from benchmarks.verify.operators.attention import WEIGHTS
from benchmarks.verify.operators.operator import UNEVEN, Operator
from reference import attention, neural_image_caption, recurrent
from reference.primitives import Integers, Mask, Parameters, select
from reference.recurrent import State, unroll, zero_state

READINGS = ("none", "image", "previous_input")

GATES = "Rows of the LSTM's weight are those of the gates i, f, o, g: g is last."
ZEROS = "h and c are zero before the first step."
NO_TANH = (
    "m = o * c, without a tanh, and no map has a bias. The unit adds r * (what it reads) to c, "
    "where r is a gate like i."
)
READ = (
    "What is read is x_{-1}, the first row of X, at every step (image), or the row before, zeros "
    "at the first step (previous_input)."
)


def gates(draw: Draw, d: int, inputs: int, prefix: str = "") -> dict[str, Array]:
    """The affine map T of an LSTM of ``d`` channels, from ``inputs`` channels and h_{t-1}."""
    found = draw.linear(f"{prefix}T", 4 * d, inputs + d)
    if draw.regime == "remembers":
        found[f"{prefix}T.bias"][: 2 * d] = OPEN
        follow(found[f"{prefix}T.weight"][3 * d :, 0])
    return {name.replace("T.", ""): array for name, array in found.items()}


OPEN = 12.0
"""The argument of a gate that stays open."""
LONG = {"regime": "remembers", "T": 144, "d": 2, "d_x": 2}
"""Pins of sequences along which memory cells grow, then fall."""
REMEMBERS = REGIMES["remembers"]


def follow(weight: Array) -> None:
    """Let an update be 1 or -1 as the input is."""
    weight[:] = np.copysign(4, weight)


def lasting(draw: Draw, X: Array) -> Array:
    """X: (T, d_x); in the regime "remembers" long 1 and then -1, and 1 in the last column."""
    if draw.regime == "remembers":
        X[:, -1] = 1
        X[:, 0] = np.where(np.arange(len(X)) < 2 * len(X) // 3, 1, -1)
    return X


def channels(draw: Draw) -> int:
    """The number of channels d."""
    return draw.size("d", 4, large=(40, 130, 512))


def _steps(draw: Draw) -> int:
    return draw.size("T", 5, large=(17, 33, 40, 144, 200))


def memory_cell(draw: Draw, d: int) -> Array:
    """c_{t-1}: (d,); in the regime "huge" also in the thousands, as after many steps."""
    large = draw.regime == "huge" and draw.flag("large_c")
    return draw.array(d) * (4096 if large else 1)


def _sequence(draw: Draw, d: int) -> tuple[Array, dict[str, Array]]:
    d_x = draw.size("d_x", 4, large=(40, 130, UNEVEN))
    X, parameters = lasting(draw, draw.inputs(_steps(draw), d_x)), gates(draw, d, d_x)
    parameters["weight"][:, :d_x] *= _steep(draw)
    return X, parameters


def _cells(draw: Draw) -> Case:
    d, d_x = channels(draw), draw.size("d_x", 4, large=(40, 130, UNEVEN))
    parameters = gates(draw, d, d_x)
    parameters["weight"] *= _steep(draw)
    return draw.inputs(d_x), draw.array(d), memory_cell(draw, d), parameters


def _sequences(draw: Draw) -> Case:
    return _sequence(draw, channels(draw))


def _attentive(draw: Draw) -> Case:
    d, d_x, d_s = (
        channels(draw),
        draw.size("d_x", 3, large=(40,)),
        draw.size("d_s", 4, large=(40, 130)),
    )
    n, d_a = draw.size("n", 5, large=(17, 33, 144, 200)), draw.size("d_a", 3, large=(40,))
    X, s = lasting(draw, draw.inputs(_steps(draw), d_x)), draw.inputs(n, d_s)
    parameters = gates(draw, d, d_x + d_s, "lstm.") | {
        "score.W_s": draw.array(d_a, d_s),
        "score.W_h": draw.array(d_a, d),
        "score.b": draw.array(d_a),
        "score.w": draw.array(d_a),
    }
    if draw.scores_are_far:
        parameters["score.w"] *= 2.0**13
    elif draw.regime == "large_scores":  # the first channel adds the same to all scores of a step
        parameters["score.W_s"][0] = 0
        parameters["score.w"][0] *= draw.factor("large_scores")
    return X, s, parameters


def _steep(draw: Draw) -> float:
    """A factor of weights: 8 where gates are nearly open or closed, in low precision too."""
    steep = float(draw.choose("steep", (1.0, 8.0)))
    return 1.0 if draw.regime == "huge" else steep


def steepen(draw: Draw, weight: Array) -> None:
    """In the regime "huge" multiply a gate's weights on its inputs, by row: by much, or little."""
    if draw.regime == "huge":
        weight *= draw.random.choice([16.0, draw.factor("huge")], (len(weight), 1))


def _zoneouts(draw: Draw) -> Case:
    d = channels(draw)
    X, parameters = _sequence(draw, d)
    z_h, z_c = draw.random.integers(0, 66, (2, len(X), d)) / 65
    if draw.choose("masks", (False,)):
        z_h, z_c = z_h.round(), z_c.round()
    kept = draw.choose("kept", ("both",))
    z_h, z_c = z_h * (kept != "c"), z_c * (kept != "h")
    return X, parameters, z_h, z_c


def _dropouts(draw: Draw) -> Case:
    d, p = channels(draw), draw.size("p", 63, least=0) / 65
    X, parameters = _sequence(draw, d)
    keep = draw.random.random((len(X), d)) >= p
    return X, parameters, keep, p, draw.choose("dropped", ("state", "update"))


def _matrices(draw: Draw, d: int, d_x: int, names: str) -> dict[str, Array]:
    """The matrices W_ix, W_im and so on of the read-only paper, for the gates ``names``."""
    found, steep = dict[str, Array](), _steep(draw)
    for name in names:
        for source, wide in (("x", d_x), ("m", d)):
            found[f"W_{name}{source}"] = draw.linear("W", d, wide)["W.weight"]
        found[f"W_{name}x"] *= steep
        steepen(draw, found[f"W_{name}x"])
    if draw.regime == "remembers":
        for name in "if":
            found[f"W_{name}x"][:, -1] = OPEN
        follow(found["W_cx"][:, 0])
    return found


def _read_only_cells(draw: Draw) -> Case:
    d = channels(draw)
    x, m, read = (draw.array(d) for _ in range(3))
    return x, m, memory_cell(draw, d), read, _matrices(draw, d, d, "ifocr")


def _read_only_parameters(draw: Draw) -> tuple[int, dict[str, Array], str]:
    """(N_e, matrices, reading)."""
    reading, d = draw.choose("reading", READINGS), channels(draw)
    # the unit's input is as wide as the memory
    d_x = draw.size("d_x", 4, large=(40, 130, UNEVEN)) if reading == "none" else d
    return d_x, _matrices(draw, d, d_x, "ifoc" if reading == "none" else "ifocr"), reading


def _read_only(draw: Draw) -> Case:
    d_x, parameters, reading = _read_only_parameters(draw)
    return lasting(draw, draw.array(_steps(draw), d_x)), parameters, reading


def _captioners(draw: Draw) -> Case:
    d_x, parameters, reading = _read_only_parameters(draw)
    V, d_feature = (
        draw.size("V", 5, large=(10_001,), least=2),
        draw.size("d_feature", 3, large=(40, 2050)),
    )
    parameters |= {
        "W_i": draw.array(d_feature, d_x),
        "b_i": draw.array(d_x),
        "W_e": draw.array(V, d_x),
        "W_pm": draw.factor("large_scores") * draw.array(V, len(parameters["W_im"])),
    }
    features = draw.array(draw.size("regions", 4, large=(33, 144, 200)), d_feature)
    return features, draw.words(V, _steps(draw)), parameters, reading


def _zeros(T: Parameters) -> State:
    return zero_state(len(T["weight"]) // 4, T["weight"].dtype)


def lstm_cell(x: Array, h: Array, c: Array, parameters: Parameters) -> Array:
    """The oracle's step, as (2, d): h_t above c_t."""
    return np.stack(recurrent.lstm(x, State(h, c), parameters))


def lstm(X: Array, parameters: Parameters) -> Array:
    """The oracle's hidden states, starting from zeros."""
    states = unroll(partial(recurrent.lstm, T=parameters), X, _zeros(parameters))
    return np.stack([state.h for state in states])


def attentive_lstm(X: Array, s: Array, parameters: Parameters) -> Array:
    """The oracle's attentive LSTM with the additive score."""
    T, W = select(parameters, "lstm."), select(parameters, "score.")
    cell = recurrent.attentive_cell(s, partial(attention.additive_score, parameters=W), T)
    return np.stack([state.h for state in unroll(cell, X, _zeros(T))])


def zoneout(X: Array, parameters: Parameters, z_h: Array, z_c: Array) -> Array:
    """The oracle's LSTM with zoneout after each step."""
    state, outputs = _zeros(parameters), []
    z_h, z_c = (np.asarray(z).clip(0, 1) for z in (z_h, z_c))  # perturbed, 1 is more
    for x, h_share, c_share in zip(X, z_h, z_c, strict=True):
        state = recurrent.zoneout(state, recurrent.lstm(x, state, parameters), c_share, h_share)
        outputs.append(state.h)
    return np.stack(outputs)


def recurrent_dropout(
    X: Array, parameters: Parameters, keep: Mask, p: float, dropped: str
) -> Array:
    """The oracle's LSTM with dropout on h_{t-1} or g_t."""
    state, outputs = _zeros(parameters), []
    for x, kept in zip(X, keep, strict=True):
        if dropped == "state":
            cell = partial(recurrent.lstm, T=parameters)
            state = recurrent.recurrent_dropout(cell, kept, p)(x, state)
        else:
            state = recurrent.update_dropout(x, state, parameters, kept, p)
        outputs.append(state.h)
    return np.stack(outputs)


def read_only_lstm_cell(x: Array, m: Array, c: Array, read: Array, parameters: Parameters) -> Array:
    """The oracle's memory block with the read-only unit."""
    return np.stack(recurrent.memory_block(x, State(m, c), parameters, read))


def read_only_lstm(X: Array, parameters: Parameters, reading: str) -> Array:
    """The oracle's outputs of the memory blocks."""
    states = recurrent.memory_blocks(X, parameters, _reading(reading))
    return np.stack([state.h for state in states])


def read_only_captioner(
    features: Array, tokens: Integers, parameters: Parameters, reading: str
) -> Array:
    """The oracle's log-probabilities without the image's step, which the loss leaves out."""
    return neural_image_caption.word_log_probabilities(
        features, tokens, parameters, _reading(reading)
    )[1:]


def _reading(name: str) -> recurrent.ReadOnly | None:
    return next((reading for reading in recurrent.READINGS if reading == name), None)


UNIT = (6, 7, 8, 9, 10, 16, 17)

OPERATORS = (
    Operator(
        "lstm_cell",
        ("x", "h", "c", "parameters"),
        "(2, d): h_t above c_t",
        "One step of an LSTM. x: (d_x,), h and c of the step before: (d,). parameters: weight "
        "(4 d, d_x + d) on x beside h, bias (4 d,).",
        lstm_cell,
        _cells,
        {"arnet": (2,)},
        conventions=(GATES,),
        special={"one_channel": ({"d": 1, "d_x": 1}, "a single channel and input")},
        regimes=("zeros", "huge"),
        by=("x", "h", "c", "parameters"),
        gates=("h", "c"),
        sizes=({"d": UNEVEN, "d_x": UNEVEN},),
    ),
    Operator(
        "lstm",
        ("X", "parameters"),
        "(T, d)",
        "The hidden states of an LSTM along X: (T, d_x). parameters: as lstm_cell's.",
        lstm,
        _sequences,
        {"arnet": (2,)},
        conventions=(GATES, ZEROS),
        special={"one_step": ({"T": 1}, "a single step"), "remembers": (LONG, REMEMBERS)},
        regimes=("zeros", "huge"),
        by=("X", "parameters"),
        sequences=1,
        lengths=("T",),
        gates=(),
        sizes=({"T": 20, "d": 512, "d_x": 512}, {"T": 40, "d": 512}, {"T": 5, "d": UNEVEN}),
    ),
    Operator(
        "attentive_lstm",
        ("X", "s", "parameters"),
        "(T, d)",
        "The hidden states of an LSTM along X: (T, d_x) that attends at each step, from the hidden "
        "state before, to s: (n, d_s). parameters: lstm.weight (4 d, d_x + d + d_s) on x, h and "
        "the context, lstm.bias, score.W_s (d_a, d_s), score.W_h (d_a, d), score.b and score.w.",
        attentive_lstm,
        _attentive,
        {"arnet": (3, 4)},
        conventions=(
            GATES,
            ZEROS,
            WEIGHTS,
            "The score of s_i is w^T tanh(W_s s_i + W_h h_{t-1} + b).",
        ),
        special={
            "one_step": ({"T": 1}, "a single step"),
            "one_vector": ({"n": 1}, "a single local information vector"),
            "remembers": (LONG, REMEMBERS),
        },
        regimes=("zeros", "huge", "large_scores"),
        by=("X", "s", "parameters"),
        gates=(),
        sequences=2,
        lengths=("n",),
        rows=False,
        empty=False,
        sizes=(
            {"T": 20, "d": 512, "n": 144},
            {"T": 5, "n": 17, **dict.fromkeys(("d", "d_x", "d_s", "d_a"), UNEVEN)},
            {"T": 3, "n": 5, "d_s": 2050},
        ),
    ),
    Operator(
        "zoneout",
        ("X", "parameters", "z_h", "z_c"),
        "(T, d)",
        "The hidden states of an LSTM, parameters as lstm_cell's, with zoneout. z_h, z_c: (T, d), "
        "the share of the value before in each new h and c: a mask in training, a rate in "
        "evaluation, here any number between 0 and 1.",
        zoneout,
        _zoneouts,
        conventions=(
            GATES,
            ZEROS,
            "The new h is computed from the new c, before zoneout of either.",
        ),
        special={
            "remembers": ({**LONG, "T": 257}, REMEMBERS),
            "of_h": ({"kept": "h"}, "zoneout of h alone"),
            "of_c": ({"kept": "c"}, "zoneout of c alone"),
            "masks": ({"masks": True}, "masks of zeros and ones, as in training"),
        },
        regimes=("zeros", "huge"),
        by=("X", "parameters"),
        gates=(),
        sizes=({"T": 40, "d": 512}, {"T": 5, "d": UNEVEN}),
    ),
    Operator(
        "recurrent_dropout",
        ("X", "parameters", "keep", "p", "dropped"),
        "(T, d)",
        "The hidden states of an LSTM, parameters as lstm_cell's, with dropout on h_{t-1} as the "
        "gates see it (state) or on g_t (update). keep: (T, d), False where it is dropped.",
        recurrent_dropout,
        _dropouts,
        conventions=(GATES, ZEROS, "What is kept is divided by 1 - p; c is never dropped."),
        special={
            "state": ({"dropped": "state"}, "dropout of h_{t-1} in the gates"),
            "update": ({"dropped": "update"}, "dropout of g_t"),
            "remembers": (LONG, REMEMBERS),
        },
        regimes=("zeros", "huge"),
        by=("X", "parameters"),
        gates=(),
        sizes=({"T": 40, "d": 512}, {"T": 5, "d": UNEVEN}),
    ),
    Operator(
        "read_only_lstm_cell",
        ("x", "m", "c", "read", "parameters"),
        "(2, N): m_t above c_t",
        "One step of the LSTM with a read-only unit. All arguments: (N,); read is what the unit "
        "reads. parameters: W_ix, W_im and so on for i, f, o, c and r, (N, N).",
        read_only_lstm_cell,
        _read_only_cells,
        {"lstm_readonly": tuple(number for number in UNIT if number != 9)},
        conventions=(NO_TANH,),
        special={"one_channel": ({"d": 1}, "a single channel")},
        regimes=("zeros", "huge"),
        by=("x", "m", "c", "read", "parameters"),
        gates=("c", "read"),
        sizes=({"d": UNEVEN},),
    ),
    Operator(
        "read_only_lstm",
        ("X", "parameters", "reading"),
        "(T, N)",
        "The outputs m of the read-only paper's LSTM along X: (T, N_e), the image's embedding "
        "first. parameters: W_ix (N, N_e), W_im (N, N) and so on for i, f, o, c, and r with the "
        "unit. reading: none (without the unit), image, previous_input.",
        read_only_lstm,
        _read_only,
        {"lstm_readonly": UNIT},
        conventions=(NO_TANH, READ, "m and c are zero before the first step."),
        special={
            "no_unit": ({"reading": "none"}, "the LSTM without the unit"),
            "image": ({"reading": "image"}, "a unit that reads the image"),
            "previous_input": ({"reading": "previous_input"}, "equation 17 as printed"),
            "one_step": ({"T": 1}, "the image's step alone"),
            "remembers": (LONG, REMEMBERS),
        },
        regimes=("zeros", "huge"),
        by=("X", "parameters"),
        sequences=1,
        lengths=("T",),
        gates=("X",),
        sizes=({"T": 40, "d": 512}, {"T": 5, "d": UNEVEN}),
    ),
    Operator(
        "read_only_captioner",
        ("features", "tokens", "parameters", "reading"),
        "(T, V)",
        "Log-probabilities of the word after each of tokens: (T,), given features: "
        "(regions, d_feature). parameters: as read_only_lstm's, with W_i (d_feature, N_e), b_i, "
        "W_e (V, N_e), W_pm (V, N).",
        read_only_captioner,
        _captioners,
        {"lstm_readonly": (4, 5, 11)},
        conventions=(
            NO_TANH,
            "x_{-1} is the mean over the regions times W_i plus b_i, the unit reads it (image) or "
            "the input before (previous_input); the words follow.",
        ),
        regimes=("zeros", "huge", "large_scores"),
        by=("features", "parameters"),
        sizes=({"T": 5, "d": 512, "V": 10_000, "reading": "image"},),
    ),
)
