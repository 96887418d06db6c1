"""Every equation of a paper: printed, the oracle, the PyTorch form, the tests between them."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Sequence
from pathlib import Path
from pkgutil import resolve_name
from textwrap import dedent
from typing import Any

from benchmarks.equations import COUNTERPARTS, WITHOUT_COUNTERPART
from benchmarks.kinds import Equations, Verification, Verified
from benchmarks.records import ROOT, Record, of_kind
from benchmarks.report.document import Code, Equation, Value
from reference.equations import PAPERS
from reference.equations import Equation as Oracle
from reference.equations import equations as oracles


def equations(paper: str, made: Sequence[Record[Any]]) -> list[Equation]:
    """The paper's equations and listings in order, without those that have no oracle."""
    tests = {e.number: e.properties for r in of_kind(made, Equations) for e in r.details.entries
             if e.paper == paper}  # fmt: skip
    return [
        _equation(entry, tests.get(entry.number, []), made)
        for entry in oracles()
        if entry.paper == paper
    ]


def _equation(entry: Oracle, properties: Sequence[str], made: Sequence[Record[Any]]) -> Equation:
    key = entry.paper, entry.number
    counterpart = COUNTERPARTS.get(key)
    return Equation(
        title=f"({entry.number})" if isinstance(entry.number, int) else str(entry.number),
        formula=entry.formula,
        notes=[(note.kind, note.printed, note.taken, note.why) for note in entry.notes],
        oracle=code(entry.oracle),
        counterpart=code(counterpart) if counterpart else None,
        without=WITHOUT_COUNTERPART.get(key, entry.definition or ""),
        properties=[_sentence(name) for name in properties],
        errors=errors(*key, made, (counterpart or "").rpartition(".")[2]),
    )


def _compared(
    paper: str, number: int | str, made: Sequence[Record[Any]]
) -> list[tuple[Record[Verification], Verified]]:
    """The verification of our forms of an equation against the oracle, on a CPU."""
    return [
        (record, row)
        for record in of_kind(made, Verification)
        if record.device.kind == "cpu"
        for row in record.details.rows
        if number in row.equations.get(paper, ())
    ]


def errors(
    paper: str, number: int | str, made: Sequence[Record[Any]], form: str = ""
) -> list[Value]:
    """The worst error of our forms of an equation, by what was compared and by precision.

    If the function or class ``form`` was itself compared, only its errors.
    """
    worst: dict[tuple[str, str], tuple[float, Value]] = {}
    compared = _compared(paper, number, made)
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", form).lower()
    own = [(record, row) for record, row in compared if row.operator == name]
    for record, row in own or compared:
        share = float("inf") if not row.worst or not row.bound else row.worst / row.bound
        share = 0.0 if row.worst == 0 else share
        text = "not finite" if row.worst is None else f"{row.worst:.1e}"
        detail = f"{row.operator}, {row.what}, {row.dtype}, {row.implementation}; "
        detail += "" if row.bound is None else f"at most {row.bound:.1e} is allowed"
        word = "pass" if row.passed else "FAIL"
        found = Value(text, (record,), word, detail=detail)
        if share >= worst.get((row.what, row.dtype), (-1.0, None))[0]:
            worst[row.what, row.dtype] = share, found
    return [value for _, value in worst.values()]


def _sentence(name: str) -> str:
    file, _, test = name.partition("::")
    said = test.rpartition("::")[2].removeprefix("test_").replace("_", " ")
    return f"{said} (`{file}`)"


def code(dotted: str) -> Code:
    """The code of a function or class, without its wrappers and decorators."""
    found: Any = inspect.unwrap(resolve_name(":".join(dotted.rsplit(".", 1))))
    path = Path(str(inspect.getsourcefile(found))).resolve().relative_to(ROOT).as_posix()
    lines, first = inspect.getsourcelines(found)
    text = dedent("".join(lines)).rstrip()
    start = ast.parse(text).body[0].lineno - 1
    return Code(dotted, path, first + start, "\n".join(text.splitlines()[start:]))


def counted(paper: str, made: Sequence[Record[Any]]) -> str:
    """How many of the paper's numbered equations have an oracle, and are compared with it."""
    entries = [e for e in oracles() if e.paper == paper and isinstance(e.number, int)]
    compared = sum(bool(_compared(paper, entry.number, made)) for entry in entries)
    return f"{len(entries)} of {PAPERS[paper].equations}; {compared} compared"
