"""A failing case as a few lines of Python that can be pasted into a test."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np

# a failing case may be written with these
from benchmarks.verify.candidate import load, one_sequence  # noqa: F401
from benchmarks.verify.cases import NextLogProbs  # noqa: F401


def snippet(
    check: Callable[..., None],
    oracle: Callable[..., Any],
    candidate: str,
    names: Sequence[str],
    case: Sequence[Any],
) -> str:
    """The lines: imports, the candidate, the case's arguments as literals, the property's own.

    Args:
        check: a property of ``benchmarks.verify.properties``.
        oracle: the oracle's function.
        candidate: the expression that gives the candidate.
        names: of the case's arguments.
        case: the arguments.
    """
    values = [f"{name} = {literal(value)}" for name, value in zip(names, case, strict=True)]
    lines = "\n".join([f"candidate = {candidate}", *values, _body(check, names)])
    return "\n".join([*_imports(check, oracle, lines), "", lines])


def _body(check: Callable[..., None], names: Sequence[str]) -> str:
    """The property's lines, with ``rest`` spelled out."""
    source = textwrap.dedent(inspect.getsource(check))
    (function,) = ast.parse(source).body
    assert isinstance(function, ast.FunctionDef)
    own = {a.arg for a in (*function.args.args, *function.args.kwonlyargs)}
    rest = ", ".join(name for name in names if name not in own)
    first = function.body[1].lineno  # after the docstring
    body = textwrap.dedent("\n".join(source.splitlines()[first - 1 :]))
    return re.sub(r"\brest\b", f"({rest})", body.replace("*rest", rest))


def _imports(check: Callable[..., None], oracle: Callable[..., Any], lines: str) -> list[str]:
    """What ``lines`` need: the oracle, and names that the property's module or this one knows."""
    used = {node.id for node in ast.walk(ast.parse(lines)) if isinstance(node, ast.Name)}
    found = {f"from {oracle.__module__} import {oracle.__qualname__} as oracle"}
    for name, value in (globals() | check.__globals__).items():
        if name not in used:
            continue
        if isinstance(value, ModuleType):
            found.add(f"import {value.__name__} as {name}")
        elif callable(value):
            found.add(f"from {value.__module__} import {name}")
    return sorted(found, key=lambda line: (line.startswith("from"), line))


def literal(value: Any, indent: int = 0) -> str:
    """Python source of ``value``: arrays, mappings, sequences, dataclasses and plain values."""
    if isinstance(value, np.ndarray):
        return _array(value)
    if isinstance(value, Mapping):
        inside = " " * (indent + 4)
        items = [f"{inside}{key!r}: {literal(item, indent + 4)}," for key, item in value.items()]
        return "\n".join(["{", *items, " " * indent + "}"])
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [literal(getattr(value, f.name), indent) for f in dataclasses.fields(value)]
        return f"{type(value).__name__}({', '.join(fields)})"
    return repr(value)


def _array(array: np.ndarray[Any, Any]) -> str:
    dtype = "" if array.dtype in (np.float64, np.int64, np.bool_) else f", dtype=np.{array.dtype}"
    floats = array.dtype.kind == "f"
    for number, name in ((0, "zeros"), (1, "ones")):
        if floats and array.size > 1 and (array == number).all():
            return f"np.{name}({array.shape}{dtype})"
    text = repr(array.tolist())
    for special in ("inf", "nan"):
        text = re.sub(rf"\b{special}\b", f"np.{special}", text)
    return f"np.array({text}{dtype})"
