"""The section on speed: what was asked, what was measured, and where."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from benchmarks.kinds import Measured
from benchmarks.perf import coefficient_curves
from benchmarks.perf.targets import device_name, judge, roofline
from benchmarks.records import Record, of
from benchmarks.report.document import (
    Block,
    Cell,
    Figure,
    Paragraph,
    Section,
    Table,
)
from benchmarks.report.sections.evidence import not_run, provenance

TIMED = (
    "of",
    "implementation",
    "on",
    "ms",
    "times as fast",
    "",
    "A/A floor",
    "saved MB",
    "peak MB",
    "GFLOP/s",
    "GB/s",
    "of its roofline",
)
COUNTED = ("of", "implementation", "on", "what", "value")


def speed(records: Sequence[Record]) -> Section:
    """Every target beside what records show, then all that was timed."""
    made = of(records, Measured)
    targets: list[list[Cell]] = [
        [
            outcome.target.what,
            outcome.target.bound_text,
            outcome.measured,
            outcome.device or {"cpu": "a CPU", "cuda": "a GPU"}[outcome.target.device],
            outcome.verdict,
        ]
        for outcome in judge(made)
    ]
    blocks: list[Block] = [
        Paragraph(
            "Our forms against a plain one, timed in turn in one process: expansions and LSTMs "
            "against the papers' order of operations (**literal**); decoding a token at a time "
            "against reading the whole prefix again, by literal expansions; CIDEr-D on tensors "
            "against a "
            "call of `pycocoevalcap`, which counts document frequencies each time, where ours has "
            "them from the start. Times are medians of many rounds, ratios are paired by round, "
            "both with a 95 % bootstrap interval. One function of each comparison is timed twice; "
            "what those two differ by (the A/A floor) is noise. A target is **met** or **missed** "
            "where the whole interval is on one side of it. Bytes and operations are counted."
        ),
        Table(
            "speed-targets",
            "What is asked of speed and memory",
            ("of", "asked", "measured", "on", ""),
            targets,
        ),
    ]
    if not made:
        how = "`captionbench time` does, and on a GPU `captionbench time --suite gpu --device cuda`"
        blocks.append(not_run("Nothing was timed:", f"{how}; the report itself times nothing."))
        return Section("Speed", blocks)
    timed = sorted((r for r in made if "seconds" in r.values), key=_place)
    rows = [_row(record, made) for record in timed]
    about = (
        "All that was timed; GB/s of an expansion are of the bytes that no implementation can do "
        "without, of all else of those that its operations read and write; a roofline is by the "
        "copies and products measured on the same device"
    )
    blocks.append(Table("speed", about, TIMED, rows, folded=True))
    counted = sorted((r for r in made if "seconds" not in r.values), key=_place)
    if counted:
        rows = [
            [r.details.row, r.details.implementation, device_name(r), name, value]
            for r in counted
            for name, value in r.values.items()
        ]
        blocks.append(Table("speed-counted", "Ceilings and growth", COUNTED, rows, folded=True))
    for n, curve in enumerate(coefficient_curves.curves(made)):
        name = f"speed-coefficients-{n + 1}"
        blocks.append(
            Figure(
                name,
                f"Over expansion coefficients: {curve.about}",
                partial(coefficient_curves.draw, [curve]),
            )
        )
    blocks.append(provenance(made))
    return Section("Speed", blocks)


def _place(record: Record) -> tuple[str, ...]:
    """Devices together, then what was timed together, the baseline first."""
    details = record.details
    first = details.implementation != details.baseline
    return device_name(record), details.row, str(first), details.implementation


def _row(record: Record, made: Sequence[Record]) -> list[Cell]:
    values, details = record.values, record.details

    def scaled(name: str, unit: float) -> str | None:
        return f"{values[name] / unit:.4g}" if values.get(name) else None

    def interval(name: str, unit: float = 1.0) -> str:
        low, high = values[f"{name} low"] / unit, values[f"{name} high"] / unit
        return f"{values[name] / unit:.3g} [{low:.3g}, {high:.3g}]"

    same_device = [r for r in made if device_name(r) == device_name(record)]
    reached = roofline(record, same_device)
    is_baseline = details.verdict == "baseline"
    return [
        details.row,
        details.implementation,
        device_name(record),
        interval("seconds", 1e-3),
        None if is_baseline else interval("ratio"),
        details.verdict,
        f"{values['floor']:.3f}",
        scaled("saved bytes", 1e6),
        scaled("peak bytes", 1e6),
        scaled("flops a second", 1e9),
        scaled("least bytes a second", 1e9) or scaled("moved bytes a second", 1e9),
        None if reached is None else f"{reached.value:.2f}",
    ]
