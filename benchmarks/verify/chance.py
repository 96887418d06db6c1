"""What the process that judges chooses at random: a candidate must not know it.

A gradient that is right for known directions alone would pass, as would a result that is kept for
cases in which what is known to change is the same.
"""

from __future__ import annotations

import pickle
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from hashlib import blake2b
from typing import Any

import numpy as np

from benchmarks.verify.cases import Case, Place, float_arrays, get, objects, replaced
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


def alike(case: Case, padded: bool = False) -> Case:
    """A case that is like this one in most ways: a result that is kept must not be for both.

    Two numbers, words or rows of whole numbers are exchanged, or one changed; the numbers of one
    argument, or of all, are changed by a little, scaled, negated or shifted. Of a ``padded`` batch
    numbers alone: others say what is padding.
    """
    return next(all_alike(case, padded))


def all_alike(case: Case, padded: bool = False) -> Iterator[Case]:
    """Such cases in all these ways, in random order, each like the one before."""
    random = generator()
    edits: list[Edit] = [partial(_exchanged, padded=padded), partial(_changed, padded=padded)]
    if any(get(case, place).itemsize < 4 for place in float_arrays(case)):
        edits += [_negated]  # exact: what is near in 16 bits is hardly another case
    elif float_arrays(case):
        edits += [_moved, _moved_by_less, _scaled, _negated, _shifted]
    for at in random.permutation(len(edits)):
        case = edits[at](case, random)
        yield case


Edit = Callable[[Case, np.random.Generator], Case]


def _moved(case: Case, random: np.random.Generator, most: int = 4) -> Case:
    """Numbers moved by up to a part of themselves, of 2**-most down to a thousandth of that.

    Numbers of one sign towards 0, since they may have a bound.
    """
    part = 2.0 ** -random.uniform(most, most + 10)

    def moved(array: Array) -> Array:
        by = random.uniform(-1 if _has_both_signs(array) else 0, 1, array.shape)
        return array * (1 - part * by)

    return _of_some(case, random, moved)


def _moved_by_less(case: Case, random: np.random.Generator) -> Case:
    return _moved(case, random, 14)


def _scaled(case: Case, random: np.random.Generator) -> Case:
    factor = random.choice([0.5, 0.25, random.uniform(0.5, 1)])
    return _of_some(case, random, lambda array: array * factor)


def _negated(case: Case, random: np.random.Generator) -> Case:
    return _of_one(case, random, lambda array: -array)


def _shifted(case: Case, random: np.random.Generator) -> Case:
    part = random.choice([-1, 1]) * random.uniform(0.25, 0.5)
    return _of_one(case, random, lambda array: array + part * np.abs(_finite(array)).max())


def _of_some(case: Case, random: np.random.Generator, function: Callable[[Array], Array]) -> Case:
    """Other arrays of one argument, or of all."""
    places = float_arrays(case)
    chosen = _of_an_argument(places, random) if random.integers(2) else places
    return _of_places(case, chosen, function)


def _of_one(case: Case, random: np.random.Generator, function: Callable[[Array], Array]) -> Case:
    """Another array for one that has numbers of both signs, of any argument."""
    places = [place for place in float_arrays(case) if _has_both_signs(get(case, place))]
    if not places:
        return case
    of = _of_an_argument(places, random)
    return _of_places(case, [of[random.integers(len(of))]], function)


def _of_an_argument(places: Sequence[tuple[int, Any]], random: np.random.Generator) -> list[Any]:
    """Those places that are of one argument, each as likely."""
    argument = random.choice([*{i for i, _ in places}])
    return [place for place in places if place[0] == argument]


def _of_places(case: Case, places: Sequence[Place], function: Callable[[Array], Array]) -> Case:
    arrays = {place: get(case, place) for place in places}
    return replaced(case, {at: function(x).astype(x.dtype) for at, x in arrays.items()})


def _finite(array: Array) -> Array:
    return array[np.isfinite(array)]


def _has_both_signs(array: Array) -> bool:
    return bool((_finite(array) > 0).any() and (_finite(array) < 0).any())


def _exchanged(case: Case, random: np.random.Generator, padded: bool) -> Case:
    """Two entries of one array, or innermost list, exchanged."""
    return _edited(case, random, padded, lambda one, other: (other, one))


def _changed(case: Case, random: np.random.Generator, padded: bool) -> Case:
    """One entry changed to what another one is."""
    return _edited(case, random, padded, lambda _, other: (other, other))


def _edited(
    case: Case,
    random: np.random.Generator,
    padded: bool,
    edit: Callable[[Any, Any], tuple[Any, Any]],
) -> Case:
    long = [
        (i, j)
        for i, value in enumerate(case)
        for j, one in enumerate(objects(value))
        if len(_entries(one, padded)) > 1
    ]
    if not long:
        return case
    of = _of_an_argument(long, random)
    argument, at = of[random.integers(len(of))]
    changed = deepcopy(case[argument])
    value = objects(changed)[at]
    one, other = random.choice(_entries(value, padded), 2, replace=False)
    entries = value.flat if _is_of_floats(value) else value
    entries[one], entries[other] = edit(deepcopy(entries[one]), deepcopy(entries[other]))
    return *case[:argument], changed, *case[argument + 1 :]


def _entries(value: Any, padded: bool) -> Any:
    """Where an entry may change: the finite ones of an array of floats, for padding may hold
    others, the rows of another array, and the items of an innermost list.
    """
    if isinstance(value, list):
        return [] if any(isinstance(item, list) for item in value) else range(len(value))
    if _is_of_floats(value):
        return np.flatnonzero(np.isfinite(value))
    is_array = hasattr(value, "dtype") and value.ndim and not padded
    return range(len(value)) if is_array else []


def _is_of_floats(value: Any) -> bool:
    return hasattr(value, "dtype") and bool(float_arrays([value]))
