"""The section on devices: what they can do at best, and what that predicts of our cases."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from benchmarks.kinds import Prediction
from benchmarks.perf.roofline.devices import described
from benchmarks.perf.roofline.prediction import Beside, beside
from benchmarks.perf.roofline.roofline import BOUNDS
from benchmarks.records import Record, of
from benchmarks.report.document import (
    Block,
    Cell,
    Paragraph,
    Section,
    Table,
)
from benchmarks.report.sections.evidence import not_run, provenance

TITLE = "Devices and the roofline"
COLUMNS = (
    "of",
    "implementation",
    "on",
    "predicted ms",
    *(f"{bound} %" for bound in BOUNDS),
    "launches",
    "GFLOP",
    "GB",
    "measured ms",
    "prediction's error",
)


def roofline(records: Sequence[Record]) -> Section:
    """The devices' descriptions, then every prediction with the measurement of the same beside."""
    made = of(records, Prediction)
    devices: list[list[Cell]] = [
        [
            device.name,
            device.year,
            ", ".join(f"{name} {peak / 1e12:.4g}" for name, peak in device.peak.items()),
            f"{device.bandwidth / 1e9:.4g}",
            f"{(device.memory or 0) / 1e9:.4g}",
            device.source,
        ]
        for device in described().values()
    ]
    launch = next(iter(described().values())).launch_source
    blocks: list[Block] = [
        Paragraph(
            "A call is predicted to take, kernel by kernel, the longest of its FLOPs over the "
            "device's peak, its bytes over the bandwidth, and a launch; kernels, FLOPs and bytes "
            "are counted from what the call dispatches. It is a bound from below, **predicted** "
            "and never measured. GPUs are described by their vendor's data sheets, dense, and by "
            f"one assumption: {launch}. A CPU is described by its measured ceilings."
        ),
        Table(
            "devices",
            "Descriptions",
            ("device", "year", "peak TFLOP/s", "GB/s", "GB", "source"),
            devices,
        ),
    ]
    if not made:
        how = "`captionbench predict` does, with `--device A100` for a GPU."
        return Section(TITLE, [*blocks, not_run("Nothing was predicted:", how)])
    pairs = {id(record): beside(record, records) for record in made}
    known = [pair for pair in pairs.values() if pair]
    if known:
        errors = [pair.error_percent for pair in known]
        blocks.append(
            Paragraph(
                f"Of {len(made)} predictions {len(known)} have a measurement beside them; their "
                f"errors go from {min(errors):+.0f} % to {max(errors):+.0f} %, the median is "
                f"{median(errors):+.0f} % (below 0: the device was slower than predicted)."
            )
        )
    rows = [_row(record, pairs[id(record)]) for record in made]
    blocks += [
        Table("roofline", "Predicted, and measured where it was", COLUMNS, rows, folded=True),
        provenance(made),
    ]
    return Section(TITLE, blocks)


def _row(record: Record, pair: Beside | None) -> list[Cell]:
    values, details = record.values, record.details
    return [
        details.row,
        details.implementation,
        details.device["name"],
        1000 * values["seconds"],
        *(f"{100 * values[f'{bound} share']:.0f}" for bound in BOUNDS),
        f"{values['launches']:.0f}",
        f"{values['flops'] / 1e9:.4g}",
        f"{values['bytes'] / 1e9:.4g}",
        1000 * pair.measured.values["seconds"] if pair else "not run",
        f"{pair.error_percent:+.0f} %" if pair else None,
    ]
