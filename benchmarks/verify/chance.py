"""What the process that judges chooses at random: a candidate must not know it.

A gradient that is right for known directions alone would pass, as would a result that is kept for
cases in which what is known to change is the same.
"""

from __future__ import annotations

import pickle
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from hashlib import blake2b
from typing import Any

import numpy as np

from benchmarks.verify.cases import Case, float_arrays, get, mapped, objects, replaced
from reference.primitives import Array

_seed = secrets.randbits(64)


def current_seed() -> int:
    """The seed of all that is chosen now."""
    return _seed


def set_seed(seed: int) -> None:
    """Choose by ``seed`` from now on, in this process alone."""
    global _seed
    _seed = seed


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """``set_seed``, within."""
    before = _seed
    set_seed(seed)
    try:
        yield
    finally:
        set_seed(before)


def seed_of(case: Case, secret: bytes) -> int:
    """A seed for ``set_seed``, another for each case."""
    return int.from_bytes(blake2b(pickle.dumps(case), key=secret, digest_size=8).digest())


def generator(*of: int) -> np.random.Generator:
    """A generator of random numbers, for each ``of`` another."""
    return np.random.default_rng([_seed, *of])


def alike(case: Case) -> Case:
    """A case that is like this one in most ways: a result that is kept must not be for both.

    Two numbers or words are exchanged, or one changed; all numbers are changed by a little, scaled,
    or those of one array negated or shifted.
    """
    return next(all_alike(case))


def all_alike(case: Case) -> Iterator[Case]:
    """Such cases in all these ways, in random order, each like the one before."""
    random = generator()
    edits = [_exchanged, _changed]
    if float_arrays(case):
        edits += [_moved, _moved_by_less, _scaled, _negated, _shifted]
    for at in random.permutation(len(edits)):
        case = edits[at](case, random)
        yield case


def _moved(case: Case, random: np.random.Generator, most: int = 4) -> Case:
    """Every number less by up to a part of itself, of 2**-most down to a thousandth of that."""
    part = 2.0 ** -random.uniform(most, most + 10)
    return _each(case, lambda array: array * (1 - part * random.random(array.shape)))


def _moved_by_less(case: Case, random: np.random.Generator) -> Case:
    return _moved(case, random, 14)


def _scaled(case: Case, random: np.random.Generator) -> Case:
    factor = random.choice([0.5, 0.25, random.uniform(0.5, 1)])
    return _each(case, lambda array: factor * array)


def _negated(case: Case, random: np.random.Generator) -> Case:
    return _of_both_signs(case, random, lambda array, _: -array)


def _shifted(case: Case, random: np.random.Generator) -> Case:
    part = random.uniform(0.25, 0.5)
    return _of_both_signs(case, random, lambda array, largest: array + part * largest)


def _of_both_signs(
    case: Case, random: np.random.Generator, function: Callable[[Array, float], Array]
) -> Case:
    """Another array for one that has numbers of both signs, of any argument."""
    places = [place for place in float_arrays(case) if len({*_signs(get(case, place))}) > 2]
    if not places:
        return case
    argument = random.choice([*{i for i, _ in places}])
    of = [place for place in places if place[0] == argument]
    place = of[random.integers(len(of))]
    array = get(case, place)
    largest = float(np.abs(array[np.isfinite(array)]).max())
    return replaced(case, {place: function(array, largest).astype(array.dtype)})


def _signs(array: Array) -> Array:
    """Those of the finite numbers, of which some may be 0."""
    return np.sign(np.append(array[np.isfinite(array)], 0.0))


def _each(case: Case, function: Callable[[Array], Array]) -> Case:
    return mapped(case, lambda array: function(array).astype(array.dtype))


def _exchanged(case: Case, random: np.random.Generator) -> Case:
    """Two entries of one array, or innermost list, exchanged."""
    return _edited(case, random, lambda one, other: (other, one), lambda one, other: (other, one))


def _changed(case: Case, random: np.random.Generator) -> Case:
    """One entry changed: a number halved, a word another one of its list."""
    return _edited(
        case, random, lambda one, other: (one / 2, other), lambda _, other: (other, other)
    )


def _edited(
    case: Case,
    random: np.random.Generator,
    numbers: Callable[[Any, Any], tuple[Any, Any]],
    words: Callable[[Any, Any], tuple[Any, Any]],
) -> Case:
    long = [
        (i, j)
        for i, value in enumerate(case)
        for j, one in enumerate(objects(value))
        if len(_entries(one)) > 1
    ]
    if not long:
        return case
    i, j = long[random.integers(len(long))]
    changed = deepcopy(case[i])
    value = objects(changed)[j]
    one, other = random.choice(_entries(value), 2, replace=False)
    edit, entries = (words, value) if isinstance(value, list) else (numbers, value.flat)
    entries[one], entries[other] = edit(entries[one], entries[other])
    return *case[:i], changed, *case[i + 1 :]


def _entries(value: Any) -> Any:
    """Where an entry may change: the finite ones of an array of floats, for padding may hold
    others, and the items of an innermost list.
    """
    if isinstance(value, list):
        return [] if any(isinstance(item, list) for item in value) else range(len(value))
    is_array = hasattr(value, "dtype") and bool(float_arrays([value]))
    return np.flatnonzero(np.isfinite(value)) if is_array else []
