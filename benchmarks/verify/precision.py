"""The rounding errors of the literal form in a lower precision."""

from __future__ import annotations

import importlib.util
import inspect
import pickle
from collections.abc import Callable, Sequence
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
