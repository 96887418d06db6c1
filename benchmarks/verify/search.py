"""Search for a failing case of a property, and shrink it.

If a failure cannot be reproduced on the same case in a fresh process, the candidate is not
deterministic; the property still fails.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from operator import is_
from typing import Any, NamedTuple

import numpy as np

from benchmarks.verify import gradients, properties
from benchmarks.verify.candidate import LIMITS, BaseCandidate, CandidateError
from benchmarks.verify.cases import (
    Array,
    Case,
    Indices,
    at_path,
    float_arrays,
    get,
    lists,
    replaced,
    size,
    with_list,
)
from benchmarks.verify.draw import Draw, Pins
from benchmarks.verify.large import large_cases
from benchmarks.verify.operators.metrics import WORDS
from benchmarks.verify.operators.operator import Operator, Property
from benchmarks.verify.properties import Function
from benchmarks.verify.tolerances import OutOfToleranceError, recorded

ATTEMPTS = 1500
"""Maximum number of calls for shrinking a failing case."""

SECONDS = 6.0
"""Maximum time for shrinking the first failing property; for the nth it is divided by n^2."""

CACHED = 4
"""Number of results that ``Attempt.oracle`` caches."""

LEAST = 5
"""Number of small cases, however long they take."""

MANY = 25
"""Minimum number of small cases for several large ones."""

NAMED = 20
"""Number of small cases for the names of all sizes, if they are not tested."""

REPEATING = (
    properties.strided,
    properties.no_state,
    properties.same_objects,
    properties.every_layout,
    properties.inference,
    gradients.gradient_of_some,
    gradients.gradient_of_parts,
    gradients.gradient_of_sum,
    gradients.gradient_strided,
    gradients.gradient_after_other,
    gradients.gradient_scaled,
    gradients.gradient_float32,
    gradients.gradient_in_regime,
)
"""Checks with half as many cases: they call the candidate several times on each, or repeat another
check in a regime."""

OF_ANOTHER = (gradients.gradient_after_other,)
"""Checks that draw another case, by their argument ``another``."""

SEEDS, MORE_SEEDS = 3, 12
"""Number of seeds for each smaller size: at first, and in all where a large size is left."""

REPEATS = 60
"""Number of calls on one case to see how often it fails."""

CONFIRMED = 7
"""Number of fresh processes in which a failure must come again in the same call."""

FIRST = 6
"""Number of small cases of which the one with the fewest dimensions of size 1 is tested first, so
that an error in a first call shows.
"""

PARTS = 64
"""Number of parts in which a large array is simplified."""

FAR = 100.0
"""An error this many times its tolerance is no rounding error, and is not shrunk to one."""


class OracleError(Exception):
    """The oracle raised: a bug of this project, not of the candidate."""


@dataclass(frozen=True)
class Failure:
    """A failing case.

    Attributes:
        kind: identifies the kind of failure, which shrinking keeps.
        draw: the choices of the case; None if its numbers were simplified.
        calls: the number of runs of the check in a fresh process until it fails; 0 if not
            deterministic.
        after_other: whether each run follows one with other numbers of the same shapes.
    """

    case: Case
    kind: str
    message: str
    draw: Draw | None = None
    calls: int = 1
    after_other: bool = False

    @property
    def conclusive(self) -> bool:
        """Whether it cannot be a rounding error, and is deterministic."""
        return self.kind != "rounding" and self.calls > 0

    @property
    def size(self) -> int:
        """The number of entries in the case's arrays."""
        return size(self.case)


