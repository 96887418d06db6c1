"""A failing case as a few lines of Python that can be pasted into a test."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial  # noqa: F401
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

# a failing case may be written with these, and with ``project`` and ``exported``
from benchmarks.verify.candidate import LIMITS, Calls, Candidate, load  # noqa: F401
from benchmarks.verify.cases import HalvesLogProbs, NextLogProbs, numpy_dtype  # noqa: F401
from benchmarks.verify.draw import Draw  # noqa: F401
from benchmarks.verify.operators import OPERATORS, Operator, Property
from benchmarks.verify.process import Limits
from benchmarks.verify.properties import Batched, BatchOfOne, of_batch, reversed_arrays  # noqa: F401
from benchmarks.verify.search import REPEATS, Failure

APART = (*LIMITS, "exit", "protocol", "in place")
"""Kinds of failures that the process shows in which the candidate does not run."""

HOMES = {
    "OPERATORS": "benchmarks.verify.operators",
    "exported": "benchmarks.verify",
    "project": "benchmarks.verify",
    "resolve": "benchmarks.verify.conformance",
}
"""Modules of names whose values do not tell them."""

LONGEST = 3000
"""Characters of arguments that are printed; larger ones are regenerated from their seed."""


def snippet(prop: Property, operator: Operator, candidate: Calls, failure: Failure) -> str:
    """The lines: imports, the candidate, the case's arguments, the property's own."""
    lines = [*_candidate(prop, operator, candidate, failure), f"oracle = {_oracle(operator)}"]
    if prop.is_batched:
        lines.append(
            f"oracle = of_batch(oracle, {operator.sequences}, {operator.rows}, {operator.empty})"
        )
    lines += [*_case(operator, failure, candidate.padding if prop.is_batched else "")]
    options = inspect.signature(prop.check).parameters.values()
    given = {one.name: one.default for one in options if one.default is not one.empty}
    lines += [f"{name} = {value!r}" for name, value in {**given, **prop.settings}.items()]
    other = "candidate(*reversed_arrays(case))\n" if failure.after_other else ""
    body = other + _body(prop)
    calls = failure.calls or 10 * REPEATS
    if calls > 1:
        often = "" if failure.calls else "  # it fails in some of them"
        body = f"for _ in range({calls}):{often}\n{textwrap.indent(body, '    ')}"
    text = "\n".join([*lines, body])
    return "\n".join([*_imports(prop, text, candidate.source), "", text])


def _candidate(
    prop: Property, operator: Operator, candidate: Calls, failure: Failure
) -> Iterator[str]:
    device = "" if candidate.device == "cpu" else f", device={candidate.device!r}"
    framework, folder = f", {candidate.framework!r}", ""
    if isinstance(candidate.source, str):
        source, _, name = candidate.source.rpartition(":")
        by_path = source.endswith(".py")
        path = str(Path(source).resolve()) if by_path else source
        function, make = repr(f"{path}:{name}"), "load"
        # a module may lie where the command was run
        folder = "" if by_path else f", folder={str(Path.cwd())!r}"
    else:
        function, make = candidate.name, "Candidate"
        if function == getattr(candidate.source, "__name__", function):
            function = _imported(candidate.source) and candidate.source.__qualname__
        if not function:
            function = "function"
            yield "function = ...  # your function, which no import gives"
    if failure.kind in APART:
        limits = getattr(candidate, "limits", Limits())
        said = f", limits={limits!r}" if limits != Limits() else ""
        if folder:
            yield f"sys.path.append({str(Path.cwd())!r})"
        text = f"resolve({function}, OPERATORS[{operator.name!r}]{framework}{device}{said})"
    else:
        text = f"{make}({function}{framework}{device}{folder})"
    if prop.is_batched:
        text = f"Batched({text}, {operator.rows}, {operator.empty}, {candidate.padding!r})"
    elif candidate.padding:
        text = f"BatchOfOne({text}, {operator.sequences}, {candidate.padding!r})"
    yield f"candidate = {text}"


def _imported(function: Any) -> str:
    """The line that imports a function, if one does."""
    module, name = getattr(function, "__module__", ""), getattr(function, "__qualname__", "")
    with suppress(AttributeError):
        if module != "__main__" and attrgetter(name)(sys.modules.get(module)) is function:
            return f"from {module} import {name.partition('.')[0]}"
    return ""


def _oracle(operator: Operator) -> str:
    if operator.name in OPERATORS:
        return f"OPERATORS[{operator.name!r}].oracle"
    return "exported.oracle"


def _case(operator: Operator, failure: Failure, padding: str) -> list[str]:
    names = [*operator.arguments, *([padding] if padding else [])]
    values = [literal(value) for value in failure.case]
    draw = failure.draw
    if sum(map(len, values)) > LONGEST and draw is not None:
        choices = "".join(f", {name}={literal(value)}" for name, value in draw.chosen.items())
        regime = "" if draw.regime == "plain" else f", regime={draw.regime!r}"
        of = f".of_batch({padding!r})" if padding else ""
        return [
            f"operator = OPERATORS[{operator.name!r}]{of}",
            f"case = operator.drawn(Draw({draw.seed}{regime}{choices}))",
        ]
    assigned = [f"{name} = {value}" for name, value in zip(names, values, strict=True)]
    return [*assigned, f"case = {', '.join(names)}{',' if len(names) == 1 else ''}"]


def _body(prop: Property) -> str:
    """The property's lines."""
    source = textwrap.dedent(inspect.getsource(prop.check))
    (function,) = ast.parse(source).body
    assert isinstance(function, ast.FunctionDef)
    first = function.body[1].lineno  # after the docstring
    return textwrap.dedent("\n".join(source.splitlines()[first - 1 :]))


