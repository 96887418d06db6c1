"""From a ladder to its records: time all sizes in turn in one process, fit the exponents."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from benchmarks import kinds, records
from benchmarks.perf import case_records, resources
from benchmarks.perf import threads as cpu_threads
from benchmarks.perf.cases.case import UNAVAILABLE, settings
from benchmarks.perf.cases.suites import SUBJECTS
from benchmarks.perf.kernels import dispatched
from benchmarks.perf.roofline.devices import DeviceSpec
from benchmarks.perf.roofline.roofline import BOUNDS, Prediction, predict
from benchmarks.perf.scaling.ladders import Ladder
from benchmarks.perf.timing import Budget, measure
from benchmarks.records import Record
from benchmarks.statistics import Estimate, exponent, measured_exponent

TABLE = "scaling"


@dataclass(frozen=True)
class Growth:
    """The measurements of one implementation at each size of a ladder."""

    sizes: tuple[int, ...]  # ascending
    rounds: Any  # seconds, (rounds, sizes)
    flops: list[float]  # counted
    macs: list[float] | None  # in closed form, or None
    predicted: list[Prediction]  # by the roofline of the device's measured ceilings

    @property
    def expected(self) -> list[float]:
        """The closed form's multiply-accumulates or, without one, the counted FLOPs."""
        return self.macs or self.flops

    @property
    def exponent(self) -> Estimate:
        """The exponent of the time."""
        return measured_exponent(self.sizes, self.rounds)

    def explanation(self) -> str:
        """Whether the time grows as the closed form, and if not, what the data say of it.

        Shares are of the predicted time, by what bounds a kernel; the rate is FLOPs over measured
        time.
        """
        slope, closed = self.exponent, exponent(self.sizes, self.expected)
        form = "closed form" if self.macs else "count"
        if slope.low <= closed <= slope.high:
            return (
                f"grows as the {form}: {closed:.2f} is within [{slope.low:.2f}, {slope.high:.2f}]"
            )
        speed = "more slowly" if slope.high < closed else "faster"
        roofline = exponent(self.sizes, [p.seconds for p in self.predicted])
        medians = np.median(self.rounds, axis=0)
        ends = []
        for i in (0, -1):
            shares = ", ".join(
                f"{bound} {100 * self.predicted[i].share(bound):.0f} %" for bound in BOUNDS
            )
            rate = self.flops[i] / medians[i] / 1e9
            ends.append(f"at {self.sizes[i]} {shares} of the roofline, {rate:.3g} GFLOP/s reached")
        within = "within" if slope.low <= roofline <= slope.high else "outside"
        return (
            f"grows {speed} than the {form}, {closed:.2f}: {'; '.join(ends)}; the roofline grows "
            f"by {roofline:.2f}, {within} the interval"
        )


def key(ladder: Ladder, budget: Budget, described: records.Device, tiny: bool) -> str:
    """Key of a ladder's records."""
    cases = [
        ladder.case(size, name, tiny=tiny).recorded()
        for size in ladder.sizes
        for name in ladder.implementations
    ]
    code = [measure_ladder, *SUBJECTS[ladder.subject].code]
    return records.key_of(code, ladder.name, cases, budget, described)


def measure_ladder(
    ladder: Ladder,
    device: torch.device,
    threads: int,
    budget: Budget,
    local: DeviceSpec,
    *,
    tiny: bool = False,
) -> list[Record]:
    """Measure each available implementation of a ladder, one record each.

    Threads are pinned to as many cores; the budget is for all sizes together; ``local`` is the
    device by its measured ceilings; ``tiny`` uses the smallest widths.
    """
    began = time.perf_counter()
    described = case_records.describe(device, threads, pinned=True)
    measured = []
    with settings("float32", threads), cpu_threads.pinned(described.pinned):
        for name in ladder.implementations:
            cases = [ladder.case(size, name, tiny=tiny) for size in ladder.sizes]
            try:
                works = [case.work(name, device) for case in cases]
            except UNAVAILABLE:
                continue
            calls = {str(size): w.call for size, w in zip(ladder.sizes, works, strict=True)}
            timed = measure(calls, device, budget)
            taken = [resources.count(work, device) for work in works]
            closed = ladder.macs
            growth = Growth(
                ladder.sizes,
                np.array([timed.samples[str(size)] for size in ladder.sizes]).T,
                [t["flops"] for t in taken],
                [closed(case.sizes, name) for case in cases] if closed else None,
                [
                    predict(dispatched(case, name, cuda=device.type == "cuda"), local)
                    for case in cases
                ],
            )
            measured.append((name, growth, taken))
    return [
        records.make(
            kinds.Scaling(
                ladder=ladder.name,
                implementation=name,
                symbol=ladder.symbol,
                sizes=list(growth.sizes),
                case=ladder.case(ladder.sizes[-1], name, tiny=tiny).recorded(),
                samples=np.round(growth.rounds, 7).tolist(),
                flops=growth.flops,
                macs=growth.macs,
                saved_bytes=[t.get("saved bytes", 0) for t in taken],
                saved_form=ladder.saved.get(name),
                peak_bytes=[t["peak bytes"] for t in taken],
                predicted_s=[p.seconds for p in growth.predicted],
                shares=[{bound: p.share(bound) for bound in BOUNDS} for p in growth.predicted],
                ceilings=local.to_dict(),
                why=growth.explanation(),
            ),
            paper="all",
            table=TABLE,
            row=f"{ladder.name}: {name}",
            values=_values(growth, taken),
            status=records.MEASURED,
            key=key(ladder, budget, described, tiny),
            n=len(growth.rounds),
            device=described,
            wall_s=(time.perf_counter() - began) / len(measured),
        )
        for name, growth, taken in measured
    ]


def _values(growth: Growth, taken: list[dict[str, int]]) -> dict[str, float]:
    sizes, slope = growth.sizes, growth.exponent
    values = {
        "exponent": slope.value,
        "exponent low": slope.low,
        "exponent high": slope.high,
        "expected": exponent(sizes, growth.expected),
        "roofline": exponent(sizes, [p.seconds for p in growth.predicted]),
        "last": exponent(sizes[-2:], np.median(growth.rounds, axis=0).tolist()[-2:]),
        "expected last": exponent(sizes[-2:], growth.expected[-2:]),
    }
    for name in ("saved bytes", "peak bytes"):
        amounts = [t.get(name, 0) for t in taken]
        if all(amounts):
            values[name] = exponent(sizes, amounts)
    return values
