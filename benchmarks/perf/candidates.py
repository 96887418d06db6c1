"""Times a candidate against our implementations, at the papers' sizes, in worker processes.

The forward pass is timed and, if the operator has gradients, separately the forward and backward
pass. Each implementation has a worker process; they alternate, in a new random order each round.
The clock is this process's: it starts with the request to compute on arguments that were sent
before, and stops when the whole output is received, so that lazy or asynchronous work is included.
Every call has new arguments, and its output is compared with that of our first form. On a CPU the
numbers of NumPy's and PyTorch's arrays are written just before the request, over others that were
sent: work done when these were sent gives a wrong output. Elsewhere it shows as a time below the
roofline: no honest time is below half of what the cheapest of our forms takes at the device's
ceilings, which are measured in the same run.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_leaves

from benchmarks.errors import InputError
from benchmarks.perf import resources
from benchmarks.perf import threads as cpu_threads
from benchmarks.perf.cases.case import Work, settings
from benchmarks.perf.cases.ceilings import BUDGET as CEILINGS
from benchmarks.perf.targets import amounts
from benchmarks.perf.timing import Budget, Measurement, measure
from benchmarks.statistics import Estimate, median
from benchmarks.verify import conformance, detection
from benchmarks.verify.candidate import Candidate, CandidateError
from benchmarks.verify.cases import (
    Case,
    Place,
    float_arrays,
    get,
    mapped,
    rounded,
)
from benchmarks.verify.derivatives import output_weights
from benchmarks.verify.draw import Draw
from benchmarks.verify.loading import all_valid
from benchmarks.verify.operators import Operator
from benchmarks.verify.process import Isolated
from benchmarks.verify.project import implementations
from benchmarks.verify.tolerances import SAME_CALL, SAME_WORK, error, outputs, scale

BATCH = 48
ATTENTION = {"M": 144, "N": 144, "num_heads": 8, "d_k": 64, "causal": False}
SEQUENCE = {"T": 20, "d": 512, "d_x": 512}
SIZES: dict[str, dict[str, Any]] = {
    "static_expansion": {
        "L": 144,
        "d": 512,
        "groups": 5,
        **{f"group_{i}": 32 * 2**i for i in range(5)},
    },
    "dynamic_expansion": {"L": 20, "d": 512, "N_E": 16, "causal": True},
    "multi_head_attention": ATTENTION,
    "attention_on_attention": ATTENTION,
    "layer_norm": {"L": 144, "d": 512},
    "feed_forward": {"L": 144, "d": 512, "d_ff": 2048},
    "lstm_cell": {"d": 512, "d_x": 512},
    "lstm": SEQUENCE,
    "attentive_lstm": {**SEQUENCE, "d_s": 512, "n": 144, "d_a": 512},
    "zoneout": SEQUENCE,
    "recurrent_dropout": SEQUENCE,
    "read_only_lstm": SEQUENCE,
    "reconstruction_loss": {"T": 20, "d": 512, "d_own": 512},
    "general_attention": {"d": 512, "d_c": 512, "n": 144},
    "cross_entropy": {"B": BATCH, "T": 20, "V": 10_000, "padding": False},
    "self_critical": {"B": BATCH, "K": 5, "T": 20},
}
"""The papers' sizes, by operator, as its cases name them."""

IMPOSSIBLE = 0.5
"""Fraction of the roofline's time: a ceiling is measured, and a product may exceed it a little."""

CALLS = 16
"""The fewest calls after which the first output must be the same, however few were timed."""

PRODUCT = 1024
"""Side of the square matrices whose product is a ceiling."""

FORWARD, BOTH = "forward pass", "forward and backward pass"

_M_PERTURB = -6


