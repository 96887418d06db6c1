"""Performance targets, and whether records meet them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from benchmarks import kinds, records
from benchmarks.kinds import Measured
from benchmarks.perf.cases.case import Case, Sizes
from benchmarks.perf.cases.ceilings import COPY, PRODUCT
from benchmarks.perf.cases.models import RECIPE
from benchmarks.perf.cases.suites import (
    GPU_PRECISIONS,
    NARROWEST,
    RANDOM_DYNAMIC,
    RANDOM_STATIC,
    REWARDED,
    SHAPES,
    STEPS,
    SUBJECTS,
)
from benchmarks.records import Record
from benchmarks.statistics import Estimate

BEST = "best"
"""In place of an implementation: the fastest one except the baseline."""
RATIO, SAVED, PEAK = "times as fast", "of its saved bytes", "of its peak bytes"
ROOFLINE, GROWTH, SLOWER = "of its roofline", "growth at twice d", "shapes slower"
AT_MOST = (SAVED, PEAK, GROWTH, SLOWER)
"""Quantities that should be small; the others should be large."""


@dataclass(frozen=True)
class Target:
    """A bound on a quantity of an implementation, at some sizes or at any, in one precision."""

    what: str  # in words
    subject: str
    implementation: str
    quantity: str
    bound: float  # at least; at most for `AT_MOST`
    sizes: Sizes | None = field(default_factory=Sizes)  # None: any, of random shapes
    precision: str = "float32"
    device: str = "cpu"  # the kind of device
    date: str = "2026-11-21"  # of the first commit that has it

    @property
    def bound_text(self) -> str:
        """The bound in words."""
        side = "at most" if self.quantity in AT_MOST else "at least"
        return f"{side} {self.bound:.3g} {self.quantity}"

    @property
    def baseline(self) -> str:
        """The implementation that the bound is against."""
        return SUBJECTS[self.subject].implementations[0]

    def is_of(self, case: kinds.Case) -> bool:
        """Whether it applies to the case, whatever the implementations."""
        if (case.subject, case.precision) != (self.subject, self.precision):
            return False
        return self.sizes is None or case.sizes == SUBJECTS[self.subject].sizes_of(self.sizes)

    def verdict(self, estimate: Estimate) -> str:
        """ "met" or "missed" where the whole interval lies on one side of the bound."""
        if self.quantity in AT_MOST:
            met, missed = estimate.high <= self.bound, estimate.low > self.bound
        else:
            met, missed = estimate.low >= self.bound, estimate.high < self.bound
        return "met" if met else "missed" if missed else "not settled"


_STATIC = "static-layer forward+backward"
_BOTH, _DIGITS = "static layer, both passes", "training step, LSTM + ARNet, 784 steps"
_OPERATOR = "static operator, both passes"
_LONG, _LONG_DATE = Sizes(**STEPS), "2026-11-22"
_STEP, _STEP_16 = (Sizes(batch=batch, dropout=RECIPE.dropout) for batch in (48, 16))
_ON_CPU = [
    Target(_BOTH, _STATIC, "factored", RATIO, 1.45),
    Target(_BOTH, _STATIC, "factored", SAVED, 0.5),
    Target("static layers of random shapes", RANDOM_STATIC.name, "auto", SLOWER, 0, None),
    Target("dynamic operator, forward", "dynamic-operator forward", "factored", RATIO, 8),
    Target(
        "dynamic operator, both passes", "dynamic-operator forward+backward", "factored", RATIO, 5
    ),
    Target("dynamic layers of random shapes", RANDOM_DYNAMIC.name, "auto", SLOWER, 0, None),
    Target("what N_E adds to a dynamic layer", "dynamic-memory", "factored", GROWTH, 1.05),
    Target("training step, batch 16", "xe-step", "auto", RATIO, 1.5, _STEP_16),
    *(
        Target(f"{what}, {images}", subject, "incremental", RATIO, bound, Sizes(batch=batch))
        for what, subject in (("beam search", "beam"), ("beam search alone", "beam-encoded"))
        for images, batch, bound in (("8 images", 8, 10), ("1 image", 1, 4))
    ),
    Target(
        "beam search alone, 1 image, weights of 8 bits, beside the bytes of 32",
        *("beam-encoded", "incremental+int8", ROOFLINE, 2 / 3, Sizes(batch=1)),
        date="2026-11-23",
    ),
    *(
        Target(
            f"self-critical step, {batch} images",
            *("sc-step", "shared", RATIO, 4, Sizes(batch=batch, **REWARDED)),
            date="2026-11-23",
        )
        for batch in (4, 48)
    ),
    Target("CIDEr-D of 240 captions", "reward", "tensors", RATIO, 8),
    Target(_DIGITS, "digits-step", "auto", RATIO, 3, _LONG, date=_LONG_DATE),
]
_ON_CUDA = [
    Target(_DIGITS, "digits-step", BEST, RATIO, 20, _LONG, device="cuda", date=_LONG_DATE),
    Target(
        "zoneout along 784 steps, both passes",
        *("zoneout forward+backward", "custom_backward", RATIO, 5, _LONG),
        device="cuda",
        date=_LONG_DATE,
    ),
    *(
        replace(target, what=f"{target.what}, {precision}", precision=precision, device="cuda")
        for precision in GPU_PRECISIONS
        for target in (
            Target(_BOTH, _STATIC, BEST, RATIO, 6.0),
            Target(_BOTH, _STATIC, BEST, PEAK, 1 / 3),
            Target(_OPERATOR, "static-operator forward+backward", "fused", ROOFLINE, 0.5),
            Target("training step, batch 48", "xe-step", BEST, RATIO, 3.0, _STEP),
            Target("beam search, 48 images", "beam", BEST, RATIO, 20.0),
        )
    ),
]
TARGETS = (*_ON_CPU, *_ON_CUDA)


def is_needed(case: Case) -> bool:
    """Whether a target applies to the case, or needs it: the ceilings."""
    recorded = case.recorded()
    return case.subject.name == "ceilings" or any(target.is_of(recorded) for target in TARGETS)


@dataclass(frozen=True)
class TargetResult:
    """A target and its verdict on one device: met, missed, not settled, or not run."""

    target: Target
    measured: str = ""
    device: str = ""
    verdict: str = "not run"
    evidence: tuple[Record, ...] = ()
    estimate: Estimate | None = None


def evaluate_targets(
    known: Sequence[Record], targets: Sequence[Target] = TARGETS
) -> list[TargetResult]:
    """The verdict of each target on each device; the newest record of a slot counts."""
    devices: dict[tuple[str, str], list[Record]] = {}
    for record in records.of_kind(records.newest(known), Measured):
        devices.setdefault((record.device.kind, record.device.label), []).append(record)
    outcomes = []
    for target in targets:
        results = [
            _evaluate(target, timings)
            for (kind, _), timings in devices.items()
            if kind == target.device
        ]
        outcomes += list(filter(None, results)) or [TargetResult(target)]
    return outcomes


def _evaluate(target: Target, timings: Sequence[Record]) -> TargetResult | None:
    """The verdict on one device; None if it was not measured there."""
    comparable = [
        record
        for record in timings
        if target.is_of(record.details.case)
        and record.details.baseline == target.baseline
        and not _with_warm_cache(record)
    ]
    if target.quantity == SLOWER:
        return _slower(target, comparable)
    record = _of_implementation(target.implementation, comparable)
    estimate = _quantity(target.quantity, record, timings) if record else None
    if record is None or estimate is None:
        return None
    text = f"{estimate.value:.3g}"
    if estimate.low != estimate.high:
        text += f" [{estimate.low:.3g}, {estimate.high:.3g}]"
    if target.implementation == BEST:
        text += f" ({record.details.implementation})"
    verdict = target.verdict(estimate)
    return TargetResult(target, text, record.device.label, verdict, (record,), estimate)


def _with_warm_cache(record: Record) -> bool:
    """Whether a CUDA device's cache was not emptied; no target is about that."""
    return record.device.kind == "cuda" and getattr(record.details, "cache", None) == "warm"


