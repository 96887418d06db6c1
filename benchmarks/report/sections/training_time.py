"""The section on how long the papers' training takes: steps times the time of a step."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks import papers
from benchmarks.kinds import TrainingTime
from benchmarks.papers import Value
from benchmarks.perf.roofline import training_time as predicted
from benchmarks.records import Record, of
from benchmarks.report.document import (
    Block,
    Cell,
    Paragraph,
    Section,
    Table,
)
from benchmarks.report.sections.evidence import not_run, provenance

TITLE = "Training time, predicted"


def training_time(records: Sequence[Record]) -> Section:
    """v1's Table 1 and v2's Table VII as far as they are predicted, with all that is assumed."""
    made = of(records, TrainingTime)
    blocks: list[Block] = [
        Paragraph(
            "The papers' gains in training time are steps times the time of a step, by their "
            "schedule and by the usual one. Steps follow from the printed epochs and batch sizes; "
            "the time of a step is **predicted** by the roofline, or measured where a record "
            "exists. The roofline bounds times from below, so hours compare less well than gains."
        )
    ]
    used: list[Record] = []
    for paper, table in predicted.tables().items():
        rows = [r for r in made if (r.what.paper, r.what.table) == (paper, table)]
        if rows:
            blocks += _table(paper, table, rows)
            used += rows
    if not used:
        how = (
            "`captionbench tables expansionnet_v1 --table 1` and `... expansionnet_v2 --table VII`"
        )
        blocks.append(not_run("No record of predicted training:", f"{how} predict it."))
        return Section(TITLE, blocks)
    return Section(TITLE, [*blocks, provenance(used)])


def _table(paper: str, table: str, made: Sequence[Record]) -> list[Block]:
    printed = papers.load(paper).table(table)
    device = made[0].details.device["name"]
    others = [(o["device"], o["precision"]) for o in made[0].details.on_other_devices]
    rows: list[list[Cell]] = []
    for record in made:
        row, elsewhere = record.what.row, record.details.on_other_devices
        for column, value in record.values.items():
            said: Value = printed.cell(row, column).meant
            rows.append([row, column, said, value, *(other[column] for other in elsewhere)])
    stages: list[list[Cell]] = [
        [
            record.what.row,
            *(getattr(stage, name) for name in ("column", "objective", "epochs", "batch", "steps")),
            1000 * stage.step_s,
            stage.source,
        ]
        for record in made
        for stage in record.details.stages
    ]
    name = f"training-time-{paper}"
    return [
        Table(
            name,
            f"{paper}, Table {table}: printed, and predicted on the paper's device and on others",
            ("row", "column", "paper", f"{device}, predicted", *(" ".join(o) for o in others)),
            rows,
        ),
        Table(
            f"{name}-stages",
            f"{paper}, Table {table}: what the times on {device} are sums of",
            ("row", "column", "objective", "epochs", "batch", "steps", "ms a step", "step is"),
            stages,
            folded=True,
        ),
        Paragraph(f"Assumed for {paper}: {'; '.join(made[0].details.assumptions)}."),
    ]
