"""A case: the arguments of a call, the places of its arrays, the same with other values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.verify.originals import own_builtins

own_builtins(globals())

Array = npt.NDArray[Any]
Case = tuple[Any, ...]

Place = tuple[int, str | None]
"""The place of an array in a case: the argument's index, and the key if it is a mapping."""


def after(number: Any, token: Any) -> Any:
    """The number that stands for a sequence of tokens, after one more; 0 stands for none."""
    return (7919 * number + token + 1) % 65521


@dataclass(frozen=True)
class NextLogProbs:
    """A model for decoding that depends on every token read: ``table[t - 1, number]`` after t
    tokens, by their number ``after`` the last, modulo the rows.
    """

    table: Array

    def __call__(self, prefix: Any) -> Array:
        """A new array of log-probabilities (V,), which need not be normalised.

        Raises:
            ValueError: an empty prefix, or a whole caption.
        """
        t, most = len(prefix), len(self.table)
        if not 1 <= t <= most:
            raise ValueError(f"next_log_probs: {t} tokens, expected 1 to {most}")
        number = reduce(after, map(int, prefix), 0)
        row: Array = self.table[t - 1, number % self.table.shape[1]].copy()
        return row


@dataclass(frozen=True)
class HalvesLogProbs:
    """A model for middle-out decoding that depends on every token of both halves:
    ``table[side, t, number]`` after t tokens without the middle word, by the number of the side's
    own half ``after`` that of the other, modulo the rows.
    """

    table: Array

    def __call__(self, left: Any, right: Any, side: str) -> Array:
        """Log-probabilities (V,) of a side's next word; both halves start with the middle word.

        Raises:
            ValueError: an empty half, or two that are a whole caption.
        """
        t, most = len(left) + len(right) - 2, self.table.shape[1] - 1
        if not (len(left) and len(right) and t <= most):
            words = f"{len(left)} and {len(right)} words"
            raise ValueError(
                f"next_log_probs: {words}, expected 1 or more each, {most + 2} at most"
            )
        halves = (left, right) if side == "left" else (right, left)
        own, other = (reduce(after, map(int, half), 0) for half in halves)
        at = int(side == "right"), t
        row: Array = self.table[*at, after(own, other) % self.table.shape[-2]].copy()
        return row


def each_once(function: Callable[[Any], Any], values: Sequence[Any]) -> list[Any]:
    """The function of each value; of an object that stands twice, the same object twice."""
    found = {id(value): function(value) for value in values}
    return [found[id(value)] for value in values]


def objects(value: Any) -> list[Any]:
    """An argument's mappings, lists and arrays, of which it may be made up of several."""
    if isinstance(value, Mapping):
        return [value, *(each for item in value.values() for each in objects(item))]
    if isinstance(value, list):
        return [value, *(each for item in value for each in objects(item))]
    return [value] if hasattr(value, "dtype") else []


def float_arrays(case: Sequence[Any]) -> list[Place]:
    """The places of the floating point arrays of a case."""
    places: list[Place] = []
    for i, value in enumerate(case):
        if isinstance(value, Mapping):
            places += [(i, key) for key, array in value.items() if _is_float(array)]
        elif _is_float(value):
            places.append((i, None))
    return places


def _is_float(value: Any) -> bool:
    # not np.floating: bfloat16 is an extension type, of kind V
    return isinstance(value, np.ndarray) and value.dtype.kind in "fV"


def argument(place: Place) -> str:
    """The argument, and the array of it, as messages name them."""
    index, key = place
    return f"argument {index + 1}{f', {key!r}' if key else ''}"


def chained(case: Sequence[Any], result: Any, places: Sequence[Place]) -> tuple[Place, Any] | None:
    """The first of the arguments at places that has the shape of an array's rows or whole, and that
    part of it.
    """
    for i, value in enumerate(case):
        is_array = (i, None) in places and value.ndim and value.dtype == result.dtype
        if not is_array:
            continue
        if value.shape == result.shape:
            return (i, None), result
        if value.shape == result.shape[1:]:
            return (i, None), result[0]
    return None


def get(case: Sequence[Any], place: Place) -> Any:
    """The array of a case at a place."""
    i, key = place
    return case[i] if key is None else case[i][key]


def replaced(case: Sequence[Any], arrays: Mapping[Place, Any]) -> Case:
    """The case with the arrays at some places replaced."""
    values = [dict(value) if isinstance(value, Mapping) else value for value in case]
    for (i, key), array in arrays.items():
        if key is None:
            values[i] = array
        else:
            values[i][key] = array
    return tuple(values)


MODELS = NextLogProbs, HalvesLogProbs
"""The functions that are arguments of a search."""


def mapped(case: Sequence[Any], function: Callable[[Any], Any]) -> Case:
    """The case with ``function`` applied to each floating point array."""
    return replaced(case, {at: function(get(case, at)) for at in float_arrays(case)})


def reversed_arrays(case: Case) -> Case:
    """The case with every array and list in reverse order, and every model's vocabulary."""
    return tuple(map(_reversed, mapped(case, lambda array: array[::-1].copy())))


def _reversed(value: Any) -> Any:
    """An array that is not of floats, or a list with all lists in it, in reverse order."""
    if isinstance(value, MODELS):
        return replace(value, table=value.table[..., ::-1].copy())
    if isinstance(value, list):
        return [_reversed(item) for item in value[::-1]]
    is_other = isinstance(value, np.ndarray) and value.dtype.kind not in "fV"
    return value[::-1].copy() if is_other else value


