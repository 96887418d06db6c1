"""What predicted training times are sums of, and on other devices."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.kinds import TrainingTime
from benchmarks.records import Record, of_kind
from benchmarks.report.document import Cell, Table


def stages(paper: str, records: Sequence[Record]) -> list[Table]:
    """The steps of each stage, and the same times on other devices."""
    made = of_kind(records, TrainingTime)
    if not made:
        return []
    rows: list[list[Cell]] = [
        [
            record.what.row,
            *(getattr(stage, name) for name in ("column", "objective", "epochs", "batch", "steps")),
            1000 * stage.step_s,
            stage.source,
        ]
        for record in made
        for stage in record.details.stages
    ]
    device = made[0].details.device["name"]
    columns = ("row", "column", "objective", "epochs", "batch", "steps", "ms a step", "step is")
    about = f"What the times on {device} are sums of"
    others = [(o["device"], o["precision"]) for o in made[0].details.on_other_devices]
    elsewhere: list[list[Cell]] = [
        [record.what.row, column, *(other[column] for other in record.details.on_other_devices)]
        for record in made
        for column in record.values
    ]
    return [
        Table(f"training-time-{paper}-stages", about, columns, rows, folded=True),
        Table(
            f"training-time-{paper}-others",
            f"The same predicted on other devices than {device}",
            ("row", "column", *(" ".join(other) for other in others)),
            elsewhere,
            folded=True,
        ),
    ]
