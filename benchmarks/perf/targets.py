"""Performance targets, and whether records meet them. Data first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks import records
from benchmarks.kinds import Measured
from benchmarks.perf.cases import random_shapes
from benchmarks.perf.cases.case import Case
from benchmarks.perf.cases.ceilings import COPY, PRODUCT
from benchmarks.perf.cases.models import RECIPE
from benchmarks.perf.cases.suites import PRECISIONS, REWARDED, STEPS, case
from benchmarks.records import Record
from benchmarks.statistics import Estimate

BEST = "best"
"""In place of an implementation: whichever but the baseline is quickest there."""
RATIO, SAVED, PEAK = "times as fast", "of its saved bytes", "of its peak bytes"
ROOFLINE, GROWTH, SLOWER = "of its roofline", "growth at twice d", "shapes slower"
DIGITS = "training step, LSTM + ARNet, 784 steps"
AT_MOST = (SAVED, PEAK, GROWTH, SLOWER)
"""Quantities that should be small; the others should be large."""


@dataclass(frozen=True)
class Target:
    """A bound on what a record says."""

    what: str  # in words
    case: Case  # what is to be measured
    implementation: str  # of which
    quantity: str  # what of it
    bound: float  # at least; at most for `AT_MOST`
    device: str = "cpu"  # the kind of device

    @property
    def since(self) -> str:
        """The day that it was set."""
        later = {"784 steps": "2026-11-22", "self-critical": "2026-11-23"}
        return next((day for what, day in later.items() if what in self.what), "2026-11-21")

    @property
    def bound_text(self) -> str:
        """The bound in words."""
        side = "at most" if self.quantity in AT_MOST else "at least"
        return f"{side} {self.bound:.3g} {self.quantity}"


_BOTH = "static-layer forward+backward"
_STEP: dict[str, Any] = {"dropout": RECIPE.dropout}
_ON_CPU = [
    Target(what, case, implementation, quantity, bound)
    for what, case, implementation, quantity, bound in (
        ("static layer, both passes", case(_BOTH), "factored", RATIO, 1.45),
        ("static layer, both passes", case(_BOTH), "factored", SAVED, 0.5),
        ("static layers of random shapes", Case(random_shapes.STATIC, ()), "auto", SLOWER, 0),
        ("dynamic operator, forward", case("dynamic-operator forward"), "factored", RATIO, 8),
        (
            "dynamic operator, both passes",
            case("dynamic-operator forward+backward"),
            *("factored", RATIO, 5),
        ),
        ("dynamic layers of random shapes", Case(random_shapes.DYNAMIC, ()), "auto", SLOWER, 0),
        ("what N_E adds to a dynamic layer", case("dynamic-memory"), "factored", GROWTH, 1.05),
        ("training step, batch 16", case("xe-step", batch=16, **_STEP), "auto", RATIO, 1.5),
        ("beam search, 8 images", case("beam", batch=8), "incremental", RATIO, 10),
        ("beam search, 1 image", case("beam", batch=1), "incremental", RATIO, 4),
        ("beam search alone, 8 images", case("beam-encoded", batch=8), "incremental", RATIO, 10),
        ("beam search alone, 1 image", case("beam-encoded", batch=1), "incremental", RATIO, 4),
        ("self-critical step, 4 images", case("sc-step", batch=4, **REWARDED), "shared", RATIO, 4),
        ("self-critical step, 48 images", case("sc-step", **REWARDED), "shared", RATIO, 4),
        ("CIDEr-D of 240 captions", case("reward"), "tensors", RATIO, 8),
        (DIGITS, case("digits-step", **STEPS), "auto", RATIO, 3),
    )
]
_ZONEOUT = case("zoneout forward+backward", **STEPS)
_ON_CUDA = [
    Target(DIGITS, case("digits-step", **STEPS), BEST, RATIO, 20, "cuda"),
    Target("zoneout along 784 steps, both passes", _ZONEOUT, "scan", RATIO, 5, "cuda"),
    *(
        Target(
            f"{what}, {precision}",
            case(subject, precision=precision, **sizes),
            *(implementation, quantity, bound, "cuda"),
        )
        for precision in PRECISIONS
        for what, subject, sizes, implementation, quantity, bound in (
            ("static layer, both passes", _BOTH, {}, BEST, RATIO, 6.0),
            ("static layer, both passes", _BOTH, {}, BEST, PEAK, 1 / 3),
            (
                *("static operator, both passes", "static-operator forward+backward", {}),
                *("fused", ROOFLINE, 0.5),
            ),
            ("training step, batch 48", "xe-step", _STEP, BEST, RATIO, 3.0),
            ("beam search, 48 images", "beam", {}, BEST, RATIO, 20.0),
        )
    ),
]
TARGETS = (*_ON_CPU, *_ON_CUDA)


def is_asked(case: Case) -> bool:
    """Whether a target is about a case, or needs it: the ceilings."""
    if case.subject.name == "ceilings" or case.subject in random_shapes.SUBJECTS:
        return True
    return any(case.row == target.case.row for target in TARGETS)


@dataclass(frozen=True)
class Judged:
    """A target beside what one device gave: met, missed, not settled, or not run."""

    target: Target
    measured: str = ""
    device: str = ""
    verdict: str = "not run"
    evidence: tuple[Record, ...] = ()
    estimate: Estimate | None = None


def judge(made: Sequence[Record], targets: Sequence[Target] = TARGETS) -> list[Judged]:
    """Each target on each device that it was measured on; the newest record of a slot counts.

    "met" and "missed" where the whole interval lies on one side of the bound.
    """
    timings = records.of(records.newest(made), Measured)
    outcomes = []
    for target in targets:
        of = [r for r in timings if r.device.kind == target.device]
        found = [
            outcome
            for device in dict.fromkeys(device_name(r) for r in of)
            if (outcome := _judged(target, [r for r in of if device_name(r) == device]))
        ]
        outcomes += found or [Judged(target)]
    return outcomes


def device_name(record: Record) -> str:
    """The device of a record, with the CPU's threads where it is one."""
    return name_of(record.device)


