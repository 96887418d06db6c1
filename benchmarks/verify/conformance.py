"""The conformance test: every property of an operator in turn, and the smallest case that fails."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from operator import attrgetter
from typing import Any

from benchmarks.verify.candidate import LIMITS, Calls, CandidateError
from benchmarks.verify.draw import Draw
from benchmarks.verify.operators import Operator, Property, named
from benchmarks.verify.operators.operator import BATCHES, GRADIENT, HOLES, PROJECT, TORCH, WRITABLE
from benchmarks.verify.precision import available, literal_limit
from benchmarks.verify.process import Isolated, Limits, fork_server
from benchmarks.verify.properties import Batched, BatchOfOne
from benchmarks.verify.search import Attempt, draws, search
from benchmarks.verify.snippet import snippet

EXAMPLES, QUICK_EXAMPLES = 100, 5
"""Small cases of each property of a candidate: usually, and with ``--quick``."""

PROJECT_EXAMPLES, PROJECT_QUICK_EXAMPLES = 30, 6
"""The same of this project's implementations."""

REVISION_EXAMPLES = 5
"""The same of a revision, before it is timed."""

MEASURED = 20
"""Cases that the literal form's errors in a lower precision are measured on."""

PASSED, FAILED, NOT_RUN = "passed", "failed", "not run"


@dataclass(frozen=True)
class Verdict:
    """Whether a property holds; if not, why, and the smallest failing case as code.

    Attributes:
        status: "passed", "failed" or "not run".
        message: why it failed, or was not run.
        code: lines to paste into a test, where it failed.
        plain: whether the failure cannot be rounding.
        size: how many numbers the arrays of that case have.
        cases: how many were tried.
        sizes: the largest in them of each size that can be large.
        worst: the largest error relative to its bound, and the bound, both relative to the largest
            entry of the oracle's result.
    """

    name: str
    says: str
    status: str
    message: str = ""
    code: str = ""
    plain: bool = False
    size: int = 0
    cases: int = 0
    sizes: Mapping[str, int] = field(default_factory=dict)
    worst: float = 0.0
    bound: float = 0.0
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether it was run and holds."""
        return self.status == PASSED


def prepare(operator: Operator) -> None:
    """Measure what a candidate's verdicts need, while its first process imports PyTorch."""
    fork_server()
    for dtype in {_lower(prop.dtype) for prop in operator.properties if _needs_limit(prop)}:
        if dtype in operator.dtypes and available(dtype):
            _limit(operator, dtype)


def resolve(
    source: str | Callable[..., Any],
    operator: Operator,
    framework: str | None = None,
    device: str = "cpu",
    limits: Limits | None = None,
    name: str | None = None,
) -> Isolated:
    """The candidate in a worker process, in its framework: found out if not given.

    Raises:
        InputError: it cannot be loaded, or cannot be called with the operator's arguments; or
            PyTorch cannot use the device.
    """

    def isolated(framework: str) -> Isolated:
        named: Any = {"framework": framework, "device": device, "name": name, "limits": limits}
        return Isolated(source, operator.arguments, **named)

    if framework is None and device != "cpu":
        framework = "torch"
    candidate = isolated(framework or "numpy")
    if framework is not None:
        return candidate
    if takes_arrays(candidate, operator):
        # what gives JAX's arrays for NumPy's takes its own too, and has gradients
        others = {"jax"} & {candidate.apply(attrgetter("answered"))}
    else:
        others = {"torch", *candidate.mentions} - {"numpy"}
    tried = [isolated(name) for name in sorted(others, reverse=True)]
    mentioned = (other for other in tried if other.framework in candidate.mentions)
    taking = (other for other in tried if takes_arrays(other, operator))
    chosen = next(taking, None) or next(mentioned, candidate)
    for other in [candidate, *tried]:
        if other is not chosen:
            other.close()
    return chosen


def takes_arrays(candidate: Calls, operator: Operator) -> bool:
    """Whether a candidate gives arrays for a case in its framework."""
    try:
        _alone(candidate, operator)(*operator.case(Draw(1)))
    except CandidateError as error:
        if error.kind not in ("in place", "state"):
            return False
        candidate.restart()  # what it has changed once would not show again
    return True


def new_seed() -> int:
    """A new seed: no candidate can know the cases of the next run."""
    return secrets.randbits(32)


