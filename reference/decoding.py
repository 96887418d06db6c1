"""Decoding in plain loops: greedy, sampling, scheduled sampling, beam search, exhaustive search.

A model is a function from a prefix (token ids, the start token first) to the log-probabilities (V,)
of the next token: v1 eq. 12 at one time step. ``max_length`` counts the start token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from reference.checks import requires
from reference.equations import Decision, equation
from reference.primitives import Array

NextLogProbs = Callable[[tuple[int, ...]], Array]

room_for_a_token = requires(
    lambda max_length: max_length >= 2,
    "max_length is {max_length}, expected at least 2: the start token counts",
)
fits_the_beam = requires(
    lambda num_return, beam_size: 1 <= num_return <= beam_size,
    "num_return is {num_return}, expected 1 to beam_size ({beam_size})",
)


@dataclass(frozen=True)
class Hypothesis:
    """A partial or finished caption: tokens, the start token first, and one log-probability for
    each token after it."""

    tokens: tuple[int, ...]
    log_probs: tuple[float, ...] = ()

    @property
    def total(self) -> float:
        """The summed log-probability, which ranks hypotheses within a beam."""
        return sum(self.log_probs)

    @property
    def score(self) -> float:
        """The summed log-probability over the number of tokens, start token included: the final
        ranking."""
        return self.total / len(self.tokens)

    def extended(self, token: int, log_prob: float) -> Hypothesis:
        """The hypothesis with one more token."""
        return Hypothesis((*self.tokens, token), (*self.log_probs, log_prob))

    def finished(self, end: int) -> bool:
        """Whether the last generated token is ``end``."""
        return len(self.tokens) > 1 and self.tokens[-1] == end


def continuations(next_log_probs: NextLogProbs, hypothesis: Hypothesis) -> Iterator[Hypothesis]:
    """The hypothesis extended by each token of probability above zero."""
    for token, log_prob in enumerate(next_log_probs(hypothesis.tokens)):
        if log_prob > -np.inf:
            yield hypothesis.extended(token, float(log_prob))


def teacher_forced(next_log_probs: NextLogProbs, tokens: Sequence[int]) -> Hypothesis:
    """The hypothesis of given ``tokens``, start token first, each scored after those before it."""
    hypothesis = Hypothesis((tokens[0],))
    for token in tokens[1:]:
        hypothesis = hypothesis.extended(token, float(next_log_probs(hypothesis.tokens)[token]))
    return hypothesis


@room_for_a_token
def greedy(next_log_probs: NextLogProbs, *, start: int, end: int, max_length: int) -> Hypothesis:
    """The most likely token at each step until ``end`` (v1, section 3.5); ties to the lowest id."""
    hypothesis = Hypothesis((start,))
    while not hypothesis.finished(end) and len(hypothesis.tokens) < max_length:
        log_p = next_log_probs(hypothesis.tokens)
        token = int(np.argmax(log_p))
        hypothesis = hypothesis.extended(token, float(log_p[token]))
    return hypothesis


def ensemble(members: Sequence[NextLogProbs]) -> NextLogProbs:
    """The log of the mean of the models' probabilities (v1 Table 4, v2 Tables II to IV)."""

    def next_log_probs(prefix: tuple[int, ...]) -> Array:
        with np.errstate(divide="ignore"):
            p: Array = np.mean([np.exp(member(prefix)) for member in members], axis=0)
            return np.log(p)

    return next_log_probs


def inverse_cdf(log_p: Array, u: float) -> int:
    """The token whose interval of the cumulative probabilities contains u, 0 <= u < 1.

    Probabilities are normalised by their sum, so that rounding leaves no gap below 1.
    """
    cumulated = np.cumsum(np.exp(log_p))
    token = 0
    while cumulated[token] <= u * cumulated[-1]:
        token += 1
    return token