def half_in_the_middle(array: Array) -> Array:
    """The array with its middle third halved: what it begins and ends with is the same."""
    flat = array.flatten()
    flat[_middle(flat)] /= 2
    return flat.reshape(array.shape)


def _middle(values: Any) -> slice:
    """The middle third, at least one entry."""
    return slice(len(values) // 3, len(values) // 3 + max(len(values) // 3, 1))


SMALLER = 63 / 64
"""A factor that leaves a number in its domain, and shows in a result."""


OPTIONS = {
    one: other
    for pair in (("leave_one_out", "printed"), ("state", "update"), ("image", "previous_input"))
    for one, other in (pair, pair[::-1])
}
"""Words of options, each with another that takes the same parameters."""


def other_options(case: Case) -> Iterator[Case]:
    """The case with one option changed: a flag turned, a number a little smaller, a word of
    ``OPTIONS`` exchanged, two sizes of groups merged, or one parted; whole numbers above 1 halved,
    of a search after its start and end, or of a case with arrays 1, since others may be no sizes;
    or a search's start or end is the next word.
    """
    has_arrays = bool(float_arrays(case))
    first = 3 if isinstance(case[0], MODELS) else 0
    for i in (1, 2) if first else ():
        if type(case[i]) is int:
            word = (case[i] + 1) % case[0].table.shape[-1]
            if word != case[3 - i]:
                yield *case[:i], word, *case[i + 1 :]
    for i, value in enumerate(case):
        if isinstance(value, bool):
            yield *case[:i], not value, *case[i + 1 :]
        elif isinstance(value, float):
            yield *case[:i], value * SMALLER, *case[i + 1 :]
        elif isinstance(value, int) and value > 1 and i >= first:
            yield *case[:i], 1 if has_arrays else value // 2, *case[i + 1 :]
        elif isinstance(value, str) and value in OPTIONS:
            yield *case[:i], OPTIONS[value], *case[i + 1 :]
        elif isinstance(value, tuple) and value and all(type(n) is int for n in value):
            a, *rest = value
            merged = (a + rest[0], *rest[1:]) if rest else (1, a - 1)
            if all(merged):
                yield *case[:i], merged, *case[i + 1 :]


def other_values(case: Case) -> Case:
    """The case with other values in the middle of every array and of every other list: not the
    same ones in another order, of which sums, and scores of equal captions, would be the same.
    """
    changed = mapped(case, half_in_the_middle)
    return tuple(_other_values(value, i % 2 == 0) for i, value in enumerate(changed))


def _other_values(value: Any, here: bool) -> Any:
    """An array that is not of floats with its last row in the middle, too, a list with its last
    number or an unknown word; of lists in a list, every other one.
    """
    if isinstance(value, list) and value and all(isinstance(item, list) for item in value):
        return [_other_values(item, (i % 2 == 0) == here) for i, item in enumerate(value)]
    is_list = isinstance(value, list) and here
    is_other = isinstance(value, np.ndarray) and value.ndim and value.dtype.kind not in "fV"
    if not (is_list or is_other) or not len(value):
        return value
    middle = _middle(value)
    many = len(value[middle])
    copy = value.copy()
    last = "unknown" if isinstance(value[-1], str) else value[-1]
    copy[middle] = [last] * many if is_list else last
    return copy


Indices = tuple[int, ...]
"""The indices of a list in nested lists; the first is the argument's."""


def lists(case: Case) -> list[tuple[Indices, ...]]:
    """The paths of a case's lists of captions, and of words: of arguments of equal length, such
    as one caption an image, together; a list comes before those in it.
    """
    found: dict[Any, list[Indices]] = {}
    for i, value in enumerate(case):
        for path in _lists(value, (i,)):
            found.setdefault(path if path[1:] else len(value), []).append(path)
    parallel = [i for i, value in enumerate(case) if isinstance(value, list)]
    for key, paths in found.items():
        if isinstance(key, int):
            paths[:] = [(i,) for i in parallel if len(case[i]) == key]
    return [tuple(paths) for paths in found.values()]


def _lists(value: Any, at: Indices) -> list[Indices]:
    if not isinstance(value, list) or not all(isinstance(each, list | str) for each in value):
        return []
    return [at, *(path for i, each in enumerate(value) for path in _lists(each, (*at, i)))]


def at_path(value: Any, path: Indices) -> Any:
    """The list at a path."""
    return reduce(lambda inner, i: inner[i], path, value)


def with_list(value: Any, path: Indices, other: list[Any]) -> Any:
    """A copy with another list at a path."""
    if not path:
        return other
    i, *rest = path
    return type(value)([*value[:i], with_list(value[i], tuple(rest), other), *value[i + 1 :]])


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The dtype of that name; bfloat16 needs ``ml_dtypes``."""
    if name == "bfloat16":
        import ml_dtypes  # noqa: F401, which registers it with NumPy
    return np.dtype(name)


def rounded(case: Sequence[Any], dtype: str) -> Case:
    """The case with its floating point arrays rounded to ``dtype``."""
    if dtype_of(case) == dtype:
        return tuple(case)
    return mapped(case, lambda array: array.astype(numpy_dtype(dtype)))


def dtype_of(case: Sequence[Any]) -> str:
    """The dtype of a case's floating point arrays; float64 if it has none."""
    return next((str(get(case, place).dtype) for place in float_arrays(case)), "float64")


def size(case: Sequence[Any]) -> int:
    """The number of entries in the case's floating point arrays."""
    return sum(get(case, place).size for place in float_arrays(case))