@dataclass(frozen=True)
class Attempt:
    """A test of a property of an operator on a candidate.

    Attributes:
        restart: starts a fresh worker process.
        failed: number of the candidate's properties that have failed before.
        secret: of the directions of gradients; the candidate must not know it.
        after_other: whether to call it with other numbers of the same shapes before each call.
    """

    prop: Property
    operator: Operator
    candidate: BaseCandidate
    restart: Callable[[], None] = lambda: None
    failed: int = 0
    secret: bytes = b""
    after_other: bool = False

    @property
    def settings(self) -> Mapping[str, Any]:
        """The check's further arguments."""
        of = {"another": self.operator.sample_case}
        return {**self.prop.settings, **(of if self.prop.check in OF_ANOTHER else {})}

    def oracle(self) -> Function:
        """The operator's oracle, with a cache of the results of its first calls."""
        results: list[tuple[Any, Any]] = []

        def oracle(*arguments: Any) -> Any:
            for of, result in results:
                if len(of) == len(arguments) and all(map(is_, of, arguments)):
                    return result
            try:
                result = self.operator.oracle(*arguments)
            except Exception as error:
                raise OracleError(f"{self.operator.name}'s oracle raised {error!r}") from error
            if len(results) < CACHED:
                results.append((arguments, result))
            return result

        return oracle

    def run(
        self, case: Case, draw: Draw | None = None, oracle: Function | None = None
    ) -> Failure | None:
        """Test the property on ``case``; returns the failure, or None.

        Raises:
            UndecidedError: the property is not defined on this case.
            OracleError: the oracle raised.
        """
        oracle = oracle or self.oracle()
        if self.prop.check.__module__ == gradients.__name__:
            gradients.choose_directions(gradients.seed_of(case, self.secret))
        try:
            with np.errstate(all="ignore"):
                if self.after_other:
                    self.candidate(*properties.reversed_arrays(case))
                self.prop.check(self.candidate, oracle, case, **self.settings)
        except (properties.UndecidedError, OracleError):
            raise
        except CandidateError as error:
            return Failure(case, error.kind, str(error), draw)
        except OutOfToleranceError as error:
            finite = "far off" if error.excess > FAR else "rounding"
            kind = finite if np.isfinite(error.excess) else "broken"
            return Failure(case, kind, str(error), draw)
        except AssertionError as error:
            message = str(error) or "another result than the oracle's"
            return Failure(case, "wrong", message, draw)
        except Exception as error:
            what = "returned a result that cannot be compared with the oracle's"
            message = f"{what}: {type(error).__name__}: {error}"
            return Failure(case, type(error).__name__, message, draw)
        return None


