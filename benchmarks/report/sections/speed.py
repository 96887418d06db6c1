"""The speed page: targets, rooflines, compiled kernels, growth, timings, devices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial, reduce
from statistics import median
from typing import Any

from msgspec import to_builtins

from benchmarks import figures
from benchmarks.files import slug
from benchmarks.kinds import Compiled, Measured, Prediction, Program, Scaling
from benchmarks.papers.cells import NOT_RUN
from benchmarks.papers.paired import grouped
from benchmarks.perf import coefficient_curves
from benchmarks.perf.roofline.compiled import V2
from benchmarks.perf.roofline.devices import load_specs
from benchmarks.perf.roofline.prediction import PredictedAndMeasured, find_measurement
from benchmarks.perf.roofline.roofline import BOUNDS
from benchmarks.perf.scaling import curves
from benchmarks.perf.targets import RATIO, TargetResult, amounts, evaluate_targets, roofline
from benchmarks.records import Record, of_kind
from benchmarks.report import sources
from benchmarks.report.document import (
    Block,
    Box,
    Cell,
    Figure,
    Folded,
    Paragraph,
    Section,
    Table,
    Value,
    evidenced,
)
from benchmarks.report.evidence import COMPILED
from benchmarks.report.sections import on_gpu

LITERAL = (
    "A ratio is against a plain form, timed in turn in one process: expansions and LSTMs against "
    "the papers' order of operations in plain PyTorch (**literal**), decoding a token at a time "
    "against reading the whole prefix again by literal expansions, CIDEr-D on tensors against "
    "`pycocoevalcap`. Literal is no slower than the authors' released code: compared once by hand "
    "on an Intel core, one thread, the same weights, it was as fast; that comparison has no record "
    "here. A verdict is of the processor beside it, and may differ on another."
)
METHOD = (
    "A target is **met** or **missed** where the whole 95 % bootstrap interval of the paired "
    "ratios is on one side of it. A target's date is of the first commit that has it; every "
    "measurement was made with a later one. One function of each comparison is timed twice: what "
    "those two differ by (the A/A floor) is noise. Bytes and operations are counted."
)
WHERE = {"cpu": "CPU", "cuda": "GPU"}
USUAL = (", L=144", ", T=20", ", d=512", ", ff=2048", ", float32")
"""v2's sizes, which a figure's labels leave out."""
MEASURES = "`captionbench time` does, on a GPU with `--suite gpu --device cuda`"


def sections(records: Sequence[Record]) -> list[Section]:
    """The page's sections, each from records of its kind."""
    made = of_kind(records, Measured)
    return [
        targets(records),
        on_gpu.section(records),
        against_roofline(records),
        compiled(records),
        scaling(records),
        timed(made),
        devices(),
    ]


def targets(records: Sequence[Record]) -> Section:
    """Every target and its verdict; for those not run, the roofline's prediction."""
    outcomes = evaluate_targets(of_kind(records, Measured))
    known = [outcome for outcome in outcomes if outcome.evidence]
    blocks: list[Block] = [_verdicts(outcomes), Paragraph(LITERAL), Paragraph(METHOD)]
    ratios = [outcome for outcome in known if outcome.target.quantity == RATIO]
    if ratios:
        about = "Speedup over the plain form, with 95 % intervals, against each target"
        drawn = [record for outcome in ratios for record in outcome.evidence]
        blocks.append(Figure("speed-targets", about, drawn, partial(_forest, ratios)))
    columns = ("what", "target", "measured", "device", "verdict")
    rows = [_target(outcome) for outcome in known]
    if rows:
        blocks.append(Table("speed-targets", "Targets, measured", columns, rows))
    else:
        blocks.append(Box(NOT_RUN, f"Nothing was timed: {MEASURES}; the report times nothing."))
    made = of_kind(records, Prediction)
    left: list[list[Cell]] = [
        [o.target.what, _bound(o), f"a {WHERE[o.target.device]}", _predicted(o, made)]
        for o in outcomes
        if not o.evidence
    ]
    if left:
        about = "Targets, not run; the roofline's prediction is a bound, and no measurement"
        what = ("what", "target", "device", "predicted")
        blocks.append(Table("speed-not-run", about, what, left, folded=True))
    return Section("Speed targets", blocks)