@dataclass(frozen=True)
class Comparison:
    """A candidate's time compared with ours."""

    operator: str  # its name
    passes: str  # FORWARD or BOTH
    sizes: Mapping[str, Any]  # of the case
    name: str  # the candidate's
    measured: Measurement  # our first form is the baseline; transfer is included
    counts: Mapping[str, Mapping[str, int]]  # `resources.count`; empty unless in PyTorch
    transfer: Estimate  # seconds of transferring an output
    roofline: float  # seconds of our cheapest form at the device's ceilings
    answers: int  # the candidate's outputs that were compared with ours
    failed: str = ""  # why it is wrong

    def verdict(self, name: str) -> str:
        """The verdict on a form's time; "wrong" of a candidate that is."""
        wrong = self.failed and name == self.name
        return "wrong" if wrong else self.measured.verdict(name)

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        forms = {
            name: {
                "seconds": asdict(self.measured.seconds(name)),
                "ratio": asdict(self.measured.ratio(name)),
                "verdict": self.verdict(name),
                **self.counts[name],
            }
            for name in self.measured.samples
        }
        return {
            "operator": self.operator,
            "candidate": self.name,
            "passes": self.passes,
            "sizes": dict(self.sizes),
            "forms": forms,
            "rounds": self.measured.rounds,
            "a_a_floor": self.measured.floor,
            "transfer_s": self.transfer.value,
            "roofline_s": self.roofline,
            "answers": self.answers,
            "passed": not self.failed,
            "failed": self.failed,
        }

    def lines(self) -> list[str]:
        """As a table."""
        sizes = ", ".join(f"{name}={value}" for name, value in self.sizes.items())
        lines = [f"{self.operator}, {self.passes}: {sizes}"]
        of = " forward" if self.passes == BOTH else ""  # what is counted
        for name in self.measured.samples:
            seconds, ratio = self.measured.seconds(name), self.measured.ratio(name)
            low, high = 1000 * seconds.low, 1000 * seconds.high
            cells = [f"  {name:28}{1000 * seconds.value:10.4g} ms [{low:.4g}, {high:.4g}]"]
            if name != self.measured.baseline:
                interval = f"[{ratio.low:.3g}, {ratio.high:.3g}]"
                cells.append(f"{ratio.value:.3g} x {interval} {self.verdict(name)}")
            counted = self.counts[name]
            if "flops" in counted:
                cells.append(f"{counted['flops'] / 1e9:.4g} GFLOP{of}")
            lines.append("  ".join([*cells, *amounts(counted)]))
        lines.append(
            f"  A/A floor {self.measured.floor:.3f}, {self.measured.rounds} rounds; "
            f"each time includes {1000 * self.transfer.value:.3g} ms to transfer the output; "
            f"roofline of our cheapest form{of}: {1000 * self.roofline:.3g} ms"
        )
        lines.append(
            f"  FAILED: {self.failed}"
            if self.failed
            else f"  {self.answers} outputs equal ours; verified again afterwards"
        )
        return lines


def time_candidate(
    operator: Operator,
    candidate: Isolated,
    budget: Budget,
    threads: Sequence[int],
    *,
    seed: int = 0,
    quiet: bool = False,
) -> tuple[bool, list[dict[str, Any]]]:
    """Time a candidate by each number of threads; whether it is right at the papers' sizes too.

    The forward pass is timed and, if the operator has gradients, both passes. Prints a table for
    each unless ``quiet``.

    Raises:
        InputError: the operator is not timed, or the clock jumps.
    """
    results = []
    passes = (FORWARD, BOTH) if operator.by and candidate.framework != "numpy" else (FORWARD,)
    check_timed(operator)
    with workers(operator, candidate.device) as ours:
        sides = operator, candidate, ours, budget
        for number, each in itertools.product(threads, passes):
            try:
                comparison = compare(*sides, passes=each, threads=number, seed=seed)
            except CandidateError as error:
                lines = [f"  FAILED: at the papers' sizes it {error}"]
                result: dict[str, Any] = {"failed": str(error)}
            else:
                lines, result = comparison.lines(), comparison.to_dict()
            results.append(result)
            if not quiet:
                print("\n".join(["", *lines]), flush=True)
    return not any(result["failed"] for result in results), results


def check_timed(operator: Operator) -> None:
    """Raise InputError unless the operator is one that is timed."""
    if operator.name not in SIZES:
        raise InputError(
            f"operator {operator.name} is not timed: expected one of {', '.join(SIZES)}"
        )


