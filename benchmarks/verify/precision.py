"""The literal form in a lower precision, and how many roundings it is off."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from benchmarks.verify.cases import Case, mapped, rounded
from benchmarks.verify.tolerances import LITERAL_FACTOR, ULPS, UNITS, error, outputs, roundings

SMALLEST = {"float32": 2.0**-149, "bfloat16": 2.0**-133, "float16": 2.0**-24}
"""The smallest number above 0."""


def available(dtype: str) -> bool:
    """Whether the literal form can be computed in it: 16 bits need the package ``ml_dtypes``."""
    return dtype.endswith(("32", "64")) or importlib.util.find_spec("ml_dtypes") is not None


def literal_roundings(oracle: Callable[..., Any], cases: Sequence[Case], dtype: str) -> list[float]:
    """Of each case the error of the oracle computed in ``dtype``, in roundings of ``dtype``.

    Where ``dtype`` would round the oracle's epsilon to zero, the smallest number stands for it.
    Infinite where the literal form is not defined even so.
    """
    literal_form = oracle
    epsilon = inspect.signature(oracle).parameters.get("epsilon")
    if epsilon is not None and epsilon.default < SMALLEST[dtype]:
        literal_form = partial(oracle, epsilon=SMALLEST[dtype])
    found = []
    for case in cases:
        exact = rounded(rounded(case, dtype), "float64")
        with np.errstate(all="ignore"):
            literal = outputs(literal_form(*_literally(case, dtype)))
        errors = map(error, literal, outputs(oracle(*exact)))
        units = roundings(oracle, exact, UNITS[dtype])
        found.append(max(e / unit for e, unit in zip(errors, units, strict=True)))
    return found


def literal_limit(found: Sequence[float]) -> float:
    """The roundings allowed in a lower precision: twice the worst of the literal form's, plus 2.

    One case says little, either form may be lucky; so the worst over many is the measure.
    """
    return LITERAL_FACTOR * max(filter(np.isfinite, found), default=0.0) + ULPS


def _literally(case: Case, dtype: str) -> Case:
    """The case as the oracle takes it to compute the literal form in ``dtype``."""
    if dtype == "float32":
        return rounded(case, dtype)
    from benchmarks.verify.rounding import literal

    return mapped(case, lambda array: literal(array, dtype))
