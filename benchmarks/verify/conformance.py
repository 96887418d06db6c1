"""The conformance test: test all properties of an operator, with the smallest failing case."""

from __future__ import annotations

import inspect
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from math import inf
from typing import Any

from benchmarks.errors import InputError
from benchmarks.verify.attempt import OF_ANOTHER, Attempt, Failure, Tested
from benchmarks.verify.candidate import LIMITS, BaseCandidate
from benchmarks.verify.detection import alone, later_differs, resolve
from benchmarks.verify.draw import Draw
from benchmarks.verify.operators import Operator, Property, get_operator
from benchmarks.verify.operators.operator import (
    BATCHES,
    FLOATS,
    GRADIENT,
    HOLES,
    PROJECT,
    TORCH,
    WRITABLE,
)
from benchmarks.verify.precision import available, literal_limit
from benchmarks.verify.process import HASH_SEEDS, Isolated, Limits, fork_server
from benchmarks.verify.properties import Batched
from benchmarks.verify.search import (
    draws,
    not_loaded_again,
    search,
    with_fewest_runs,
    with_other_hashes,
)
from benchmarks.verify.snippet import snippet

EXAMPLES, QUICK_EXAMPLES = 100, 4
"""Number of small cases for each property of a candidate: by default, and with ``--quick``."""

PROJECT_EXAMPLES, PROJECT_QUICK_EXAMPLES = 30, 6
"""The same for this project's implementations."""

SECONDS, QUICK_SECONDS = 5.0, 1.0
"""Time for the small cases of all properties of a candidate: fewer cases on a slow machine. The
second with ``--quick``."""

PATIENCE = 8.0
"""Time after the first failure in which other properties are tested."""

UNCLEAR = 3.0
"""How many times as long after one that does not come again on its case alone."""

REVISION_EXAMPLES = 5
"""The same for a revision before it is timed."""

MEASURED = 20
"""Number of cases for measuring the literal form's errors in a lower precision."""

TRIES = 8
"""How often a property's cases are drawn, until one is decidable."""

SHARE = 2.0
"""The most that a property may take of an equal share of the time that is left."""

PASSED, FAILED, NOT_RUN = "passed", "failed", "not run"


@dataclass(frozen=True)
class Verdict:
    """The verdict on a property: whether it holds, or why not, with the smallest failing case.

    Attributes:
        status: "passed", "failed" or "not run".
        message: why it failed, or was not run.
        code: the failing case as lines to paste into a test.
        unclear: of a failure, 0 if it comes again, on its case alone; 1 after other cases; 2 if it
            may be a rounding error; 3 if it does not always come again; 4 if not again at all.
        size: number of entries in that case's arrays.
        cases: number of tested cases.
        sizes: the largest tested value of each size that can be large.
        worst: the error that is largest relative to its tolerance; it and its ``bound`` are
            relative to the largest entry of the oracle's result.
    """

    name: str
    says: str
    status: str
    message: str = ""
    code: str = ""
    unclear: int = 0
    size: int = 0
    cases: int = 0
    sizes: Mapping[str, int] = field(default_factory=dict)
    worst: float = 0.0
    bound: float = 0.0
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether the property was tested and holds."""
        return self.status == PASSED


def prepare(operator: Operator) -> None:
    """Measure the operator's tolerances, while the first worker process imports PyTorch."""
    for hash_seed in HASH_SEEDS:
        fork_server(hash_seed)
    for dtype in {_lower(prop.dtype) for prop in operator.properties if _needs_limit(prop)}:
        if dtype in operator.dtypes and available(dtype):
            _limit(operator, dtype)


def new_seed() -> int:
    """A random seed, so that candidates cannot know the cases."""
    return secrets.randbits(32)