@contextmanager
def workers(operator: Operator, device: str) -> Iterator[dict[str, Isolated]]:
    """Our forms of an operator by name, each in a worker process."""
    with ExitStack() as stack:
        yield {
            each.implementation: stack.enter_context(
                detection.resolve(each.function, operator, each.framework, device, name=each.name)
            )
            for each in implementations(device)
            if each.operator == operator.name and not each.is_of_small_cases
        }


def compare(
    operator: Operator,
    candidate: Isolated,
    ours: Mapping[str, Isolated],
    budget: Budget,
    *,
    passes: str = FORWARD,
    threads: int = 1,
    seed: int = 0,
    sizes: Mapping[str, Any] | None = None,
) -> Comparison:
    """Time a verified candidate in its process against our ``workers``, and verify it again.

    ``sizes`` are those of the operator's cases, "batch" among them; the papers' if None. ``passes``
    is FORWARD, or BOTH: the gradient of a weighted sum of its outputs.

    Raises:
        InputError: the operator is not timed, or the clock jumps.
        CandidateError: the candidate raised, or took too long.
    """
    check_timed(operator)
    sizes = {"batch": BATCH} | SIZES[operator.name] if sizes is None else dict(sizes)
    if not candidate.padding:
        sizes["batch"] = 1
    device = torch.device(candidate.device)
    cores = cpu_threads.cores(threads) if device.type == "cpu" else []
    first = next(iter(ours.values()))
    places, weights = _weighted(first, operator, sizes, seed) if passes == BOTH else ([], None)
    work = operator, sizes, seed, places, weights
    turns = {name: _Turn(worker, *work) for name, worker in ours.items()}
    turn = turns[candidate.name] = _Turn(candidate, *work, first)
    for each in turns.values():
        each.worker.apply(configure_worker, threads, cores, passes == BOTH)
    measured = measure(turns, device, budget, stopwatch=lambda function: function())
    counts = {name: each.count() for name, each in turns.items()}
    flops = [counts[name]["flops"] for name in ours if "flops" in counts[name]]
    roofline = _roofline(min(flops, default=0), turn.bytes, device, threads)
    failed = turn.wrong or turn.drifted()
    if median(turn.computing).high < IMPOSSIBLE * roofline:
        failed = failed or (
            "faster than half the roofline's time: it computes before the request, or the clock is "
            "wrong"
        )
    candidate.apply(configure_worker, threads, cores, True)
    return Comparison(
        operator.name,
        passes,
        sizes | {"dtype": "float32", "threads": threads},
        candidate.name,
        measured,
        counts,
        median(turn.transfers),
        roofline,
        turn.answers,
        failed or _verified_again(operator, candidate, seed, passes),
    )


def _weighted(
    ours: Isolated, operator: Operator, sizes: Mapping[str, Any], seed: int
) -> tuple[list[Place], Any]:
    """The arguments to differentiate by, and the weights of the outputs' sum."""
    turn = _Turn(ours, operator, sizes, seed)
    by = {operator.arguments.index(name) for name in operator.by}
    places = [place for place in float_arrays(turn.prepare(ours)) if place[0] in by]
    (output,) = outputs(_timed(ours, Candidate.run_prepared)[1])
    return places, output_weights(output.shape).astype(np.float32)


def configure_worker(
    candidate: Candidate, threads: int, cores: Sequence[int], gradients: bool = False
) -> None:
    """In the worker: set threads, cores and grad mode, and do not poison freed memory."""
    torch.set_num_threads(threads)
    torch.set_grad_enabled(gradients)
    if cores:
        cpu_threads.move(cores)
    with suppress(AttributeError):  # not glibc
        ctypes.CDLL(None).mallopt(_M_PERTURB, 0)


