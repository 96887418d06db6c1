"""Search for a failing case of a property, and shrink it.

If a failure cannot be reproduced on the same case in a fresh process, the candidate is not
deterministic; the property still fails.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import groupby, islice
from typing import NamedTuple

import numpy as np

from benchmarks.errors import InputError
from benchmarks.verify import gradients, properties
from benchmarks.verify.attempt import Attempt, Failure, Tested
from benchmarks.verify.candidate import LIMITS, TIME_LIMIT
from benchmarks.verify.cases import Case, float_arrays, get, size
from benchmarks.verify.draw import STARTING, Draw, Pins
from benchmarks.verify.large import large_cases
from benchmarks.verify.operators.operator import Operator, Property
from benchmarks.verify.properties import Function
from benchmarks.verify.shrink import shrink
from benchmarks.verify.tolerances import recorded

LEAST, QUICK_LEAST = 5, 2
"""Number of small cases, however long they take; the second if there are less than ``MANY``."""

MANY = 25
"""Minimum number of small cases for several large ones."""

NAMED = 20
"""Number of small cases for the names of all sizes, if they are not tested."""

REPEATING = (
    properties.strided,
    properties.no_state,
    properties.precision_state,
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

REPEATS = 60
"""Number of calls on one case to see how often it fails."""

CONFIRMED = 7
"""Number of fresh processes in which a failure must come again in the same call."""

EARLIER, EARLIER_SECONDS = 300, 10.0
"""Maximum number of earlier tests after which a failure is tried again, and time for it."""

OF_EACH = 3
"""Number of tests of each earlier property among them, the first ones."""

PRINTED = 50
"""Maximum number of earlier tests that are printed."""

KNOWN = 10_000
"""Cases of fewer entries are kept with the oracle's results while tests are tried again."""

BATCHES = 9, 9, 33, 33
"""Sizes of batches that are tested in parts, one more than there are small cases at most."""

STARTED = ("equals_oracle", "gradient")
"""Properties that are tested on the case by which a candidate is started, too."""

FIRST = 6
"""Number of small cases of which the one with the fewest dimensions of size 1 is tested first, so
that an error in a first call shows.
"""


