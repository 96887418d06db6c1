"""The tolerances of layers, metrics and decoders; of reports see ``tests.support.tolerances``.

float64. The tolerance is 1e-10 of the output's largest entry, plus the change of the output when
every input and every operation's result is perturbed by a relative 1e-10. The second term is for
large terms that cancel: their rounding errors remain, in the oracle too, so that no implementation
can be closer. It is measured by running the oracle with perturbations. 1e-10 is about a million
float64 roundings: any order of summation passes, and other functions fail on ordinary numbers.

Lower precision. Errors are counted in *roundings*: the same tolerance with one unit in the last
place instead of 1e-10; in float32 more for a long sum (see ``perturbed``), since NumPy sums in
blocks and an implementation may add one term after the other (in 16 bits all accumulate in
float32). An implementation may have twice the roundings of the literal form in that precision, the
worst over many cases and this one, plus 2. Psi jumps where a sum becomes empty:
cases where rounding could decide this are not counted.

Gradients in float32. 1e-3 of the largest entry; a larger error that rounding explains (terms that
cancel, arguments to which it is sensitive, see ``differentiation.Gradients``) decides nothing.

NaN and Inf never pass.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from hashlib import blake2b
from itertools import count, islice, takewhile
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.verify.cases import Case, float_arrays, get
from benchmarks.verify.rounding import perturbed

Array = npt.NDArray[np.floating]

FLOAT64 = 1e-10  # relative to the largest entry: float64 outputs and gradients
# relative to the largest entry: a derivative against central differences in float64
DIFFERENCES = 1e-6
FLOAT32_GRADIENT = 1e-3  # relative to the largest entry: derivatives in float32 against float64
# absolute: BLEU, whose published form adds 1e-9 and 1e-15 to its counts
SMOOTHED = 1e-8
# absolute: float32 implementations that are timed against each other, to detect wrong arguments
SAME_WORK = 1e-4
# absolute: the same float32 function called again with the same arguments, by other threads
SAME_CALL = 2.0**-18
# absolute: caption metrics against the published implementation
METRIC = 1e-12
# relative: sums and means in float64, in another order
SUMS = 1e-12
# absolute: probabilities of dropout against their nearest multiple of 2^-16
DROPOUT_RATE = 2.0**-17
# absolute: float32 weights and losses of several processes against those of one
PROCESSES = 1e-6
# absolute: log-probabilities per word of a captioner with its weights in float16
FLOAT16_SCORES = 1e-2
# relative: layers some of whose operands were rounded to float16
PROMOTED = 1e-3
# float64 on another device, for torch.testing.assert_close
ANOTHER_DEVICE = {"rtol": 1e-10, "atol": 1e-12}

LITERAL_FACTOR = 2.0
ULPS = 2.0


def literal_bound(literal_error: float, unit: float = 1.0) -> float:
    """The tolerance in a lower precision: twice the literal form's error, plus 2 of ``unit``."""
    return LITERAL_FACTOR * literal_error + ULPS * unit


def scale(expected: npt.ArrayLike) -> float:
    """The largest magnitude in ``expected``; 1 if it is all zeros or empty."""
    magnitudes = np.abs(np.asarray(expected, dtype=np.float64))
    return float(magnitudes.max(initial=0.0)) or 1.0


def error(actual: npt.ArrayLike, expected: npt.ArrayLike) -> float:
    """The largest absolute difference; infinite for a wrong shape, a NaN or an Inf."""
    a, e = np.asarray(actual, dtype=np.float64), np.asarray(expected, dtype=np.float64)
    if a.shape != e.shape or not np.isfinite(a).all():
        return float("inf")
    return float(np.abs(a - e).max(initial=0.0))


def float64_bound(expected: npt.ArrayLike) -> float:
    """The tolerance of a float64 result."""
    return FLOAT64 * scale(expected)


UNITS = {"float64": FLOAT64, "float32": 2.0**-23, "bfloat16": 2.0**-7, "float16": 2.0**-10}
"""The relative perturbation of one rounding: a unit in the last place, except for float64."""