def count(candidate: Candidate, places: Sequence[Place]) -> dict[str, int]:
    """In the worker: resource counts of a forward pass; with ``places``, saved activations too."""
    (given, keyword, *_), device = candidate.prepared, torch.device(candidate.device)
    tensors = [x for x in tree_leaves(given) if isinstance(x, torch.Tensor)]
    call = partial(candidate.invoke, given, keyword)
    try:
        taken = resources.count(Work(call, tensors), device)
        if "peak bytes" not in taken:
            return {}
        with torch.enable_grad():
            for place in places:
                get(given, place).requires_grad_()
            saved = resources.count(Work(call, tensors, trains=True), device)
    except Exception:  # not every function can be traced
        return {}
    return taken | ({"saved bytes": saved["saved bytes"]} if places else {})


class _Turn:
    """Computes once on new arguments and returns the seconds; compares the output with ours.

    With ``places`` it computes the gradient by them of the sum of its outputs, weighted by
    ``weights``.
    """

    def __init__(
        self,
        worker: Isolated,
        operator: Operator,
        sizes: Mapping[str, Any],
        seed: int,
        places: Sequence[Place] = (),
        weights: Any = None,
        ours: Isolated | None = None,
    ) -> None:
        self.worker, self.operator, self.ours = worker, operator, ours
        self.places, self.weights = list(places), weights
        self.pins = {name: value for name, value in sizes.items() if name != "batch"}
        self.batch, self.seeds = sizes["batch"], itertools.count(1000 * seed)
        self.wrong, self.calls, self.answers, self.bytes = "", 0, 0, 0
        self.first: tuple[Case, Any] | None = None
        # the output is transferred again after each call, to subtract the transfer
        self.transfers: list[float] = []
        self.computing: list[float] = []

    def __call__(self) -> float:
        case = self.prepare(self.worker, in_place=self.worker.shares_memory)
        seconds, answer = _timed(self.worker, Candidate.run_prepared)
        self.calls += 1
        self.transfers.append(_timed(self.worker, Candidate.answer_again)[0])
        self.computing.append(seconds - self.transfers[-1])
        self.first = self.first or (case, answer)
        if self.ours is not None and not self.wrong:
            self.prepare(self.ours, case)
            expected = _timed(self.ours, Candidate.run_prepared)[1]
            given = (x.nbytes for x in tree_leaves(list(case)) if isinstance(x, np.ndarray))
            self.bytes = sum(given) + sum(x.nbytes for x in outputs(expected)) // 2  # float64
            self.wrong = self._compared(answer, expected)
            self.answers += 1
        return seconds

    def drifted(self) -> str:
        """How the first case's outputs differ after `CALLS`; empty if they are the same."""
        if self.first is None:
            return ""
        case, before = self.first
        self.prepare(self.worker, case)
        while self.calls < CALLS - 1:
            _timed(self.worker, Candidate.run_prepared)
            self.calls += 1
        found, old = outputs(_timed(self.worker, Candidate.run_prepared)[1]), outputs(before)
        self.calls += 1
        n = len(self.places)
        for what, now, then in (
            ("a gradient", found[:n], old[:n]),
            ("the output", found[n:], old[n:]),
        ):
            largest = max(map(scale, then), default=0.0)
            off = max(map(error, now, then), default=0.0)
            if not off <= SAME_CALL * largest:
                return f"after {self.calls} calls {what} of the first has changed by {off:.3g}"
        return ""

    def count(self) -> dict[str, int]:
        by = {self.operator.arguments.index(name) for name in self.operator.by}
        if self.worker.framework != "torch":
            return {}
        places = [place for place in float_arrays(self.prepare(self.worker)) if place[0] in by]
        counted: dict[str, int] = self.worker.apply(count, places, returns=dict[str, int])
        return counted

    def prepare(self, worker: Isolated, case: Case | None = None, in_place: bool = False) -> Case:
        """Send the worker a case's arguments; returns the case.

        With ``in_place`` those of a case that has nothing to do with it are sent first, and
        overwritten.
        """
        case = self._drawn(next(self.seeds)) if case is None else case
        arguments, weights = self._arguments(worker, case), self.weights
        if self.places and self.ours and self.ours.padding and not worker.padding:
            weights = weights[0]
        rest = worker.padding, self.places, weights
        if in_place:
            others = self._arguments(worker, self._drawn(conformance.new_seed()))
            worker.apply(Candidate.prepare, others, *rest)
            worker.overwrite(Candidate.prepare, arguments, *rest)
        else:
            worker.apply(Candidate.prepare, arguments, *rest)
        return case

    def _drawn(self, seed: int) -> Case:
        """A case; on the grid ReLU has kinks, where derivatives differ and are right."""
        draw = Draw(seed, **{"regime": "off_grid", **self.pins})
        return rounded(self.operator.case(draw), "float32")

    def _arguments(self, worker: Isolated, case: Case) -> list[Any]:
        """A case's arguments, as a padded batch if the worker takes one."""
        arguments, sequences = list(case), self.operator.sequences
        if worker.padding:
            batch = [
                np.stack([np.roll(array, i, axis=0) * (-1) ** i for i in range(self.batch)])
                for array in case[:sequences]
            ]
            valid = all_valid(worker.padding, self.batch, batch[-1].shape[1])
            arguments = [*batch, *case[sequences:], valid]
        return [*mapped(arguments, np.ascontiguousarray)]

    def _arrays(self, answer: Any) -> list[Any]:
        """The gradients, and the output as one array, which may be a list of its rows."""
        *gradients, output = answer if self.places else [answer]
        return [*gradients, np.asarray(output, np.float64)]

    def _compared(self, answer: Any, expected: Any) -> str:
        """What is wrong with an output; empty if it equals ours."""
        try:
            theirs, wanted = self._arrays(answer), self._arrays(expected)
        except ValueError:
            return f"call {self.calls} gave rows of different shapes"
        alone = self.ours and self.ours.padding and not self.worker.padding
        # a derivative may be zero up to rounding: errors are relative to the largest one
        n, largest = len(self.places), max(map(scale, wanted[: len(self.places)]), default=0.0)
        batched = [place[0] < self.operator.sequences for place in self.places]
        of = [f"gradient by {self.operator.arguments[place[0]]}" for place in self.places]
        several = zip([*of, "output"], [*batched, True], theirs, wanted, strict=True)
        for number, (what, of_sequences, array, ours) in enumerate(several):
            if alone and of_sequences:
                ours = ours[0]
            bound = SAME_WORK * (largest if number < n else scale(ours))
            if not error(array, ours) <= bound:
                off = f"error {error(array, ours):.3g} exceeds {bound:.3g}"
                return f"call {self.calls}: {what} differs from ours: {off}"
        return ""


