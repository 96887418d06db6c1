"""The section on our implementations compared with the oracle on GPUs."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.files import slug
from benchmarks.kinds import Verification
from benchmarks.papers.cells import NOT_RUN
from benchmarks.papers.paired import grouped
from benchmarks.records import Record, of_kind
from benchmarks.report.document import Block, Box, Cell, Folded, Paragraph, Section, Table, Value

TITLE = "Correct on a GPU"
HOW = "`captionbench record --suite gpu` compares before it times"


def section(records: Sequence[Record]) -> Section:
    """Each implementation's comparisons with the oracle on each GPU, and what fails first."""
    made = [r for r in of_kind(records, Verification) if r.device.kind == "cuda"]
    if not made:
        return Section(TITLE, [Box(NOT_RUN, f"Nothing was compared on a GPU: {HOW}.")])
    about = (
        "The cases are those of `captionbench verify`, computed on the GPU and compared with the "
        "oracle by the same bounds; a comparison is of outputs or of gradients in one dtype."
    )
    blocks: list[Block] = [Paragraph(about)]
    for record in made:
        failing = [row for row in record.details.rows if not row.passed]
        said = f"{record.device.name}: {record.values['held']} of {record.values['rows']} pass"
        if failing:
            named = dict.fromkeys(f"{row.operator} ({row.implementation})" for row in failing)
            said += f"; not all of {', '.join(named)}"
        blocks.insert(0, Box("measured", f"{said}.", [record]))
        rows: list[list[Cell]] = []
        for (operator, implementation), of in grouped(
            record.details.rows, lambda row: (row.operator, row.implementation)
        ).items():
            found = [failure for row in of for failure in row.failures]
            passed = sum(row.passed for row in of)
            why = f"{found[0]['property']}: {found[0]['message']}" if found else ""
            rows.append(
                [
                    operator,
                    implementation,
                    Value(f"{passed} of {len(of)}", [record], record.status),
                    Value(f"{sum(row.cases for row in of):,}", [record], record.status),
                    Folded("first failure", why, [record]) if why else "none",
                ]
            )
        columns = ("operator", "implementation", "comparisons that pass", "cases", "failure")
        title = f"Compared with the oracle on {record.device.name}"
        blocks.append(Table(f"on-{slug(record.device.name)}", title, columns, rows, folded=True))
    return Section(TITLE, blocks)
