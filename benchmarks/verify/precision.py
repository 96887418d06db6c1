"""The rounding errors of the literal form in a lower precision."""

from __future__ import annotations

import importlib.util
import inspect
import pickle
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from operator import itemgetter
from typing import Any

import numpy as np

from benchmarks.verify.cases import Array, Case, mapped, rounded
from benchmarks.verify.rounding import literal
from benchmarks.verify.tolerances import (
    CHANGES,
    UNITS,
    error,
    literal_bound,
    near_discontinuity,
    outputs,
    roundings,
    scale,
)

SMALLEST = {"float32": 2.0**-149, "bfloat16": 2.0**-133, "float16": 2.0**-24}
"""The smallest positive number."""


def available(dtype: str) -> bool:
    """Whether the literal form can be computed in ``dtype``: 16 bits need ``ml_dtypes``."""
    return dtype.endswith(("32", "64")) or importlib.util.find_spec("ml_dtypes") is not None


def literal_limit(
    oracle: Callable[..., Any],
    cases: Sequence[Case],
    dtype: str,
    check_jumps: bool = True,
) -> float:
    """The tolerance in a lower precision, in roundings: twice the literal form's worst, plus 2.

    The worst over many cases, since in a single case either form may be lucky; without cases on a
    jump, and those where the literal form is not defined. A rounding is at least one unit, which
    bounds a case's number of roundings: cases that cannot be the worst are skipped.
    """
    found, unit = [], UNITS[dtype]
    for case in cases:
        exact = rounded(rounded(case, dtype), "float64")
        expected = outputs(oracle(*exact))
        errors = [*map(error, _literal_outputs(oracle, exact, dtype), expected)]
        most = max(e / (unit * scale(array)) for e, array in zip(errors, expected, strict=True))
        if np.isfinite(most):
            found.append((most, exact, errors))
    worst = 0.0
    for most, exact, errors in sorted(found, key=itemgetter(0), reverse=True):
        if most <= worst:
            break
        # more changes can only lower the number of roundings
        for _, units in roundings(oracle, exact, dtype, CHANGES):
            one = max(e / unit for e, unit in zip(errors, units, strict=True))
            if one <= worst:
                break
        else:
            worst = worst if check_jumps and near_discontinuity(oracle, exact, dtype) else one
    return literal_bound(worst)


_CASE_LIMITS: dict[tuple[str, bytes], float | None] = {}
"""The cache of ``case_limit``, by dtype and a hash of the case and its expected output."""


def case_limit(oracle: Callable[..., Any], exact: Case, dtype: str) -> float | None:
    """``literal_limit`` of one float64 case, or None on a jump; cached, as failing cases recur."""
    key = dtype, sha256(pickle.dumps((exact, oracle(*exact)))).digest()
    if key not in _CASE_LIMITS:
        jump = near_discontinuity(oracle, exact, dtype)
        limit = None if jump else literal_limit(oracle, [exact], dtype, check_jumps=False)
        _CASE_LIMITS[key] = limit
    return _CASE_LIMITS[key]


def _literal_outputs(oracle: Callable[..., Any], case: Case, dtype: str) -> list[Array]:
    """The oracle's outputs in ``dtype``.

    An epsilon that would round to zero is replaced by the smallest positive number.
    """
    epsilon = inspect.signature(oracle).parameters.get("epsilon")
    if epsilon is not None and epsilon.default < SMALLEST[dtype]:
        oracle = partial(oracle, epsilon=SMALLEST[dtype])
    with np.errstate(all="ignore"):
        return outputs(oracle(*mapped(case, lambda array: literal(array, dtype))))


def in_precision(
    arrays: Mapping[str, Array], precision: str
) -> tuple[dict[str, Array], dict[str, Any]]:
    """The arrays rounded to ``precision``: in float64, and for the oracle to evaluate literally."""
    low = {name: literal(value, precision) for name, value in arrays.items()}
    exact = {name: np.asarray(value, dtype=np.float64) for name, value in low.items()}
    return exact, low


def nudge(x: Array, precision: str, generator: np.random.Generator) -> Array:
    """``x`` with every entry moved by less than one unit of ``precision``, relative."""
    return x * (1 + UNITS[precision] * generator.uniform(-1, 1, x.shape))


class Errors:
    """Errors of a lower precision against the literal form's, over many cases.

    One case says little: either form may be lucky. So the worst and the mean over all cases are
    held to the rule, each error in units of what one rounding of the inputs does to the exact
    result; else the worst-conditioned case would drown the others. A case in which the literal form
    overflows is no yardstick; most must be one.
    """

    def __init__(self, precision: str) -> None:
        self.unit = UNITS[precision]
        self.cases = 0
        self.actual: list[float] = []
        self.literal: list[float] = []
        self.ulps: list[float] = []

    def add(
        self,
        actual: Array,
        literal: Array,
        exact: Array,
        nudged: Sequence[Array],
        size: float | None = None,
    ) -> None:
        """One case.

        Args:
            actual: the form under test.
            literal: the literal form in this precision.
            exact: float64.
            nudged: float64 of ``nudge``-d inputs, several where the result may jump.
            size: the scale of the output, if not its own.
        """
        self.cases += 1
        ulp = self.unit * (size or scale(exact))
        of_inputs = max(error(other, exact) for other in nudged) + ulp
        yardstick = error(literal, exact) / of_inputs
        if np.isfinite(yardstick):
            self.actual.append(error(actual, exact) / of_inputs)
            self.literal.append(yardstick)
            self.ulps.append(ulp / of_inputs)

    def check(
        self, what: str, statistics: Sequence[Callable[..., Any]] = (np.max, np.mean)
    ) -> None:
        """Hold what was added to the rule, its worst and its mean."""
        assert len(self.literal) > self.cases / 2 > 5, f"{len(self.literal)} of {self.cases} cases"
        for how in statistics:
            found = float(how(self.actual))
            bound = literal_bound(float(how(self.literal)), float(how(self.ulps)))
            assert found <= bound, f"{what}: {how.__name__} error {found:.3g} exceeds {bound:.3g}"
