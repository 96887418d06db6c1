"""The section on our implementations compared with the oracle on GPUs."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.files import slug
from benchmarks.kinds import Verification, Verified
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
        "oracle by the same bounds; a comparison is of outputs or of gradients in one dtype, with "
        "the code of the day in **compared**."
    )
    blocks: list[Block] = [Paragraph(about)]
    for device, of_device in grouped(made, lambda record: record.device.name).items():
        compared = _newest(of_device)
        every = [row for _, rows in compared.values() for row in rows]
        said = f"{device}: {sum(row.passed for row in every)} of {len(every)} pass"
        failing = [f"{row.operator} ({row.implementation})" for row in every if not row.passed]
        if failing:
            said += f"; not all of {', '.join(dict.fromkeys(failing))}"
        evidence = list({record.key: record for record, _ in compared.values()}.values())
        blocks.insert(0, Box("measured", f"{said}.", evidence))
        rows: list[list[Cell]] = []
        for record, of_operator in compared.values():
            by_form = grouped(of_operator, lambda row: row.implementation)
            rows += [_cells(record, of) for of in by_form.values()]
        columns = (
            *("operator", "implementation", "comparisons that pass", "cases", "compared"),
            "failure",
        )
        title = f"Compared with the oracle on {device}"
        blocks.append(Table(f"on-{slug(device)}", title, columns, rows, folded=True))
    return Section(TITLE, blocks)


def _newest(made: Sequence[Record[Verification]]) -> dict[str, tuple[Record, list[Verified]]]:
    """By operator, the newest record that has it, and its rows."""
    compared: dict[str, tuple[Record, list[Verified]]] = {}
    for record in sorted(made, key=lambda record: record.time):
        for operator, of in grouped(record.details.rows, lambda row: row.operator).items():
            compared[operator] = record, of
    return compared


def _cells(record: Record, of: Sequence[Verified]) -> list[Cell]:
    """A table's row: an implementation's comparisons."""
    found = [failure for row in of for failure in row.failures]
    passed = sum(row.passed for row in of)
    why = f"{found[0]['property']}: {found[0]['message']}" if found else ""
    return [
        of[0].operator,
        of[0].implementation,
        Value(f"{passed} of {len(of)}", [record], record.status),
        Value(f"{sum(row.cases for row in of):,}", [record], record.status),
        record.time[:10],
        Folded("first failure", why, [record]) if why else "none",
    ]
