"""The conformance table of this project: equation x implementation x dtype x device."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial

from benchmarks import workers
from benchmarks.kinds import Verified
from benchmarks.verify.candidate import BaseCandidate, Candidate
from benchmarks.verify.conformance import (
    FAILED,
    NOT_RUN,
    PROJECT_EXAMPLES,
    Verdict,
    conformance_test,
)
from benchmarks.verify.detection import resolve
from benchmarks.verify.operators import OPERATORS, Operator
from benchmarks.verify.process import Limits
from benchmarks.verify.project import ProjectImplementation, implementations
from reference.equations import Number

FEW = 12
"""Properties that a process tests at a time."""

SHORT = {"expansionnet_v1": "v1", "expansionnet_v2": "v2"}


def rows(
    device: str = "cpu",
    examples: int = PROJECT_EXAMPLES,
    only: Collection[str] = (),
    limits: Limits | None = None,
    seed: int = 0,
    processes: int = 1,
) -> Iterator[Verified]:
    """All rows, or those of the operators ``only``, one implementation after the other.

    With several ``processes`` each tests a few properties at a time, in the same cases. With
    ``limits``, of calls, each is called in a worker process of its own.
    """
    chosen = [
        (number, each)
        for number, each in enumerate(implementations(device))
        if not only or each.operator in only
    ]
    test = partial(_verdicts, device, examples, limits, seed)
    if processes == 1:
        for number, each in chosen:
            yield from _rows(each, device, test((number, ())))
        return
    parts = {number: _parts(OPERATORS[each.operator]) for number, each in chosen}
    jobs = [(number, part) for number, few in parts.items() for part in few]
    with workers.submitted([partial(test, job) for job in jobs], processes) as futures:
        done = iter(futures)
        for number, each in chosen:
            found = [verdict for _ in parts[number] for verdict in next(done).result()]
            yield from _rows(each, device, found)


def _parts(operator: Operator) -> list[tuple[str, ...]]:
    """The names of the operator's properties, a few at a time."""
    names = [prop.name for prop in operator.properties]
    return [tuple(names[i : i + FEW]) for i in range(0, len(names), FEW)]


def _verdicts(
    device: str,
    examples: int,
    limits: Limits | None,
    seed: int,
    job: tuple[int, tuple[str, ...]],
) -> list[Verdict]:
    """The verdicts on the properties of the implementation with the number; on all if none."""
    number, only = job
    each = implementations(device)[number]
    where = _where(each, device)
    if limits is None:
        return list(verdicts(each, called_here(each, where), examples, seed, only))
    with resolve(
        each.function, OPERATORS[each.operator], each.framework, where, limits, name=each.name
    ) as candidate:
        return list(verdicts(each, candidate, examples, seed, only))


def called_here(implementation: ProjectImplementation, device: str = "cpu") -> Candidate:
    """The implementation as a candidate that is called in this process, without limits."""
    arguments = OPERATORS[implementation.operator].arguments
    candidate = Candidate(
        implementation.function, implementation.framework, device, arguments=arguments
    )
    candidate.name = implementation.name
    return candidate


def _where(each: ProjectImplementation, device: str) -> str:
    return "cpu" if each.framework == "numpy" else device


def _rows(each: ProjectImplementation, device: str, found: Sequence[Verdict]) -> Iterator[Verified]:
    operator, where = OPERATORS[each.operator], _where(each, device)
    for (what, dtype), chosen in _grouped(operator, found).items():
        # relative to the bound, which differs between cases
        worst, bound = max(
            ((v.worst, v.bound) for v in chosen), key=lambda pair: pair[0] / (pair[1] or 1.0)
        )
        failures = [
            {"property": v.name, "message": v.message, "code": v.code}
            for v in chosen
            if v.status == FAILED
        ]
        yield Verified(
            operator=each.operator,
            equations={paper: list(n) for paper, n in operator.equations.items()},
            numbers=_equation_ranges(operator.equations),
            what=what,
            implementation=each.implementation,
            dtype=dtype,
            device=where,
            cases=sum(v.cases for v in chosen),
            worst=worst if math.isfinite(worst) else None,
            bound=bound if math.isfinite(bound) else None,
            passed=not failures and worst <= bound,
            failures=failures,
        )


def verdicts(
    implementation: ProjectImplementation,
    candidate: BaseCandidate,
    examples: int,
    seed: int = 0,
    only: Sequence[str] = (),
) -> Iterator[Verdict]:
    """The verdicts on an implementation; with small chunks and tiles without large cases."""
    of, large = OPERATORS[implementation.operator], not implementation.is_of_small_cases
    examples = -(-examples // implementation.share)
    return conformance_test(
        of, candidate, examples=examples, seed=seed, is_project=True, large=large, only=only
    )


def _grouped(
    operator: Operator, verdicts: Sequence[Verdict]
) -> dict[tuple[str, str], list[Verdict]]:
    """The verdicts of tested properties by (what, dtype), outputs in float64 first."""
    groups: dict[tuple[str, str], list[Verdict]] = {}
    properties = {prop.name: prop for prop in operator.properties}
    for verdict in verdicts:
        prop = properties[verdict.name]
        what = "gradient" if "by" in prop.settings else "output"
        if verdict.status != NOT_RUN:
            groups.setdefault((what, prop.dtype), []).append(verdict)
    return groups


def _equation_ranges(equations: Mapping[str, Sequence[Number]]) -> str:
    """The equations as printed in a table: ``v1 4-9; v2 2-9``."""
    return "; ".join(f"{SHORT.get(paper, paper)} {_ranges(n)}" for paper, n in equations.items())


def _ranges(numbers: Sequence[Number]) -> str:
    """``(2, 3, 4, 7)`` as ``2-4, 7``; names of listings are unchanged."""
    runs: list[list[Number]] = []
    for number in numbers:
        last = runs[-1][-1] if runs else None
        if isinstance(last, int) and number == last + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]}-{run[-1]}" if run[1:] else str(run[0]) for run in runs)
