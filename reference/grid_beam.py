"""Grid beam search: decoding with words that must appear (Hokamp and Liu, 2017).

"Lexically constrained decoding for sequence generation using grid beam search". The beams form a
grid, one for each number of constraint tokens covered; a hypothesis moves up when it takes one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from reference.checks import checked_by
from reference.decoding import (
    Hypothesis,
    NextLogProbs,
    continuations,
    fits_the_beam,
    room_for_a_token,
)

Constraints = Sequence[Sequence[int]]


@dataclass(frozen=True)
class Constrained:
    """A hypothesis and the number of tokens of each constraint that it has covered, in order."""

    hypothesis: Hypothesis
    covered: tuple[int, ...]

    def open(self, constraints: Constraints) -> bool:
        """Whether it is within no constraint; within one it must continue it."""
        pairs = zip(self.covered, constraints, strict=True)
        return all(n in (0, len(constraint)) for n, constraint in pairs)


def check_constraints(constraints: Constraints, end: int, max_length: int) -> None:
    """Raise ValueError for a constraint that is empty or has the end, or if they do not fit."""
    for constraint in constraints:
        if not constraint or end in constraint:
            raise ValueError(f"constraint {list(constraint)}: expected words, no end token")
    C = sum(map(len, constraints))
    if max_length - 1 < C:
        raise ValueError(f"{C} constraint tokens do not fit into max_length {max_length}")


@room_for_a_token
@fits_the_beam
@checked_by(check_constraints)
def grid_beam_search(
    next_log_probs: NextLogProbs,
    constraints: Constraints,
    *,
    start: int,
    end: int,
    beam_size: int,
    max_length: int,
    num_return: int = 1,
) -> list[Hypothesis]:
    """The ``num_return`` best captions that contain every constraint, a run of tokens.

    At each step the candidates for the beam of c covered tokens are: continuations of its own open
    hypotheses by any token; and hypotheses of the beam of c - 1 that start a constraint or continue
    theirs. The ``beam_size`` with the largest sums of log-probabilities survive. The end token is
    allowed once all constraints are covered; a finished hypothesis competes unchanged. A
    constraint's token that is generated freely covers nothing. Candidates with equal tokens and
    cover count once. Ties keep this order, then that of hypotheses, then of token ids or
    constraints. The final order is by ``Hypothesis.score``; fewer are returned where fewer exist.
    Without constraints it is ``decoding.beam_search``.
    """
    C = sum(map(len, constraints))

    def candidates(grid: list[list[Constrained]], c: int) -> Iterator[Constrained]:
        for constrained in grid[c]:
            if constrained.hypothesis.finished(end):
                yield constrained
            elif constrained.open(constraints):
                for longer in continuations(next_log_probs, constrained.hypothesis):
                    if c == C or not longer.finished(end):
                        yield Constrained(longer, constrained.covered)
        for constrained in grid[c - 1] if c else []:
            yield from _taking_a_token(next_log_probs, constrained, constraints)

    grid: list[list[Constrained]] = [[] for _ in range(C + 1)]
    grid[0] = [Constrained(Hypothesis((start,)), (0,) * len(constraints))]
    for _ in range(max_length - 1):
        grid = [_best(candidates(grid, c), beam_size) for c in range(C + 1)]
    complete = [constrained.hypothesis for constrained in grid[C]]
    return sorted(complete, key=lambda hypothesis: -hypothesis.score)[:num_return]


def _taking_a_token(
    next_log_probs: NextLogProbs, constrained: Constrained, constraints: Constraints
) -> Iterator[Constrained]:
    """The hypothesis extended by the next token of its constraint, or by the first of a new one."""
    is_open = constrained.open(constraints)
    log_p = next_log_probs(constrained.hypothesis.tokens)
    for i, constraint in enumerate(constraints):
        n = constrained.covered[i]
        if n < len(constraint) and is_open == (n == 0) and log_p[constraint[n]] > -float("inf"):
            covered = (*constrained.covered[:i], n + 1, *constrained.covered[i + 1 :])
            longer = constrained.hypothesis.extended(constraint[n], float(log_p[constraint[n]]))
            yield Constrained(longer, covered)


def _best(candidates: Iterator[Constrained], beam_size: int) -> list[Constrained]:
    """The ``beam_size`` largest sums; candidates with equal tokens and cover count once."""
    once: dict[tuple[tuple[int, ...], tuple[int, ...]], Constrained] = {}
    for candidate in candidates:
        once.setdefault((candidate.hypothesis.tokens, candidate.covered), candidate)
    return sorted(once.values(), key=lambda candidate: -candidate.hypothesis.total)[:beam_size]
