"""Below v2's Table VI: our factored algebra and true operations, and operations over N."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from benchmarks import figures, papers
from benchmarks.kinds import Operations
from benchmarks.records import Record, of_kind
from benchmarks.report.document import Block, Cell, Figure, Paragraph, Table, Value


def operations(records: Sequence[Record]) -> list[Block]:
    """Each row in the paper's convention, factored, and in true FLOPs; and the curve."""
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
        ),
    ]