def _predicted(outcome: TargetResult, made: Sequence[Record]) -> Cell:
    """The ratio predicted for the newest GPU, its share of launches, and CUDA graphs' gain."""
    target = outcome.target
    if target.device != "cuda" or target.quantity != RATIO:
        return "not predicted"
    rows = [r for r in made if target.is_of(r.details.case) and "graphed seconds" in r.values]
    for device in reversed(load_specs()):
        here = {r.details.implementation: r for r in rows if r.details.device["name"] == device}
        literal = here.pop(target.baseline, None)
        if literal is None or not here:
            continue
        best = min(here.values(), key=lambda r: r.values["seconds"])
        if target.implementation in here:
            best = here[target.implementation]
        values, seconds = best.values, literal.values["seconds"]
        left = 100 * values["graphed seconds"] / values["seconds"]
        detail = (
            f"{device}, {best.details.implementation}: launches are "
            f"{100 * values['launch share']:.0f} % of its time; CUDA graphs would leave "
            f"{left:.0f} %, {seconds / values['graphed seconds']:.3g} times as fast"
        )
        ratio = f"{seconds / values['seconds']:.3g} times as fast"
        return Value(ratio, [best, literal], best.status, detail=detail)
    return "not predicted"


def _verdicts(outcomes: Sequence[TargetResult]) -> Box:
    """The numbers of verdicts, in a sentence."""
    found = Counter(outcome.verdict for outcome in outcomes)
    left = Counter(o.target.device for o in outcomes if o.verdict == "not run")
    known = sum(found.values()) - found["not run"]
    said = [f"{found['met']} of {known} verdicts on the processors measured are met"]
    missed = dict.fromkeys(o.target.what for o in outcomes if o.verdict == "missed")
    said += [f"missed: {', '.join(missed)}"] if missed else []
    said += [f"not settled: {found['not settled']}"] if found["not settled"] else []
    said += [f"not run: {n} of a {WHERE[of]}" for of, n in left.items()]
    drawn = [record for outcome in outcomes for record in outcome.evidence]
    return Box("speed" if known else "not run", "; ".join(said) + ".", drawn)


def _forest(outcomes: Sequence[TargetResult]) -> str:
    """A forest plot with a row per target and device."""
    rows: dict[str, dict[str, Any]] = {}
    for outcome in outcomes:
        row = rows.setdefault(f"{outcome.target.what} ({outcome.device})", {})
        row[outcome.verdict] = outcome.estimate
        row["target"] = outcome.target.bound
    return figures.forest(rows, "speedup", ["target"])


def _bound(outcome: TargetResult) -> Value:
    """The target's bound and date."""
    target = outcome.target
    place = sources.targets(target.device)
    return Value(printed=target.bound_text, detail=f"since {target.date}", source=place)


def _target(outcome: TargetResult) -> list[Cell]:
    made, target = outcome.evidence, outcome.target
    device = outcome.device or f"a {WHERE[target.device]}"
    found = None
    if made:
        found = Value(outcome.measured, made, made[0].status, detail=made[0].time[:10])
    return [target.what, _bound(outcome), found, device, outcome.verdict]


