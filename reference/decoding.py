"""Decoding by readable loops: greedy, multinomial sampling, beam search, exhaustive search.

A model is here a function from a prefix (token ids, the start token first) to the log-probabilities
(V,) of the next token: v1 eq. 12 at one time step. ``max_length`` counts the start token.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
NextLogProbs = Callable[[tuple[int, ...]], Array]


@dataclass(frozen=True)
class Hypothesis:
    """A caption under way: its ``tokens`` from the start token on, one log-probability for each
    token after it."""

    tokens: tuple[int, ...]
    log_probs: tuple[float, ...] = ()

    @property
    def total(self) -> float:
        """The summed log-probability, by which hypotheses compete in a beam."""
        return sum(self.log_probs)

    @property
    def score(self) -> float:
        """The summed log-probability over the number of tokens, start token included: the final
        ranking."""
        return self.total / len(self.tokens)

    def extended(self, token: int, log_prob: float) -> Hypothesis:
        """One token longer."""
        return Hypothesis((*self.tokens, token), (*self.log_probs, log_prob))

    def finished(self, end: int) -> bool:
        """Whether the last generated token is ``end``."""
        return len(self.tokens) > 1 and self.tokens[-1] == end


def teacher_forced(next_log_probs: NextLogProbs, tokens: Sequence[int]) -> Hypothesis:
    """Score given ``tokens`` (start token first): each is read after the given ones before it."""
    hypothesis = Hypothesis((tokens[0],))
    for token in tokens[1:]:
        hypothesis = hypothesis.extended(token, float(next_log_probs(hypothesis.tokens)[token]))
    return hypothesis


def greedy(next_log_probs: NextLogProbs, *, start: int, end: int, max_length: int) -> Hypothesis:
    """The most likely token at each step until ``end`` (v1, text of section 3.5); among equals the
    lowest token id.

    Raises:
        ValueError: ``max_length`` < 2.
    """
    _check(max_length)
    hypothesis = Hypothesis((start,))
    while not hypothesis.finished(end) and len(hypothesis.tokens) < max_length:
        log_p = next_log_probs(hypothesis.tokens)
        token = int(np.argmax(log_p))
        hypothesis = hypothesis.extended(token, float(log_p[token]))
    return hypothesis


def inverse_cdf(log_p: Array, u: float) -> int:
    """The token whose interval of the cumulated probabilities contains u, 0 <= u < 1.

    The probabilities are taken relative to their sum, so that rounding leaves no gap below 1.
    """
    cumulated = np.cumsum(np.exp(log_p))
    token = 0
    while cumulated[token] <= u * cumulated[-1]:
        token += 1
    return token


def sample(
    next_log_probs: NextLogProbs, uniforms: Sequence[float], *, start: int, end: int
) -> Hypothesis:
    """A multinomial sample, one uniform draw of [0, 1) for each step, until ``end``.

    ``max_length`` is len(uniforms) + 1.
    """
    hypothesis = Hypothesis((start,))
    for u in uniforms:
        log_p = next_log_probs(hypothesis.tokens)
        token = inverse_cdf(log_p, u)
        hypothesis = hypothesis.extended(token, float(log_p[token]))
        if hypothesis.finished(end):
            break
    return hypothesis


def beam_search(
    next_log_probs: NextLogProbs,
    *,
    start: int,
    end: int,
    beam_size: int,
    max_length: int,
    num_return: int = 1,
) -> list[Hypothesis]:
    """The ``num_return`` best of the ``beam_size`` hypotheses left after max_length - 1 steps.

    At each step every hypothesis offers its continuations, a finished one itself, unchanged; the
    ``beam_size`` with the largest sums of log-probabilities go on. Ties keep the order of
    hypotheses, then of token ids. Continuations of probability zero are none. The final order is by
    ``Hypothesis.score``. Fewer are returned where fewer exist.

    Raises:
        ValueError: ``max_length`` < 2, or not 1 <= num_return <= beam_size.
    """
    _check(max_length)
    if not 1 <= num_return <= beam_size:
        raise ValueError(f"num_return is {num_return}, expected 1 to beam_size ({beam_size})")
    beam = [Hypothesis((start,))]
    for _ in range(max_length - 1):
        candidates = []
        for hypothesis in beam:
            if hypothesis.finished(end):
                candidates.append(hypothesis)
            else:
                candidates.extend(_continuations(next_log_probs, hypothesis))
        candidates.sort(key=lambda candidate: -candidate.total)
        beam = candidates[:beam_size]
    return sorted(beam, key=lambda hypothesis: -hypothesis.score)[:num_return]


def exhaustive_search(
    next_log_probs: NextLogProbs, *, start: int, end: int, max_length: int
) -> list[Hypothesis]:
    """All captions that end, or reach ``max_length``, best score first: for tiny vocabularies.

    Raises:
        ValueError: ``max_length`` < 2.
    """
    _check(max_length)

    def complete(hypothesis: Hypothesis) -> Iterator[Hypothesis]:
        if hypothesis.finished(end) or len(hypothesis.tokens) == max_length:
            return iter([hypothesis])
        continuations = _continuations(next_log_probs, hypothesis)
        return itertools.chain.from_iterable(map(complete, continuations))

    return sorted(complete(Hypothesis((start,))), key=lambda hypothesis: -hypothesis.score)


def _continuations(next_log_probs: NextLogProbs, hypothesis: Hypothesis) -> Iterator[Hypothesis]:
    for token, log_prob in enumerate(next_log_probs(hypothesis.tokens)):
        if log_prob > -np.inf:
            yield hypothesis.extended(token, float(log_prob))


def _check(max_length: int) -> None:
    if max_length < 2:
        raise ValueError(f"max_length is {max_length}, expected at least 2: the start token counts")
