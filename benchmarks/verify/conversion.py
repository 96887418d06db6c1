"""Convert arguments to a candidate's framework, and its results, of any framework, to NumPy."""

from __future__ import annotations

import contextlib
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from types import GetSetDescriptorType
from typing import Any

from benchmarks.verify import wire
from benchmarks.verify.cases import MODELS
from benchmarks.verify.frameworks import NotAnArrayError, NumPy, Torch
from benchmarks.verify.jax_arrays import Jax
from benchmarks.verify.layouts import ACCUMULATED, OF_MODULES, RENEWED, REQUIRING, SLICES
from benchmarks.verify.originals import (
    are_numbers,
    has_none,
    is_one,
    module_of,
    named,
    np,
    own_builtins,
)
from benchmarks.verify.same import same

own_builtins(globals())

FRAMEWORKS: dict[str, Callable[[str], NumPy]] = {
    "numpy": lambda device: NumPy(),
    "torch": Torch,
    "jax": lambda device: Jax(),
}
"""Constructors by name, which take a device."""


def from_numpy(framework: NumPy, value: Any, layout: str = "plain", copy: bool = True) -> Any:
    """Convert every array in ``value`` to the framework; mappings and lists are copied.

    So are models, if not without ``copy``, but their numbers stay NumPy's.
    """
    if isinstance(value, np.ndarray):
        return framework.from_numpy(value, layout, copy)
    if isinstance(value, Mapping):
        is_module = layout.partition(" ")[0] in OF_MODULES
        of, inner = (OrderedDict, REQUIRING) if is_module else (dict, layout)
        items = of((key, from_numpy(framework, item, inner, copy)) for key, item in value.items())
        if layout.startswith(ACCUMULATED):
            framework.accumulate(items.values())
        return items
    if isinstance(value, list):  # one list that is there twice stays one
        items = {id(item): from_numpy(framework, item, layout, copy) for item in value}
        return [items[id(item)] for item in value]
    if isinstance(value, MODELS) and copy:
        return replace(value, table=value.table.copy())
    return value


@cache
def reader(name: str) -> NumPy:
    """A framework for reading results; PyTorch's to be made before a candidate is imported."""
    return FRAMEWORKS[name]("cpu")


def framework_of(value: Any) -> str:
    """The name of an array's framework, or an empty string."""
    module = module_of(type(value))
    name = module.partition(".")[0].removesuffix("lib") if type(module) is str else ""
    return name if name in FRAMEWORKS else ""


DICTS = dict, OrderedDict, defaultdict
"""Types of mappings that results may have."""

OWN_OF_ORDERED = vars(OrderedDict)["__dict__"].__get__

MRO_OF, VARS_OF = type.__dict__["__mro__"].__get__, type.__dict__["__dict__"].__get__

ACCESS = frozenset(
    (
        *("__iter__", "__getitem__", "__len__", "__getattribute__", "__getattr__"),
        *("__array__", "__array_interface__", "__array_struct__", "__buffer__", "__dlpack__"),
    )
)
"""Methods by which a tuple's items are read."""


def is_tuple(value: Any) -> bool:
    """Whether a value is a tuple, or a named one, whose items are a tuple's."""
    kind = type(value)
    if not issubclass(kind, tuple):
        return False
    names = [VARS_OF(one) for one in MRO_OF(kind) if one is not tuple and one is not object]
    if not all(has_none(of, ACCESS) for of in names):
        return False
    own = [of["__dict__"] for of in names if "__dict__" in of]
    is_usual = all(type(one) is GetSetDescriptorType for one in own)
    return is_usual and all(has_none(one.__get__(value), ACCESS) for one in own)


def to_numpy(framework: NumPy, value: Any) -> Any:
    """Convert every array in a result to NumPy, from any framework.

    By types alone: an attribute of a candidate's own type may compute when it is read.

    Raises:
        NotAnArrayError: something in it is no array, number or collection of these.
    """
    kind = type(value)
    if value is None or are_numbers([value]):
        return value
    if framework.name == "numpy" and (name := framework_of(value)):
        framework = reader(name)
    if is_one(kind, framework.types):
        return framework.to_numpy(value)
    if kind is list or is_tuple(value):
        of = list if kind is list else tuple
        items = of(of.__iter__(value))
        if len(items) > wire.MOST:
            raise NotAnArrayError(f"a {of.__name__} of {len(items)} items")
        if are_numbers(items):
            return items
        return of(to_numpy(framework, item) for item in items)
    if is_one(kind, DICTS):
        if kind is OrderedDict and OWN_OF_ORDERED(value):
            raise NotAnArrayError("an OrderedDict with attributes of its own")
        if not all(type(key) is str for key in value):
            raise NotAnArrayError("a dict with other keys than strings")
        return {key: to_numpy(framework, item) for key, item in kind.items(value)}
    if issubclass(kind, (tuple, dict)):
        base = "tuple" if issubclass(kind, tuple) else "dict"
        raise NotAnArrayError(f"{named(kind)}, which is a kind of {base} of its own")
    if issubclass(kind, (np.ndarray, np.generic)):
        return NumPy().to_numpy(value)
    if framework.name != "numpy" and hasattr(value, "__dlpack__"):
        return framework.to_numpy(value)
    found = []
    for name, convert in (("__dlpack__", np.from_dlpack), ("__array__", np.asarray)):
        with contextlib.suppress(Exception):
            if hasattr(value, name):
                found.append(NumPy().to_numpy(convert(value)))
    if not found:
        raise NotAnArrayError(named(kind))
    if not same(found[-1], found[0]):
        raise NotAnArrayError(f"{named(kind)}, whose DLPack and __array__ differ")
    return found[0]


def poison(framework: NumPy, values: Sequence[Any], factor: float) -> None:
    """Overwrite all writable float arrays, see ``frameworks.NumPy.poison``."""
    for value in values:
        if isinstance(value, Mapping):
            poison(framework, list(value.values()), factor)
        elif isinstance(value, (list, tuple)):
            poison(framework, list(value), factor)
        elif hasattr(value, "dtype"):
            with contextlib.suppress(Exception), np.errstate(all="ignore"):
                framework.poison(value, factor)


def refill(
    framework: NumPy, given: list[Any], case: Sequence[Any], replaces: bool, layout: str
) -> None:
    """Write a case's numbers into the converted arguments of another of the same shapes.

    With ``replaces`` mappings get other arrays, in the same memory.
    """
    how = layout.partition(" ")[0]
    is_other = how in (RENEWED, SLICES)  # another object, in its first version
    for i, value in enumerate(case):
        if isinstance(value, np.ndarray):
            framework.refill(given[i], value, is_seen=not is_other)
        elif isinstance(value, Mapping):
            for key, array in value.items():
                framework.refill(given[i][key], array, is_seen=not is_other)
                if replaces and how != ACCUMULATED:
                    given[i][key] = framework.another(given[i][key])
        elif isinstance(value, MODELS):
            given[i].table[...] = value.table
        elif isinstance(value, list):
            _refill_list(given[i], from_numpy(framework, value))
        else:
            given[i] = from_numpy(framework, value)
    for one, value in zip(given, case, strict=True):  # lists may be parts of several
        if isinstance(value, list) and one != value:
            one[:] = from_numpy(framework, value)


def _refill_list(given: list[Any], value: list[Any]) -> None:
    """Items are replaced, but for lists, which are refilled."""
    if len(given) != len(value):
        given[:] = value
        return
    for i, item in enumerate(value):
        if isinstance(item, list) and isinstance(given[i], list):
            _refill_list(given[i], item)
        else:
            given[i] = item