def against_roofline(records: Sequence[Record]) -> Section:
    """Predicted times, compared with measured ones."""
    made = of_kind(records, Prediction)
    blocks: list[Block] = [
        Paragraph(
            "A call is **predicted** to take, kernel by kernel, the longest of its FLOPs at the "
            "device's peak, its bytes at its bandwidth, and a launch; kernels are those that the "
            "call dispatches. It bounds their time from below as far as the ceilings measured of "
            "the device are its ceilings. The site's cost explorer has rooflines of any size."
        )
    ]
    if not made:
        how = "Nothing was predicted: `captionbench predict` does, with `--device A100` for a GPU."
        return Section("Beside the roofline", [*blocks, Box(NOT_RUN, how)])
    pairs = [(record, find_measurement(record, records)) for record in made]
    known = [pair for _, pair in pairs if pair]
    if known:
        slower = f"{-median(pair.error_percent for pair in known):.0f} % below what was measured"
        said = f"Rooflines of one core lie {slower} (median of {len(known)})."
        both = [record for r, pair in pairs if pair for record in (r, pair.measured)]
        blocks.insert(0, Box("predicted", said + _faster(known), both))
        about = "Measured, and the roofline of the same kernels; sizes that are not said are v2's"
        blocks.append(Figure("speed-roofline", about, made, partial(_times, made, records)))
    rows: list[list[Cell]] = [
        [
            r.details.row,
            r.details.implementation,
            r.details.device["name"],
            _ms(r, "seconds"),
            _ms(pair.measured, "seconds") if pair else "not run",
            *evidenced([r], f"{pair.error_percent:+.0f} %" if pair else NOT_RUN),
            Folded("bound by", _kernels(r), [r]),
        ]
        for r, pair in pairs
    ]
    columns = (
        *("case", "implementation", "device"),
        *("predicted ms", "measured ms", "error", "kernels"),
    )
    blocks.append(Table("roofline", "Predicted, and measured where it was", columns, rows, True))
    return Section("Beside the roofline", blocks)


def _faster(known: Sequence[PredictedAndMeasured]) -> str:
    """Which measurements are faster than their roofline, and why that can be."""
    found = [pair for pair in known if pair.error_percent > 0]
    if not found:
        return ""
    names = ", ".join(
        f"{p.measured.details.row}, {p.measured.details.implementation}" for p in found
    )
    most = max(pair.error_percent for pair in found)
    return (
        f" Faster than their roofline: {len(found)}, by at most {most:.0f} % ({names}). A ceiling "
        "is the median of varying copies and products of one session, and bytes that stay in a "
        "cache are faster than a copy."
    )


def compiled(records: Sequence[Record]) -> Section:
    """Registers, spills and occupancy of the Triton kernels, compiled but not run."""
    made = sorted(of_kind(records, Compiled), key=lambda r: r.details.capability)
    calls = grouped(made, lambda r: (r.details.shape, r.details.precision))
    about = (
        "Both passes of the expansion operators' Triton kernels, compiled ahead of time for sm_80 "
        "(A100), sm_89 (L4, RTX 4090) and sm_90 (H100), a number each where they differ: registers "
        "and bytes spilled of a thread, bytes of shared memory of a block, the part of a "
        "multiprocessor's warps that it fills; and the least bytes and FLOPs of a launch. No "
        "number here was measured on a GPU."
    )
    blocks: list[Block] = [Paragraph(about)]
    if not calls:
        blocks.append(Box(NOT_RUN, "Nothing was compiled: `captionbench predict --kernels` does."))
        return Section("Kernels, compiled, not run", blocks)
    spilling = sum(r.values["spilled bytes"] > 0 for of_call in calls.values() for r in of_call)
    total = sum(map(len, calls.values()))
    said = f"{total - spilling} of {total} calls spill no register; compiled, not run."
    blocks.insert(0, Box(COMPILED, said, [r for of_call in calls.values() for r in of_call]))
    names = ("registers", "spilled B", "shared KiB", "occupancy", "MB", "GFLOP")
    own = {key: made for key, made in calls.items() if key[0] in map(str, V2)}
    launches = [
        [each[0].name, *key, *_compiled(made, list(map(_spaced, each)))]
        for key, made in own.items()
        for each in zip(*(record.details.programs for record in made), strict=True)
    ]
    title = "Each launch of v2's encoder layer and decoder layer, compiled, not run"
    columns = ("kernel", "case", "precision", *names)
    blocks.append(Table("compiled-launches", title, columns, launches, folded=True))
    title = "The most registers, spills and shared memory and the least occupancy of any launch; "
    rows = [[*key, *_compiled(made, [r.values for r in made])] for key, made in calls.items()]
    title += "bytes and FLOPs of all, compiled, not run"
    blocks.append(Table("compiled", title, ("case", "precision", *names), rows, folded=True))
    return Section("Kernels, compiled, not run", blocks)


def _spaced(program: Program) -> dict[str, Any]:
    return {name.replace("_", " "): value for name, value in to_builtins(program).items()}