CHANGES, MORE_CHANGES = 4, 32
"""Numbers of perturbed runs of the oracle. In a single one terms could cancel again. In a few all
changes may be small, once in a million cases, so an error near its bound gets more."""
NEAR_BOUND = 100.0
"""Errors up to this multiple of the bound by ``CHANGES`` runs get more."""

NEAR, NEAR_CHANGES = 4.0, 12
"""Size of perturbations, in units, and number of runs, for detecting a jump nearby."""


def roundings(
    oracle: Callable[..., Any], case: Case, dtype: str, most: int = MORE_CHANGES
) -> Iterator[tuple[int, list[float]]]:
    """One rounding of each output: its largest change under perturbations, plus one unit of it.

    Yields the number of perturbed runs (0, 1, ``CHANGES`` and ``most``) and the roundings.
    """
    expected = outputs(oracle(*case))
    found, runs = [0.0] * len(expected), _runs(oracle, case, dtype, 1.0)
    for changes in range(1 + most if float_arrays(case) else 1):
        if changes:
            found = [*map(max, found, next(runs).changes)]
        if changes in (0, 1, CHANGES, most):
            of = zip(expected, found, strict=True)
            yield changes, [UNITS[dtype] * scale(array) + change for array, change in of]


def near_discontinuity(oracle: Callable[..., Any], case: Case, dtype: str) -> bool:
    """Whether rounding in ``dtype`` could change which of the oracle's denominators are empty."""
    empty = (run.empty for run in islice(_runs(oracle, case, dtype, NEAR), NEAR_CHANGES))
    first = next(empty)
    return any(other != first for other in empty)


def largest_nearby(oracle: Callable[..., Any], case: Case, dtype: str) -> float:
    """The largest output of the oracle where rounding in ``dtype`` changes its arguments."""
    return max(run.largest for run in islice(_runs(oracle, case, dtype, NEAR), NEAR_CHANGES))


class _Run(NamedTuple):
    """What is kept of a perturbed run: each output's largest change, the largest output, and which
    denominators are empty.
    """

    changes: list[float]
    largest: float
    empty: list[bytes]


_KNOWN: dict[tuple[Any, bytes, float, int], _Run] = {}
KNOWN = 4096
"""Number of perturbed runs of operators that are kept: a failing case is tested many times."""


def _runs(oracle: Callable[..., Any], case: Case, dtype: str, units: float) -> Iterator[_Run]:
    """Runs of the oracle with perturbations of so many units; of an operator's each once."""
    unit, of_terms, expected = units * UNITS[dtype], dtype == "float32", outputs(oracle(*case))
    of = getattr(oracle, "of", None)
    digest = blake2b(pickle.dumps((case, dtype))).digest() if of else b""
    for seed in count():
        key = of, digest, unit, seed
        if of is None or key not in _KNOWN:
            result, empty = perturbed(oracle, case, unit, seed, of_terms)
            found = outputs(result)
            with np.errstate(invalid="ignore"):  # infinities do not change
                off = (np.abs(array - of) for array, of in zip(found, expected, strict=True))
                changes = [float(np.nan_to_num(x, nan=0.0).max(initial=0.0)) for x in off]
            if len(_KNOWN) == KNOWN:
                _KNOWN.clear()
            _KNOWN[key] = _Run(changes, max(map(scale, found), default=0.0), empty)
        yield _KNOWN[key]


def outputs(result: Any) -> list[Array]:
    """The arrays of a result, in order: of an array, numbers, a tuple, a list or a mapping."""
    if isinstance(result, Mapping):
        return [array for value in result.values() for array in outputs(value)]
    if isinstance(result, (tuple, list)) and any(np.ndim(item) for item in result):
        return [array for value in result for array in outputs(value)]
    return [np.asarray(result, dtype=np.float64)]


