"""Beam search and its variants, sampling, and scheduled sampling."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.verify import sentences
from benchmarks.verify.cases import Array, Case, HalvesLogProbs, NextLogProbs
from benchmarks.verify.draw import Draw, Pins
from benchmarks.verify.operators.operator import Operator
from reference import decoding, grid_beam, middle_out_decoding
from reference.middle_out import Side

Model = Callable[..., Any]
Found = list[tuple[list[int], float]]

ENDS = "Tokens come with start, and end where reached."
LOWEST = "Of equal words the lowest token is taken."
DIFFER = "start and end differ; num_return is at most beam_size."
PER_TOKEN = "The score is the sum, in float64, over the number of tokens, start included."
TIES = (
    "Ties go to the earlier hypothesis, then to the lower token; words of probability zero are "
    "never taken."
)
INTERVALS = (
    "A word is sampled by a uniform u, 0 <= u < 1: the one whose interval [low, high) of the "
    "cumulated probabilities, relative to their sum and in order of tokens, contains u."
)
BEAM = ("next_log_probs", "start", "end", "beam_size", "max_length", "num_return")
SPECIAL: Mapping[str, tuple[Pins, str]] = {
    "greedy": ({"beam_size": 1}, "a beam of one"),
    "distinct": ({"log_probs": "distinct"}, "distinct sums"),
    "impossible_words": ({"log_probs": "impossible"}, "words of probability zero"),
    "ties": ({"log_probs": "ties"}, "equal sums"),
    "near_ties": ({"log_probs": "near_ties"}, "sums that are equal in float32 alone"),
    "early_end": (
        {"log_probs": "early_end", "num_return": 1, "beam_size": (3, 5, 8), "max_length": 12},
        "one hypothesis asked for, the likeliest of which ends early",
    ),
    "unlikely_words": ({"log_probs": "unlikely"}, "words whose probability underflows"),
}
LARGE: tuple[Pins, ...] = (
    {"V": 10_001, "max_length": 12, "beam_size": 3, "long_captions": True, "log_probs": "distinct"},
    {"V": 40, "max_length": 5, "beam_size": (8, 16), "num_return": 16},
    {"V": 10_000, "max_length": 3, "beam_size": 16, "num_return": 16, "log_probs": "sorted"},
)
FAR_APART: Pins = {**LARGE[1], "log_probs": "far_apart"}
TIED: Pins = {"V": 10_000, "max_length": 3, "beam_size": 3, "num_return": 3, "log_probs": "ties"}
ENDING: Pins = {
    "V": 2000,
    "max_length": 12,
    "beam_size": 3,
    "log_probs": "early_end",
    "long_captions": False,
}
LATE: Pins = {"V": 40, "max_length": 40, "beam_size": (3, 5), "log_probs": "late_end"}
WIDE_BEAMS: Pins = {**LATE, "beam_size": (8, 16), "num_return": 16}
NARROW: Pins = {
    "V": 5,
    "max_length": 20,
    "beam_size": 16,
    "num_return": 16,
    "log_probs": ("distinct", "impossible"),
    "long_captions": False,
}
DEAR: Pins = {
    "V": 40,
    "max_length": 40,
    "beam_size": (3, 5),
    "num_return": 1,
    "log_probs": "dear_start",
}
LONG_CAPTION: Pins = {"max_length": 40, "long_captions": True, "log_probs": "distinct"}
WHOLE_TILES: Pins = {
    "V": 2048,
    "max_length": 40,
    "beam_size": 8,
    "num_return": 8,
    "long_captions": True,
    "log_probs": "distinct",
}
WIDE: Pins = {**LONG_CAPTION, "V": 10_000}
LONG = (
    *LARGE,
    FAR_APART,
    TIED,
    ENDING,
    LATE,
    WIDE_BEAMS,
    NARROW,
    DEAR,
    LONG_CAPTION,
    WHOLE_TILES,
)

MANY_WORDS = 4096
"""Number of words whose cumulated probabilities have large rounding errors in float32."""

ROWS = 40
"""Maximum number of a table's rows: one for each word would exceed memory."""


