"""What the process that judges chooses at random: a candidate must not know it.

A gradient that is right for known directions alone would pass, as would a result kept by entries
that are known not to change.
"""

from __future__ import annotations

import pickle
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from hashlib import blake2b
from typing import Any

import numpy as np

from benchmarks.verify.cases import Case, float_arrays, objects

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


def exchanged(case: Case, number: int = 0) -> Case:
    """The case with two entries of one of its arrays, or innermost lists, exchanged.

    By each ``number`` others. Its sum is the same, and so are all other entries.
    """
    random = generator(number)
    long = [
        (i, j)
        for i, value in enumerate(case)
        for j, one in enumerate(objects(value))
        if len(_movable(one)) > 1
    ]
    if not long:
        return case
    i, j = long[random.integers(len(long))]
    changed = deepcopy(case[i])
    value = objects(changed)[j]
    entries = value if isinstance(value, list) else value.flat
    one, other = random.choice(_movable(value), 2, replace=False)
    entries[one], entries[other] = entries[other], entries[one]
    return *case[:i], changed, *case[i + 1 :]


def _movable(value: Any) -> Any:
    """Which entries can be exchanged: the finite ones of an array of floats, for padding may hold
    others, and the items of an innermost list.
    """
    if isinstance(value, list):
        return [] if any(isinstance(item, list) for item in value) else range(len(value))
    is_array = hasattr(value, "dtype") and bool(float_arrays([value]))
    return np.flatnonzero(np.isfinite(value)) if is_array else []