def _compiled(made: Sequence[Record], numbers: Sequence[Mapping[str, float]]) -> list[Cell]:
    """By quantity, its value on each architecture, or one if all are equal."""

    def joined(name: str, unit: float = 1) -> str:
        found = [f"{of[name] / unit:.4g}" for of in numbers]
        return " / ".join(found if len(set(found)) > 1 else found[:1])

    units = {"spilled bytes": 1, "shared bytes": 1024, "occupancy": 1, "bytes": 1e6, "flops": 1e9}
    shown = joined("registers"), *(joined(name, unit) for name, unit in units.items())
    return [Value(text, made, COMPILED) for text in shown]


def _times(predicted: Sequence[Record], records: Sequence[Record]) -> str:
    rows: dict[str, dict[str, Any]] = {}
    for record in predicted:
        pair, details = find_measurement(record, records), record.details
        if pair:
            is_plain = pair.measured.details.verdict == "baseline"
            row = rows.setdefault(reduce(lambda of, w: of.replace(w, ""), USUAL, details.row), {})
            row["plain form" if is_plain else "ours"] = 1000 * pair.measured.values["seconds"]
            row[f"{'its' if is_plain else 'our'} roofline"] = 1000 * record.values["seconds"]
    return figures.forest(rows, "ms", ["its roofline", "our roofline"])


def _kernels(record: Record) -> str:
    values = record.values
    shares = ", ".join(f"{bound} {100 * values[f'{bound} share']:.0f} %" for bound in BOUNDS)
    amounts = f"{values['flops'] / 1e9:.4g} GFLOP, {values['bytes'] / 1e9:.4g} GB"
    return f"{shares}; {values['launches']:.0f} launches, {amounts}"


def _ms(record: Record, name: str) -> Value:
    values = record.values
    ends = [values[f"{name} {end}"] for end in ("low", "high") if f"{name} {end}" in values]
    interval = f"[{', '.join(f'{1000 * end:.4g}' for end in ends)}]" if ends else ""
    return Value(f"{1000 * values[name]:.4g}", [record], record.status, detail=interval)


def scaling(records: Sequence[Record]) -> Section:
    """Every ladder's times as a figure, and its exponents."""
    made = of_kind(records, Scaling)
    blocks: list[Block] = [
        Paragraph(
            "An exponent is the slope of log time on log size over sizes that double, measured in "
            "turn in one process, with a 95 % bootstrap interval over rounds; **expected** is that "
            "of the closed form's multiply-accumulates (of counted FLOPs, for decoding), a sum of "
            "powers and so no whole number. Bytes are counted exactly."
        )
    ]
    if not made:
        how = "Nothing was measured at several sizes: `captionbench scale` does."
        return Section("Growth", [*blocks, Box(NOT_RUN, how)])
    sides = Counter(map(_side, made))
    said = ", ".join(f"{sides[side]} {side}" for side in SIDES)
    about = f"Of {len(made)} exponents of time, beside the closed form's: {said} it."
    blocks.insert(0, Box("growth", about, made))
    for device in dict.fromkeys(r.device.label for r in made):
        drawn = [r for r in made if r.device.label == device]
        about = f"Time over size on {device}; dotted: as the closed form grows"
        drawings = (partial(curves.draw, drawn, a_row) for a_row in (3, 1))
        blocks.append(Figure(slug("scaling", device), about, drawn, *drawings))
    columns = ("case", "size", "device", "exponent", *GROWTH, "why")
    rows = [_growth(record) for record in made]
    blocks.append(Table("scaling", "Exponents of time and of counted bytes", columns, rows))
    return Section("Growth", blocks)


GROWTH = ("expected", "roofline", "saved bytes", "peak bytes")


SIDES = ("below", "with an interval around", "above")


def _side(record: Record) -> str:
    low, high = (record.values[f"exponent {end}"] for end in ("low", "high"))
    expected = record.values["expected"]
    return SIDES[0 if high < expected else 2 if low > expected else 1]


