"""The search for a case on which a property fails, and its reduction to the smallest found."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from random import Random
from typing import Any

import hypothesis
import numpy as np
from hypothesis.errors import HypothesisException, NoSuchExample, UnsatisfiedAssumption

from benchmarks.verify.candidate import CandidateError
from benchmarks.verify.cases import Case, Cases
from benchmarks.verify.properties import float_arrays, get, replaced
from benchmarks.verify.tolerances import OutOfToleranceError
from reference.primitives import Array

SIMPLIFICATIONS = 2000
"""The most calls that are spent on simplifying a failing case's sizes and numbers."""

Smaller = Callable[[Case], Iterable[Case]]

FAR = 1e4
"""An error this much above its bound is no rounding, and must not shrink to one that could be."""


@dataclass(frozen=True)
class Failure:
    """A case that fails, and how."""

    case: Case
    kind: str
    message: str

    @property
    def plain(self) -> bool:
        """Whether it cannot be rounding."""
        return self.kind != "off"

    @property
    def numbers(self) -> int:
        """How many numbers the case's arrays have."""
        return sum(get(self.case, place).size for place in float_arrays(self.case))


class OracleError(Exception):
    """The oracle itself raised: our fault, whatever the candidate did."""


def attempt(
    check: Callable[..., None], candidate: Any, oracle: Callable[..., Any], case: Sequence[Any]
) -> Failure | None:
    """How ``check`` fails on ``case``, or None.

    Raises:
        UnsatisfiedAssumption: the property says nothing about this case.
        OracleError: the oracle raised.
    """

    def guarded(*arguments: Any) -> Any:
        try:
            return oracle(*arguments)
        except Exception as error:
            raise OracleError(f"{oracle.__name__} raised {error!r}") from error

    positional, named = list(case), {}
    if "lengths" in inspect.signature(check).parameters:
        named["lengths"] = positional.pop()
    try:
        check(candidate, guarded, *positional, **named)
    except (HypothesisException, OracleError):
        raise
    except CandidateError as error:
        return Failure(tuple(case), type(error.__cause__).__name__, str(error))
    except OutOfToleranceError as error:
        finite = "far off" if error.excess > FAR else "off"
        kind = finite if np.isfinite(error.excess) else "broken"
        return Failure(tuple(case), kind, str(error))
    except AssertionError as error:
        return Failure(tuple(case), "wrong", str(error) or "the assertion does not hold")
    except Exception as error:
        message = f"gave what cannot be compared: {type(error).__name__}: {error}"
        return Failure(tuple(case), type(error).__name__, message)
    return None


def search(
    check: Callable[..., None],
    candidate: Any,
    oracle: Callable[..., Any],
    cases: Cases,
    examples: int,
    smaller: Smaller = lambda case: (),
) -> Failure | None:
    """The smallest failing case found among ``examples`` drawn ones, the same at every call.

    A case that is off by what might be rounding is given only where none fails plainly. ``smaller``
    gives the cases next below one in size.
    """

    def smallest(ignored: str) -> Failure | None:
        kind: str | None = None

        def fails(case: Case) -> bool:
            nonlocal kind
            failure = attempt(check, candidate, oracle, case)
            if failure is None or failure.kind == ignored:
                return False
            kind = kind or failure.kind  # shrinking must not change the subject
            return failure.kind == kind

        case = _find(cases, fails, examples)
        if case is None:
            return None
        return attempt(check, candidate, oracle, simplify(case, fails, smaller))

    failure = smallest(ignored="")
    if failure is None or failure.plain:
        return failure
    return smallest(ignored="off") or failure


@cache
def drawn(cases: Cases, examples: int) -> list[Case]:
    """``examples`` cases, the same at every call."""
    found: list[Case] = []

    def keep(case: Case) -> bool:
        found.append(case)
        return False

    _find(cases, keep, examples)
    return found


def _find(cases: Cases, wanted: Callable[[Case], bool], examples: int) -> Case | None:
    settings = hypothesis.settings(
        max_examples=examples,
        database=None,
        deadline=None,
        phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink),
    )
    try:
        found: Case = hypothesis.find(cases, wanted, settings=settings, random=Random(0))
        return found
    except NoSuchExample:
        return None


def simplify(case: Case, fails: Callable[[Case], bool], smaller: Smaller = lambda case: ()) -> Case:
    """``case`` as small as it can be, with as many zeros and ones, and still failing."""
    calls = 0

    def still(simpler: Case) -> bool:
        nonlocal calls
        calls += 1
        try:
            return calls <= SIMPLIFICATIONS and fails(simpler)
        except UnsatisfiedAssumption:
            return False

    def least(case: Case) -> Case:
        while (found := next(filter(still, smaller(case)), None)) is not None:
            case = found
        return case

    case = least(case)
    for place in float_arrays(case):
        for make in _simpler(get(case, place)):
            array = make(get(case, place))
            if array is not None and still(simpler := replaced(case, place, array)):
                case = simpler
    return least(case)  # what is zero may not be needed any more


def _simpler(array: Array) -> Iterator[Callable[[Array], Array | None]]:
    """Ways to simplify an array: all of it, then each entry; None where it is already simple."""
    for value in (0.0, 1.0):
        yield partial(np.full_like, fill_value=value)
    for index in np.ndindex(array.shape):
        for value in (0.0, 1.0):

            def entry(a: Array, index: Any = index, value: float = value) -> Array | None:
                if a[index] in (0.0, 1.0):
                    return None
                changed = a.copy()
                changed[index] = value
                return changed

            yield entry
