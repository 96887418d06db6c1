"""The conformance table of this project: equation x implementation x dtype x device."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from benchmarks.kinds import Verified
from benchmarks.verify.candidate import BaseCandidate
from benchmarks.verify.conformance import (
    FAILED,
    NOT_RUN,
    PROJECT_EXAMPLES,
    Verdict,
    conformance_test,
    resolve,
)
from benchmarks.verify.operators import OPERATORS, Operator
from benchmarks.verify.process import Limits
from benchmarks.verify.project import ProjectImplementation, implementations
from reference.equations import Number

SHORT = {"expansionnet_v1": "v1", "expansionnet_v2": "v2"}


def rows(
    device: str = "cpu",
    examples: int = PROJECT_EXAMPLES,
    only: str | None = None,
    limits: Limits | None = None,
    seed: int = 0,
) -> Iterator[Verified]:
    """All rows, or those of the operator ``only``, one implementation after the other."""
    for each in implementations(device):
        if only not in (None, each.operator):
            continue
        operator = OPERATORS[each.operator]
        where = "cpu" if each.framework == "numpy" else device
        with resolve(
            each.function, operator, each.framework, where, limits, name=each.name
        ) as candidate:
            found = list(verdicts(each, candidate, examples, seed))
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
    implementation: ProjectImplementation, candidate: BaseCandidate, examples: int, seed: int = 0
) -> Iterator[Verdict]:
    """The verdicts on an implementation; with small chunks and tiles without large cases."""
    of, large = OPERATORS[implementation.operator], not implementation.has_small_tiles
    examples = -(-examples // implementation.share)
    return conformance_test(
        of, candidate, examples=examples, seed=seed, is_project=True, large=large
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
