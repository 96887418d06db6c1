"""The search for a case on which a property fails, and its reduction to the smallest found.

The first failure seen is kept. Where it does not come again, on the same case, in a process that is
fresh, the candidate is not deterministic: it has failed all the same.
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

from benchmarks.verify import properties
from benchmarks.verify.candidate import LIMITS, Calls, CandidateError
from benchmarks.verify.cases import Array, Case, float_arrays, get, replaced, size
from benchmarks.verify.draw import Draw, Pins
from benchmarks.verify.operators.operator import Operator, Property
from benchmarks.verify.tolerances import OutOfToleranceError, recorded

ATTEMPTS = 1500
"""The most calls that are spent on making a failing case smaller."""

SECONDS = 6.0
"""The most time that is, for the first property that fails; for the nth an nth of it."""

TILED = 33
"""A size that straddles tiles of 16 and of 32."""

MODERATE = 200
"""The most that a size is in a case in which all are large."""

MANY = 25
"""Small cases of a property with which it has several large ones."""

SEEDS = 3
"""How many sets of numbers a smaller size is tried with."""

REPEATS = 60
"""Calls on one case, to see how often it fails."""

FAR = 1e4
"""An error this much above its bound is no rounding, and must not shrink to one that could be."""


class OracleError(Exception):
    """The oracle itself raised: our fault, whatever the candidate did."""


@dataclass(frozen=True)
class Failure:
    """A case that fails, and how.

    Attributes:
        kind: what failures have in common that are the same one.
        draw: what the case is made from; None once its numbers were simplified.
        calls: how many calls on the case it takes in a fresh process; 0 if it is not deterministic.
        after_other: whether each of them is after one with other numbers of the same shapes.
    """

    case: Case
    kind: str
    message: str
    draw: Draw | None = None
    calls: int = 1
    after_other: bool = False

    @property
    def plain(self) -> bool:
        """Whether it cannot be rounding, nor chance."""
        return self.kind != "rounding" and self.calls > 0

    @property
    def size(self) -> int:
        """How many numbers the case's arrays have."""
        return size(self.case)


@dataclass(frozen=True)
class Attempt:
    """A property of an operator, run on a candidate.

    Attributes:
        restart: gives the candidate a process that has called nothing yet.
        failed: how many properties of this candidate have failed before.
        after_other: whether a call with other numbers of the same shapes goes before each.
    """

    prop: Property
    operator: Operator
    candidate: Calls
    restart: Callable[[], None] = lambda: None
    failed: int = 0
    after_other: bool = False

    def run(self, case: Case, draw: Draw | None = None) -> Failure | None:
        """How the property fails on ``case``, or None.

        Raises:
            UndecidedError: the property says nothing about this case.
            OracleError: the oracle raised.
        """

        results: list[tuple[Any, Any]] = []

        def oracle(*arguments: Any) -> Any:
            for of, result in results:
                if len(of) == len(arguments) and all(map(is_, of, arguments)):
                    return result
            try:
                results.append((arguments, self.operator.oracle(*arguments)))
                return results[-1][1]
            except Exception as error:
                raise OracleError(f"{self.operator.name}'s oracle raised {error!r}") from error

        try:
            with np.errstate(all="ignore"):
                if self.after_other:
                    self.candidate(*properties.reversed_arrays(case))
                self.prop.check(self.candidate, oracle, case, **self.prop.settings)
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
            message = f"gave what cannot be compared: {type(error).__name__}: {error}"
            return Failure(case, type(error).__name__, message, draw)
        return None


def draws(
    prop: Property, operator: Operator, examples: int, seed: int, large: bool = True
) -> Iterator[Draw]:
    """What a property's cases are made from: small ones, and a few large ones.

    A size that can be beyond ``TILED`` is that large, together with the others; what has few, heads
    say, and a batch, of which the oracle takes each sequence alone, in a case of their own. Beside
    ``MANY`` small ones all are also at their least large value, up to ``MODERATE``, and each in
    turn at its largest; beside fewer ones at most one is.
    """
    seeds = np.random.default_rng([seed, *prop.name.encode()])

    def draw(pins: Pins) -> Draw:
        return Draw(int(seeds.integers(2**63)), **{**prop.pins, **pins})

    only_large = prop.large == "all"
    small = [draw({}) for _ in range(20 if only_large else examples)]
    if only_large:
        for one in small:
            operator.case(one)
    else:
        yield from small
    if not large or prop.large == "no":
        return
    sizes: dict[str, set[int]] = {}
    for one in small:  # not every name is in every case
        for name, values in one.large.items():
            if values and name not in prop.pins:
                sizes.setdefault(name, set()).update(values)
    most = {name: max(values) for name, values in sorted(sizes.items())}
    tiled = {name: TILED for name in most if most[name] > TILED and name != "B"}
    few = {name: min(most[name], TILED) for name in most.keys() - tiled.keys()}
    together = [pins for pins in (tiled, few) if pins]
    if only_large:
        each = sorted((value, name) for name, values in sizes.items() for value in values)
        one_large = [{**_kinds(name, small), name: value} for value, name in each]
        yield from map(draw, [*together, *one_large, *operator.sizes])
        return
    # a large case on the grid has exact zeros, which are kinks, and inputs that no rounding changes
    pins: dict[str, Any] = {"regime": "off_grid"} if prop.settings else {}
    # of what is in the padding, infinity: a product hides the others
    pins |= {"padding": np.inf} if isinstance(prop.pins.get("padding"), tuple) else {}
    if "B" in few:  # the oracle takes each sequence alone: beside few heads
        together.append({"B": few.pop("B")})
    if examples >= MANY:
        least = {name: min(values) for name, values in sizes.items() if min(values) <= MODERATE}
        together += [least, *({name: value} for name, value in most.items())]
    elif prop.large == "one" and most:
        name = [*most][int(seeds.integers(len(most)))]
        having = next(one for one in small if name in one.chosen)
        together.append({**having.chosen, name: most[name]})
    yield from (draw({**pins, **of}) for of in together)


