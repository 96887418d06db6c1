"""The checks of gradients, against central differences of the oracle and against each other.

As in ``properties``, the lines of a check are printed with a failing case.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import combinations, count, cycle, islice
from math import comb
from typing import Any
from zlib import crc32

import numpy as np

from benchmarks.verify.candidate import BaseCandidate
from benchmarks.verify.cases import (
    Case,
    chained,
    dtype_of,
    float_arrays,
    get,
    replaced,
    reversed_arrays,
    size,
)
from benchmarks.verify.chance import alike, all_alike, generator
from benchmarks.verify.derivatives import (
    differences,
    directions,
    entry_named,
    output_weights,
    total,
)
from benchmarks.verify.differentiation import (
    Gradients,
    assert_finite_gradient,
    assert_gradients,
    assert_output,
    flat,
)
from benchmarks.verify.draw import Draw
from benchmarks.verify.layouts import (
    BESIDE,
    CHAINED,
    COMPUTED,
    HIDDEN,
    MODULE,
    OWN,
    REFILLED,
    REQUIRING,
    RETURNED,
    VIEWS,
)
from benchmarks.verify.oracle import in_dtype, in_float64
from benchmarks.verify.properties import (
    FEW,
    SMALL,
    Batched,
    BatchOfOne,
    Function,
    UndecidedError,
    assert_equals_oracle,
    defined,
    unseen,
    views,
)
from benchmarks.verify.tolerances import (
    DIFFERENCES,
    FLOAT32_GRADIENT,
    FLOAT64,
    OutOfToleranceError,
    assert_derivative,
    assert_finite,
    assert_gated,
    scale,
)
from reference.primitives import Array


def gradient(
    candidate: BaseCandidate,
    oracle: Function,
    case: Case,
    *,
    by: Sequence[int],
    uses: int = 1,
    limit: float | None = 1.0,
) -> None:
    """The gradient equals central differences of the oracle, and does not change the output."""
    of = Gradients(candidate, oracle, by, limit, uses)
    if size(case) < SMALL or generator().integers(2):
        for other in defined(oracle, [alike(case, isinstance(candidate, Batched))]):
            of(other)
    arrays, n = of(case), len(of.places(case))
    for i in range(uses):  # as many backward passes
        of.assert_correct(arrays[i * n :][:n], case)


def gradient_of_some(
    candidate: BaseCandidate,
    oracle: Function,
    case: Case,
    *,
    by: Sequence[int],
    limit: float | None = 1.0,
) -> None:
    """With gradients required for some arrays only, views too, those are the same."""
    of = Gradients(candidate, oracle, by, limit)
    places = of.places(case)
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
    layouts = islice(cycle(("plain", *views(candidate))), int(random.integers(len(VIEWS))), None)
    ways = ({"places": part, "layout": next(layouts)} for part in parts)
    assert_same_gradients(of, case, *ways)


def gradient_strided(
    candidate: BaseCandidate,
    oracle: Function,
    case: Case,
    *,
    by: Sequence[int],
    limit: float | None = 1.0,
) -> None:
    """Views as arrays and upstream gradients, results, or one row, give the same gradient."""
    of = Gradients(candidate, oracle, by, limit)
    results = (COMPUTED, RETURNED) if candidate.framework == "torch" else ()
    layouts = ({"layout": layout} for layout in (*views(candidate), *results))
    assert_same_gradients(of, case, *layouts)
    places = of.places(case)
    rest = places[1:] if size(case) < SMALL else []
    others = (place for place in rest if place[1] is None and get(case, place).ndim > 1)
    for place in (places[0], *others):
        array = get(case, place)
        expanded = replaced(case, {place: np.broadcast_to(array[:1], array.shape).copy()})
        assert_same_gradients(of, expanded, {"layout": "broadcast"})


def gradient_of_sum(
    candidate: BaseCandidate,
    oracle: Function,
    case: Case,
    *,
    by: Sequence[int],
    limit: float | None = 1.0,
) -> None:
    """The gradient of the output's sum, with strides of zero, is that of ones, and of two parts."""
    of = Gradients(candidate, oracle, by, limit)
    ones = np.ones(np.shape(oracle(*case)))
    found, expected = of.flat(case, ones, layout="broadcast"), flat(of.plain(case, ones))
    of.assert_same(found, expected, case, ones)
    for one, other in ((2.0, -1.0), (0.75, 0.25)):  # of two signs, and of one; no rounding
        part = np.where(np.arange(ones.size) % 2, one, other).reshape(ones.shape)
        parts = (flat(of.plain(case, weights)) for weights in (part, ones - part))
        of.assert_same(found, sum(parts, np.zeros(())), case, ones)


