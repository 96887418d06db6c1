"""Middle-out decoding: beam search with alternating sides, and exhaustive search.

A model is a function from the halves so far and the side whose turn it is to the log-probabilities
(V,) of that side's next word. ``max_length`` counts the words of one half and the middle word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from reference.decoding import fits_the_beam, room_for_a_token
from reference.equations import Decision, passage
from reference.middle_out import LEFT_FIRST, SelfAttention, Side, middle_out, turns
from reference.primitives import Array, Parameters
from reference.recurrent import State

NextLogProbs = Callable[["Halves", Side], Array]


@dataclass(frozen=True)
class Halves:
    """A partial or finished caption: the words of both sides from the middle outwards, end tokens
    included, and their log-probabilities in the order of generation."""

    middle: int
    left: tuple[int, ...] = ()
    right: tuple[int, ...] = ()
    log_probs: tuple[float, ...] = ()

    @property
    def words(self) -> tuple[int, ...]:
        """From left to right, middle and ends included."""
        return (*self.left[::-1], self.middle, *self.right)

    @property
    def score(self) -> float:
        """The summed log-probability plus the number of words."""
        return sum(self.log_probs) + len(self.words)

    def half(self, side: Side) -> tuple[int, ...]:
        """The words on one side."""
        return self.left if side == "left" else self.right

    def extended(self, side: Side, token: int, log_prob: float) -> Halves:
        """The halves with one more word on one side."""
        log_probs = (*self.log_probs, log_prob)
        if side == "left":
            return Halves(self.middle, (*self.left, token), self.right, log_probs)
        return Halves(self.middle, self.left, (*self.right, token), log_probs)

    def finished(self, side: Side, end: int) -> bool:
        """Whether the last word on one side is ``end``."""
        return self.half(side)[-1:] == (end,)

    def caption(self, end: int) -> list[int]:
        """The words without the ends."""
        return [word for word in self.words if word != end]


def word_model(
    H_e: Array,
    state: State,
    parameters: Parameters,
    self_attention: SelfAttention = "none",
    side_order: Sequence[Side] = LEFT_FIRST,
) -> NextLogProbs:
    """The middle-out decoder as a function of the halves so far; arguments as ``middle_out``'s."""

    def next_log_probs(halves: Halves, side: Side) -> Array:
        # the last row does not depend on the word that is appended here
        longer = halves.extended(side, 0, 0.0)
        words = (longer.left, longer.middle, longer.right)
        log_p = middle_out(*words, H_e, state, parameters, self_attention, side_order)
        last: Array = log_p[side][-1]
        return last

    return next_log_probs


def teacher_forced(
    next_log_probs: NextLogProbs,
    left: Sequence[int],
    middle: int,
    right: Sequence[int],
    side_order: Sequence[Side] = LEFT_FIRST,
) -> Halves:
    """The given halves, each word scored after all words before its turn."""
    words = {"left": left, "right": right}
    halves = Halves(middle)
    for side in turns(len(left), len(right), side_order):
        token = words[side][len(halves.half(side))]
        halves = halves.extended(side, token, float(next_log_probs(halves, side)[token]))
    return halves


@passage(
    "middle_out",
    "4.2, beam search",
    Decision(
        "adds the length of the output sequence to the beam's score; the search from the middle "
        "is not described",
        "score = sum of log-probabilities + number of tokens, middle and ends included, in the "
        "competition as in the final order; the sides take turns, and a hypothesis whose side has "
        "ended goes on unchanged",
        "the score is the beam's; without the bonus those that ended would be favoured",
    ),
)
@room_for_a_token
@fits_the_beam
def beam_search(
    next_log_probs: NextLogProbs,
    middle: int,
    *,
    end: int,
    beam_size: int,
    max_length: int,
    num_return: int = 1,
    side_order: Sequence[Side] = LEFT_FIRST,
) -> list[Halves]:
    """The ``num_return`` best of the ``beam_size`` hypotheses left after the last turn.

    The sides of ``side_order`` take turns. At each turn the candidates are the continuations on
    that side of hypotheses whose side is unfinished, and the others unchanged; the ``beam_size``
    with the largest scores, length bonus included, survive. Ties keep the order of hypotheses, then
    of token ids. With the order ("right",) and the start token as the middle word it is
    left-to-right beam search with the length bonus.
    """
    beam = [Halves(middle)]
    for _ in range(max_length - 1):
        for side in side_order:
            candidates = []
            for halves in beam:
                if halves.finished(side, end):
                    candidates.append(halves)
                else:
                    candidates.extend(_continuations(next_log_probs, halves, side))
            beam = sorted(candidates, key=lambda halves: -halves.score)[:beam_size]
    return beam[:num_return]


@room_for_a_token
def exhaustive_search(
    next_log_probs: NextLogProbs,
    middle: int,
    *,
    end: int,
    max_length: int,
    side_order: Sequence[Side] = LEFT_FIRST,
) -> list[Halves]:
    """All captions whose sides end or reach ``max_length``, best first: for tiny vocabularies."""
    turns = [side for _ in range(max_length - 1) for side in side_order]

    def complete(halves: Halves, turn: int) -> Iterator[Halves]:
        if turn == len(turns):
            yield halves
        elif halves.finished(turns[turn], end):
            yield from complete(halves, turn + 1)
        else:
            for longer in _continuations(next_log_probs, halves, turns[turn]):
                yield from complete(longer, turn + 1)

    return sorted(complete(Halves(middle), 0), key=lambda halves: -halves.score)


def _continuations(next_log_probs: NextLogProbs, halves: Halves, side: Side) -> Iterator[Halves]:
    """The halves extended on one side by each word of probability above zero."""
    for token, log_prob in enumerate(next_log_probs(halves, side)):
        if log_prob > -np.inf:
            yield halves.extended(side, token, float(log_prob))
