"""Right candidates, ours among them: none may be refused."""

from __future__ import annotations

import inspect
import itertools
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import workers
from benchmarks.perf import threads
from benchmarks.verify.candidate import Candidate
from benchmarks.verify.conformance import FAILED, Verdict, conformance_test
from benchmarks.verify.detection import takes_arrays
from benchmarks.verify.operators import OPERATORS
from benchmarks.verify.project import implementations
from tests.candidates import (
    decoding,
    middle_out,
    middle_out_torch,
    objectives,
    optimisation,
    recurrent,
    recurrent_torch,
    right,
    right_masks,
    right_numpy,
    right_torch,
    right_words,
)

MODULES = (
    right,
    right_numpy,
    right_torch,
    right_masks,
    right_words,
    recurrent,
    recurrent_torch,
    middle_out,
    middle_out_torch,
    objectives,
    optimisation,
    decoding,
)
EXAMPLES = 50
DTYPES = ("float64", "float32", "bfloat16", "float16")


@dataclass(frozen=True)
class Right:
    """A function that is right: a candidate of the tests, or an implementation of ours."""

    operator: str
    where: str
    function: Callable[..., Any]
    framework: str

    @property
    def name(self) -> str:
        """Operator, place and framework."""
        return f"{self.operator} | {self.where} | {self.framework}"

    def candidate(self) -> Candidate:
        """It, in this process."""
        arguments = OPERATORS[self.operator].arguments
        return Candidate(self.function, self.framework, arguments=arguments)

    def verdicts(
        self, seed: int, examples: int = EXAMPLES, only: Sequence[str] = (), large: bool = True
    ) -> list[Verdict]:
        """What each property says of it, or ``only`` some."""
        of, one = OPERATORS[self.operator], self.candidate()
        options = {"examples": examples, "seed": seed, "only": only, "large": large}
        return list(conformance_test(of, one, **options))


def candidates() -> Iterator[Right]:
    """Every function of a module of candidates that is named as an operator is."""
    for module in MODULES:
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if name in OPERATORS and function.__module__ == module.__name__:
                where = f"tests/candidates/{module.__name__.rpartition('.')[2]}.py"
                imported = vars(module).keys() & {"np", "torch"}
                of_numpy = imported == {"np"} or "np" in function.__code__.co_names
                for framework in ("numpy",) if of_numpy else ("numpy", "torch"):
                    one = Right(name, where, function, framework)
                    if takes_arrays(one.candidate(), OPERATORS[name]):
                        yield one


def ours() -> list[Right]:
    """Our own forms."""
    return [
        Right(each.operator, each.implementation, each.function, each.framework)
        for each in implementations()
    ]


def runs(
    chosen: Sequence[Right],
    seeds: int,
    out: str | None,
    examples: int,
    only: Sequence[str] = (),
    large_every: int = 1,
) -> Iterator[dict[str, Any]]:
    """The runs that the file ``out`` has, and a run of each by each seed that it has not.

    Every ``large_every``th seed has large cases too. Runs are side by side, one on each core.
    """
    path = Path(out or os.devnull)
    known = [*map(json.loads, path.read_text().splitlines())] if path.is_file() else []
    yield from known
    done = {(run["of"], run["seed"]) for run in known}
    left = [
        partial(_run, one.name, seed, examples, only, seed % large_every == 0)
        for seed, one in itertools.product(range(seeds), chosen)
        if (one.name, seed) not in done
    ]
    with workers.submitted(left, threads.usable()) as found:
        for run in (future.result() for future in found):
            with path.open("a") as file:
                file.write(json.dumps(run) + "\n")
            yield run


def _run(of: str, seed: int, examples: int, only: Sequence[str], large: bool) -> dict[str, Any]:
    one = next(one for one in (*candidates(), *ours()) if one.name == of)
    began, cases = time.process_time(), Counter[str]()
    found = one.verdicts(seed, examples, only, large)
    dtypes = {prop.name: prop.dtype for prop in OPERATORS[one.operator].properties}
    for verdict in found:
        cases[dtypes[verdict.name]] += verdict.cases
    failed = [f"{v.name}: {v.message}" for v in found if v.status == FAILED]
    seconds = round(time.process_time() - began, 2)
    return {"of": of, "seed": seed, "cases": cases, "failed": failed, "seconds": seconds}


def said(found: Sequence[dict[str, Any]]) -> str:
    """What was found, in a sentence."""
    cases = sum(sum(run["cases"].values()) for run in found)
    refused = sum(len(run["failed"]) for run in found)
    of = len({run["of"] for run in found})
    return f"{refused} refusals in {cases:,} cases, {len(found):,} runs of {of} right functions"


def table(found: Sequence[dict[str, Any]]) -> list[str]:
    """A line of a table for each function."""
    lines = []
    for of in dict.fromkeys(run["of"] for run in found):
        mine = [run for run in found if run["of"] == of]
        counts = [sum(run["cases"].get(dtype, 0) for run in mine) for dtype in DTYPES]
        cells = " | ".join(f"{count:,}" if count else "-" for count in counts)
        refused = sum(len(run["failed"]) for run in mine)
        seconds = sum(run["seconds"] for run in mine)
        lines.append(f"| {of} | {cells} | {len(mine)} | {refused} | {seconds:.0f} |")
    return lines
