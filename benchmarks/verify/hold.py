"""Holding a candidate to an operator: every property in turn, and the smallest case that fails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from benchmarks.verify.candidate import (
    Candidate,
    detect_framework,
    load,
    one_sequence,
    takes_lengths,
)
from benchmarks.verify.operators import Operator, Property
from benchmarks.verify.precision import literal_errors, literal_limit
from benchmarks.verify.search import drawn, search
from benchmarks.verify.smaller import smaller
from benchmarks.verify.snippet import snippet


@dataclass(frozen=True)
class Verdict:
    """Whether a property holds; if not, why, and the smallest failing case as code.

    ``plain`` is whether the failure cannot be rounding; ``numbers``, how many its arrays have.
    """

    property: str
    says: str
    passed: bool
    message: str = ""
    code: str = ""
    plain: bool = False
    numbers: int = 0


def resolve(where: str, operator: Operator, framework: str | None, device: str) -> Candidate:
    """The candidate at ``where``, in its framework.

    Raises:
        InputError: it cannot be loaded, or cannot be called with the operator's arguments.
    """
    candidate = load(where, device=device)
    batched = takes_lengths(candidate, operator.arguments)
    if framework is None:
        (case,) = drawn(operator.cases, 1)

        def call(framework: str) -> None:
            tried = candidate.like(candidate.function, framework)
            (one_sequence(tried, operator.sequences) if batched else tried)(*case)

        framework = detect_framework(call, candidate)
    return candidate.like(candidate.function, framework)


def hold(operator: Operator, candidate: Candidate, examples: int) -> list[Verdict]:
    """The verdict on every property that applies to the candidate, the most basic first.

    Args:
        operator: what the candidate claims to be.
        candidate: from ``resolve``.
        examples: cases drawn for each property.
    """
    batched = takes_lengths(candidate, operator.arguments)
    applicable = {"", "limit", "lengths"} if batched else {"", "limit"}
    if candidate.framework == "torch":
        applicable.add("torch")
    return [
        _verdict(prop, operator, candidate, batched, examples)
        for prop in operator.properties
        if prop.needs in applicable
    ]


def _verdict(
    prop: Property, operator: Operator, candidate: Candidate, batched: bool, examples: int
) -> Verdict:
    names, cases = [*operator.arguments], prop.cases
    expression = f"load({candidate.name!r}, {candidate.framework!r})"
    if prop.needs == "lengths":
        names.append("lengths")
    elif batched:
        expression = f"one_sequence({expression}, {operator.sequences})"
        candidate = one_sequence(candidate, operator.sequences)
    if prop.needs == "limit":
        names = ["limit", "dtype", *names]
        errors = literal_errors(operator.oracle, drawn(cases, examples), "float32")
        limit = literal_limit(errors, "float32")
        cases = cases.map(lambda case: (limit, "float32", *case))
    below = partial(smaller, operator.name, names)
    failure = search(prop.check, candidate, operator.oracle, cases, examples, below)
    if failure is None:
        return Verdict(prop.name, prop.says, True)
    code = snippet(prop.check, operator.oracle, expression, names, failure.case)
    found = failure.message, code, failure.plain, failure.numbers
    return Verdict(prop.name, prop.says, False, *found)


def clearest(failed: Sequence[Verdict]) -> Verdict:
    """Of failed properties the one to look at: plainly wrong if any is, then on the fewest numbers.

    Raises:
        ValueError: there is none.
    """
    return min(failed, key=lambda verdict: (not verdict.plain, verdict.numbers))