def conformance_test(
    operator: Operator,
    candidate: Calls,
    *,
    examples: int = EXAMPLES,
    seed: int = 0,
    is_project: bool = False,
    large: bool = True,
    only: Sequence[str] = (),
    on_start: Callable[[Property], None] = lambda prop: None,
) -> Iterator[Verdict]:
    """The verdict on every property of the operator, the most basic first, each once it is known.

    Args:
        candidate: from ``resolve``; or in this process.
        examples: small cases of each property.
        is_project: whether it is an implementation of this project's.
        large: whether there are large cases too.
        only: the names of the properties to run, if not all.
        on_start: called with each property before its verdict is found.
    """
    stuck, failed = "", 0
    for prop in operator.properties:
        if (only and prop.name not in only) or (prop.large == "all" and not large):
            continue
        on_start(prop)
        reason = stuck or _not_run(prop, candidate, is_project)
        if reason:
            yield Verdict(prop.name, prop.says, NOT_RUN, reason)
            continue
        began = time.perf_counter()
        cases = partial(draws, examples=examples, seed=seed, large=large)
        verdict, kind = _verdict(prop, operator, candidate, cases, failed)
        failed += verdict.status == FAILED
        yield replace(verdict, seconds=time.perf_counter() - began)
        if kind in LIMITS:
            stuck = f"the candidate has exceeded its {kind} before"


def _not_run(prop: Property, candidate: Calls, is_project: bool) -> str:
    """Why a property is not one of this candidate; nothing if it is."""
    if PROJECT in prop.needs and not is_project:
        return "Psi's epsilon is 0 there, so there is no literal form of it"
    if BATCHES in prop.needs and not candidate.padding:
        return "it has no argument named lengths or mask"
    if HOLES in prop.needs and candidate.padding != "mask":
        return "it has no argument named mask"
    if GRADIENT in prop.needs and candidate.framework == "numpy":
        return "NumPy has no gradients"
    if WRITABLE in prop.needs and candidate.framework == "jax":
        return "JAX's arrays cannot be written"
    if TORCH in prop.needs and candidate.framework != "torch":
        return f"{candidate.framework} candidates are tested in float64 and float32"
    return "" if available(prop.dtype) else "the package ml_dtypes is missing"


def _alone(candidate: Calls, operator: Operator) -> Calls:
    name = candidate.padding
    return BatchOfOne(candidate, operator.sequences, name) if name else candidate


def _verdict(
    prop: Property,
    operator: Operator,
    candidate: Calls,
    cases: Callable[[Property, Operator], Iterator[Draw]],
    failed: int,
) -> tuple[Verdict, str]:
    """The verdict, and the kind of the failure."""
    calls, of = _alone(candidate, operator), operator
    if prop.is_batched:
        calls = Batched(candidate, operator.rows, operator.empty, candidate.padding)
        of = operator.of_batch(candidate.padding)
    if _needs_limit(prop):
        prop = replace(prop, settings={"limit": _limit(operator, _lower(prop.dtype))})
    attempt = Attempt(prop, of, calls, candidate.restart, failed)
    failure, tried, sizes, worst, bound = search(attempt, cases(prop, of))
    if not tried:
        return Verdict(prop.name, prop.says, NOT_RUN, "no case decides it"), ""
    found: Any = {"cases": tried, "sizes": sizes, "worst": worst, "bound": bound}
    verdict = Verdict(prop.name, prop.says, PASSED, **found)
    if failure is None:
        return verdict, ""
    if failure.kind in LIMITS:  # where it is by the number of calls, they were so many
        failure = replace(failure, calls=candidate.calls)
    failed_verdict = replace(
        verdict,
        status=FAILED,
        message=failure.message,
        code=snippet(prop, operator, candidate, failure),
        plain=failure.plain,
        size=failure.size,
    )
    return failed_verdict, failure.kind


def _needs_limit(prop: Property) -> bool:
    return "dtype" in prop.pins and not prop.settings


def _lower(dtype: str) -> str:
    return "float32" if dtype == "float64" else dtype


@cache
def _limit(operator: Operator, dtype: str) -> float:
    cases = [operator.case(Draw(i)) for i in range(MEASURED)]
    return literal_limit(operator.oracle, cases, dtype)


def clearest(failed: Sequence[Verdict]) -> Verdict:
    """Of failed properties the one to look at: plainly wrong if any is, then on the fewest numbers.

    Raises:
        ValueError: there is none.
    """
    return min(failed, key=lambda verdict: (not verdict.plain, verdict.size))


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
    claimed = named(operator)
    seed = new_seed() if seed is None else seed
    with resolve(candidate, claimed, framework, device, limits) as isolated:
        verdicts = list(conformance_test(claimed, isolated, examples=examples, seed=seed))
        failed = [verdict for verdict in verdicts if verdict.status == FAILED]
        if failed:
            names = ", ".join(verdict.name for verdict in failed)
            shown = clearest(failed)
            raise AssertionError(
                f"{isolated.name} is not {operator} (seed {seed}): failed {names}\n"
                f"{shown.name}: {shown.message}\n\n{shown.code}"
            )
    return verdicts