def gradient_after_other(
    candidate: BaseCandidate,
    oracle: Function,
    case: Case,
    *,
    by: Sequence[int],
    another: Callable[[Draw], Case],
    limit: float | None = 1.0,
) -> None:
    """A call with other numbers, sizes or options before the backward pass changes no gradient.

    Nor does one, and its backward pass, before all else in the same tensors.
    """
    of = Gradients(candidate, oracle, by, limit)
    others = another(Draw(size(case))), another(Draw(size(case) + 1)), reversed_arrays(case)
    ways: list[dict[str, Any]] = [{"then": one} for one in others]
    if candidate.framework == "torch":
        ways += [{"then": others[-1], "layout": BESIDE}, *refilled_ways(of, case, others[-1])]
        assert_chained(of, case, others[-1])
    assert_same_gradients(of, case, *ways)


def assert_chained(of: Gradients, case: Case, other: Case) -> None:
    """Assert that the gradient is the same where the result on others, if it fits, is an argument,
    with its graph, as in a network of two layers.
    """
    places, whole = of.places(case), np.asarray(of.oracle(*other), dtype_of(case))
    at = chained(case, whole, places)
    if at is None or isinstance(of.candidate, Batched):
        return
    place, part = at
    if isinstance(of.candidate, BatchOfOne) and part.shape != whole.shape:
        return
    how: dict[str, Any] = {"then": other, "layout": CHAINED}
    arrays, results = of.candidate.gradient(case, of.upstream(case), places, **how)
    result, inner = map(np.asarray, results)
    moved = replaced(case, {place: inner.reshape(-1, *part.shape)[0]})
    if of.limit is not None:
        assert_output(inner, of.oracle, other, of.limit)
        assert_output(result, of.oracle, moved, of.limit)
    expected = dict(zip(places, of(moved), strict=True))
    found = expected | dict(zip(places, arrays, strict=True)) | {place: expected[place]}
    of.assert_same(flat(found.values()), flat(expected.values()), moved)


def refilled_ways(of: Gradients, case: Case, other: Case) -> list[dict[str, Any]]:
    """In tensors of ``other`` before: all leaves, and three of other layouts, or frozen arrays."""
    places = of.places(case)
    every, inner = float_arrays(case), [place for place in places if place[1] is not None]
    found: list[dict[str, Any]] = [{"layout": layout} for layout in (OWN, *VIEWS, COMPUTED)]
    hidden = None
    if places == every:
        found.append({"layout": REQUIRING})
    if inner and inner == [place for place in every if place[1] is not None]:
        hidden = {"layout": HIDDEN}
        found += [{"layout": MODULE, "places": inner}]
    if 0 < len(inner) < len(places):
        found.append({"places": [place for place in places if place[1] is None]})
    some = [{}, *([] if hidden is None else [hidden])]
    some += [found[i] for i in generator().permutation(len(found))[:3]]
    return [
        {**way, "then": other, "layout": f"{REFILLED} {way.get('layout', '')}".strip()}
        for way in some
    ]


def inference_state(
    candidate: BaseCandidate,
    oracle: Function,
    case: Case,
    *,
    by: Sequence[int],
    another: Callable[[Draw], Case],
    limit: float | None = 1.0,
) -> None:
    """After a call in inference mode, the first of its sizes, the gradient is correct."""
    first = unseen(case, another, 3)
    result, of = candidate(*first, layout="inference_mode"), Gradients(candidate, oracle, by, limit)
    if limit is None:
        of.assert_correct(of(first), first)
    else:
        with suppress(UndecidedError):
            assert_equals_oracle(result, oracle, first, limit)
        of.plain(first)


def gradient_same_array(
    candidate: BaseCandidate,
    oracle: Function,
    case: Case,
    *,
    by: Sequence[int],
    limit: float | None = 1.0,
) -> None:
    """With one array for the first two arguments its gradient is the sum of theirs."""
    _, Y, *rest = case
    of = Gradients(candidate, oracle, by, limit)
    first = of.places(case)[0]
    parts, whole = of.plain((Y, Y.copy(), *rest)), of((Y, Y, *rest), places=[first])

    def of_one(Y: Array, *rest: Any) -> Any:
        return oracle(Y, Y, *rest)

    least = FLOAT64 / DIFFERENCES * scale(oracle(Y, Y, *rest))
    both = flat([parts[0] + parts[1]])
    assert_gradients(flat(whole), both, of_one, (Y, *rest), [first], least)


def gradient_scaled(
    candidate: BaseCandidate,
    oracle: Function,
    case: Case,
    *,
    by: Sequence[int],
    limit: float | None = 1.0,
) -> None:
    """A larger, smaller or negative upstream gradient gives as much more or less gradient."""
    of = Gradients(candidate, oracle, by, limit)
    plain, upstream = flat(of.plain(case)), of.upstream(case)
    if size(case) < SMALL:
        for (other,) in all_alike((upstream,)):
            of.plain(case, other)
    else:
        (other,) = alike((upstream,))
        found, rest = of.flat(case, other), of.flat(case, upstream - other)
        of.assert_same(found + rest, plain, case)
    for factor in (-(2.0**17), 2.0**7, 2.0**-27):
        of.assert_same(of.flat(case, factor * upstream) / factor, plain, case)


