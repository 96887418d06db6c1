"""A case: the arguments of one call, and where its floating point arrays are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Case = tuple[Any, ...]

Place = tuple[int, str | None]
"""Where an array of a case is: the argument, and the key if that is a mapping."""


@dataclass(frozen=True)
class NextLogProbs:
    """A model for decoding: ``table[t, y]`` is about the word after t words, of which y is last,
    modulo its rows.
    """

    table: Array

    def __call__(self, prefix: Any) -> Array:
        """Log-probabilities (V,), new ones, which decoding does not ask to sum to 1."""
        row: Array = self.table[len(prefix) - 1, prefix[-1] % self.table.shape[1]].copy()
        return row


@dataclass(frozen=True)
class HalvesLogProbs:
    """The same from the middle outwards: ``table[side, t, y]`` after t words of both halves, y of
    the last words of both, modulo its rows.
    """

    table: Array

    def __call__(self, left: Any, right: Any, side: str) -> Array:
        """Log-probabilities (V,) of the next word of a side; both halves begin with the middle."""
        this, other = (left, right) if side == "left" else (right, left)
        y = (this[-1] + 2 * other[-1]) % self.table.shape[-2]
        row: Array = self.table[int(side == "right"), len(left) + len(right) - 2, y].copy()
        return row


def float_arrays(case: Sequence[Any]) -> list[Place]:
    """Where the floating point arrays of a case are."""
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


def get(case: Sequence[Any], place: Place) -> Any:
    """The array of a case at one of ``float_arrays``' places."""
    i, key = place
    return case[i] if key is None else case[i][key]


def replaced(case: Sequence[Any], arrays: Mapping[Place, Any]) -> Case:
    """The case with other arrays at these places."""
    values = [dict(value) if isinstance(value, Mapping) else value for value in case]
    for (i, key), array in arrays.items():
        if key is None:
            values[i] = array
        else:
            values[i][key] = array
    return tuple(values)


def mapped(case: Sequence[Any], function: Callable[[Any], Any]) -> Case:
    """The case with ``function`` of each of its floating point arrays."""
    return replaced(case, {at: function(get(case, at)) for at in float_arrays(case)})


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The dtype of that name; bfloat16 needs ``ml_dtypes``."""
    if name == "bfloat16":
        import ml_dtypes  # noqa: F401, which tells NumPy
    return np.dtype(name)


def rounded(case: Sequence[Any], dtype: str) -> Case:
    """The case with its floating point arrays in ``dtype``; itself where they are."""
    if dtype_of(case) == dtype:
        return tuple(case)
    return mapped(case, lambda array: array.astype(numpy_dtype(dtype)))


def dtype_of(case: Sequence[Any]) -> str:
    """The dtype of its floating point arrays; float64 if it has none."""
    return next((str(get(case, place).dtype) for place in float_arrays(case)), "float64")


def size(case: Sequence[Any]) -> int:
    """How many numbers the case's arrays have."""
    return sum(get(case, place).size for place in float_arrays(case))