def _of_implementation(name: str, comparable: Sequence[Record]) -> Record | None:
    if name == BEST:
        others = [r for r in comparable if r.details.implementation != r.details.baseline]
        return max(others, key=lambda r: r.values["ratio"], default=None)
    return next((r for r in comparable if r.details.implementation == name), None)


def _quantity(quantity: str, record: Record, timings: Sequence[Record]) -> Estimate | None:
    values = record.values
    if quantity == RATIO:
        return Estimate(values["ratio"], values["ratio low"], values["ratio high"])
    if quantity == ROOFLINE:
        return roofline(record, timings)
    name = {SAVED: "saved ratio", PEAK: "peak ratio", GROWTH: "growth"}[quantity]
    value = values.get(name)
    return None if value is None else Estimate(value, value, value)


def roofline(record: Record, timings: Sequence[Record]) -> Estimate | None:
    """Fraction of the roofline reached: least time at the device's ceilings / measured time.

    The least time is that of the least bytes at the speed of a copy or of the FLOPs at that of a
    large product, whichever is longer; the newest ceilings in the record's precision count.
    """
    values, precision = record.values, record.details.case.precision
    if "least bytes" not in values:
        return None
    for other in reversed(timings):  # the newest
        case = other.details.case
        if case.subject == "ceilings" and case.precision == precision:
            ceilings = other.values
            bytes_s = values["least bytes"] / ceilings[COPY]
            least = max(bytes_s, values.get("flops", 0) / ceilings[PRODUCT])
            names = ("seconds", "seconds high", "seconds low")
            return Estimate(*(least / values[name] for name in names))
    return None