def _timed(worker: Isolated, function: Callable[[Candidate], Any]) -> tuple[float, Any]:
    began = perf_counter()
    answer = worker.apply(function)
    return perf_counter() - began, answer


def _roofline(flops: int, bytes_: int, device: torch.device, threads: int) -> float:
    """Roofline seconds of ``flops`` and ``bytes_`` at the ceilings of the device, measured now.

    The fastest of many products and copies count: other load lowers no ceiling.
    """
    cores = cpu_threads.cores(threads) if device.type == "cpu" else []
    a, b, out = torch.randn(3, PRODUCT, PRODUCT, device=device)
    source, target = torch.randn(2, max(bytes_ // 8, 2**10), device=device)
    with settings("float32", threads), cpu_threads.pinned(cores):
        ceilings = measure(
            {"product": lambda: torch.mm(a, b, out=out), "copy": lambda: target.copy_(source)},
            device,
            CEILINGS,
        )
    product, copy = (min(samples) for samples in ceilings.samples.values())
    return max(flops / (2 * PRODUCT**3) * product, bytes_ / (2 * source.nbytes) * copy)


def _verified_again(operator: Operator, candidate: Isolated, seed: int, passes: str) -> str:
    """Why the candidate fails verification after timing; empty if it passes."""
    only = ("equals_oracle", "large", *(("gradient",) if passes == BOTH else ()))
    again = conformance.conformance_test(
        operator, candidate, examples=conformance.QUICK_EXAMPLES, seed=seed, only=only
    )
    failed = [verdict for verdict in again if verdict.status == conformance.FAILED]
    return "".join(f"verified again, {v.name} fails: {v.message}" for v in failed[:1])