def _imports(prop: Property, lines: str, source: Any) -> list[str]:
    """What ``lines`` need: names that the property's module or this one knows."""
    used = {node.id for node in ast.walk(ast.parse(lines)) if isinstance(node, ast.Name)}
    found = {f"from {HOMES[name]} import {name}" for name in used & HOMES.keys()}
    for of in (sys.modules[__name__], sys.modules[prop.check.__module__]):
        for name in (used & vars(of).keys()) - HOMES.keys():
            value = getattr(of, name)
            if isinstance(value, ModuleType):
                other = "" if value.__name__ == name else f" as {name}"
                found.add(f"import {value.__name__}{other}")
                continue
            home = sys.modules.get(getattr(value, "__module__", ""))
            module = home if getattr(home, name, None) is value else of
            assert module is not None
            found.add(f"from {module.__name__} import {name}")
    line, last = _imported(source), list[str]()
    if line.rpartition(" ")[2] in used:
        module = sys.modules[source.__module__]
        if file := getattr(module, "__file__", None):  # pytest imports tests from anywhere
            path = Path(file).resolve()
            depth = module.__name__.count(".") + (path.stem == "__init__")
            found.add("import sys")
            last.append(f"sys.path.append({str(path.parents[depth])!r})")
        last.append(line)
    return [*sorted(found, key=lambda line: (line.startswith("from"), line)), *last]


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
    return _finite(repr(value)) if isinstance(value, float) else repr(value)


def _array(array: np.ndarray[Any, Any]) -> str:
    dtype, floats = f", dtype=np.{array.dtype}", array.dtype.kind in "fV"
    if array.dtype in (np.float64, np.int64, np.bool_):
        dtype = ""
    elif array.dtype.kind == "V":  # bfloat16
        dtype, array = ", numpy_dtype('bfloat16')", array.astype(np.float64)
    for number, name in ((0, "zeros"), (1, "ones")):
        if floats and array.size > 1 and (array == number).all():
            return f"np.{name}({array.shape}{dtype})"
    return f"np.array({_finite(repr(array.tolist()))}{dtype})"


def _finite(text: str) -> str:
    """Numbers as NumPy spells them."""
    return re.sub(r"\b(inf|nan)\b", r"np.\1", text)
