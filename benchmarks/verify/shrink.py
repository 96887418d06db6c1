"""Shrink a failing case to small sizes and many zeros and ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from benchmarks.verify import properties
from benchmarks.verify.attempt import Attempt, Failure, OracleError
from benchmarks.verify.cases import (
    Array,
    Case,
    Indices,
    at_path,
    float_arrays,
    get,
    lists,
    replaced,
    with_list,
)
from benchmarks.verify.draw import Draw
from benchmarks.verify.operators.metrics import WORDS

ATTEMPTS = 1500
"""Maximum number of calls for shrinking a failing case."""

SECONDS = 6.0
"""Maximum processor time for shrinking the first failing property, and half of the maximum time,
since the candidate's is not counted and processors may be busy; for the nth divided by n^2.
"""

SEEDS, MORE_SEEDS = 3, 12
"""Number of seeds for each smaller size: at first, and in all where a large size is left."""

SLOW = 0.2
"""Processor time of a test after which the case's own seed alone is tried at first, in seconds."""

PARTS = 64
"""Number of parts in which a large array is simplified."""


def shrink(attempt: Attempt, failure: Failure) -> Failure:
    """Shrink a failing case to small sizes and many zeros and ones."""
    fails = _Budget(attempt, failure.kind)
    while (smaller := next(_smaller(attempt, failure, fails), None)) is not None:
        failure = smaller
    for place in float_arrays(failure.case):
        name = attempt.operator.arguments[place[0]]
        for make in _simpler(get(failure.case, place), -1.0 if name == "log_probs" else 1.0):
            array = make(get(failure.case, place))
            if array is not None:
                failure = fails(replaced(failure.case, {place: array}), None) or failure
    n = 0  # a list of captions comes before each of them, which it may lose
    while not fails.is_over and n < len(paths_of := lists(failure.case)):
        paths = paths_of[n]
        failure = _changed(failure, fails, paths, _without)
        if all(isinstance(each, str) for each in at_path(failure.case, paths[0])):
            failure = _changed(failure, fails, paths, _first_word)
        n += 1
    return failure


class _Budget:
    """Test whether smaller cases still fail in the same way, within limits of calls and time."""

    def __init__(self, attempt: Attempt, kind: str) -> None:
        self.attempt, self.kind = attempt, kind
        self.passed: dict[Any, int] = {}
        self.took = 0.0
        self.left, seconds = ATTEMPTS, SECONDS / (1 + attempt.failed) ** 2
        self.ends = time.process_time() + seconds, time.monotonic() + 2 * seconds

    @property
    def is_over(self) -> bool:
        """Whether no further case is tested."""
        used, at = self.ends
        return self.left < 0 or time.process_time() > used or time.monotonic() > at

    def __call__(self, case: Case, draw: Draw | None) -> Failure | None:
        self.left -= 1
        if self.is_over:
            return None
        oracle, began = self.attempt.oracle(), time.process_time()
        try:
            with np.errstate(all="ignore"):
                oracle(*case)  # a candidate that raises first would hide that the case is invalid
            failure = self.attempt.run(case, draw, oracle)
        except (properties.UndecidedError, OracleError):  # for example, the cosine of a zero vector
            return None
        finally:
            self.took = time.process_time() - began
        # shrinking must keep the kind of failure, but may go from a small error to a large one
        if failure is None or (failure.kind, self.kind) not in (
            (self.kind, self.kind),
            ("far off", "rounding"),
        ):
            return None
        self.kind = failure.kind
        return failure


def _smaller(attempt: Attempt, failure: Failure, fails: _Budget) -> Iterator[Failure]:
    """Failing cases with fewer large sizes, a smaller size, or an earlier option."""
    assert failure.draw is not None
    pins = attempt.prop.pins.items()
    more = range(1, MORE_SEEDS) if failure.draw.beyond else ()
    for seeds in (range(SEEDS), more):
        for chosen in failure.draw.simpler():
            if any(name not in chosen or chosen[name] not in _options(of) for name, of in pins):
                continue
            what, value = _change(failure.draw, chosen)
            # large cases are slow: of one that has passed, no smaller one is tried at first
            is_slow = failure.draw.beyond and seeds is not more
            if is_slow and value <= fails.passed.get(what, -1):
                continue
            for seed in () if fails.is_over else seeds:
                if seed and seeds is not more and fails.took > SLOW:
                    break  # the case's own seed alone
                draw = Draw(failure.draw.seed if seed == 0 else seed, **chosen)
                found = fails(attempt.operator.sample_case(draw), draw)
                if found is not None:
                    yield found
            fails.passed[what] = max(value, fails.passed.get(what, -1))


def _change(draw: Draw, chosen: Mapping[str, Any]) -> tuple[Any, int]:
    """The size that is smaller in ``chosen``, and its value; or the sizes that stay large, and 0;
    or the option that is another.
    """
    kept = frozenset(name for name in draw.beyond if name in chosen)
    if len(kept) < len(draw.beyond):
        return kept, 0
    name, value = next((n, x) for n, x in chosen.items() if x != draw.chosen.get(n, x))
    return (name, value) if isinstance(draw.options[name], range) else ((name, repr(value)), 0)


def _changed(
    failure: Failure,
    fails: _Budget,
    paths: Sequence[Indices],
    change: Callable[[list[Any], slice], list[Any]],
) -> Failure:
    """Change parts of the lists at some paths, of equal length: large parts first."""
    few = len(at_path(failure.case, paths[0])) // 2
    while few:
        i = 0
        while max(i, few) < (length := len(at_path(failure.case, paths[0]))):
            if fails.is_over:
                return failure
            case = failure.case
            for path in paths:
                case = with_list(case, path, change(at_path(case, path), slice(i, i + few)))
            failure = fails(case, None) or failure
            i += few * (len(at_path(failure.case, paths[0])) == length)
        few //= 2
    return failure


def _without(of: list[Any], part: slice) -> list[Any]:
    return of[: part.start] + of[part.stop :]


def _first_word(of: list[Any], part: slice) -> list[Any]:
    return [*of[: part.start], *(WORDS[0] for _ in of[part]), *of[part.stop :]]


def _options(pinned: Any) -> tuple[Any, ...]:
    return pinned if isinstance(pinned, tuple) else (pinned,)


def _simpler(array: Array, one: float) -> Iterator[Callable[[Array], Array | None]]:
    """Functions that simplify a whole array, then parts, then each entry, to 0 and to ``one``; they
    return None if it is simple. Of a large array it is parts alone.
    """
    values = 0.0, one
    part = array.size
    while part and array.size // part <= (ATTEMPTS if array.size <= ATTEMPTS else PARTS):
        for start in range(0, array.size, part):
            for value in values:
                yield partial(_simplified, part=slice(start, start + part), value=value, of=values)
        part //= 2


def _simplified(array: Array, part: slice, value: float, of: tuple[float, float]) -> Array | None:
    """``array`` with a part at ``value``; None if the part's entries are ``of`` the simple ones."""
    flat = array.flatten()
    is_simple = np.logical_or(*(flat[part] == simple for simple in of)).all()
    if is_simple and len(flat[part]) < len(flat):
        return None
    flat[part] = value
    return flat.reshape(array.shape)