class OutOfToleranceError(AssertionError):
    """A result exceeds the tolerance: ``excess`` is its ``error`` divided by the bound."""

    def __init__(
        self, what: str, actual: npt.ArrayLike, expected: npt.ArrayLike, bound: float
    ) -> None:
        """The message has a wrong shape, a non-finite value, or the error and its place."""
        actual, expected = np.asarray(actual), np.asarray(expected)
        self.error = error(actual, expected)
        self.excess = self.error / bound if bound else float("inf")
        if actual.shape != expected.shape:
            message = f"shape {actual.shape}, expected {expected.shape}"
        else:
            place = _worst(actual, expected)
            where = f"[{', '.join(map(str, place))}]" if place else ""
            found, wanted = (f"{one[place]:.6g}" for one in (actual, expected))
            if found == wanted:
                found, wanted = f"{actual[place]:.17g}", f"{expected[place]:.17g}"
            pair = f"{found}, expected {wanted}"
            if np.isinf(self.excess) and not np.isfinite(actual).all():
                message = f"not finite{f' at {where}' if where else ''}: {pair}"
            else:
                at = f" at {where}" if where else ""
                message = f"error {self.error:.3g} exceeds {bound:.3g}{at}: {pair}"
        super().__init__(f"{what}: {message}")


def assert_finite(x: npt.ArrayLike, what: str = "output") -> None:
    """Assert that all entries are finite; the message has the place of one that is not."""
    x = np.asarray(x)
    if not np.isfinite(x).all():
        place = _worst(x, np.zeros_like(x))
        where = f" at [{', '.join(map(str, place))}]" if place else ""
        raise AssertionError(f"{what}: not finite{where}: {x[place]}")


def _worst(actual: Array, expected: Array) -> tuple[int, ...]:
    """The place of the largest error, or of the first non-finite value."""
    with np.errstate(invalid="ignore"):
        errors = np.where(np.isfinite(actual), np.abs(actual - expected), np.inf)
    return tuple(int(i) for i in np.unravel_index(np.argmax(errors), errors.shape))


Errors = list[tuple[float, float]]
"""Errors and bounds of comparisons, relative to the largest expected entry."""

_ERRORS: ContextVar[dict[str, Errors]] = ContextVar("_ERRORS")


@contextmanager
def recorded() -> Iterator[dict[str, Errors]]:
    """Record the errors of all comparisons within, by dtype."""
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
    """Assert that a float64 result is within 1e-10 of its largest entry."""
    _assert_within(actual, expected, float64_bound(expected), what)


def assert_conforms(
    actual: Any, oracle: Callable[..., Any], case: Case, dtype: str = "float64", limit: float = 1.0
) -> None:
    """Assert that a result equals the oracle's, within ``limit`` roundings of ``dtype``.

    Args:
        actual: an array, a number, or a tuple, list or mapping of these, as the oracle's.
        oracle: the reference implementation.
        case: its arguments.
        dtype: the precision of ``actual``.
        limit: 1 in float64; else from ``literal_limit``.

    Raises:
        OutOfToleranceError: an output exceeds its tolerance, or has another shape.
    """
    expected = oracle(*case)
    names, found, wanted = _aligned(actual, expected)
    errors = [error(a, e) for a, e in zip(found, wanted, strict=True)]
    for changes, units in roundings(oracle, case, dtype):
        bounds = [limit * unit for unit in units]
        excess = max((e / b for e, b in zip(errors, bounds, strict=True)), default=0.0)
        if excess <= 1 or (changes == CHANGES and excess > NEAR_BOUND):
            break
    of_outputs = zip(errors, bounds, names, found, wanted, strict=True)
    for _, bound, name, array, of in sorted(of_outputs, key=lambda x: x[0] / x[1], reverse=True):
        _assert_within(array, of, bound, name, dtype)


