"""This project's implementations held to the oracle: equation x implementation x dtype x device."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from hypothesis.errors import UnsatisfiedAssumption

from benchmarks.verify import properties
from benchmarks.verify.candidate import (
    Candidate,
    CandidateError,
    one_sequence,
    takes_lengths,
)
from benchmarks.verify.cases import Case
from benchmarks.verify.operators import OPERATORS, Operator
from benchmarks.verify.own import implementations
from benchmarks.verify.precision import (
    available,
    literal_errors,
    literal_limit,
    relative_error,
)
from benchmarks.verify.properties import rounded
from benchmarks.verify.search import drawn
from benchmarks.verify.tolerances import DIFFERENCES, FLOAT64

COMPARED = properties.equals_oracle, properties.equals_at_scale, properties.same_hypotheses
"""The checks against the oracle's result; ours are held to the scale of that in all of them."""

SHORT = {"expansionnet_v1": "v1", "expansionnet_v2": "v2"}

EXAMPLES, QUICK = 30, 6
"""Cases of each property: usually, and in a hurry."""


@dataclass(frozen=True)
class Row:
    """One implementation of one operator in one dtype: its worst error and what it may be.

    Both are relative to the largest entry of the oracle's result. ``what`` is "output", padded
    batches and all regimes of numbers included, or "gradient".
    """

    operator: str
    equations: dict[str, tuple[int, ...]]
    what: str
    implementation: str
    dtype: str
    device: str
    cases: int
    worst: float
    bound: float

    @property
    def passed(self) -> bool:
        """Whether the worst error is within its bound; NaN is not."""
        return self.worst <= self.bound

    def to_dict(self) -> dict[str, Any]:
        """Every field and the verdict."""
        return {**asdict(self), "passed": self.passed}

    @property
    def numbers(self) -> str:
        """The equations as printed in a table: ``v1 4-9; v2 2-9``."""
        return "; ".join(f"{SHORT[paper]} {_ranges(n)}" for paper, n in self.equations.items())


def rows(device: str = "cpu", examples: int = 40) -> Iterator[Row]:
    """All rows, each as soon as it is measured.

    Args:
        device: where PyTorch computes.
        examples: cases for each property.
    """
    for name, implementation, candidate in implementations(device):
        operator = OPERATORS[name]
        for what, dtype, errors, bound in _measurements(operator, candidate, examples):
            # NaN, which is no pass, where no case could be had
            worst, about = max(errors, default=math.nan), (name, operator.equations, what)
            yield Row(*about, implementation, dtype, candidate.device, len(errors), worst, bound)


Measurement = tuple[str, str, list[float], float]


def _measurements(operator: Operator, candidate: Candidate, examples: int) -> Iterator[Measurement]:
    batched = takes_lengths(candidate, operator.arguments)
    alone = one_sequence(candidate, operator.sequences) if batched else candidate
    ordinary = drawn(operator.cases, examples)
    errors = []
    for prop in operator.properties:
        if prop.check in COMPARED:
            errors += [_error(operator, alone, case) for case in drawn(prop.cases, examples)]
        elif prop.needs == "lengths" and batched:
            errors += [
                error
                for case in drawn(prop.cases, examples)
                for error in _padded_errors(operator, candidate, case)
            ]
    yield "output", "float64", errors, FLOAT64
    if any(prop.needs == "torch" for prop in operator.properties):
        slopes = [_gradient_error(operator, alone, case) for case in ordinary]
        yield "gradient", "float64", [error for error in slopes if error is not None], DIFFERENCES
    for dtype in filter(available, operator.dtypes[1:]):
        literal = literal_errors(operator.oracle, ordinary, dtype)
        found = [_error(operator, alone, rounded(case, dtype)) for case in ordinary]
        # where the literal form is not defined there is no measure, but a number it must be
        errors = [
            error
            for error, measure in zip(found, literal, strict=True)
            if math.isfinite(measure) or not math.isfinite(error)
        ]
        yield "output", dtype, errors, literal_limit(literal, dtype)


def _error(operator: Operator, candidate: Candidate, case: Case) -> float:
    """Relative to the oracle in float64 on the same numbers; infinite if the candidate raises."""
    expected = operator.oracle(*rounded(case, "float64"))
    try:
        return relative_error(_numbers(candidate(*case)), _numbers(expected))
    except CandidateError:
        return math.inf


def _numbers(result: Any) -> Any:
    """A result as numbers: those of hypotheses, (tokens, score), in a row."""
    if isinstance(result, list) and result and isinstance(result[0], tuple):
        return np.concatenate([[*tokens, score] for tokens, score in result])
    return result


def _padded_errors(operator: Operator, candidate: Candidate, case: Case) -> list[float]:
    *sequences, lengths = case
    batch = sequences[: operator.sequences]
    rest = sequences[operator.sequences :]
    try:
        output = candidate(*batch, *rest, lengths=lengths)
    except CandidateError:
        return [math.inf]
    errors = []
    for i, length in enumerate(lengths):
        alone = [*(array[i] for array in batch[:-1]), batch[-1][i][:length]]
        # the last sequence's padding is the output's where there is no other
        actual = output[i][:length] if operator.sequences == 1 else output[i]
        errors.append(relative_error(actual, operator.oracle(*alone, *rest)))
    return errors


def _gradient_error(operator: Operator, candidate: Candidate, case: Case) -> float | None:
    """By central differences of the oracle; None near a kink."""
    try:
        expected = properties.differences(operator.oracle, case)
        return relative_error(properties.autograd(candidate, case), expected)
    except UnsatisfiedAssumption:
        return None
    except CandidateError:
        return math.inf


def _ranges(numbers: Sequence[int]) -> str:
    """``(2, 3, 4, 7)`` as ``2-4, 7``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]}-{run[-1]}" if run[1:] else str(run[0]) for run in runs)