def gradient_of_parts(
    candidate: BaseCandidate,
    oracle: Function,
    case: Case,
    *,
    by: Sequence[int],
    limit: float | None = 1.0,
) -> None:
    """Gradients of some rows or entries of the output, and of the others, add up to that of all."""
    of = Gradients(candidate, oracle, by, limit)
    plain, upstream = flat(of.plain(case)), of.upstream(case)
    rows, columns = len(np.atleast_1d(upstream)), [1] * (upstream.ndim - 1)
    some = [np.arange(rows) == rows - 1, np.arange(rows) % 2 == 0] if upstream.ndim else []
    for part in (*(chosen.reshape(-1, *columns) for chosen in some), upstream > 0):
        parts = (flat(of.plain(case, upstream * chosen)) for chosen in (part, ~part))
        of.assert_same(sum(parts, np.zeros(())), plain, case)


def assert_same_gradients(of: Gradients, case: Case, *ways: dict[str, Any]) -> None:
    """Assert that the gradients, or those by some ``places``, are the same in each way.

    Raises:
        UndecidedError: a kink of ReLU is too near.
    """
    expected = dict(zip(of.places(case), of.plain(case), strict=True))
    for way in ways:
        found = zip(way.get("places", expected), of(case, **way), strict=True)
        of.assert_same(flat((expected | dict(found)).values()), flat(expected.values()), case)


def finite_in_float32(
    candidate: BaseCandidate,
    oracle: Function,
    case: Case,
    *,
    by: Sequence[int],
    limit: float | None,
) -> None:
    """In float32 the output and the gradient are finite, and not far from the oracle's."""
    of, exact = Gradients(candidate, oracle, by, limit), in_float64(oracle, case)
    arrays, (output,) = candidate.gradient(case, of.upstream(case), of.places(case))
    assert_finite_gradient(arrays, of.places(case), oracle, case)
    assert_finite(output, "output")
    if limit is None:
        return
    # saturated gates and values in the thousands have their absolute rounding errors
    expected = oracle(*exact)
    least = scale([1.0, *map(scale, (expected, *(get(exact, at) for at in of.places(case))))])
    try:
        assert_derivative(output, expected, "output", "float32", least)
    except OutOfToleranceError:
        assert_output(output, oracle, case, limit)
    with suppress(UndecidedError):
        of.assert_correct(arrays, case, least=least)


def gradient_in_regime(
    candidate: BaseCandidate,
    oracle: Function,
    case: Case,
    *,
    by: Sequence[int],
    gates: Sequence[int] | None = None,
    limit: float | None = 1.0,
) -> None:
    """The gradient is finite, and equals central differences where these are accurate."""
    along = directions(oracle, case, by)
    upstream = output_weights(np.shape(oracle(*case)))
    arrays, (output,) = candidate.gradient(case, upstream, list(along))
    if gates is not None and limit:
        assert_gated(output, oracle, case, gates)
    elif limit:
        assert_output(output, oracle, case, limit)
    assert_finite_gradient(arrays, list(along), oracle, case)
    found = total(arrays, along)
    # the derivative of a saturated gate has the absolute rounding error of 1
    least = max(1.0, scale(oracle(*case)))
    with suppress(UndecidedError), entry_named(arrays, oracle, case, along):
        assert_derivative(found, differences(oracle, case, along), "gradient", least=least)


def gradient_of_shifted(
    candidate: BaseCandidate,
    oracle: Function,
    case: Case,
    *,
    by: Sequence[int],
    limit: float | None = 1.0,
) -> None:
    """Hundreds of thousands added to all channels do not change the gradient."""
    X, *rest = case
    of = Gradients(candidate, oracle, by, limit)
    of.assert_same(of.flat((X + 2**18, *rest)), flat(of.plain(case)), case)


def gradient_float32(
    candidate: BaseCandidate,
    oracle: Function,
    case: Case,
    *,
    by: Sequence[int],
    dtype: str,
    limit: float | None,
) -> None:
    """The gradient in float32 equals that in float64."""
    low = in_dtype(oracle, case, dtype)
    exact = in_float64(oracle, low)
    of = Gradients(candidate, oracle, by, limit)
    found, expected, places = of.flat(low), flat(of.plain(exact)), of.places(low)
    assert_finite(found, "gradient")
    if np.abs(expected).max(initial=0.0) < FLOAT32_GRADIENT * scale(oracle(*exact)):
        # the terms of the derivatives cancel: how large they are is seen in outputs over inputs
        least = min(np.abs(x[x != 0]).min(initial=1.0) for x in map(partial(get, exact), places))
        if np.abs(found).max(initial=0.0) > FLOAT32_GRADIENT * scale(oracle(*exact)) / least:
            raise OutOfToleranceError("gradient", found, expected, FLOAT32_GRADIENT)
        raise UndecidedError
    with of.decidable(low, is_smooth=True):
        assert_gradients(found, expected, oracle, low, places)