def _growth(record: Record) -> list[Cell]:
    values, details = record.values, record.details
    found = {name: f"{value:.2f}" for name, value in values.items()}
    interval = f"[{found['exponent low']}, {found['exponent high']}]"
    saved = f"; saved bytes: {details.saved_form}" if details.saved_form else ""
    last = f"; last doubling {found['last']}, expected {found['expected last']}"
    return [
        record.what.row,
        f"{details.symbol} = {', '.join(map(str, details.sizes))}",
        record.device.label,
        Value(found["exponent"], [record], record.status, detail=interval),
        *evidenced([record], *(found.get(name, "not counted") for name in GROWTH)),
        Folded("why", details.why + last + saved, [record]),
    ]


def timed(made: Sequence[Record]) -> Section:
    """All timings, what was counted instead, and curves over expansion coefficients."""
    if not made:
        return Section("All that was timed", [Box(NOT_RUN, f"Nothing was timed: {MEASURES}.")])
    ordered = sorted(made, key=_place)
    blocks: list[Block] = [
        Table(
            "speed",
            "Medians of many rounds with 95 % intervals; a roofline is by the copies and products "
            "measured on the same device",
            (
                *("case", "implementation", "device", "ms", "speedup", "verdict"),
                *("fraction of roofline", "counted"),
            ),
            [_row(record, made) for record in ordered if "seconds" in record.values],
            folded=True,
        )
    ]
    counted: list[list[Cell]] = [
        [r.details.row, r.details.implementation, r.device.label, name, Value(f"{n:.4g}", [r])]
        for r in ordered
        if "seconds" not in r.values
        for name, n in r.values.items()
    ]
    if counted:
        columns = ("case", "implementation", "device", "what", "value")
        blocks.append(
            Table(
                "speed-counted",
                "Ceilings, growth, memory and errors",
                columns,
                counted,
                folded=True,
            )
        )
    for n, curve in enumerate(coefficient_curves.curves(made)):
        about = f"Over expansion coefficients: {curve.about}"
        drawing = partial(coefficient_curves.draw, [curve])
        blocks.append(Figure(f"speed-coefficients-{n + 1}", about, curve.records, drawing))
    return Section("All that was timed", blocks)


def _place(record: Record) -> tuple[str, ...]:
    """Sort key: by device, then by row, the baseline first."""
    details = record.details
    first = details.implementation != details.baseline
    return record.device.label, details.row, str(first), details.implementation


def _row(record: Record, made: Sequence[Record]) -> list[Cell]:
    values, details = record.values, record.details
    ratio: Cell = "baseline"
    floor = f"A/A floor {values['floor']:.3f}"
    if details.verdict != "baseline":
        text, low, high = (f"{values[f'ratio{end}']:.3g}" for end in ("", " low", " high"))
        ratio = Value(text, [record], record.status, detail=f"[{low}, {high}]")
    reached = roofline(record, [r for r in made if r.device.label == record.device.label])
    return [
        details.row,
        details.implementation,
        record.device.label,
        _ms(record, "seconds"),
        ratio,
        details.verdict,
        *evidenced([record], f"{reached.value:.2f}" if reached else "not counted"),
        Folded("counted", "; ".join([floor, *amounts(values)]), [record]),
    ]


def devices() -> Section:
    """The devices that rooflines describe."""
    rows: list[list[Cell]] = []
    for device in load_specs().values():
        place = sources.find(sources.DEVICES, f'"name": "{device.name}"')
        numbers = (
            str(device.year),
            ", ".join(f"{name} {peak / 1e12:.4g}" for name, peak in device.peak.items()),
            f"{device.bandwidth / 1e9:.4g}",
            f"{(device.memory or 0) / 1e9:.4g}",
        )
        shown = (Value(printed=text, source=place) for text in numbers)
        rows.append([device.name, *shown, Folded("source", device.source)])
    launch = next(iter(load_specs().values())).launch_source
    about = (
        f"GPUs by their vendors' data sheets, dense; assumed: {launch}. A CPU is described by its "
        "measured ceilings"
    )
    columns = ("device", "year", "peak TFLOP/s", "GB/s", "GB", "source")
    return Section("Devices described", [Table("devices", about, columns, rows)])
