"""Start a candidate, and detect its framework by its first calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

import numpy as np

from benchmarks.verify.candidate import BACKWARD, BATCH, LIMITS, BaseCandidate, CandidateError
from benchmarks.verify.cases import float_arrays
from benchmarks.verify.conversion import FRAMEWORKS
from benchmarks.verify.derivatives import output_weights
from benchmarks.verify.draw import STARTING, Draw
from benchmarks.verify.operators import Operator
from benchmarks.verify.process import Isolated, Limits
from benchmarks.verify.properties import BatchOfOne
from benchmarks.verify.settings import seeded, states_before
from benchmarks.verify.tolerances import SAME_CALL, OutOfToleranceError

Answer = tuple[str, Any, str]
"""The kind of failure of a call, empty if there is none; its result; the failure's message."""


def resolve(
    source: str | Callable[..., Any],
    operator: Operator,
    framework: str | None = None,
    device: str = "cpu",
    limits: Limits | None = None,
    name: str | None = None,
) -> Isolated:
    """Start the candidate in a worker process; ``framework=None`` detects its framework.

    The worker has called nothing yet: a candidate may be wrong in its first call alone.

    Raises:
        InputError: it cannot be loaded, or cannot be called with the operator's arguments; or
            PyTorch cannot use the device.
    """

    def isolated(framework: str) -> Isolated:
        named: Any = {"framework": framework, "device": device, "name": name, "limits": limits}
        return Isolated(source, operator.arguments, **named)

    if framework is None and device != "cpu":
        framework = "torch"
    candidate = isolated(framework or "numpy")
    kinds = {candidate.framework: _first_answer(candidate, _call(candidate, operator))}
    kind = kinds[candidate.framework]
    if framework is not None:
        return _with_gradients_compared(candidate, operator)
    if kind in LIMITS:  # in another framework it would take as long
        candidate.close()
        if len(candidate.mentions) == 1 and candidate.mentions != [candidate.framework]:
            slow, candidate = candidate, isolated(*candidate.mentions)
            candidate.once, candidate.rejected = slow.once, (slow,)
        return candidate
    # a function that takes NumPy's arrays may also take those of a framework that it returns for
    # them, or that its file imports; then it has gradients
    in_numpy = kind in ACCEPTED
    expected = _returned(candidate) if in_numpy else "torch"
    others = {*candidate.mentions, expected} & FRAMEWORKS.keys() - {"numpy"}
    tried = [isolated(name) for name in sorted(others, reverse=True)]
    kinds |= {other.framework: _first_answer(other, _call(other, operator)) for other in tried}

    def rank(one: Isolated) -> int:
        kind, suits = kinds[one.framework], not in_numpy or one.framework == expected
        if one is candidate:
            return 3
        if kind in ACCEPTED and (suits or _is_written_for(one, operator, candidate)):
            return 0
        if kind in LIMITS and suits:
            return 1
        return 2 if one.framework in candidate.mentions and not in_numpy else 4

    chosen = min((*tried, candidate), key=rank)
    for other in (candidate, *tried):
        if other is not chosen:
            chosen.once = chosen.once or other.once
            chosen.rejected = (*chosen.rejected, other)
            other.close()
    return _with_gradients_compared(chosen, operator)


def _with_gradients_compared(candidate: Isolated, operator: Operator) -> Isolated:
    """The candidate, restarted after its first gradients in two processes, if it has any."""
    if candidate.framework != "numpy" and operator.by and not candidate.once:
        _first_answer(candidate, _gradient(candidate, operator), "gradient")
    candidate.restart()
    return candidate


def _is_written_for(other: Isolated, operator: Operator, in_numpy: Isolated) -> bool:
    """Whether a function that accepts two frameworks' arrays is written for the other's.

    NumPy's functions accept tensors too, without a gradient.
    """
    if not operator.by or _returned(other) != other.framework:
        return False
    if "numpy" not in in_numpy.mentions:
        return True
    # a gradient of its own may raise, as many do that are wrong
    return _first_answer(other, _gradient(other, operator), "gradient") in (
        "",
        BACKWARD,
        "exit",
        *LIMITS,
    )


