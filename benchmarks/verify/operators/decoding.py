"""Searches for captions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.verify import properties
from benchmarks.verify.cases import Case, NextLogProbs
from benchmarks.verify.draw import Draw
from benchmarks.verify.operators.operator import WORDS, Operator
from reference import decoding


def language_model(draw: Draw, V: int, steps: int, end: int) -> NextLogProbs:
    """Log-probabilities; sums are distinct, tied, or some words impossible; ``end`` may be rare."""
    rare = 64 * draw.flag("long_captions") * (np.arange(V) == end)
    numbers = draw.choose("log_probs", ("distinct", "impossible", "ties"))
    shape = (steps, V, V)
    if numbers == "ties":
        return NextLogProbs(-draw.random.integers(1, 4, shape) / 2 - rare)
    table = -draw.random.integers(1, 2**22, shape) / 2**20 - rare
    if numbers == "impossible":
        possible = draw.random.integers(0, V, shape[:2])  # one word after each stays possible
        hidden = draw.random.integers(0, 2, shape) == 0
        np.put_along_axis(hidden, possible[..., None], False, axis=-1)
        table[hidden] = -np.inf
    return NextLogProbs(table)


def _beam_searches(draw: Draw) -> Case:
    V = draw.size("V", 5, large=(40,), least=2)
    max_length = draw.size("max_length", 5, large=(20, 40), least=2)
    beam_size = draw.size("beam_size", 4, large=(5, 8))
    start = draw.size("start", 4, least=0) % V
    end = (start + 1 + draw.size("end", 4, least=0) % (V - 1)) % V
    num_return = min(draw.size("num_return", 8), beam_size)
    model = language_model(draw, V, max_length - 1, end)
    return model, start, end, beam_size, max_length, num_return


def beam_search(
    next_log_probs: Callable[..., Any],
    start: int,
    end: int,
    beam_size: int,
    max_length: int,
    num_return: int,
) -> list[tuple[list[int], float]]:
    """The oracle's hypotheses as (tokens, score)."""
    found = decoding.beam_search(
        next_log_probs,
        start=start,
        end=end,
        beam_size=beam_size,
        max_length=max_length,
        num_return=num_return,
    )
    return [(list(hypothesis.tokens), hypothesis.score) for hypothesis in found]


def greedy(
    next_log_probs: Callable[..., Any], start: int, end: int, max_length: int
) -> list[tuple[list[int], float]]:
    """The oracle's hypothesis as (tokens, score)."""
    found = decoding.greedy(next_log_probs, start=start, end=end, max_length=max_length)
    return [(list(found.tokens), found.score)]


def _greedy(draw: Draw) -> Case:
    model, start, end, _, max_length, _ = _beam_searches(draw)
    return model, start, end, max_length


OPERATORS = (
    Operator(
        "greedy",
        ("next_log_probs", "start", "end", "max_length"),
        "[(tokens, score)]",
        "The likeliest word at each step. Arguments are beam_search's.",
        greedy,
        _greedy,
        conventions=(
            "Of equal words the lowest token is taken.",
            "The score is the sum over the number of tokens, start included.",
            "Tokens come with start, and end where reached.",
        ),
        special={"ties": ({"log_probs": "ties"}, "equal words")},
        compare=properties.same_hypotheses,
        dtypes=WORDS,
    ),
    Operator(
        "beam_search",
        ("next_log_probs", "start", "end", "beam_size", "max_length", "num_return"),
        "[(tokens, score), ...]",
        "next_log_probs(tokens) -> (V,) gives the log-probabilities of the word after a tuple of "
        "tokens. max_length counts the start token.",
        beam_search,
        _beam_searches,
        conventions=(
            "A finished hypothesis stays in the beam with its sum unchanged.",
            "Hypotheses compete by their sum, ties go to the earlier hypothesis, then to the lower "
            "token; words of probability zero are never taken.",
            "The score is the sum over the number of tokens, start included; best score first.",
            "Tokens come with start, and end where reached.",
        ),
        special={
            "greedy": ({"beam_size": 1}, "a beam of one"),
            "distinct": ({"log_probs": "distinct"}, "distinct sums"),
            "impossible_words": ({"log_probs": "impossible"}, "words of probability zero"),
            "ties": ({"log_probs": "ties"}, "equal sums"),
        },
        compare=properties.same_hypotheses,
        dtypes=WORDS,
        sizes=(
            {"max_length": 40, "long_captions": True, "log_probs": "distinct"},
            {"V": 40, "max_length": 20, "beam_size": 5, "long_captions": True},
        ),
    ),
)