def sample(
    next_log_probs: NextLogProbs, uniforms: Sequence[float], *, start: int, end: int
) -> Hypothesis:
    """A multinomial sample, by one uniform number in [0, 1) a step, until ``end``.

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


@requires(lambda epsilon: 0 <= epsilon <= 1, "epsilon is {epsilon}, expected in [0, 1]")
def scheduled_sampling(
    next_log_probs: NextLogProbs,
    y: Sequence[int],
    epsilon: float,
    coins: Sequence[float],
    uniforms: Sequence[float],
) -> list[int]:
    """The decoder's inputs in training, instead of the T true words ``y`` (Bengio et al., 2015).

    With probability epsilon, each word after the start token is replaced by a sample from the
    model's distribution given the inputs before it. ``coins`` and ``uniforms`` are T - 1 uniform
    numbers in [0, 1): a word is replaced where its coin is below epsilon.
    """
    read = [y[0]]
    for word, coin, u in zip(y[1:], coins, uniforms, strict=True):
        sampled = coin < epsilon
        read.append(inverse_cdf(next_log_probs(tuple(read)), u) if sampled else word)
    return read


@room_for_a_token
@fits_the_beam
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

    At each step the candidates are the continuations of unfinished hypotheses, and finished ones
    unchanged; the ``beam_size`` with the largest sums of log-probabilities survive. Ties keep the
    order of hypotheses, then of token ids. The final order is by ``Hypothesis.score``. Fewer are
    returned where fewer exist.
    """
    beam = [Hypothesis((start,))]
    for _ in range(max_length - 1):
        candidates = []
        for hypothesis in beam:
            if hypothesis.finished(end):
                candidates.append(hypothesis)
            else:
                candidates.extend(continuations(next_log_probs, hypothesis))
        candidates.sort(key=lambda candidate: -candidate.total)
        beam = candidates[:beam_size]
    return sorted(beam, key=lambda hypothesis: -hypothesis.score)[:num_return]


@equation(
    "lstm_readonly",
    "beam search",
    r"SCORES := \text{initial scores}",
    r"SEQUENCES := \text{start words}",
    r"\text{while (not end word for in all } SEQUENCES)",
    r"\quad LAST\_WORDS := SEQUENCES[LAST]",
    r"\quad NEXT\_WORDS := PREDICT(LAST\_WORDS)",
    r"\quad NEW\_SCORES := \text{calculate sequence score for each word from } NEXT\_WORDS"
    r" \text{ with its corresponding last score from } SCORES",
    r"\quad TOP\_SCORES := TOP\_N(NEW\_SCORES, N)",
    r"\quad TOP\_WORDS := \text{select words form } NEXT\_WORDS"
    r" \text{ corresponding to } TOP\_SCORES",
    r"\quad SCORES := TOP\_SCORES",
    r"\quad SEQUENCES \text{ append } TOP\_WORDS",
    r"\quad \text{foreach (} WORD \text{ in } TOP\_WORDS)",
    r"\quad\quad \text{if (} WORD \text{ is end word)}",
    r"\quad\quad\quad \text{don't process corresponding sequence from } SEQUENCES \text{ later}",
    notes=[
        Decision(
            "a sequence with the end word is not processed later; N best are taken at each step",
            "it keeps its place among the N and its score, and one continuation less is taken; a "
            "limit of the length is added",
            "N sequences are the result. The beam search of the other papers lets ended "
            "hypotheses compete, and lose their place",
        )
    ],
)
@room_for_a_token
@requires(lambda beam_size: beam_size >= 1, "beam_size is {beam_size}, expected at least 1")
def printed_beam_search(
    next_log_probs: NextLogProbs, *, start: int, end: int, beam_size: int, max_length: int
) -> list[Hypothesis]:
    """The read-only LSTM's beam search: ``beam_size`` sequences, best summed score first.

    A finished sequence keeps its place in the beam; in ``beam_search`` it must compete for it. Ties
    keep the order of sequences, then of token ids.
    """
    ended: list[Hypothesis] = []
    live = [Hypothesis((start,))]
    while live and len(live[0].tokens) < max_length:
        new = [longer for sequence in live for longer in continuations(next_log_probs, sequence)]
        top = sorted(new, key=lambda sequence: -sequence.total)[: beam_size - len(ended)]
        ended += [sequence for sequence in top if sequence.finished(end)]
        live = [sequence for sequence in top if not sequence.finished(end)]
    return sorted(ended + live, key=lambda sequence: -sequence.total)


@room_for_a_token
def exhaustive_search(
    next_log_probs: NextLogProbs, *, start: int, end: int, max_length: int
) -> list[Hypothesis]:
    """All captions that end, or reach ``max_length``, best score first: for tiny vocabularies."""

    def complete(hypothesis: Hypothesis) -> Iterator[Hypothesis]:
        if hypothesis.finished(end) or len(hypothesis.tokens) == max_length:
            yield hypothesis
        else:
            for longer in continuations(next_log_probs, hypothesis):
                yield from complete(longer)

    return sorted(complete(Hypothesis((start,))), key=lambda hypothesis: -hypothesis.score)
