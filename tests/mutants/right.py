"""Right candidates: none may be refused."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.verify.candidate import Candidate, CandidateError
from benchmarks.verify.conformance import FAILED, PASSED, conformance_test
from benchmarks.verify.draw import Draw
from benchmarks.verify.operators import OPERATORS
from benchmarks.verify.properties import OneOfBatch
from tests.candidates import (
    decoding,
    middle_out,
    objectives,
    recurrent,
    right,
    right_masks,
    right_torch,
    right_words,
)

MODULES = (
    right,
    right_torch,
    right_masks,
    right_words,
    recurrent,
    middle_out,
    objectives,
    decoding,
)
EXAMPLES = 20


@dataclass(frozen=True)
class Right:
    """A right candidate in the framework that it works in."""

    operator: str
    where: str
    function: Callable[..., Any]
    framework: str

    def candidate(self) -> Candidate:
        """It, in this process."""
        contract = OPERATORS[self.operator].arguments
        return Candidate(self.function, self.framework, contract=contract)

    def refusals(self, seed: int) -> tuple[set[str], list[str]]:
        """The dtypes that it was tested in, and what it failed."""
        operator, dtypes, failed = OPERATORS[self.operator], {"float64"}, []
        found = conformance_test(operator, self.candidate(), examples=EXAMPLES, seed=seed)
        dtype_of = {p.name: str(p.settings.get("dtype", "float64")) for p in operator.properties}
        for verdict in found:
            if verdict.status == PASSED:
                dtypes.add(dtype_of[verdict.name])
            if verdict.status == FAILED:
                failed.append(f"seed {seed}, {verdict.name}: {verdict.message}")
        return dtypes, failed


def candidates() -> Iterator[Right]:
    """Every function of a module of candidates that is named as an operator is."""
    for module in MODULES:
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if name in OPERATORS and function.__module__ == module.__name__:
                where = f"tests/candidates/{module.__name__.rpartition('.')[2]}.py"
                for framework in ("numpy", "torch"):
                    one = Right(name, where, function, framework)
                    if _runs(one):
                        yield one
                        break


def _runs(one: Right) -> bool:
    """Whether it takes the framework's arrays."""
    operator, candidate = OPERATORS[one.operator], one.candidate()
    name = candidate.padding
    calls = OneOfBatch(candidate, operator.sequences, name) if name else candidate
    try:
        calls(*operator.case(Draw(1)))
    except CandidateError:
        return False
    return True


def table(seeds: int, names: list[str]) -> Iterator[tuple[str, list[str]]]:
    """A line of a table for each candidate, and its refusals."""
    for one in candidates():
        if names and not any(name in one.operator for name in names):
            continue
        began, dtypes, failed = time.process_time(), {"float64"}, []
        for seed in range(seeds):
            tested, wrong = one.refusals(seed)
            dtypes |= tested
            failed += wrong
        seconds = time.process_time() - began
        yield (
            f"| {one.operator} | {one.where.rpartition('/')[2]} | {one.framework} "
            f"| {', '.join(sorted(dtypes))} | {seeds} | {len(failed)} | {seconds:.0f} |",
            failed,
        )