def conformance_test(
    operator: Operator,
    candidate: BaseCandidate,
    *,
    examples: int = EXAMPLES,
    seed: int = 0,
    is_project: bool = False,
    large: bool = True,
    only: Sequence[str] = (),
    on_start: Callable[[Property], None] = lambda prop: None,
    seconds: float = inf,
) -> Iterator[Verdict]:
    """Yield the verdict on each property of the operator, the most basic first.

    Args:
        candidate: from ``resolve``, or in this process.
        examples: number of small cases for each property.
        is_project: whether it is one of this project's implementations.
        large: whether to test large cases too.
        only: names of the properties to test, if not all.
        on_start: called with each property before it is tested.
        seconds: for the small cases of all properties together: those that take long have fewer.
    """
    ended, failed, end, last = "", 0, time.monotonic() + seconds, inf
    tested: dict[bool, list[Tested]] = {False: [], True: []}
    # the seed is printed, where a candidate could see it; it must not know how gradients are tested
    secret = str(seed).encode() if is_project else secrets.token_bytes(16)
    chosen = [
        prop
        for prop in operator.properties
        if (not only or prop.name in only) and (large or prop.large != "all")
    ]
    reasons = [_not_run(prop, candidate, is_project) for prop in chosen]
    final = max((i for i, reason in enumerate(reasons) if not reason), default=None)
    for i, (prop, reason) in enumerate(zip(chosen, reasons, strict=True)):
        on_start(prop)
        reason = reason or ended
        if reason:
            yield Verdict(prop.name, prop.description, NOT_RUN, reason)
            continue
        began = time.perf_counter()
        now = time.monotonic()
        # cheap properties leave time to others
        until = now + SHARE * (end - now) / (len(chosen) - i)
        cases = partial(draws, examples=examples, seed=seed, large=large, until=until)
        before = tested[prop.is_batched]
        try:
            verdict, kind = _verdict(prop, operator, candidate, cases, failed, secret, before)
        except InputError as error:
            if not failed:
                raise
            ended = f"the candidate could not be loaded again: {error}"
            yield Verdict(prop.name, prop.description, NOT_RUN, ended)
            continue
        once = "" if failed or verdict.status == FAILED else candidate.once
        if i == final and not (failed or once or verdict.status == FAILED):
            once = later_differs(candidate)
        if once:
            verdict = _failed_once(prop, operator, candidate, verdict, once)
        failed += verdict.status == FAILED
        yield replace(verdict, seconds=time.perf_counter() - began)
        if kind in LIMITS:
            ended = f"the candidate exceeded its {kind} in an earlier property"
        elif failed:
            if verdict.status == FAILED:
                patience = PATIENCE * (UNCLEAR if verdict.unclear else 1.0)
                last = min(last, time.monotonic() + patience)
            if time.monotonic() >= last:
                ended = f"more than {PATIENCE:g} s after the first failure"


def _not_run(prop: Property, candidate: BaseCandidate, is_project: bool) -> str:
    """Why a property does not apply to this candidate; empty if it does."""
    if PROJECT in prop.needs and not is_project:
        return "Psi's epsilon is 0 there, so there is no literal form of it"
    if BATCHES in prop.needs and not candidate.padding:
        return "it has no argument named lengths or mask"
    if HOLES in prop.needs and candidate.padding != "mask":
        return "it has no argument named mask"
    if GRADIENT in prop.needs and candidate.framework == "numpy":
        return "NumPy has no gradients (see --framework)"
    if WRITABLE in prop.needs and candidate.framework == "jax":
        return "JAX's arrays cannot be written"
    if TORCH in prop.needs and candidate.framework != "torch":
        if prop.dtype in FLOATS:
            return "it applies to PyTorch alone"
        return f"{candidate.framework} candidates are tested in float64 and float32"
    return "" if available(prop.dtype) else "the package ml_dtypes is missing"


def _verdict(
    prop: Property,
    operator: Operator,
    candidate: BaseCandidate,
    cases: Callable[..., Iterator[Draw]],
    failed: int,
    secret: bytes,
    tested: list[Tested],
) -> tuple[Verdict, str]:
    """The verdict, and the kind of failure; for ``tested`` see ``search``."""
    calls, of = alone(candidate, operator), operator
    if prop.is_batched:
        calls = Batched(candidate, operator.rows, operator.empty, candidate.padding)
        of = operator.batched(candidate.padding)
    if failed and _is_of_gradients(prop):
        prop = replace(prop, settings={**prop.settings, "limit": None})
    elif _needs_limit(prop):
        limit = _limit(operator, _lower(prop.dtype))
        prop = replace(prop, settings={**prop.settings, "limit": limit})
    attempt = Attempt(prop, of, calls, candidate, failed, secret)
    for again in range(TRIES):  # of few cases none may be decidable
        failure, tried, sizes, worst, bound = search(attempt, cases(prop, of, again=again), tested)
        if tried:
            break
    else:
        reason = "no random case was decidable (near a kink or jump, or terms cancel)"
        return Verdict(prop.name, prop.description, NOT_RUN, reason), ""
    found: Any = {"cases": tried, "sizes": sizes, "worst": worst, "bound": bound}
    verdict = Verdict(prop.name, prop.description, PASSED, **found)
    if failure is None:
        return verdict, ""
    try:
        if failure.kind in LIMITS:
            failure = with_fewest_runs(attempt, failure, candidate.calls)
        elif failure.calls and isinstance(candidate, Isolated):
            with candidate.other_hashes():
                failure = with_other_hashes(attempt, failure)
    except InputError as error:
        failure = not_loaded_again(failure, error)
    failed_verdict = replace(
        verdict,
        status=FAILED,
        message=failure.message,
        code=snippet(prop, operator, candidate, failure, secret),
        unclear=_unclear(prop, failure),
        size=failure.size,
    )
    return failed_verdict, failure.kind


