"""The checks of gradients, against central differences of the oracle and against each other.

As in ``properties``, the lines of a check are printed with a failing case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import combinations, count, islice
from math import comb
from typing import Any
from zlib import crc32

import numpy as np

from benchmarks.verify.candidate import BaseCandidate
from benchmarks.verify.cases import (
    Case,
    Place,
    argument,
    dtype_of,
    float_arrays,
    get,
    mapped,
    replaced,
    rounded,
    size,
)
from benchmarks.verify.derivatives import (
    Directions,
    derivative,
    differences,
    directions,
    output_weights,
    quotient,
    total,
)
from benchmarks.verify.draw import Draw
from benchmarks.verify.properties import (
    FEW,
    SMALL,
    Batched,
    Function,
    UndecidedError,
    reversed_arrays,
    views,
)
from benchmarks.verify.tolerances import (
    CHANGES,
    DIFFERENCES,
    FLOAT32_GRADIENT,
    FLOAT64,
    LITERAL_FACTOR,
    UNITS,
    OutOfToleranceError,
    assert_derivative,
    assert_finite,
    error,
    float64_bound,
    scale,
)
from reference.primitives import Array

FEW_ENTRIES = 100
"""Of so many the derivative by each is computed to name the one that is the farthest off."""


def gradient(
    candidate: BaseCandidate,
    oracle: Function,
    case: Case,
    *,
    by: Sequence[int],
    uses: int = 1,
) -> None:
    """The gradient equals central differences of the oracle, and does not change the output."""
    dtype, exact = dtype_of(case), rounded(case, "float64")
    along = directions(oracle, exact, by)
    expected = uses * differences(oracle, exact, along)
    upstream = output_weights(np.shape(oracle(*exact)))
    arrays, output = finite_gradient(candidate, oracle, case, upstream, list(along), uses)
    # in float32, a derivative whose terms cancel has the rounding errors of these terms
    least = 0.0 if dtype == "float64" else scale(oracle(*exact))

    def measured(case: Case, upstream: Array) -> Array:
        arrays, _ = candidate.gradient(case, upstream, list(along), uses=uses)
        return np.array(total(arrays, along))

    named = entry_named(arrays, oracle, exact, along, uses)
    with named, decidable(oracle, case, measured, along):
        assert_derivative(total(arrays, along), expected, "gradient", dtype, least)
    assert_derivative(output, candidate(*case), "output with a gradient", dtype)


@contextmanager
def entry_named(
    arrays: Sequence[Array], oracle: Function, case: Case, along: Directions, uses: int = 1
) -> Iterator[None]:
    """Begin the message of an error with the gradient's entry that is the farthest off.

    Of more than ``FEW_ENTRIES`` with one that has much of the error.
    """
    try:
        yield
    except OutOfToleranceError as failure:
        found = dict(zip(along, arrays, strict=True))
        entries = [(place, i) for place, to in along.items() for i in range(to.size)]
        if len(entries) > FEW_ENTRIES:
            entries = [_entry_with_most(found, oracle, case, along, uses)]
        pairs = [
            (float(found[place].flat[i]), uses * derivative(oracle, case, place, i))
            for place, i in entries
        ]
        worst = int(np.argmax([abs(actual - expected) for actual, expected in pairs]))
        (place, entry), (actual, expected) = entries[worst], pairs[worst]
        at = ", ".join(map(str, np.unravel_index(entry, found[place].shape)))
        failure.args = (
            f"gradient by {argument(place)}{f' at [{at}]' if at else ''}: {actual:.6g}, expected "
            f"{expected:.6g}; the derivative along random directions of all: "
            f"{str(failure).removeprefix('gradient: ')}",
        )
        raise


def _entry_with_most(
    found: Mapping[Place, Array], oracle: Function, case: Case, along: Directions, uses: int
) -> tuple[Place, int]:
    """An entry that has much of the error along directions, by bisection."""

    def off(part: Directions) -> float:
        of_part = total([found[place] for place in part], part)
        return of_part - uses * quotient(oracle, case, part)

    places = [place for place, to in along.items() if to.size]
    place = _with_most(places, lambda some: off({one: along[one] for one in some}))
    to = along[place]

    def entries(some: Any) -> Directions:
        chosen = np.zeros(to.size)
        chosen[some] = to.flat[some]
        return {place: chosen.reshape(to.shape)}

    return place, int(_with_most(np.arange(to.size), lambda some: off(entries(some))))


def _with_most(items: Any, off: Callable[[Any], float]) -> Any:
    """An item with much of a sum's error, by bisection: ``off`` is the error of some."""
    whole = off(items)
    while len(items) > 1:
        first, rest = items[: len(items) // 2], items[len(items) // 2 :]
        of_first = off(first)
        is_first = abs(of_first) >= abs(whole - of_first)
        items, whole = (first, of_first) if is_first else (rest, whole - of_first)
    return items[0]


def finite_gradient(
    candidate: BaseCandidate,
    oracle: Function,
    case: Case,
    upstream: Array,
    places: Sequence[Place],
    uses: int = 1,
) -> tuple[list[Array], Any]:
    """``candidate.gradient``; every array of it must be finite."""
    arrays, output = candidate.gradient(case, upstream, places, uses=uses)
    for place, array in zip(places, arrays, strict=True):
        try:
            assert_finite(array, f"gradient by {argument(place)}")
        except AssertionError as failure:
            exact, entry = rounded(case, "float64"), int(np.argmin(np.isfinite(array)))
            expected = uses * derivative(oracle, exact, place, entry)
            raise AssertionError(f"{failure}, expected {expected:.6g}") from None
    return arrays, output


def gradient_of_some(
    candidate: BaseCandidate, oracle: Function, case: Case, *, by: Sequence[int]
) -> None:
    """With gradients required for some arrays only, those are the same."""
    places = [place for place in float_arrays(case) if place[0] in by]
    chosen = [[place for place in places if place[0] == i] for i in by]  # an argument's
    # of any two arrays, some subset has the first without the second: each is in another half of
    # as few subsets as possible
    random = np.random.default_rng(crc32(get(case, places[0]).tobytes()))
    subsets = next(n for n in count(1) if comb(n, n // 2) >= len(places))
    codes = [*islice(combinations(range(subsets), subsets // 2), len(places))]
    random.shuffle(codes)
    coded = list(zip(codes, places, strict=True))
    chosen += [[p for code, p in coded if i in code] for i in range(subsets)]
    chosen += [[p for p in places if len(p) == 1 or get(case, p).ndim < 2]]  # all but weights
    if size(case) < SMALL:
        if not isinstance(candidate, Batched):
            # a few single arrays, others in cases of other sizes
            every = -(-len(places) // FEW)
            chosen += [[place] for place in places[size(case) % every :: every]]
        chosen += [[place for place in places if place not in one] for one in chosen]
    parts = dict.fromkeys(tuple(part) for part in chosen if 0 < len(part) < len(places))
    ways = ({"of": part} for part in parts)
    assert_same_gradients(candidate, oracle, case, places, *ways)


def gradient_strided(
    candidate: BaseCandidate, oracle: Function, case: Case, *, by: Sequence[int]
) -> None:
    """Views as arrays and upstream gradients, results, or one row, give the same gradient."""
    places = [place for place in float_arrays(case) if place[0] in by]
    layouts = ({"layout": layout} for layout in (*views(candidate), "computed"))
    assert_same_gradients(candidate, oracle, case, places, *layouts)
    rest = places[1:] if size(case) < SMALL else []
    others = (place for place in rest if place[1] is None and get(case, place).ndim > 1)
    for place in (places[0], *others):
        array = get(case, place)
        expanded = replaced(case, {place: np.broadcast_to(array[:1], array.shape).copy()})
        assert_same_gradients(candidate, oracle, expanded, places, {"layout": "broadcast"})


def gradient_of_sum(
    candidate: BaseCandidate, oracle: Function, case: Case, *, by: Sequence[int]
) -> None:
    """The gradient of the output's sum, with strides of zero, is that of ones, and of two parts."""
    places = [place for place in float_arrays(case) if place[0] in by]
    ones = np.ones(np.shape(oracle(*case)))
    measured = partial(flat_gradient, candidate, places)
    found, expected = measured(case, ones, "broadcast"), measured(case, ones)
    part = np.where(np.arange(ones.size) % 2, 2.0, -1.0).reshape(ones.shape)  # no rounding
    whole = measured(case, part) + measured(case, ones - part)
    with decidable(oracle, case, measured):
        assert_same(found, expected, oracle, case, places, ones)
        assert_same(found, whole, oracle, case, places, ones)


def gradient_after_other(
    candidate: BaseCandidate,
    oracle: Function,
    case: Case,
    *,
    by: Sequence[int],
    another: Callable[[Draw], Case],
) -> None:
    """A call with other numbers, sizes or options before the backward pass changes no gradient."""
    places = [place for place in float_arrays(case) if place[0] in by]
    others = another(Draw(size(case))), another(Draw(size(case) + 1)), reversed_arrays(case)
    assert_same_gradients(candidate, oracle, case, places, *({"then": one} for one in others))


def gradient_same_array(
    candidate: BaseCandidate, oracle: Function, case: Case, *, by: Sequence[int]
) -> None:
    """With one array for the first two arguments its gradient is the sum of theirs."""
    _, Y, *rest = case
    first, second = (place for place in float_arrays(case) if place[0] in by)
    weights = output_weights(np.shape(oracle(Y, Y, *rest)))
    parts, _ = candidate.gradient((Y, Y.copy(), *rest), weights, [first, second])
    whole, _ = candidate.gradient((Y, Y, *rest), weights, [first])

    def of_one(Y: Array, *rest: Any) -> Any:
        return oracle(Y, Y, *rest)

    assert_same(_flat(whole), _flat([parts[0] + parts[1]]), of_one, (Y, *rest), [first])


def gradient_scaled(
    candidate: BaseCandidate, oracle: Function, case: Case, *, by: Sequence[int]
) -> None:
    """A larger, smaller or negative upstream gradient gives as much more or less gradient."""
    places = [place for place in float_arrays(case) if place[0] in by]
    measured = partial(flat_gradient, candidate, places)
    upstream = output_weights(np.shape(oracle(*case)))
    plain = measured(case, upstream)
    for factor in (-(2.0**17), 2.0**-27):
        found = measured(case, factor * upstream) / factor
        with decidable(oracle, case, measured):
            assert_same(found, plain, oracle, case, places)


def gradient_of_parts(
    candidate: BaseCandidate, oracle: Function, case: Case, *, by: Sequence[int]
) -> None:
    """Gradients of some rows or entries of the output, and of the others, add up to that of all."""
    places = [place for place in float_arrays(case) if place[0] in by]
    measured = partial(flat_gradient, candidate, places)
    upstream = output_weights(np.shape(oracle(*case)))
    plain, rows = measured(case, upstream), len(np.atleast_1d(upstream))
    columns = [1] * (upstream.ndim - 1)
    some = [np.arange(rows) == rows - 1, np.arange(rows) % 2 == 0] if upstream.ndim else []
    for of in (*(chosen.reshape(-1, *columns) for chosen in some), upstream > 0):
        found = measured(case, upstream * of) + measured(case, upstream * ~of)
        with decidable(oracle, case, measured):
            assert_same(found, plain, oracle, case, places)


def assert_same_gradients(
    candidate: BaseCandidate,
    oracle: Function,
    case: Case,
    places: Sequence[Place],
    *ways: dict[str, Any],
) -> None:
    """Assert that the gradient by ``places``, or those ``of`` a way, is the same in each way.

    Raises:
        UndecidedError: a kink of ReLU is too near.
    """
    weights = output_weights(np.shape(oracle(*case)))
    measured = partial(flat_gradient, candidate, places)
    plain, _ = candidate.gradient(case, weights, places)
    expected = dict(zip(places, plain, strict=True))
    for way in ways:
        of = way.pop("of", places)
        found, _ = candidate.gradient(case, weights, of, **way)
        actual = expected | dict(zip(of, found, strict=True))
        with decidable(oracle, case, measured):
            assert_same(_flat(actual.values()), _flat(expected.values()), oracle, case, places)


def assert_same(
    found: Array,
    expected: Array,
    oracle: Function,
    case: Case,
    places: Sequence[Place],
    upstream: Array | None = None,
) -> None:
    """Assert that two gradients of one output, by the arrays at ``places``, are the same.

    One whose terms cancel has their rounding errors: a rounding of the output counts as one.
    """
    least = FLOAT64 / DIFFERENCES * scale(oracle(*case))
    assert_gradients(found, expected, oracle, case, places, least, upstream)


def assert_gradients(
    found: Array,
    expected: Array,
    oracle: Function,
    case: Case,
    places: Sequence[Place],
    least: float = 0.0,
    upstream: Array | None = None,
) -> None:
    """``assert_derivative`` of two flat gradients of a candidate.

    The message names the array and the entry, and has the oracle's derivative by it beside both.
    """
    dtype = dtype_of(case)
    try:
        assert_derivative(found, expected, "gradient", dtype, least)
        return
    except OutOfToleranceError as error_of_all:
        failure = error_of_all
    if found.shape != expected.shape:
        raise failure
    actual, wanted = (_by_place(flat, case, places) for flat in (found, expected))
    for place, array in wanted.items():
        assert_finite(array, f"gradient by {argument(place)}")
    worst = max(places, key=lambda place: error(actual[place], wanted[place]))
    least = scale([*expected, least])
    try:
        of = f"gradient by {argument(worst)}"
        assert_derivative(actual[worst], wanted[worst], of, dtype, least)
    except OutOfToleranceError as of_worst:
        failure = of_worst
        if np.isfinite(failure.error):
            entry = int(np.argmax(np.abs(actual[worst] - wanted[worst])))
            exact = rounded(case, "float64")
            of_oracle = derivative(oracle, exact, worst, entry, upstream)
            both = str(failure).replace(", expected ", ", but otherwise ")
            failure.args = (f"{both}; the oracle's is {of_oracle:.6g}",)
    raise failure


def _by_place(flat: Array, case: Case, places: Sequence[Place]) -> dict[Place, Array]:
    """The arrays of a flat gradient."""
    found, at = dict[Place, Array](), 0
    for place in places:
        array = get(case, place)
        found[place] = flat[at : at + array.size].reshape(array.shape)
        at += array.size
    return found


def finite_in_float32(
    candidate: BaseCandidate, oracle: Function, case: Case, *, by: Sequence[int]
) -> None:
    """In float32 the output and the gradient are finite."""
    places = [place for place in float_arrays(case) if place[0] in by]
    upstream = output_weights(np.shape(oracle(*rounded(case, "float64"))))
    _, output = finite_gradient(candidate, oracle, case, upstream, places)
    assert_finite(output, "output")


def gradient_in_regime(
    candidate: BaseCandidate, oracle: Function, case: Case, *, by: Sequence[int]
) -> None:
    """The gradient is finite, and equals central differences where these are accurate."""
    along = directions(oracle, case, by)
    upstream = output_weights(np.shape(oracle(*case)))
    arrays, _ = finite_gradient(candidate, oracle, case, upstream, list(along))
    found = total(arrays, along)
    # the derivative of a saturated gate has the absolute rounding error of 1
    least = max(1.0, scale(oracle(*case)))
    with suppress(UndecidedError), entry_named(arrays, oracle, case, along):
        assert_derivative(found, differences(oracle, case, along), "gradient", least=least)


def gradient_of_shifted(
    candidate: BaseCandidate, oracle: Function, case: Case, *, by: Sequence[int]
) -> None:
    """Millions added to all channels do not change the gradient."""
    X, *rest = case
    places = [place for place in float_arrays(case) if place[0] in by]
    weights = output_weights(np.shape(oracle(*case)))
    measured = partial(flat_gradient, candidate, places)
    found, expected = measured((X + 2**22, *rest), weights), measured(case, weights)
    with decidable(oracle, case, measured):
        assert_same(found, expected, oracle, case, places)


def gradient_float32(
    candidate: BaseCandidate, oracle: Function, case: Case, *, by: Sequence[int], dtype: str
) -> None:
    """The gradient in float32 equals that in float64."""
    low = rounded(case, dtype)
    exact = rounded(low, "float64")
    places = [place for place in float_arrays(case) if place[0] in by]
    output = oracle(*exact)
    measured, weights = partial(flat_gradient, candidate, places), output_weights(np.shape(output))
    found, expected = measured(low, weights), measured(exact, weights)
    if np.abs(expected).max(initial=0.0) < FLOAT32_GRADIENT * scale(output):
        raise UndecidedError  # the terms of the derivatives cancel
    with decidable(oracle, low, measured, directions(oracle, exact, by)):
        assert_gradients(found, expected, oracle, low, places)


def flat_gradient(
    candidate: BaseCandidate,
    places: Sequence[Place],
    case: Case,
    upstream: Array,
    layout: str = "plain",
) -> Array:
    """The candidate's gradient by the arrays at ``places``, as one vector."""
    return _flat(candidate.gradient(case, upstream, places, layout=layout)[0])


def _flat(arrays: Iterable[Array]) -> Array:
    return np.concatenate([array.ravel() for array in arrays])


@contextmanager
def decidable(
    oracle: Function,
    case: Case,
    measured: Callable[[Case, Array], Array],
    along: Directions | None = None,
) -> Iterator[None]:
    """Accept a failure of the block only if rounding errors cannot explain it.

    A gradient has the rounding errors of its terms, which may cancel, and of its arguments, to
    which it may be sensitive. Both are ``measured`` in float64: with other signs of the upstream
    gradient, and with perturbed arguments. Central differences ``along`` directions in float64
    have only the first, but must not straddle a kink of ReLU.

    Raises:
        UndecidedError: a kink of ReLU is too near, or rounding errors are larger than the error.
    """
    try:
        yield
    except OutOfToleranceError as failure:
        exact, dtype = rounded(case, "float64"), dtype_of(case)
        if along:
            differences(oracle, exact, along)
            if dtype == "float64":
                raise
        relative = DIFFERENCES if dtype == "float64" else FLOAT32_GRADIENT
        upstream, unit = output_weights(np.shape(oracle(*exact))), UNITS[dtype]
        plain, random = measured(exact, upstream), np.random.default_rng(0)
        if error(measured(exact, upstream), plain) > float64_bound(plain):
            raise  # another gradient at every call is no rounding error
        for _ in range(CHANGES):
            signs = random.choice((-1.0, 1.0), upstream.shape)
            terms = relative * scale(measured(exact, upstream * signs))
            moved = mapped(exact, lambda a: a * random.uniform(1 - unit, 1 + unit, a.shape))
            change = LITERAL_FACTOR * error(measured(moved, upstream), plain)
            if failure.error <= max(terms, change) < np.inf:
                raise UndecidedError from None
        raise
