"""Measure two revisions in one session: verify, count, and time them alternately.

Fresh processes are timed: as many of A again as of A, and of B. In every round each makes the same
number of calls, one process after the other in a new random order, so that other load affects all
of them alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from time import perf_counter

import numpy as np

from benchmarks.perf.clock import agree
from benchmarks.perf.compare.benchmarks import Benchmark
from benchmarks.perf.compare.checkout import Tree
from benchmarks.perf.compare.comparison import LEAST_ROUNDS, Comparison, Times, compare_until_narrow
from benchmarks.perf.compare.outcome import Checked, Outcome, Settings
from benchmarks.perf.compare.worker_process import WorkerError, WorkerProcess, start_workers
from benchmarks.verify.conformance import REVISION_EXAMPLES

TURN = 0.003
"""Seconds that a process computes in a round, or one call. Many short rounds settle more than few
long ones, since consecutive calls on a busy machine are disturbed together."""
MOST_ROUNDS = 1000
LONGEST = 10
"""Limit of a benchmark's elapsed time, as a multiple of its computing time."""

Progress = Callable[[str], None]


def verify_and_count(
    trees: Sequence[Tree],
    chosen: Sequence[tuple[Benchmark, str]],
    settings: Settings,
    progress: Progress,
) -> list[Outcome]:
    """Verify and count every benchmark in each tree; a wrong one is not counted."""
    running: list[WorkerProcess | str] = []
    outcomes = []
    processes: list[WorkerProcess] = []
    try:
        for tree in trees:
            processes.append(WorkerProcess(tree, settings.device, settings.threads))
        for process in processes:
            try:
                process.receive()
                running.append(process)
            except WorkerError as error:
                running.append(str(error))
        for benchmark, implementation in chosen:
            progress(f"{benchmark.name}: verified and counted")
            # both trees at once: nothing is timed here
            checked = [Checked() for _ in trees]
            what = {"name": benchmark.name, "implementation": implementation}
            # first, since what a revision lacks is not wrong
            _step(running, checked, "prepare", "", **what, clock=settings.clock)
            _step(running, checked, "verify", "wrong", **what, examples=REVISION_EXAMPLES)
            _step(running, checked, "count", "counts")
            outcomes.append(Outcome(benchmark, implementation, checked))
    finally:
        for process in processes:
            process.close()
    return outcomes


def _step(
    running: Sequence[WorkerProcess | str],
    checked: Sequence[Checked],
    method: str,
    into: str,
    **what: object,
) -> None:
    """Send one request to all that can still be timed, then store their responses."""
    sent = []
    for process, one in zip(running, checked, strict=True):
        if isinstance(process, str):
            one.builds, one.refused = False, process
        elif one.can_be_timed:
            process.send(method, **what)
            sent.append((process, one))
    for process, one in sent:
        try:
            value = process.receive()
            if into:
                setattr(one, into, value)
        except WorkerError as error:
            one.refused = str(error)


def time_in_turn(
    trees: Sequence[Tree], outcomes: Sequence[Outcome], settings: Settings, progress: Progress
) -> list[Outcome]:
    """The outcomes again; those that can be timed in each tree are timed in fresh processes."""
    copies = [Outcome(o.benchmark, o.implementation, o.checked) for o in outcomes]
    to_time = [o for o in copies if o.can_be_timed]
    if not to_time:
        return copies
    sides = {"A": trees[0], "A again": trees[0]}
    if len(trees) > 1:
        sides["B"] = trees[1]
    progress(f"{settings.processes * len(sides)} worker processes started")
    # sides alternate, so that the order of starting favours none
    in_turn = [tree for _ in range(settings.processes) for tree in sides.values()]
    try:
        with start_workers(in_turn, settings.device, settings.threads) as processes:
            groups = {side: processes[i :: len(sides)] for i, side in enumerate(sides)}
            for outcome in to_time:
                progress(f"{outcome.benchmark.name}: timed")
                try:
                    outcome.comparison = _timed(groups, outcome, settings)
                except WorkerError as error:
                    outcome.refused = str(error)
    except WorkerError as error:
        for outcome in to_time:
            outcome.refused = outcome.refused or str(error)
    return copies


def _timed(
    groups: Mapping[str, Sequence[WorkerProcess]], outcome: Outcome, settings: Settings
) -> Comparison:
    name = outcome.benchmark.name
    what = {"name": name, "implementation": outcome.implementation, "clock": settings.clock}
    # in the order of starting
    usual = [
        (side, process, process.request("prepare", **what))
        for turn in zip(*groups.values(), strict=True)
        for side, process in zip(groups, turn, strict=True)
    ]
    calls = max(1, round(TURN / min(seconds for side, _, seconds in usual if side == "A")))
    planted = settings.plant.get(name, 0.0)
    workers = [(process, planted if side == "B" else 0.0) for side, process, _ in usual]
    order = np.random.default_rng(0)
    rounds: list[list[float]] = []
    discarded = 0

    def longer() -> tuple[dict[str, Times], int]:
        nonlocal discarded
        more, lost = _rounds(workers, calls, settings, order)
        rounds.extend(more)
        discarded += lost
        if len(rounds) < LEAST_ROUNDS:
            raise WorkerError(
                f"the clock jumped: {discarded} of {len(rounds) + discarded} rounds were discarded"
            )
        times = np.array(rounds).T
        return {side: times[i :: len(groups)] for i, side in enumerate(groups)}, discarded

    return compare_until_narrow(longer, settings.smallest)


def _rounds(
    workers: Sequence[tuple[WorkerProcess, float]],
    calls: int,
    settings: Settings,
    order: np.random.Generator,
) -> tuple[list[list[float]], int]:
    """Median seconds of a call by round and process, and the number of discarded rounds."""
    kept: list[list[float]] = []
    discarded = 0
    computed, began = 0.0, perf_counter()
    while len(kept) + discarded < MOST_ROUNDS:
        waited = perf_counter() - began > LONGEST * settings.seconds
        if max(len(kept), discarded) >= LEAST_ROUNDS and (computed >= settings.seconds or waited):
            break
        responses = [([0.0], 0.0, 0.0)] * len(workers)
        for i in order.permutation(len(workers)):
            process, planted = workers[i]
            responses[i] = process.request(
                "turn", calls=calls, clock=settings.clock, planted=planted
            )
        computed += sum(sum(seconds) for seconds, _, _ in responses)
        if all(agree(monotonic, wall) for _, monotonic, wall in responses):
            kept.append([median(seconds) for seconds, _, _ in responses])
        else:
            discarded += 1
    return kept, discarded
