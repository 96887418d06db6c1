"""The expansion papers' captions side by side, v2's operations, and stages of training times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from benchmarks import figures, papers
from benchmarks.files import slug
from benchmarks.kinds import Ablation, Captions, Evaluation, Operations, TrainingTime
from benchmarks.papers.expansionnet_v2.ablation import BASELINE, BOTH, TABLES, V1, V2
from benchmarks.papers.paired import by_row, grouped
from benchmarks.records import Record, of_kind
from benchmarks.report.document import (
    Block,
    Cell,
    Figure,
    Paragraph,
    Photograph,
    Photographs,
    Table,
    Value,
    evidenced,
)
from benchmarks.report.drawings.examples import side_by_side

SHOWN = {V1: "Tables 6 and 7", V2: "Table VIII"}
"""Each paper's tables of captions."""


def expansion(
    paper: str, records: Sequence[Record], jpegs: Mapping[int, bytes]
) -> list[Photographs]:
    """The paper's tables of captions, for each form: the baseline and an ExpansionNet."""
    made = [r for r in of_kind(records, Captions) if r.what.table == TABLES[paper]]
    shown = []
    for form, of_form in grouped(made, lambda r: r.details.form).items():
        about = (
            f"{SHOWN[paper]}: test images of {of_form[0].data.name} captioned by the "
            "baseline and by an ExpansionNet; evenly spaced in the split, not chosen"
        )
        name = slug(paper, "captions", form or "")
        shown += side_by_side(name, about, by_row(of_form), (BASELINE, BOTH), jpegs)
    return shown


def ablation(records: Sequence[Record], jpegs: Mapping[int, bytes]) -> list[Block]:
    """Captions by the rows of v2's Table I, of scenes and photographs; validation curves."""
    shown: list[Block] = []
    scenes = of_kind(records, Ablation)
    about = "Generated test scenes, evenly spaced in the split, not chosen"
    runs = by_row(scenes)
    shown += side_by_side("ablation-captions", about, runs, sorted(runs), jpegs)
    seen = sorted(of_kind(records, Evaluation), key=lambda r: -r.values["CIDEr-D"])
    curves = {
        f"{r.what.row}, {r.data.name}": (
            [v["epoch"] for v in r.details.validations],
            [100 * v["CIDEr-D"] for v in r.details.validations],
        )
        for r in seen
    }
    if curves:
        about = (
            "CIDEr-D on the validation split while training on photographs (greedy decoding), and "
            "of the same model with every image's features replaced by their mean."
        )
        draw = partial(figures.curves, curves, "epoch", "CIDEr-D (x 100)")
        narrow = partial(draw, narrow=True)
        shown.append(Figure("flickr8k-validation", about, seen, draw, narrow))
        items = [
            Photograph(
                str(e.image),
                [f"**{e.caption}**", f"A person wrote: {e.reference}"],
                jpegs.get(e.image),
            )
            for e in seen[0].details.examples
        ]
        about = "Test photographs, evenly spaced in the split, not chosen."
        shown.append(Photographs("flickr8k-captions", about, items, seen[:1]))
    return shown


def operations(records: Sequence[Record]) -> list[Block]:
    """Each row in the paper's convention, factored, and in true FLOPs; a curve."""
    by_row = {r.what.row: r for r in of_kind(records, Operations)}
    table = papers.load("expansionnet_v2").table("VI")
    made = [by_row[row.name] for row in table.rows if row.name in by_row]
    if not made:
        return []
    rows: list[list[Cell]] = [
        [
            r.what.row,
            *(
                Value(f"{x / 1e12:.3f}", (r,), r.status)
                for x in (r.values["FLOPs"], r.details.factored, r.details.true_flops)
            ),
        ]
        for r in made
    ]
    curve = made[0].details.curve
    lines = {name: (curve.coefficients, values) for name, values in curve.lines.items()}
    draw = partial(
        figures.curves, lines, "expansion vectors", "million multiply-accumulates", log_x=True
    )
    return [
        Paragraph(
            "The convention is our reading of the table: a FLOP is a multiply-accumulate of matrix "
            "products, with one teacher-forced decoder pass a caption, the vocabulary layer "
            "counted and the input projection not. An equally good one counts the input projection "
            "and drops others; with three layers the two cannot be told apart. Caption lengths: "
            f"{made[0].details.lengths}."
        ),
        Table(
            "v2-table-vi",
            "The same rows as computed here: factored in the paper's convention; true FLOPs are "
            "two a multiply-accumulate, elementwise included",
            ("encoder | decoder", "as printed, 10^12", "factored, 10^12", "true FLOPs, 10^12"),
            rows,
        ),
        Figure(
            "operations",
            "Multiply-accumulates of one static layer per image (L = 144, d = 512) over the number "
            "of expansion vectors.",
            made[:1],
            draw,
            partial(draw, narrow=True),
        ),
    ]


def stages(paper: str, records: Sequence[Record]) -> list[Table]:
    """The stages that training times are sums of, and the same times on other devices."""
    made = of_kind(records, TrainingTime)
    if not made:
        return []
    rows: list[list[Cell]] = [
        [
            record.what.row,
            stage.column,
            stage.objective,
            *evidenced([record], stage.epochs, stage.batch, stage.steps, 1000 * stage.step_s),
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
        [
            record.what.row,
            column,
            *evidenced([record], *(o[column] for o in record.details.on_other_devices)),
        ]
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
