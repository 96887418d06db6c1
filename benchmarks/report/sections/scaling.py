"""The section on scale: exponents of time and memory, against the closed form."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from benchmarks.files import slug
from benchmarks.kinds import Scaling
from benchmarks.perf.scaling import curves
from benchmarks.perf.targets import device_name
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
    "kept bytes grow as n^",
    "peak bytes",
    "kept bytes",
    "why",
)


def scaling(records: Sequence[Record]) -> Section:
    """Every ladder's exponents, and its times drawn."""
    made = of(records, Scaling)
    blocks: list[Block] = [
        Paragraph(
            "Exponents are slopes of log time on log size over sizes that double, measured in turn "
            "in one process, with a 95 % bootstrap interval over rounds. **Expected** is the same "
            "slope of the closed form's multiply-accumulates (of counted FLOPs, for decoding): a "
            "sum of powers, so no whole number. The roofline's exponent is predicted from the "
            "device's measured ceilings. Bytes are **counted** exactly, so their exponents have no "
            "interval; those kept for the backward pass have a closed form, in the papers' "
            "symbols, that the tests hold to the count."
        )
    ]
    if not made:
        how = "`captionbench scale` does; the report itself times nothing."
        return Section(TITLE, [*blocks, not_run("Nothing was measured at several sizes:", how)])
    rows = [_row(record) for record in made]
    blocks.append(Table("scaling", "Growth of time and memory", COLUMNS, rows))
    for device in dict.fromkeys(map(device_name, made)):
        drawn = partial(curves.draw, [r for r in made if device_name(r) == device])
        blocks.append(Figure(slug("scaling", device), f"Time over size, {device}", drawn))
    return Section(TITLE, [*blocks, provenance(made)])


def _row(record: Record) -> list[Cell]:
    values, details = record.values, record.details

    def power(name: str) -> str | None:
        return f"{values[name]:.2f}" if name in values else None

    return [
        record.what.row,
        f"{details.symbol} = {', '.join(map(str, details.sizes))}",
        device_name(record),
        f"{power('exponent')} [{power('exponent low')}, {power('exponent high')}]",
        *map(power, ("expected", "roofline", "last", "expected last", "saved bytes", "peak bytes")),
        details.saved_form,
        details.why,
    ]