def _aligned(actual: Any, expected: Any) -> tuple[Sequence[str], Sequence[Any], Sequence[Array]]:
    """The names of the outputs, and both results, in the oracle's order."""
    wanted = outputs(expected)
    names = [f"output {i}" for i in range(1, 1 + len(wanted))] if len(wanted) > 1 else ["output"]
    if isinstance(expected, Mapping):
        names = [f"output {key!r}" for key in expected]
        if isinstance(actual, Mapping):
            if missing := expected.keys() - actual.keys():
                lost = ", ".join(map(repr, sorted(missing)))
                raise AssertionError(f"no output {lost} among {', '.join(map(repr, actual))}")
            if more := actual.keys() - expected.keys():
                said = ", ".join(map(repr, sorted(map(str, more))))
                raise AssertionError(f"an output {said}, expected {', '.join(map(repr, expected))}")
            for key, array in expected.items():
                if _ndim(actual[key]) != np.ndim(array):
                    raise AssertionError(f"output {key!r}: expected {_kind(array)}")
            actual = {key: actual[key] for key in expected}
        else:
            kind = type(actual).__name__
            raise AssertionError(f"a {kind}, expected a mapping of {len(expected)}")
    elif isinstance(actual, Mapping):
        kind = type(actual).__name__
        raise AssertionError(f"a {kind} of {len(actual)}, expected {_kind(expected)}")
    found: Sequence[Any] = [actual] if len(wanted) == 1 else outputs(actual)
    if len(wanted) == 1 and isinstance(actual, (tuple, list)) and np.ndim(expected):
        try:
            found = [np.asarray(actual, dtype=np.float64)]
        except (TypeError, ValueError):  # of several shapes
            kind = type(actual).__name__
            message = f"a {kind} of {len(actual)}, expected {_kind(expected)}"
            raise AssertionError(message) from None
    if len(found) != len(wanted):
        raise AssertionError(f"{len(found)} outputs, expected {len(wanted)}")
    return names, found, wanted


def _ndim(value: Any) -> int | None:
    """The number of axes of an array, or a list of numbers; None of what is neither."""
    try:
        return np.asarray(value, np.float64).ndim
    except (TypeError, ValueError):
        return None


def _kind(expected: Any) -> str:
    """What a result should be."""
    if isinstance(expected, (tuple, list)):
        return f"{len(expected)} outputs"
    return f"an array of shape {np.shape(expected)}"


def assert_smoothed(actual: npt.ArrayLike, expected: npt.ArrayLike) -> None:
    """Assert that BLEU equals the expected one, up to the size of its smoothing."""
    _assert_within(actual, expected, SMOOTHED, "output")


def assert_gated(
    actual: Any, oracle: Callable[..., Any], case: Case, of: Sequence[int] = ()
) -> None:
    """Assert that a gated output equals the oracle's, within 1e-10 of the largest gated value.

    A gate near 0 is 1 minus a gate near 1, with the absolute rounding error of 1. So a suppressed
    value has the absolute rounding error of the value before the gate: that of the arguments
    ``of``, or 1, as of a tanh. Arguments that only open or close the gate do not count.
    """
    expected = oracle(*case)
    values = [1.0, expected, *(get(case, place) for place in float_arrays(case) if place[0] in of)]
    _assert_within(actual, expected, max(map(float64_bound, values)), "output")


def assert_derivative(
    actual: npt.ArrayLike,
    expected: npt.ArrayLike,
    what: str,
    dtype: str = "float64",
    least: float = 0.0,
) -> None:
    """Assert that derivatives, in float64 or float32, equal those expected.

    The tolerance is relative to the largest of them, or to ``least`` if that is larger.
    """
    relative = DIFFERENCES if dtype == "float64" else FLOAT32_GRADIENT
    largest = scale([np.abs(expected).max(initial=0.0), least])
    _assert_within(actual, expected, relative * largest, what, dtype)


def assert_words(found: Iterable[int], expected: list[int], of: str = "") -> None:
    """Assert that words are the expected ones; the message begins with where they differ."""
    words = [int(word) if int(word) == word else word for word in found]
    at = len([*takewhile(lambda pair: pair[0] == pair[1], zip(words, expected, strict=False))])
    here, there = (each[at] if at < len(each) else "none" for each in (words, expected))
    assert words == expected, f"{of}word {at} is {here}, expected {there}: {words}, not {expected}"