def _failed_once(
    prop: Property, operator: Operator, candidate: BaseCandidate, verdict: Verdict, once: str
) -> Verdict:
    """The verdict on a candidate whose first calls, to detect its framework, differed."""
    draw = Draw(1)
    message = f"not deterministic: {once}"
    failure = Failure(operator.case(draw), "once", message, draw, calls=0)
    code = snippet(prop, operator, candidate, failure, b"")
    verdict = replace(verdict, status=FAILED, message=message, code=code, size=failure.size)
    return replace(verdict, unclear=_unclear(prop, failure))


def _unclear(prop: Property, failure: Failure) -> int:
    """For ``Verdict.unclear``."""
    if not failure.calls:
        return 3 if failure.times else 4
    if failure.kind == "rounding":
        return 2
    return int(prop.check in OF_ANOTHER or failure.after_other or bool(failure.earlier))


def _is_of_gradients(prop: Property) -> bool:
    """Whether the outputs beside its gradients are compared too."""
    return "by" in prop.settings and "limit" in inspect.signature(prop.check).parameters


def _needs_limit(prop: Property) -> bool:
    """Whether its check has a limit, in roundings, and its cases a lower precision."""
    takes = "limit" in inspect.signature(prop.check).parameters
    return takes and ("dtype" in prop.pins or "dtype" in prop.settings)


def _lower(dtype: str) -> str:
    return "float32" if dtype == "float64" else dtype


@cache
def _limit(operator: Operator, dtype: str) -> float:
    cases = [operator.case(Draw(i)) for i in range(MEASURED)]
    return literal_limit(operator.oracle, cases, dtype)


def clearest(failed: Sequence[Verdict]) -> Verdict:
    """The failed verdict to show: the clearest, of those the one with the smallest case.

    Raises:
        ValueError: there is none.
    """
    return min(failed, key=lambda one: (one.unclear, one.size))


def check(
    candidate: str | Callable[..., Any],
    operator: str,
    *,
    framework: str | None = None,
    device: str = "cpu",
    examples: int | None = None,
    seed: int | None = None,
    limits: Limits | None = None,
) -> list[Verdict]:
    """Assert that ``candidate`` conforms to the operator; returns the verdicts.

    Args:
        candidate: a function, or where to import it from, as on the command line; it runs in a
            worker process.
        operator: a name of ``captionbench verify --list``.
        framework: "numpy", "torch" or "jax"; None detects it.
        device: of PyTorch's tensors.
        examples: number of small cases for each property; None: 100, or those that ``SECONDS``
            allow.
        seed: of the cases; None: a random one.
        limits: of a call's time and memory.

    Raises:
        AssertionError: a property failed; the message has the smallest failing case.
        InputError: there is no such operator, or the candidate cannot be called as one.
    """
    __tracebackhide__ = True  # pytest shows the message and the test, not these lines
    claimed = get_operator(operator)
    seed = new_seed() if seed is None else seed
    with resolve(candidate, claimed, framework, device, limits) as isolated:
        usual = {"seconds": SECONDS} if examples is None else {"examples": examples}
        verdicts = list(conformance_test(claimed, isolated, seed=seed, **usual))
        failed = [verdict for verdict in verdicts if verdict.status == FAILED]
        if failed:
            names = ", ".join(verdict.name for verdict in failed)
            shown = clearest(failed)
            raise AssertionError(
                f"{isolated.name} is not {operator} (seed {seed}): failed {names}\n"
                f"{shown.name}: {shown.message}\n\n{shown.code}"
            )
    return verdicts
