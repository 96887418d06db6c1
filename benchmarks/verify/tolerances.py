"""The tolerances of the kit; those of tests alone are in ``tests.support.tolerances``.

float64. An output may differ from the oracle's by 1e-10 of its largest entry, and by what a
relative change of 1e-10 of every input and of every operation's result makes of it. That is the
magnitude that an output is *made of*: where large terms cancel, their rounding stays, and no
implementation can be closer than that to the oracle, which rounds too. It is measured, not derived:
the oracle is run again with changes. 1e-10 is a million roundings of float64, so that any order of
summation passes, and every other function fails on ordinary numbers.

Lower precision. Errors are counted in *roundings*: the same with one unit of the precision in the
place of 1e-10. An implementation may have twice the roundings of the literal form in that
precision, the worst over many cases, plus 2. Psi jumps where a sum becomes empty: a case on which a
rounding could decide that proves nothing wrong, and is not counted.

NaN and Inf never pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.verify.cases import Case, float_arrays, get
from benchmarks.verify.rounding import perturbed

Array = npt.NDArray[np.floating]

FLOAT64 = 1e-10  # relative to the largest entry: float64 forms of one function, with gradients
# relative to the largest entry: a derivative against central differences in float64
DIFFERENCES = 1e-6
FLOAT32_GRADIENT = 1e-3  # relative to the largest entry: derivatives in float32 against float64's
# absolute: BLEU, whose published form adds 1e-9 and 1e-15 to its counts, by its definition
SMOOTHED = 1e-8
# absolute: float32 forms that are timed against each other; a wrong argument shows beyond it
SAME_WORK = 1e-4

LITERAL_FACTOR = 2.0
ULPS = 2.0


def scale(expected: npt.ArrayLike) -> float:
    """The largest magnitude of ``expected``; 1 where it is all zeros or empty."""
    magnitudes = np.abs(np.asarray(expected, dtype=np.float64))
    return float(magnitudes.max(initial=0.0)) or 1.0


def error(actual: npt.ArrayLike, expected: npt.ArrayLike) -> float:
    """The largest absolute difference; infinite for a wrong shape, a NaN or an Inf."""
    a, e = np.asarray(actual, dtype=np.float64), np.asarray(expected, dtype=np.float64)
    if a.shape != e.shape or not np.isfinite(a).all():
        return float("inf")
    return float(np.abs(a - e).max(initial=0.0))


def float64_bound(expected: npt.ArrayLike) -> float:
    """The largest error that a float64 form may have."""
    return FLOAT64 * scale(expected)


def literal_bound(literal_error: float, expected: npt.ArrayLike, epsilon: float) -> float:
    """The largest error of a lower precision with machine ``epsilon``, given the literal form's."""
    return LITERAL_FACTOR * literal_error + ULPS * epsilon * scale(expected)


UNITS = {"float64": FLOAT64, "float32": 2.0**-23, "bfloat16": 2.0**-7, "float16": 2.0**-10}
"""The relative change that a rounding is measured by; a unit in the last place."""

CHANGES, MORE_CHANGES = 4, 32
"""Times that the oracle is run with changes: with one, terms could cancel again. A few may all be
small, once in a million cases: more are made before an error near its bound is a failure."""
NEAR_BOUND = 100.0
"""Such an error, in bounds by a few changes."""

NEAR, NEAR_CHANGES = 4.0, 12
"""Units, and times: by how much a jump must be further than a rounding reaches."""


def roundings(
    oracle: Callable[..., Any], case: Case, unit: float, most: int = MORE_CHANGES
) -> Iterator[tuple[int, list[float]]]:
    """What a relative change by ``unit`` of every number makes of each output, plus one unit of it.

    The largest change of an output's entries counts: of none, 1, ``CHANGES`` and ``most`` changes.
    """
    expected = outputs(oracle(*case))
    found = [0.0] * len(expected)
    for changes in range(1 + most if float_arrays(case) else 1):
        if changes:
            for i, array in enumerate(outputs(perturbed(oracle, case, unit, changes - 1)[0])):
                with np.errstate(invalid="ignore"):  # of infinities, which do not change
                    change = np.nan_to_num(np.abs(array - expected[i]), nan=0.0)
                found[i] = max(found[i], float(change.max(initial=0.0)))
        if changes in (0, 1, CHANGES, most):
            of = zip(expected, found, strict=True)
            yield changes, [unit * scale(array) + change for array, change in of]


def on_a_jump(oracle: Callable[..., Any], case: Case, dtype: str) -> bool:
    """Whether roundings of ``dtype`` could decide which of the oracle's denominators are empty."""
    unit = NEAR * UNITS[dtype]
    empty = (perturbed(oracle, case, unit, seed)[1] for seed in range(NEAR_CHANGES))
    first = next(empty)
    return any(other != first for other in empty)


def outputs(result: Any) -> list[Array]:
    """The arrays of a result, in order: one, those of a tuple, a list or a mapping, or numbers."""
    if isinstance(result, Mapping):
        return [array for value in result.values() for array in outputs(value)]
    if isinstance(result, (tuple, list)) and any(np.ndim(item) for item in result):
        return [array for value in result for array in outputs(value)]
    return [np.asarray(result, dtype=np.float64)]


