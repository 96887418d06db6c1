"""Other arrays in the place of a candidate's arguments and results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from benchmarks.verify.earlier import arrays_of, share_memory
from benchmarks.verify.frameworks import NumPy
from benchmarks.verify.layouts import RENEWED, RETURNED, SLICES
from benchmarks.verify.originals import np, own_builtins
from benchmarks.verify.same import same

own_builtins(globals())


def move(
    framework: NumPy, given: list[Any], case: Sequence[Any], layout: str, last: Any = None
) -> None:
    """Replace converted arguments that get a case's other numbers, as a layout says.

    ``last`` is what the candidate returned last.
    """
    how = layout.partition(" ")[0]
    if how == RETURNED:
        _return(framework, given, last)
    elif how in (RENEWED, SLICES):
        _move(framework, given, dict(enumerate(case)), how)
        for value, numbers in zip(given, case, strict=True):
            if isinstance(numbers, Mapping):
                _move(framework, value, numbers, how)


def _move(framework: NumPy, given: Any, numbers: Mapping[Any, Any], how: str) -> None:
    """Replace arrays in a list or a mapping; one may be there twice."""
    places = dict[int, list[Any]]()
    for key, array in numbers.items():
        if isinstance(array, np.ndarray) and not same(framework.to_numpy(given[key]), array):
            places.setdefault(id(given[key]), []).append(key)
    for keys in places.values():
        moved = framework.another(given[keys[0]])
        for key in keys:
            given[key] = None
        # now it is freed, and another in its memory is likely to get its identity
        moved = framework.next_part(moved) if how == SLICES else framework.another(moved)
        for key in keys:
            given[key] = moved


def _return(framework: NumPy, given: list[Any], last: Any) -> None:
    if share_memory(framework, last, given):
        return
    whole = [x for x in arrays_of(last) if isinstance(x, framework.types)]
    free = [*whole, *chain.from_iterable(map(framework.rows, whole))]
    for i, value in enumerate(given):
        fitting = (part for part in free if framework.fits(part, value))
        if (part := next(fitting, None)) is not None:
            given[i] = part
            free = [each for each in free if not share_memory(framework, part, [each])]


def views_of(framework: NumPy, result: Any) -> list[Any]:
    """The arrays of a result as other arrays in the same memory."""
    arrays = arrays_of(result)
    return [framework.view(x) if isinstance(x, framework.types) else x for x in arrays]
