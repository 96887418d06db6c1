"""Other arrays in the place of a candidate's arguments and results."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

from benchmarks.verify.earlier import arrays_of, share_memory
from benchmarks.verify.frameworks import NumPy
from benchmarks.verify.layouts import RENEWED, RETURNED, SLICES
from benchmarks.verify.originals import own_builtins

own_builtins(globals())


def move(framework: NumPy, given: list[Any], layout: str, last: Any) -> None:
    """Replace converted arguments, but for mappings, as a layout says; ``last`` is a result."""
    how = layout.partition(" ")[0]
    if how == RETURNED:
        _return(framework, given, last)
    elif how in (RENEWED, SLICES):
        places = dict[int, list[int]]()  # one array may be there twice
        for i, value in enumerate(given):
            if hasattr(value, "dtype"):
                places.setdefault(id(value), []).append(i)
        for at in places.values():
            if how == SLICES:
                moved = framework.next_part(given[at[0]])
            else:
                moved = _renewed(framework, given, at)
            for i in at:
                given[i] = moved


def _renewed(framework: NumPy, given: list[Any], at: Sequence[int]) -> Any:
    """Another array in the memory of one that is freed, whose identity it is likely to get."""
    view = framework.another(given[at[0]])
    for i in at:
        given[i] = None
    return framework.another(view)


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
