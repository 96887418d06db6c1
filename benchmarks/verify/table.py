"""The conformance table of this project: equation x implementation x dtype x device."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from msgspec import convert

from benchmarks.kinds import Verification, Verified
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


@dataclass(frozen=True)
class Row:
    """One implementation of one operator in one dtype: its worst error and the tolerance.

    Both are relative to the largest entry of the oracle's result. ``what`` is "output", including
    padded batches and all regimes, or "gradient". ``failures`` have the property, message and case
    of each failure.
    """

    operator: str
    equations: dict[str, tuple[Number, ...]]
    what: str
    implementation: str
    dtype: str
    device: str
    cases: int
    worst: float
    bound: float
    failures: tuple[dict[str, str], ...] = ()

    @property
    def passed(self) -> bool:
        """Whether no property failed."""
        return not self.failures and self.worst <= self.bound

    def to_dict(self) -> dict[str, Any]:
        """All fields and ``passed``."""
        return {**asdict(self), "passed": self.passed}

    @property
    def equation_ranges(self) -> str:
        """The equations as printed in a table: ``v1 4-9; v2 2-9``."""
        return "; ".join(
            f"{SHORT.get(paper, paper)} {_ranges(n)}" for paper, n in self.equations.items()
        )


def as_details(rows: Sequence[Row]) -> Verification:
    """Rows as a record's details."""
    found = [row.to_dict() | {"numbers": row.equation_ranges} for row in rows]
    for fields, name in itertools.product(found, ("worst", "bound")):
        fields[name] = fields[name] if math.isfinite(fields[name]) else None
    return Verification(rows=convert(found, list[Verified]))


def rows(
    device: str = "cpu",
    examples: int = PROJECT_EXAMPLES,
    only: str | None = None,
    limits: Limits | None = None,
    seed: int = 0,
) -> Iterator[Row]:
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
            failures = tuple(
                {"property": v.name, "message": v.message, "code": v.code}
                for v in chosen
                if v.status == FAILED
            )
            yield Row(
                *(each.operator, dict(operator.equations), what, each.implementation, dtype, where),
                sum(v.cases for v in chosen),
                worst if math.isfinite(worst) else math.inf,
                bound,
                failures,
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
