"""Directional derivatives of the oracle, by central differences.

Directions and upstream gradients are random, and chosen in the process that judges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from zlib import crc32

import numpy as np

from benchmarks.verify.cases import Case, Place, argument, float_arrays, get, replaced
from benchmarks.verify.chance import current_seed, generator
from benchmarks.verify.oracle import once
from benchmarks.verify.properties import Function, UndecidedError
from benchmarks.verify.tolerances import DIFFERENCES, OutOfToleranceError, scale
from reference.primitives import Array

Directions = dict[Place, Array]
"""The direction of each array that moves, by its place."""

FEW_ENTRIES = 100
"""Of so many the derivative by each is computed to name the one that is the farthest off."""

TINY = 2.0**-16
"""Arrays of smaller numbers move by steps in proportion to them."""


def output_weights(shape: tuple[int, ...]) -> Array:
    """Random weights of an output's entries: its upstream gradient."""
    random = generator(*shape)
    return random.choice((-1.0, 1.0), shape) * random.uniform(1 / 16, 1, shape)


def directions(oracle: Function, case: Case, by: Sequence[int]) -> Directions:
    """Random directions of the arrays of arguments ``by``, others for each output."""

    def chosen() -> Directions:
        random = generator(crc32(np.asarray(oracle(*case)).tobytes()))
        return {at: _direction(get(case, at), random) for at in float_arrays(case) if at[0] in by}

    found: Directions = once(oracle, ("directions", current_seed(), *by), case, chosen)
    return found


def _direction(array: Array, random: np.random.Generator) -> Array:
    # in 16 bits, so that a step along it from numbers in the thousands is exact
    bits = random.integers(2**15, 2**16, array.shape) / 2**16
    tiny = 2.0 ** np.round(np.log2(scale(array))) if scale(array) < TINY else 1.0
    return tiny * random.choice((-1.0, 1.0), array.shape) * bits


def differences(
    oracle: Function, case: Case, along: Directions, upstream: Array | None = None
) -> float:
    """The directional derivative of the weighted sum of outputs, by central differences.

    All arrays move at once, each along its own direction, so that an error in any of their
    gradients shows. ``upstream`` are the weights, if not the output's ``output_weights``.

    Raises:
        UndecidedError: a kink of ReLU is too near.
    """
    objects = *case, *along.values()

    def outputs(step: float) -> Array:
        found: Array = once(
            oracle, ("moved", step), objects, lambda: moved(oracle, case, along, step)
        )
        return found

    return slope(outputs, upstream)


def moved(oracle: Function, case: Case, along: Directions, step: float) -> Array:
    """The output with each array moved by ``step`` times its direction."""
    if not step:
        return np.asarray(oracle(*case))
    arrays = {place: get(case, place) + step * to for place, to in along.items()}
    return np.asarray(oracle(*replaced(case, arrays)))


def quotient(
    oracle: Function, case: Case, along: Directions, upstream: Array | None = None
) -> float:
    """The same by one quotient, for messages: also where terms cancel, or a kink is near."""
    half = STEPS[0]
    outputs = [moved(oracle, case, along, step) for step in (half, -half)]
    weights = output_weights(outputs[0].shape) if upstream is None else upstream
    return float(((outputs[0] - outputs[1]) * weights).sum()) / (2 * half)


def derivative(
    oracle: Function, case: Case, place: Place, entry: int, upstream: Array | None = None
) -> float:
    """The derivative by one entry of an array, counted in its flat order, by a ``quotient``."""
    array = get(case, place)
    to = np.zeros(array.shape)
    to.flat[entry] = step = max(1.0, abs(array.flat[entry]))
    return quotient(oracle, case, {place: to}, upstream) / step


STEPS = (2.0**-19, 2.0**-15, 2.0**-11)
"""Of difference quotients; the next one where rounding errors exceed a small derivative."""

NEAREST = 2.0**-23
"""The step where a kink is near: among many numbers one often is."""


def slope(moved: Callable[[float], Array], upstream: Array | None = None) -> float:
    """The derivative at 0 of the weighted sum of the output ``moved`` by a step.

    Raises:
        UndecidedError: a kink of ReLU is too near.
    """
    output, sums = moved(0.0), list[float]()
    weights = output_weights(output.shape) if upstream is None else upstream

    def weighted(output: Array) -> float:
        terms = output * weights
        sums.append(float(np.abs(terms).sum()))
        return float(terms.sum())

    here, steps = weighted(output), [*STEPS[::-1]]
    while steps:
        half = steps.pop()
        full = 2 * half
        near, far = ([weighted(moved(step)), weighted(moved(-step))] for step in (half, full))
        found, coarse = (near[0] - near[1]) / (2 * half), (far[0] - far[1]) / (2 * full)
        # bend is the jump of the slope at a kink on the point; one nearby changes found - coarse
        bend = (sum(near) - 2 * here) / half - (sum(far) - 2 * here) / full / 2
        # the rounding error of a difference quotient
        rounding = 2.0**-52 * max(sums) / half
        off = max(abs(bend), abs(found - coarse), rounding)
        if off <= DIFFERENCES / 10 * scale(found):
            return found
        if off > 1024 * rounding:  # a kink; a long sum has many roundings
            steps = [NEAREST] if half == STEPS[0] else []
    raise UndecidedError


def total(arrays: Sequence[Array], along: Directions) -> float:
    """The derivative along directions, of the gradients by their arrays."""
    return float(sum((x * to).sum() for x, to in zip(arrays, along.values(), strict=True)))


@contextmanager
def entry_named(
    arrays: Sequence[Array],
    oracle: Function,
    case: Case,
    along: Directions,
    factor: int = 1,
    upstream: Array | None = None,
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
            entries = [_entry_with_most(found, oracle, case, along, factor, upstream)]
        pairs = [
            (float(found[place].flat[i]), factor * derivative(oracle, case, place, i, upstream))
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
    found: Mapping[Place, Array],
    oracle: Function,
    case: Case,
    along: Directions,
    factor: int,
    upstream: Array | None,
) -> tuple[Place, int]:
    """An entry that has much of the error along directions, by bisection."""

    def off(part: Directions) -> float:
        of_part = total([found[place] for place in part], part)
        return of_part - factor * quotient(oracle, case, part, upstream)

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
