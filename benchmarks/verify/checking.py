"""The conformance test in somebody's own tests: ``from benchmarks.verify import check``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.errors import InputError
from benchmarks.verify.conformance import (
    EXAMPLES,
    FAILED,
    Verdict,
    clearest,
    conformance_test,
    resolve,
)
from benchmarks.verify.conformance import seed as new_seed
from benchmarks.verify.operators import OPERATORS
from benchmarks.verify.process import Limits


def check(
    candidate: str | Callable[..., Any],
    operator: str,
    *,
    framework: str | None = None,
    device: str = "cpu",
    examples: int = EXAMPLES,
    seed: int | None = None,
    limits: Limits | None = None,
) -> list[Verdict]:
    """Fail, with a case to paste, unless ``candidate`` is the operator; else the verdicts.

    Args:
        candidate: a function, sent to a worker process; or where one is, as the command takes it.
        operator: a name of ``captionbench verify --list``.
        framework: "numpy", "torch" or "jax"; found out if not given.
        device: where PyTorch computes.
        examples: cases of each property.
        seed: of the cases; another one in each run if not given.
        limits: of time and memory of a call.

    Raises:
        AssertionError: a property failed.
        InputError: there is no such operator, or the candidate cannot be called as one.
    """
    if operator not in OPERATORS:
        raise InputError(f"operator {operator!r}: expected one of {', '.join(OPERATORS)}")
    of = OPERATORS[operator]
    seed = new_seed() if seed is None else seed
    with resolve(candidate, of, framework, device, limits) as isolated:
        found = list(conformance_test(of, isolated, examples=examples, seed=seed))
        failed = [verdict for verdict in found if verdict.status == FAILED]
        if failed:
            names = ", ".join(verdict.name for verdict in failed)
            shown = clearest(failed)
            raise AssertionError(
                f"{isolated.name} is not {operator} (seed {seed}): failed {names}\n"
                f"{shown.name}: {shown.message}\n\n{shown.code}"
            )
    return found