class OutOfToleranceError(AssertionError):
    """A result that exceeds the tolerance: ``excess`` is its error over the bound, above 1."""

    def __init__(
        self, what: str, actual: npt.ArrayLike, expected: npt.ArrayLike, bound: float
    ) -> None:
        """Say what is wrong: the shape, a value that is not finite, or the error and its place."""
        actual, expected = np.asarray(actual), np.asarray(expected)
        self.excess = error(actual, expected) / bound if bound else float("inf")
        if actual.shape != expected.shape:
            message = f"shape {actual.shape}, expected {expected.shape}"
        else:
            place = _worst(actual, expected)
            where = f"[{', '.join(map(str, place))}]" if place else ""
            pair = f"{actual[place]:.6g}, expected {expected[place]:.6g}"
            if np.isinf(self.excess) and not np.isfinite(actual).all():
                message = f"not finite{f' at {where}' if where else ''}: {pair}"
            else:
                at = f" at {where}" if where else ""
                message = f"error {error(actual, expected):.3g} exceeds {bound:.3g}{at}: {pair}"
        super().__init__(f"{what}: {message}")


def _worst(actual: Array, expected: Array) -> tuple[int, ...]:
    """The place of the largest error, or of the first value that is not finite."""
    with np.errstate(invalid="ignore"):
        errors = np.where(np.isfinite(actual), np.abs(actual - expected), np.inf)
    return tuple(int(i) for i in np.unravel_index(np.argmax(errors), errors.shape))


Errors = list[tuple[float, float]]
"""Of comparisons the error and its bound, relative to the largest entry of what was expected."""

_ERRORS: ContextVar[dict[str, Errors]] = ContextVar("_ERRORS")


@contextmanager
def recorded() -> Iterator[dict[str, Errors]]:
    """The errors of all comparisons made within, by dtype."""
    errors: dict[str, Errors] = {}
    token = _ERRORS.set(errors)
    try:
        yield errors
    finally:
        _ERRORS.reset(token)


def _assert_within(
    actual: npt.ArrayLike,
    expected: npt.ArrayLike,
    bound: float,
    what: str,
    dtype: str = "float64",
) -> None:
    found, largest = error(actual, expected), scale(expected)
    _ERRORS.get({}).setdefault(dtype, []).append((found / largest, bound / largest))
    if not found <= bound:
        raise OutOfToleranceError(what, actual, expected, bound)


def assert_close(actual: npt.ArrayLike, expected: npt.ArrayLike, what: str = "output") -> None:
    """Fail unless a float64 result is within 1e-10 of its largest entry."""
    _assert_within(actual, expected, float64_bound(expected), what)


def assert_conforms(
    actual: Any, oracle: Callable[..., Any], case: Case, dtype: str = "float64", limit: float = 1.0
) -> None:
    """Fail unless a result is the oracle's, within ``limit`` roundings of ``dtype``.

    Args:
        actual: an array, a number, or a tuple, list or mapping of these, as the oracle gives it.
        oracle: the reference implementation.
        case: its arguments.
        dtype: the precision that ``actual`` was computed in.
        limit: in float64 1; in lower precision from ``literal_limit``.

    Raises:
        OutOfToleranceError: an output exceeds its bound, or has another shape.
    """
    expected = oracle(*case)
    found, wanted = _aligned(actual, expected)
    errors = [error(a, e) for a, e in zip(found, wanted, strict=True)]
    for changes, units in roundings(oracle, case, UNITS[dtype]):
        bounds = [limit * unit for unit in units]
        excess = max((e / b for e, b in zip(errors, bounds, strict=True)), default=0.0)
        if excess <= 1 or (changes == CHANGES and excess > NEAR_BOUND):
            break
    for i, (array, of, bound) in enumerate(zip(found, wanted, bounds, strict=True)):
        _assert_within(array, of, bound, f"output {i}" if len(wanted) > 1 else "output", dtype)


def _aligned(actual: Any, expected: Any) -> tuple[Sequence[Any], Sequence[Array]]:
    """The outputs of both, in the oracle's order."""
    wanted = outputs(expected)
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        actual = {key: actual.get(key) for key in expected}
    found: Sequence[Any] = [actual] if len(wanted) == 1 else outputs(actual)
    if len(wanted) == 1 and isinstance(actual, (tuple, list)) and np.ndim(expected):
        found = [np.asarray(actual, dtype=np.float64)]
    if len(found) != len(wanted):
        raise AssertionError(f"{len(found)} outputs, expected {len(wanted)}")
    return found, wanted


def assert_smoothed(actual: npt.ArrayLike, expected: npt.ArrayLike) -> None:
    """Fail unless BLEU is the expected one, but for its smoothing."""
    _assert_within(actual, expected, SMOOTHED, "output")


def assert_gated(actual: Any, oracle: Callable[..., Any], case: Case) -> None:
    """Fail unless an output of gates is the oracle's, within 1e-10 of the largest of its inputs.

    A gate near 0 is 1 less a gate near 1, which is rounded to a unit of 1, not of itself: so what
    is left of a value of the inputs' size is rounded as that value is.
    """
    expected = oracle(*case)
    bound = max(float64_bound(get(case, place)) for place in float_arrays(case))
    _assert_within(actual, expected, max(bound, float64_bound(expected)), "output")


def assert_derivative(
    actual: npt.ArrayLike, expected: npt.ArrayLike, what: str, dtype: str = "float64"
) -> None:
    """Fail unless derivatives, in float64 or float32, are those expected."""
    relative = DIFFERENCES if dtype == "float64" else FLOAT32_GRADIENT
    _assert_within(actual, expected, relative * scale(expected), what, dtype)