def _first_answer(candidate: Isolated, call: Callable[[], Any], what: str = "call") -> str:
    """The kind of failure of the first ``call`` of all, or of a second one's if they differ.

    The first runs in a process with another hash seed, where sets are iterated in another order.
    If they differ, or both left one state of random numbers, ``candidate.once`` says how. A third
    one decides if two raise alike, which may be how a function refuses a framework's arrays.
    """
    with candidate.other_hashes():
        kind, _, said = first = _answer(call)
        before = {} if kind in LIMITS else _states(candidate)
    name = f"its first {what} with {candidate.framework}'s arrays"
    candidate.firsts += ((name, call, first),)
    if kind in LIMITS and what == "gradient":
        return kind  # the properties of gradients will fail too, or `later_differs`
    again = _answer(call)
    if kind in LIMITS:
        if again[0] not in LIMITS:
            candidate.once = f"{name} exceeded its {kind}, a later one did not: {said}"
        return again[0]
    if reseeded := seeded(before, _states(candidate)):
        candidate.once = f"{name} changed the global setting {reseeded}"
    if not alike(first[:2], again[:2]):
        said = _difference(first, again)
        candidate.once = f"{name} was different from the same in another process{said}"
    elif kind not in ACCEPTED:
        candidate.restart()
        again = _answer(call)
        if kind != again[0]:
            candidate.once = f"{name}, in two processes, was different from the next: {said}"
    return again[0]


def _difference(first: Answer, again: Answer) -> str:
    """A colon and how an answer differs from a later one, or what it raised."""
    (_, result, said), (_, other, of_other) = first, again
    while isinstance(result, (list, tuple)) and isinstance(other, (list, tuple)):
        pairs = zip(result, other, strict=False)
        result, other = next((pair for pair in pairs if not alike(*pair)), ("", ""))
    if _is_real(result) and _is_real(other):
        said = str(OutOfToleranceError("output", result, other, SAME_CALL)).partition(": ")[2]
    said = "; the other ".join(filter(None, (said, of_other)))
    return said and f": {said}"


def later_differs(candidate: BaseCandidate) -> str:
    """How the answers that its framework was detected by differ from those to the same calls now.

    Empty if they do not: of a candidate that passes every test, both may have been wrong alike.
    """
    for of in (candidate, *candidate.rejected):
        try:
            for name, call, first in of.firsts:
                now = _answer(call)
                if (now[0] and of is candidate) or not alike(first[:2], now[:2]):
                    said = _difference(first, now)
                    return f"{name} was different from a later one{said}"
        finally:
            if of is not candidate:
                of.close()
    return ""


def _returned(candidate: Isolated) -> str:
    """The framework of its last result; empty if its worker does not answer."""
    name = attrgetter("result_framework")
    return _answer(lambda: candidate.apply(name, returns=str))[1] or ""


def _states(candidate: Isolated) -> dict[str, dict[str, str]]:
    """``states_before`` of its worker; none if that does not answer."""
    states = dict[str, dict[str, str]]
    return _answer(lambda: candidate.apply(states_before, returns=states))[1] or {}


def takes_arrays(candidate: BaseCandidate, operator: Operator) -> bool:
    """Whether a candidate accepts a case in its framework and returns arrays."""
    return _answer(_call(candidate, operator))[0] in ACCEPTED


ACCEPTED = "", "in place", "state", BATCH
"""Kinds of failures of a function that accepts a case and returns arrays."""


def _call(candidate: BaseCandidate, operator: Operator) -> Callable[[], Any]:
    """A call of the candidate on a case."""
    return lambda: alone(candidate, operator)(*operator.case(Draw(STARTING)))


def _gradient(candidate: BaseCandidate, operator: Operator) -> Callable[[], Any]:
    """A gradient of the candidate on a case."""
    case = operator.case(Draw(STARTING))
    by = {operator.arguments.index(name) for name in operator.by}
    places = [place for place in float_arrays(case) if place[0] in by]
    weights = output_weights(np.shape(operator.oracle(*case)))
    return lambda: alone(candidate, operator).gradient(case, weights, places)


def _answer(call: Callable[[], Any]) -> Answer:
    try:
        return "", call(), ""
    except CandidateError as error:
        return error.kind, None, str(error)


def alike(one: Any, other: Any) -> bool:
    """Whether two results are equal, up to the order in which threads add."""
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        if len(one) != len(other) or not {*map(type, one), *map(type, other)} <= {int, float}:
            return len(one) == len(other) and all(map(alike, one, other))
        one, other = np.array(one, np.float64), np.array(other, np.float64)
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(alike(one[key], other[key]) for key in one)
    apart = np.ndarray, list, tuple, Mapping
    if any(isinstance(one, kind) != isinstance(other, kind) for kind in apart):
        return False
    if np.shape(one) != np.shape(other):
        return False
    if _is_real(one) and _is_real(other):
        return bool(np.allclose(one, other, SAME_CALL, SAME_CALL, equal_nan=True))
    return bool(np.all(one == other))


def _is_real(value: Any) -> bool:
    """Whether a result is a number or an array of numbers, and not of booleans."""
    is_number = type(value) in (int, float)
    return is_number or (isinstance(value, np.ndarray) and value.dtype.kind in "iuf")


def alone(candidate: BaseCandidate, operator: Operator) -> BaseCandidate:
    """The candidate as a function of one sequence, if it takes padded batches."""
    name = candidate.padding
    return BatchOfOne(candidate, operator.sequences, name) if name else candidate