def _kinds(name: str, draws: Sequence[Draw]) -> Pins:
    """The choices by which a case has a size that others have not."""
    having = [one for one in draws if name in one.chosen]
    return {} if len(having) == len(draws) else having[0].kinds


class Outcome(NamedTuple):
    """The smallest failure found; the cases tried, and the largest of each size in them; the worst
    error, and the bound of that one.
    """

    failure: Failure | None
    tried: int
    sizes: Mapping[str, int]
    worst: float
    bound: float


def search(attempt: Attempt, chosen: Iterator[Draw]) -> Outcome:
    """Run an attempt on cases until one fails, and shrink that one.

    What might be rounding is given only where nothing fails plainly.
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
            failure = attempt.run(attempt.operator.drawn(draw), draw)
        except properties.UndecidedError:
            continue
        tried += 1
        for name, values in draw.large.items():
            if values:
                sizes[name] = max(sizes.get(name, 0), draw.chosen[name])
        if failure is not None and (first is None or failure.plain):
            first = failure
            if failure.plain:
                break
    return tried, sizes, first


def _confirmed(attempt: Attempt, first: Failure) -> Failure:
    """The failure at its smallest, with the calls that it takes."""
    if first.kind in LIMITS:
        return first
    after_other = replace(attempt, after_other=True)
    often = "once, and not again"
    for of, so in ((attempt, ""), (after_other, " after one with other numbers of these shapes")):
        for failure in (smallest(of, first), first):
            calls, again, times = _repeated(of, failure.case)
            if again.kind in LIMITS:
                return again
            # what fails at random fails in the same call twice by chance
            if calls and all(_repeated(of, failure.case)[0] == calls for _ in range(2)):
                where = f" (in call {calls} of a fresh process{so})" if calls > 1 or so else ""
                found = replace(again, draw=failure.draw, calls=calls, after_other=bool(so))
                return replace(found, message=again.message + where)
            if times:
                often = f"in {times} of {REPEATS} further calls on this case"
    return replace(first, message=f"not deterministic: failed {often}: {first.message}", calls=0)


def _repeated(attempt: Attempt, case: Case) -> tuple[int, Failure, int]:
    """In a fresh process, the first call that fails, how, and how many of all do; or 0."""
    attempt.restart()
    at, found, times = 0, Failure(case, "", ""), 0
    for call in range(1, REPEATS + 1):
        failure = None
        with suppress(properties.UndecidedError):  # which it was not when it failed first
            failure = attempt.run(case)
        if failure is not None:
            times += 1
            if not at:
                at, found = call, failure
            if at == 1 or failure.kind in LIMITS:
                break
    return at, found, times


def smallest(attempt: Attempt, failure: Failure) -> Failure:
    """The failing case as small as it can be, with as many zeros and ones, and still failing."""
    fails = _Budget(attempt, failure.kind)
    while (smaller := next(_smaller(attempt, failure, fails), None)) is not None:
        failure = smaller
    for place in float_arrays(failure.case):
        for make in _simpler(get(failure.case, place)):
            array = make(get(failure.case, place))
            if array is not None:
                failure = fails(replaced(failure.case, {place: array}), None) or failure
    return failure


class _Budget:
    """Whether cases still fail in the same way, within what may be spent on that."""

    def __init__(self, attempt: Attempt, kind: str) -> None:
        self.attempt, self.kind = attempt, kind
        self.left, self.end = ATTEMPTS, time.monotonic() + SECONDS / (1 + attempt.failed)

    def __call__(self, case: Case, draw: Draw | None) -> Failure | None:
        self.left -= 1
        if self.left < 0 or time.monotonic() > self.end:
            return None
        try:
            failure = self.attempt.run(case, draw)
        except (properties.UndecidedError, OracleError):  # a vector of no direction, say
            return None
        # shrinking must not change the subject
        return failure if failure is not None and failure.kind == self.kind else None


def _smaller(attempt: Attempt, failure: Failure, fails: _Budget) -> Iterator[Failure]:
    """Failing cases with a smaller size, or an earlier choice."""
    assert failure.draw is not None
    for chosen in failure.draw.simpler():
        if any(chosen[name] not in _options(value) for name, value in attempt.prop.pins.items()):
            continue
        for seed in range(SEEDS):
            draw = Draw(failure.draw.seed if seed == 0 else seed, **chosen)
            found = fails(attempt.operator.drawn(draw), draw)
            if found is not None:
                yield found


def _options(pinned: Any) -> tuple[Any, ...]:
    return pinned if isinstance(pinned, tuple) else (pinned,)


def _simpler(array: Array) -> Iterator[Callable[[Array], Array | None]]:
    """Ways to simplify an array: all of it, then each entry; None where it is already simple."""
    for value in (0.0, 1.0):
        yield partial(np.full_like, fill_value=value)
    if array.size > ATTEMPTS:
        return
    for index in np.ndindex(array.shape):
        for value in (0.0, 1.0):

            def entry(a: Array, index: Any = index, value: float = value) -> Array | None:
                if a[index] in (0.0, 1.0):
                    return None
                changed = a.copy()
                changed[index] = value
                return changed

            yield entry