def _table(draw: Draw, shape: tuple[int, ...], end: int) -> Array:
    """Log-probabilities: with distinct sums, ties, or impossible words; ``end`` may be rare."""
    rare = 64 * draw.flag("long_captions") * (np.arange(shape[-1]) == end)
    numbers = draw.choose("log_probs", ("distinct", "impossible", "ties"))
    if numbers == "late_end":
        rare = 64 * (np.arange(shape[-1]) == end) * _early(shape)
    if numbers == "dear_start":  # to go on pays with the last word alone
        table = -draw.random.integers(1, 2**30, shape) / 2**40 - 64 * (np.arange(shape[-1]) == end)
        table[..., 0, :, :] -= 3 / 8 * shape[-3] + 3 / 16
        table[..., 0, :, end] = -0.75
        return table
    if numbers == "equal":
        return np.full(shape, -11 / 16)
    if numbers == "near_ties":
        table = -8 - draw.random.integers(0, 8, shape) / 2**20 - rare
        return table.astype(np.float32).astype(np.float64)
    if numbers == "ties":
        return -draw.random.integers(0, 4, shape) / 2 - rare
    # sums of 40 words are exact in float64, but not in float32
    table = -draw.random.integers(1, 2**42, shape)
    if shape[-1] > ROWS and numbers != "early_end":  # one of the last words is often likely
        last = shape[-1] - draw.random.integers(1, shape[-1] // 8, (*shape[:-1], 1))
        unlikely = draw.random.integers(0, 4, last.shape) == 0
        value = unlikely * np.take_along_axis(table, last, -1)
        np.put_along_axis(table, last, value - draw.random.integers(1, 2**24, last.shape), -1)
    table = table / 2**40 - rare
    if numbers == "sorted":  # the likeliest first words are neighbours, and one follows each
        table[..., 1:, :, :] = 64 * (table - table.max(-1, keepdims=True))[..., 1:, :, :]
        return np.roll(np.sort(table), draw.random.integers(shape[-1]), axis=-1)
    if numbers == "far_apart":  # in every other step, so that one hypothesis fills a beam in others
        table[..., ::2, :, :] *= 64
        return table
    if numbers in ("early_end", "late_end"):
        likely = 16 if numbers == "late_end" else 4
        table[..., end] /= likely if shape[-1] < 1000 else 4096
        return table
    if numbers == "unlikely":
        return 256 * table
    if numbers == "impossible":
        possible = draw.random.integers(0, shape[-1], shape[:-1])  # one possible word in each row
        hidden = draw.random.integers(0, 2, shape) == 0
        np.put_along_axis(hidden, possible[..., None], False, axis=-1)
        table[hidden] = -np.inf
    return table


def _early(shape: tuple[int, ...]) -> Array:
    """1 in the first seven eighths of steps, else 0."""
    return np.arange(shape[-3])[:, None, None] < 7 * shape[-3] // 8


def _sizes(draw: Draw) -> tuple[int, int, int, int, int, int]:
    """(V, start, end, beam_size, max_length, num_return)."""
    V = draw.size("V", 5, large=(40, 2050), least=2)
    max_length = draw.size("max_length", 5, large=(20, 40), least=2)
    beam_size = draw.size("beam_size", 4, large=(5, 8, 16))
    start = draw.size("start", 4, least=0) % V
    # of large vocabularies far behind start: beyond the integers of which Python has one object
    step = max(V // 6, 1)
    end = (start + step * (1 + draw.size("apart", 4, least=0) % (V - 1))) % V
    return V, start, end, beam_size, max_length, min(draw.size("num_return", 8), beam_size)


def _beam_searches(draw: Draw) -> Case:
    V, start, end, beam_size, max_length, num_return = _sizes(draw)
    model = NextLogProbs(_table(draw, (max_length - 1, min(V, ROWS), V), end))
    return model, start, end, beam_size, max_length, num_return


def _greedy(draw: Draw) -> Case:
    model, start, end, _, max_length, _ = _beam_searches(draw)
    return model, start, end, max_length


def _grids(draw: Draw) -> Case:
    model, start, end, *rest = _beam_searches(draw)
    V = model.table.shape[-1]
    word = (end + 1 + draw.size("word", 4, least=0) % (V - 1)) % V
    if draw.chosen["log_probs"] == "late_end":
        model.table[..., word] -= 64 * _early(model.table.shape)[..., 0]
    return model, word, start, end, *rest


def _halves(draw: Draw) -> Case:
    V, middle, end, beam_size, max_length, num_return = _sizes(draw)
    model = HalvesLogProbs(_table(draw, (2, 2 * max_length - 2, min(V, ROWS), V), end))
    return model, middle, end, beam_size, max_length, num_return


def _uniforms(draw: Draw, count: int) -> tuple[float, ...]:
    """Odd multiples of 2^-13, at which no two equally likely words meet; one may be 0 or near 1."""
    uniforms = (2 * draw.random.integers(0, 2**12, count) + 1) / 2**13
    if draw.flag("zero"):
        uniforms[draw.random.integers(count)] = 0
    if draw.flag("near_1"):  # which is 1 in float32
        uniforms[draw.random.integers(count)] = 1 - 2.0**-30
    return tuple(uniforms.tolist())


def _samples(draw: Draw) -> Case:
    model, start, end, max_length = _greedy(draw)
    return model, _between(draw, _uniforms(draw, max_length - 1)), start, end


def _between(draw: Draw, uniforms: tuple[float, ...]) -> tuple[float, ...]:
    """Where, of equally likely words, one's interval begins, if pinned; or just behind."""
    if draw.choose("between", (False,)):
        return (0.5,) * len(uniforms)
    if draw.choose("behind", (False,)):
        words = draw.random.integers(0, MANY_WORDS, len(uniforms))
        return tuple((words / MANY_WORDS + 2.0**-30).tolist())
    return uniforms


BETWEEN: Mapping[str, tuple[Pins, str]] = {
    "between": (
        {"between": True, "log_probs": "equal", "V": 2, "long_captions": False},
        "u = 1/2, between two equally likely words",
    ),
    "behind": (
        {"behind": True, "log_probs": "equal", "V": MANY_WORDS, "long_captions": False},
        "u just behind the end of a word's interval",
    ),
}


def _scheduled(draw: Draw) -> Case:
    model, _, _, max_length = _greedy(draw)
    y = draw.random.integers(0, model.table.shape[-1], max_length).tolist()
    epsilon = draw.choose("epsilon", (0.5, 0.0, 1.0, 0.25))
    coins, uniforms = (_uniforms(draw, max_length - 1) for _ in range(2))
    if draw.flag("coin_at_epsilon") and epsilon < 1:
        coins = (epsilon, *coins[1:])
    return model, y, epsilon, coins, _between(draw, uniforms)


def _plain(*hypotheses: decoding.Hypothesis) -> Found:
    return [(list(hypothesis.tokens), hypothesis.score) for hypothesis in hypotheses]


def beam_search(model: Model, start: int, end: int, beam: int, length: int, num: int) -> Found:
    """The oracle's hypotheses as (tokens, score)."""
    options = {"start": start, "end": end, "beam_size": beam, "max_length": length}
    return _plain(*decoding.beam_search(model, **options, num_return=num))


def grid_beam_search(
    model: Model, word: int, start: int, end: int, beam: int, length: int, num: int
) -> Found:
    """The oracle's hypotheses with one constraint word, as (tokens, score)."""
    options = {"start": start, "end": end, "beam_size": beam, "max_length": length}
    return _plain(*grid_beam.grid_beam_search(model, [[word]], **options, num_return=num))


def printed_beam_search(model: Model, start: int, end: int, beam: int, length: int) -> Found:
    """The oracle's hypotheses as (tokens, sum)."""
    found = decoding.printed_beam_search(
        model, start=start, end=end, beam_size=beam, max_length=length
    )
    return [(list(hypothesis.tokens), hypothesis.total) for hypothesis in found]


def middle_out_beam_search(
    model: Model, middle: int, end: int, beam: int, length: int, num: int
) -> Found:
    """The oracle's hypotheses as (tokens from left to right, score)."""

    def of_halves(halves: middle_out_decoding.Halves, side: Side) -> Array:
        log_p: Array = model((middle, *halves.left), (middle, *halves.right), side)
        return log_p

    options: Any = {"end": end, "beam_size": beam, "max_length": length, "num_return": num}
    found = middle_out_decoding.beam_search(of_halves, middle, **options)
    return [(list(halves.words), halves.score) for halves in found]


def greedy(model: Model, start: int, end: int, length: int) -> Found:
    """The oracle's hypothesis as (tokens, score)."""
    return _plain(decoding.greedy(model, start=start, end=end, max_length=length))


def sample(model: Model, uniforms: Sequence[float], start: int, end: int) -> Found:
    """The oracle's hypothesis as (tokens, score)."""
    return _plain(decoding.sample(model, uniforms, start=start, end=end))


def _search(
    name: str,
    arguments: tuple[str, ...],
    about: str,
    oracle: Callable[..., Any],
    case: Callable[[Draw], Case],
    *conventions: str,
    result: str = "[(tokens, score), ...]",
    **named: Any,
) -> Operator:
    named = {"compare": sentences.same_hypotheses, **named}
    return Operator(name, arguments, result, about, oracle, case, conventions=conventions, **named)


OPERATORS = (
    _search(
        "greedy",
        ("next_log_probs", "start", "end", "max_length"),
        "The likeliest word at each step. Arguments are beam_search's.",
        greedy,
        _greedy,
        LOWEST,
        PER_TOKEN,
        ENDS,
        result="[(tokens, score)]",
        special={
            "ties": ({"log_probs": "ties"}, "equal words"),
            "unlikely_words": SPECIAL["unlikely_words"],
        },
        sizes=({**LARGE[0], "max_length": 10}, LONG_CAPTION, LATE, TIED, ENDING, WHOLE_TILES),
    ),
    _search(
        "sample",
        ("next_log_probs", "uniforms", "start", "end"),
        "A multinomial sample: a word of each of uniforms in turn, until end or there are no more. "
        "Other arguments are beam_search's.",
        sample,
        _samples,
        INTERVALS,
        PER_TOKEN,
        ENDS,
        result="[(tokens, score)]",
        special={
            "impossible_words": SPECIAL["impossible_words"],
            "zero": ({"zero": True, "log_probs": "impossible"}, "u = 0"),
            **BETWEEN,
        },
        sizes=(*LONG, WIDE),
    ),
    _search(
        "scheduled_sampling",
        ("next_log_probs", "y", "epsilon", "coins", "uniforms"),
        "The words that a decoder in training reads instead of the T words y. Each of coins and "
        "uniforms is T - 1 numbers, of the words after the first. next_log_probs is beam_search's.",
        decoding.scheduled_sampling,
        _scheduled,
        "A word is replaced where its coin is below epsilon, by one sampled after the words read.",
        INTERVALS,
        result="[word, ...]",
        compare=sentences.same_words,
        special={
            "always": ({"epsilon": 1.0}, "every word is sampled"),
            "never": ({"epsilon": 0.0}, "no word is sampled"),
            **BETWEEN,
        },
        sizes=(
            *LARGE[:1],
            {**WIDE, "epsilon": 1.0},
            {**LONG_CAPTION, "V": 40, "epsilon": 0.5},
        ),
    ),
    _search(
        "beam_search",
        BEAM,
        "next_log_probs(tokens) -> (V,) gives the log-probabilities of the word after a tuple of "
        "tokens. max_length, at least 2, counts the start token.",
        beam_search,
        _beam_searches,
        DIFFER,
        "A finished hypothesis stays in the beam with its sum unchanged.",
        f"Hypotheses compete by their sum. {TIES}",
        f"{PER_TOKEN[:-1]}; best score first.",
        ENDS,
        special=SPECIAL,
        sizes=LONG,
    ),
    _search(
        "printed_beam_search",
        BEAM[:-1],
        "Beam search as the read-only LSTM's listing has it. Arguments are beam_search's.",
        printed_beam_search,
        lambda draw: _beam_searches(draw)[:-1],
        "A finished hypothesis keeps its place, and nothing that comes later can take it.",
        TIES,
        "The score is the sum; all hypotheses, the best first, of equal ones the finished first.",
        ENDS,
        equations={"lstm_readonly": ("beam search",)},
        special=SPECIAL,
        sizes=(
            {**LARGE[0], "max_length": 20},
            LARGE[-1],
            FAR_APART,
            LONG_CAPTION,
            LATE,
            WIDE_BEAMS,
            TIED,
            ENDING,
        ),
    ),
    _search(
        "grid_beam_search",
        ("next_log_probs", "word", *BEAM[1:]),
        "Beam search for captions that contain a word. Other arguments are beam_search's.",
        grid_beam_search,
        _grids,
        "There are two beams of beam_size, without the word and with it. What a hypothesis without "
        "it takes as the word goes to the second; generating it by chance stays in the first.",
        "In the second beam the same tokens are kept once. A hypothesis ends only in the second; "
        "finished, it stays there with its sum unchanged.",
        f"In each beam hypotheses compete by their sum. {TIES} What is generated precedes what "
        "takes the word.",
        f"{PER_TOKEN[:-1]}; best score first, of the second beam.",
        ENDS,
        special=SPECIAL,
        sizes=LONG,
    ),
    _search(
        "middle_out_beam_search",
        ("next_log_probs", "middle", *BEAM[2:]),
        "Beam search from the middle word outwards. next_log_probs(left, right, side) -> (V,) "
        "gives the log-probabilities of the next word of a side, left or right; left and right are "
        "tuples of tokens from the middle outwards, the middle first in both. max_length, at "
        "least 2, counts the words of one half and the middle.",
        middle_out_beam_search,
        _halves,
        "The sides take turns, left first; a hypothesis whose side has ended goes on unchanged.",
        "Hypotheses compete by the score: the sum of log-probabilities plus the number of tokens, "
        f"middle and ends included. {TIES}",
        "Tokens come from left to right, ends included; best score first.",
        special=SPECIAL,
        sizes=(
            *LARGE,
            FAR_APART,
            TIED,
            ENDING,
            {**LATE, "max_length": 20},
            {**WIDE_BEAMS, "max_length": 20},
            NARROW,
            {**DEAR, "max_length": 20},
            {"max_length": 20, "long_captions": True, "log_probs": "distinct"},
            {**WHOLE_TILES, "max_length": 20},
        ),
    ),
)