_AMOUNTS = {
    "saved bytes": ("MB saved", 1e6),
    "peak bytes": ("MB at the peak", 1e6),
    "flops a second": ("GFLOP/s", 1e9),
    "least bytes a second": ("GB/s of the least bytes", 1e9),
    "moved bytes a second": ("GB/s moved", 1e9),
}


def amounts(values: Mapping[str, float]) -> list[str]:
    """Resource counts and rates of a call, with units."""
    return [
        f"{values[name] / unit:.4g} {words}"
        for name, (words, unit) in _AMOUNTS.items()
        if values.get(name)
    ]


def _slower(target: Target, comparable: Sequence[Record]) -> TargetResult | None:
    """The verdict on how many random shapes are slower than the baseline."""
    shapes = [
        record
        for record in comparable
        if record.details.implementation == target.implementation
        and record.details.case.sizes["d_model"] >= NARROWEST
    ]
    if not shapes:
        return None
    slower = sum(record.details.verdict == "slower" for record in shapes)
    enough = len(shapes) >= SHAPES
    verdict = "missed" if slower > target.bound else "met" if enough else "not settled"
    # a static layer is always factored: only a dynamic one can choose wrongly
    choice = target.subject == RANDOM_DYNAMIC.name
    wrong = sum(_chosen_wrongly(record, comparable) for record in shapes) if choice else 0
    text = f"{slower} of {len(shapes)}" + (f", {wrong} chosen wrongly" if wrong else "")
    return TargetResult(target, text, shapes[0].device.label, verdict, tuple(shapes))


def _chosen_wrongly(record: Record, comparable: Sequence[Record]) -> bool:
    """Whether another implementation was faster in the same run, beyond interval and noise."""
    values = record.values
    limit = values["ratio high"] * values["floor"]
    return any(r.key == record.key and r.values["ratio low"] > limit for r in comparable)
