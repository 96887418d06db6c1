"""The section on scale: exponents of time and memory, against the closed form."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.records import Record
from benchmarks.report import figures
from benchmarks.report.document import Block, Cell, Figure, Paragraph, Section, Table
from benchmarks.report.figures import Panel
from benchmarks.report.sections.evidence import not_run, of, provenance
from benchmarks.speed.targets import device_name
from benchmarks.timing import median

TITLE = "Scale"
COLUMNS = (
    "of",
    "over",
    "on",
    "time grows as n^",
    "expected",
    "roofline",
    "last doubling",
    "expected there",
    "kept bytes",
    "peak bytes",
    "why",
)
PANELS_A_ROW = 3


def scaling(records: Sequence[Record]) -> Section:
    """Every ladder's exponents, and its times drawn."""
    made = of(records, "scaling")
    blocks: list[Block] = [
        Paragraph(
            "Exponents are slopes of log time on log size over sizes that double, measured in turn "
            "in one process, with a 95 % bootstrap interval over rounds. **Expected** is the same "
            "slope of the closed form's multiply-accumulates (of counted FLOPs, for decoding): a "
            "sum of powers, so no whole number. The roofline's exponent is predicted from the "
            "device's measured ceilings. Bytes are counted, so their exponents have no interval."
        )
    ]
    if not made:
        how = "`captionbench scale` does; the report itself times nothing."
        return Section(TITLE, [*blocks, not_run("Nothing was measured at several sizes:", how)])
    rows = [_row(record) for record in made]
    blocks.append(Table("scaling", "Growth of time and memory", COLUMNS, rows))
    for device in dict.fromkeys(map(device_name, made)):
        drawn = _panels([r for r in made if device_name(r) == device])
        name = f"scaling-{len(blocks)}"
        blocks.append(Figure(name, f"Time over size, {device}", figures.panels(drawn)))
    return Section(TITLE, [*blocks, provenance(made)])


def _row(record: Record) -> list[Cell]:
    values, details = record["values"], record["details"]

    def power(name: str) -> str | None:
        return f"{values[name]:.2f}" if name in values else None

    return [
        record["what"]["row"],
        f"{details['symbol']} = {', '.join(map(str, details['sizes']))}",
        device_name(record),
        f"{power('exponent')} [{power('exponent low')}, {power('exponent high')}]",
        *map(power, ("expected", "roofline", "last", "expected last", "saved bytes", "peak bytes")),
        details["why"],
    ]


def _panels(made: Sequence[Record]) -> list[list[Panel]]:
    ladders = dict.fromkeys(r["details"]["ladder"] for r in made)
    drawn = [_panel(name, [r for r in made if r["details"]["ladder"] == name]) for name in ladders]
    return [drawn[i : i + PANELS_A_ROW] for i in range(0, len(drawn), PANELS_A_ROW)]


def _panel(ladder: str, made: Sequence[Record]) -> Panel:
    lines: dict[str, tuple[Sequence[float], ...]] = {}
    for record in made:
        details = record["details"]
        rounds = zip(*details["samples"], strict=True)
        found = [median([1000 * seconds for seconds in of_size]) for of_size in rounds]
        lines[details["implementation"]] = (
            details["sizes"],
            [e.value for e in found],
            [e.low for e in found],
            [e.high for e in found],
        )
    return Panel(ladder, lines, {}, made[0]["details"]["symbol"], "ms")
