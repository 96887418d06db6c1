"""How far off a function is in a precision, and how far it may be: the rule of ``tolerances``."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from benchmarks.verify.cases import Case
from benchmarks.verify.properties import mapped, rounded
from benchmarks.verify.tolerances import error, literal_bound, scale

EPSILON = {"float32": 2.0**-23, "bfloat16": 2.0**-7, "float16": 2.0**-10}
"""The spacing of numbers above 1."""

SMALLEST = {"float32": 2.0**-149, "bfloat16": 2.0**-133, "float16": 2.0**-24}
"""The smallest number above 0."""


def available(dtype: str) -> bool:
    """Whether the literal form can be computed in it: 16 bits need the package ``ml_dtypes``."""
    return dtype.endswith(("32", "64")) or importlib.util.find_spec("ml_dtypes") is not None


def relative_error(actual: Any, expected: Any) -> float:
    """The largest error relative to the largest entry; infinite for a wrong shape or a NaN."""
    return error(actual, expected) / scale(expected)


def literally(case: Case, dtype: str) -> Case:
    """The case as the oracle takes it to compute the literal form in ``dtype``."""
    if dtype == "float32":
        return rounded(case, dtype)
    from benchmarks.verify.rounding import literal

    return mapped(case, lambda array: literal(array, dtype))


def literal_errors(oracle: Callable[..., Any], cases: Sequence[Case], dtype: str) -> list[float]:
    """The literal form's error on each case: the oracle computed in ``dtype`` against float64.

    Where ``dtype`` would round the oracle's epsilon to zero, the smallest number stands for it.
    Infinite where the literal form is not defined even so.
    """
    literal_form = oracle
    epsilon = inspect.signature(oracle).parameters.get("epsilon")
    if epsilon is not None and epsilon.default < SMALLEST[dtype]:
        literal_form = partial(oracle, epsilon=SMALLEST[dtype])
    errors = []
    for case in cases:
        with np.errstate(all="ignore"):
            literal = np.asarray(literal_form(*literally(case, dtype))).astype(np.float64)
        errors.append(relative_error(literal, oracle(*rounded(rounded(case, dtype), "float64"))))
    return errors


def literal_limit(errors: Sequence[float], dtype: str) -> float:
    """The error allowed in a lower precision: twice the worst of the literal form's, plus 2 ulp.

    One case says little, either form may be lucky; so the worst over many is the measure.
    """
    return literal_bound(max(filter(np.isfinite, errors), default=0.0), 1.0, EPSILON[dtype])