def draws(
    prop: Property,
    operator: Operator,
    examples: int,
    seed: int,
    large: bool = True,
    until: float = np.inf,
    again: int = 0,
) -> Iterator[Draw]:
    """The draws of a property's cases: small ones, then large ones; other small ones ``again``.

    Of the small ones half as many for checks that repeat calls, a quarter if of padded batches;
    none if all are large. After the time ``until`` no more than the least number, or these parts.
    Without ``large``, for parts of a batch, those with most of the large sizes have ``BATCHES`` of
    small sizes.
    """
    seeds = np.random.default_rng([seed + again, *prop.name.encode()])

    def draw(pins: Pins) -> Draw:
        return Draw(int(seeds.integers(2**63)), **{**prop.pins, **pins})

    many = examples >= MANY
    least = LEAST if many else QUICK_LEAST
    if prop.check in REPEATING or "uses" in prop.settings:
        examples, least = (-(-x // (4 if prop.is_batched else 2)) for x in (examples, least))
    if prop.check is gradients.inference_state:  # a second call is not the first of its sizes
        examples = least = 1
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
        if prop.name in STARTED and not again:
            small.insert(1, Draw(STARTING))
        for i, one in enumerate(small):
            if i >= least and time.monotonic() > until:
                break
            yield one
    if large:
        yield from map(draw, large_cases(prop, operator, small, many, seed))
    elif prop.is_batched and prop.large in ("all", "real"):
        yield from (draw({"B": B}) for B in BATCHES[: examples + 1])


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


def search(attempt: Attempt, chosen: Iterator[Draw], tested: list[Tested] | None = None) -> Outcome:
    """Test cases until one fails, and shrink that one.

    A failure that may be a rounding error is returned only if there is no other. ``tested`` are
    the tests that the worker process has had before; those of this search are added.
    """
    tested = [] if tested is None else tested
    others = len(tested)
    with recorded() as errors:
        tried, sizes, failure = _first(attempt, chosen, tested)
        if failure is not None:
            module = attempt.prop.check.__module__
            alike = [one for one in tested if one.prop.check.__module__ == module]
            by_property = groupby(tested, lambda one: one.prop.name)
            few = [one for _, of in by_property for one in islice(of, OF_EACH)]
            try:
                failure = _confirmed(attempt, failure, (tested[others:], few, alike, tested))
            except InputError as error:
                failure = not_loaded_again(failure, error)
            tested.clear()  # in worker processes that have ended
    of = errors.get(attempt.prop.dtype, [])
    worst = max(of, key=lambda pair: pair[0] / (pair[1] or 1.0), default=(0.0, 0.0))
    return Outcome(failure, tried, sizes, *worst)


def _first(
    attempt: Attempt, chosen: Iterator[Draw], tested: list[Tested]
) -> tuple[int, Mapping[str, int], Failure | None]:
    """The number of tested cases, their largest sizes, and the first failure.

    Tests are added to ``tested``, but for the first that fails.
    """
    first: Failure | None = None
    tried, sizes = 0, dict[str, int]()
    trials = map(attempt.trial, chosen)
    following = next(trials, None)
    while (trial := following) is not None:
        draw, following = trial.draw, next(trials, None)
        # while the worker works on a case, the next one is prepared
        attempt.worker.meanwhile = following.ahead() if following else iter(())
        try:
            failure = trial.run()
        except properties.UndecidedError:
            continue
        except InputError:
            if first is None:
                raise
            break
        tried += 1
        for name, values in draw.large.items():
            if values:
                sizes[name] = max(sizes.get(name, 0), draw.chosen[name])
        if failure is not None and (first is None or failure.conclusive):
            first = failure
            if failure.conclusive:
                break
        tested.append(Tested(attempt.prop, draw))
    attempt.worker.meanwhile = iter(())
    return tried, sizes, first


def _confirmed(attempt: Attempt, first: Failure, tested: Iterable[Sequence[Tested]]) -> Failure:
    """Shrink a failure, and reproduce it in fresh processes: alone, or after earlier tests.

    Those are of the first of the ``tested`` sequences after which it comes again.
    """
    if first.kind in LIMITS:
        return first
    attempt = replace(attempt, watched=first.case, outcomes=[])
    after_other = replace(attempt, after_other=True)
    for of, so in ((attempt, ""), (after_other, " after one with other numbers of these shapes")):
        if found := _shrunk(of, first, so):
            return found
    tried = (_earlier(attempt, first, tests[-EARLIER:]) for tests in tested)
    earlier = () if any(attempt.outcomes) else next(filter(None, tried), ())
    if earlier:
        what = "an earlier case" if len(earlier) == 1 else f"{len(earlier)} earlier cases"
        if found := _shrunk(replace(attempt, earlier=earlier), first, f" after {what}"):
            return found
    if any(attempt.outcomes):
        _repeated(attempt, first.case, to_the_end=True)
    times, further = sum(attempt.outcomes), len(attempt.outcomes)
    runs = f"{further} further runs on this case"
    said = f"not deterministic: failed in {times} of {runs}"
    if not times:
        so = f"in none of {runs}" if further else "and not again"
        said = f"not deterministic, or dependent on many earlier calls: failed once, {so}"
    return replace(first, message=f"{said}: {first.message}", calls=0, times=times)


def _shrunk(attempt: Attempt, first: Failure, so: str) -> Failure | None:
    """The failure, shrunk if possible, if it comes again in the same call of fresh processes.

    ``so`` says how it is called.
    """
    for failure in (shrink(attempt, first), first):
        calls, again = _repeated(attempt, failure.case)
        if again.kind in LIMITS:
            return again
        # repeated, since a random failure may by chance occur in the same call again
        if calls and all(_repeated(attempt, failure.case)[0] == calls for _ in range(CONFIRMED)):
            where = f" (in run {calls} of the check, in a fresh process{so})"
            found = replace(
                again,
                draw=failure.draw,
                calls=calls,
                after_other=attempt.after_other,
                earlier=attempt.earlier,
            )
            if calls > 1 or so:
                found = replace(found, message=found.message + where)
            return found
    return None


def not_loaded_again(failure: Failure, error: InputError) -> Failure:
    """A failure of a candidate that could not be loaded again, to see how often it fails."""
    said = f"failed once, before the candidate could not be loaded again ({error})"
    message = f"not deterministic, or dependent on many earlier calls: {said}: {failure.message}"
    return replace(failure, message=message, calls=0)


def with_fewest_runs(attempt: Attempt, failure: Failure, calls: int) -> Failure:
    """A failure by a limit, with the runs of its check until it comes again in a fresh process.

    If it does not, with as many as the ``calls`` of before, and it is said not to be deterministic;
    as is a hang that does not come again in the same run. Memory may run out in another.
    """
    runs, again = _repeated(attempt, failure.case)
    if runs == 1 or (failure.kind != TIME_LIMIT and again.kind in LIMITS):
        return replace(failure, calls=runs)
    other, more = _repeated(attempt, failure.case)
    if again.kind == more.kind == failure.kind and runs == other:
        return replace(failure, calls=runs)
    of_each = " and ".join(
        f"run {run}" if run else f"none of {REPEATS} runs" for run in (runs, other)
    )
    said = f"failed once, and of its case in two fresh processes in {of_each}"
    message = f"not deterministic, or dependent on many earlier calls: {said}: {failure.message}"
    return replace(failure, message=message, calls=max(runs, other) or calls)


def with_other_hashes(attempt: Attempt, failure: Failure) -> Failure:
    """The failure, which says so if no call in a process with other hashes fails."""
    of = replace(attempt, after_other=failure.after_other, earlier=failure.earlier)
    calls, _ = _repeated(of, failure.case)
    if calls:
        return failure
    message = f"{failure.message} (not by another PYTHONHASHSEED)"
    return replace(failure, message=message, by_hashes=True)


def _earlier(attempt: Attempt, first: Failure, tested: Sequence[Tested]) -> tuple[Tested, ...]:
    """A few earlier tests after which the failure comes again, by delta debugging; often one.

    Parts are tried first, the last before others, then what is left without a part.
    """
    end = time.monotonic() + EARLIER_SECONDS
    known: dict[int, tuple[Case, Function]] = {}  # with the oracle's results

    def fails_after(tests: Sequence[Tested]) -> bool:
        if time.monotonic() > end:
            return False
        attempt.worker.restart()
        for one in tests:
            if time.monotonic() > end:
                return False
            case, oracle = known.get(id(one)) or (attempt.sample(one), attempt.oracle())
            if size(case) < KNOWN:
                known[id(one)] = case, oracle
            attempt.replay(one, case, oracle)
        with suppress(properties.UndecidedError):
            return attempt.run(first.case) is not None
        return False

    left, parts = tuple(tested), 2
    if not left or not fails_after(left):
        return ()
    while len(left) > 1:
        step = -(-len(left) // parts)
        starts = range(0, len(left), step)[::-1]
        tried = [left[i : i + step] for i in starts]
        if parts > 2:
            tried += [left[:i] + left[i + step :] for i in starts]
        fewer = next(filter(fails_after, tried), None)
        if fewer:
            parts = 2 if len(fewer) <= step else parts - 1
            left = fewer
        elif step > 1:
            parts = min(2 * parts, len(left))
        else:
            break
    return left if len(left) <= PRINTED else ()


def _repeated(attempt: Attempt, case: Case, to_the_end: bool = False) -> tuple[int, Failure]:
    """Call a case in a fresh process: the first failing call or 0, and its failure.

    If the first call fails there are no others, unless ``to_the_end``.
    """
    attempt.worker.restart()
    oracle = attempt.oracle()
    at, found = 0, Failure(case, "", "")
    for call in range(1, REPEATS + 1):
        failure = None
        with suppress(properties.UndecidedError):  # though decided when it failed first
            failure = attempt.run(case, oracle=oracle)
        if failure is not None:
            if not at:
                at, found = call, failure
            if (at == 1 and not to_the_end) or failure.kind in LIMITS:
                break
    return at, found