def name_of(device: records.Device) -> str:
    """A device, with the CPU's threads where it is one."""
    if device.kind != "cpu":
        return device.name
    return f"{device.name}, {device.threads} thread{'' if device.threads == 1 else 's'}"


def _judged(target: Target, made: Sequence[Record]) -> Judged | None:
    """The outcome on one device, None where it was not measured there."""
    if target.quantity == SLOWER:
        return _slower(target, made)
    record = _record(target, made)
    found = _quantity(target.quantity, record, made) if record else None
    if record is None or found is None:
        return None
    text = f"{found.value:.3g}"
    if found.low != found.high:
        text += f" [{found.low:.3g}, {found.high:.3g}]"
    if target.implementation == BEST:
        text += f" ({record.details.implementation})"
    small = target.quantity in AT_MOST
    if found.high <= target.bound if small else found.low >= target.bound:
        verdict = "met"
    elif found.low > target.bound if small else found.high < target.bound:
        verdict = "missed"
    else:
        verdict = "not settled"
    return Judged(target, text, device_name(record), verdict, (record,), found)


def _record(target: Target, made: Sequence[Record]) -> Record | None:
    of = [r for r in made if r.details.row == target.case.row and _usual(r, target)]
    if target.implementation == BEST:
        of = [r for r in of if r.details.implementation != r.details.baseline]
        return max(of, key=lambda r: r.values["ratio"], default=None)
    return next((r for r in of if r.details.implementation == target.implementation), None)


def _usual(record: Record, target: Target) -> bool:
    """Whether its baseline is the one that targets are about."""
    return bool(record.details.baseline == target.case.subject.implementations[0])


def _quantity(quantity: str, record: Record, made: Sequence[Record]) -> Estimate | None:
    values = record.values
    if quantity == RATIO:
        return Estimate(values["ratio"], values["ratio low"], values["ratio high"])
    if quantity == ROOFLINE:
        return roofline(record, made)
    name = {SAVED: "saved ratio", PEAK: "peak ratio", GROWTH: "growth"}[quantity]
    value = values.get(name)
    return None if value is None else Estimate(value, value, value)


def roofline(record: Record, made: Sequence[Record]) -> Estimate | None:
    """The part of the device's speed that is reached, by the ceilings measured in its precision.

    The time that the least bytes take at the speed of a copy or the operations at that of a large
    product, whichever is longer, over the time measured.
    """
    values, precision = record.values, record.details.case.precision
    if "least bytes" not in values:
        return None
    for other in reversed(made):  # the newest
        of = other.details.case
        if of.subject == "ceilings" and of.precision == precision:
            limits = other.values
            bytes_s = values["least bytes"] / limits[COPY]
            least = max(bytes_s, values.get("flops", 0) / limits[PRODUCT])
            names = ("seconds", "seconds high", "seconds low")
            return Estimate(*(least / values[name] for name in names))
    return None


def _slower(target: Target, made: Sequence[Record]) -> Judged | None:
    """How many random shapes are slower than the baseline's."""
    of = [
        r
        for r in made
        if r.details.case.subject == target.case.subject.name
        and r.details.implementation == target.implementation
        and r.details.case.precision == target.case.precision
        and r.details.case.sizes["d_model"] >= random_shapes.NARROWEST
        and _usual(r, target)
    ]
    if not of:
        return None
    slower = sum(r.details.verdict == "slower" for r in of)
    enough = len(of) >= random_shapes.SHAPES
    verdict = "missed" if slower > target.bound else "met" if enough else "not settled"
    # what a static layer computes by is factored or nothing else: there is no choice to be wrong
    choice = target.case.subject.name == random_shapes.DYNAMIC.name
    wrong = sum(_chosen_wrongly(r, made) for r in of) if choice else 0
    text = f"{slower} of {len(of)}" + (f", {wrong} chosen wrongly" if wrong else "")
    return Judged(target, text, device_name(of[0]), verdict, tuple(of))


def _chosen_wrongly(record: Record, made: Sequence[Record]) -> bool:
    """Whether another implementation was quicker in the same run, beyond doubt and noise."""
    values = record.values
    limit = values["ratio high"] * values["floor"]
    return any(r.key == record.key and r.values["ratio low"] > limit for r in made)