def draws(
    prop: Property,
    operator: Operator,
    examples: int,
    seed: int,
    large: bool = True,
    until: float = np.inf,
) -> Iterator[Draw]:
    """The draws of a property's cases: small ones, then large ones.

    Of the small ones half as many for checks that repeat calls, a quarter if of padded batches;
    none if all are large. After the time ``until`` no more than ``LEAST``.
    """
    seeds = np.random.default_rng([seed, *prop.name.encode()])

    def draw(pins: Pins) -> Draw:
        return Draw(int(seeds.integers(2**63)), **{**prop.pins, **pins})

    many = examples >= MANY
    if prop.check in REPEATING or "uses" in prop.settings:
        examples = -(-examples // (4 if prop.is_batched else 2))
    if prop.large == "all":
        small = [draw({}) for _ in range(NAMED)]
        for one in small:
            operator.case(one)
    else:
        small = [draw({}) for _ in range(examples)]
        few = small[:FIRST]
        first = min(
            few, key=lambda one: _ones(operator.case(Draw(one.seed, **one.pins))), default=None
        )
        if first is not None:
            small.remove(first)
            small.insert(0, first)
        for i, one in enumerate(small):
            if i >= LEAST and time.monotonic() > until:
                break
            yield one
    if large:
        yield from map(draw, large_cases(prop, operator, small, many, seed))


def _ones(case: Case) -> int:
    """The number of dimensions of size 1, along which many outputs and gradients are zero."""
    return sum(np.shape(get(case, place)).count(1) for place in float_arrays(case))


class Outcome(NamedTuple):
    """The smallest failure found; the number of tested cases, and their largest sizes; the worst
    error relative to its bound, and that bound.
    """

    failure: Failure | None
    tried: int
    sizes: Mapping[str, int]
    worst: float
    bound: float


def search(attempt: Attempt, chosen: Iterator[Draw]) -> Outcome:
    """Test cases until one fails, and shrink that one.

    A failure that may be a rounding error is returned only if there is no other.
    """
    with recorded() as errors:
        tried, sizes, failure = _first(attempt, chosen)
        failure = failure and _confirmed(attempt, failure)
    of = errors.get(attempt.prop.dtype, [])
    worst = max(of, key=lambda pair: pair[0] / (pair[1] or 1.0), default=(0.0, 0.0))
    return Outcome(failure, tried, sizes, *worst)


def _first(
    attempt: Attempt, chosen: Iterator[Draw]
) -> tuple[int, Mapping[str, int], Failure | None]:
    first: Failure | None = None
    tried, sizes = 0, dict[str, int]()
    for draw in chosen:
        try:
            failure = attempt.run(attempt.operator.sample_case(draw), draw)
        except properties.UndecidedError:
            continue
        tried += 1
        for name, values in draw.large.items():
            if values:
                sizes[name] = max(sizes.get(name, 0), draw.chosen[name])
        if failure is not None and (first is None or failure.conclusive):
            first = failure
            if failure.conclusive:
                break
    return tried, sizes, first


def _confirmed(attempt: Attempt, first: Failure) -> Failure:
    """Shrink a failure, and reproduce it in fresh processes."""
    if first.kind in LIMITS:
        return first
    after_other = replace(attempt, after_other=True)
    often = "once, and not again (or it depends on earlier calls)"
    for of, so in ((attempt, ""), (after_other, " after one with other numbers of these shapes")):
        for failure in (shrink(of, first), first):
            calls, again, times = _repeated(of, failure.case)
            if again.kind in LIMITS:
                return again
            # repeated, since a random failure may by chance occur in the same call again
            if calls and all(_repeated(of, failure.case)[0] == calls for _ in range(CONFIRMED)):
                where = (
                    f" (in run {calls} of the check, in a fresh process{so})"
                    if calls > 1 or so
                    else ""
                )
                found = replace(again, draw=failure.draw, calls=calls, after_other=bool(so))
                return replace(found, message=again.message + where)
            if times:
                often = f"in {times} of {REPEATS} further calls on this case"
    return replace(first, message=f"not deterministic: failed {often}: {first.message}", calls=0)


def _repeated(attempt: Attempt, case: Case) -> tuple[int, Failure, int]:
    """Call a case in a fresh process: the first failing call or 0, its failure, all failures."""
    attempt.restart()
    oracle = attempt.oracle()
    at, found, times = 0, Failure(case, "", ""), 0
    for call in range(1, REPEATS + 1):
        failure = None
        with suppress(properties.UndecidedError):  # though decided when it failed first
            failure = attempt.run(case, oracle=oracle)
        if failure is not None:
            times += 1
            if not at:
                at, found = call, failure
            if at == 1 or failure.kind in LIMITS:
                break
    return at, found, times


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
    while n < len(lists(failure.case)):
        paths = lists(failure.case)[n]
        failure = _changed(failure, fails, paths, _without)
        if all(isinstance(each, str) for each in at_path(failure.case, paths[0])):
            failure = _changed(failure, fails, paths, _first_word)
        n += 1
    return failure


class _Budget:
    """Test whether smaller cases still fail in the same way, within limits of calls and time."""

    def __init__(self, attempt: Attempt, kind: str) -> None:
        self.attempt, self.kind = attempt, kind
        self.left, self.end = ATTEMPTS, time.monotonic() + SECONDS / (1 + attempt.failed) ** 2

    def __call__(self, case: Case, draw: Draw | None) -> Failure | None:
        self.left -= 1
        if self.left < 0 or time.monotonic() > self.end:
            return None
        try:
            failure = self.attempt.run(case, draw)
        except (properties.UndecidedError, OracleError):  # for example, the cosine of a zero vector
            return None
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
    more = range(SEEDS, MORE_SEEDS) if failure.draw.beyond else ()
    for seeds in (range(SEEDS), more):
        for chosen in failure.draw.simpler():
            if any(name not in chosen or chosen[name] not in _options(of) for name, of in pins):
                continue
            for seed in seeds:
                draw = Draw(failure.draw.seed if seed == 0 else seed, **chosen)
                found = fails(attempt.operator.sample_case(draw), draw)
                if found is not None:
                    yield found


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
