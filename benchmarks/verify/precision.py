"""The literal form in a lower precision, and how many roundings it is off."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from benchmarks.verify.cases import Case, mapped, rounded
from benchmarks.verify.rounding import literal
from benchmarks.verify.tolerances import (
    LITERAL_FACTOR,
    ULPS,
    UNITS,
    error,
    on_a_jump,
    outputs,
    roundings,
)

SMALLEST = {"float32": 2.0**-149, "bfloat16": 2.0**-133, "float16": 2.0**-24}
"""The smallest number above 0."""


def available(dtype: str) -> bool:
    """Whether the literal form can be computed in it: 16 bits need the package ``ml_dtypes``."""
    return dtype.endswith(("32", "64")) or importlib.util.find_spec("ml_dtypes") is not None


def literal_roundings(oracle: Callable[..., Any], case: Case, dtype: str) -> float:
    """The error of the oracle computed in ``dtype``, in roundings of ``dtype``.

    Where ``dtype`` would round the oracle's epsilon to zero, the smallest number stands for it.
    Infinite where the literal form is not defined even so.
    """
    literal_form = oracle
    epsilon = inspect.signature(oracle).parameters.get("epsilon")
    if epsilon is not None and epsilon.default < SMALLEST[dtype]:
        literal_form = partial(oracle, epsilon=SMALLEST[dtype])
    low = mapped(case, lambda array: literal(array, dtype))
    with np.errstate(all="ignore"):
        errors = map(error, outputs(literal_form(*low)), outputs(oracle(*case)))
    units = roundings(oracle, case, UNITS[dtype])
    return max(e / unit for e, unit in zip(errors, units, strict=True))


def literal_limit(oracle: Callable[..., Any], cases: Sequence[Case], dtype: str) -> float:
    """The roundings allowed in a lower precision: twice the worst of the literal form's, plus 2.

    One case says little, either form may be lucky; so the worst over many is the measure, without
    cases on a jump.
    """
    exact = [rounded(rounded(case, dtype), "float64") for case in cases]
    found = [(literal_roundings(oracle, case, dtype), i) for i, case in enumerate(exact)]
    worst = (
        error
        for error, i in sorted(found, reverse=True)
        if np.isfinite(error) and not on_a_jump(oracle, exact[i], dtype)
    )
    return LITERAL_FACTOR * next(worst, 0.0) + ULPS
