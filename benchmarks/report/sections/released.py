"""The section on captions that authors released, scored again."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks import papers
from benchmarks.records import Record
from benchmarks.report.document import (
    Block,
    Cell,
    Paragraph,
    Section,
    Table,
)
from benchmarks.report.sections.evidence import METRICS, not_run, of, provenance
from reference.equations import PAPERS


def released(records: Sequence[Record]) -> Section:
    """Captions that authors released, scored again."""
    made = of(records, "score")
    title = "Published predictions, scored again"
    if not made:
        how = "it needs the references and the released captions: set `CAPTIONBENCH_DATA`."
        return Section(title, [not_run("Released captions were not scored:", how)])
    blocks: list[Block] = []
    for record in made:
        what = record["what"]
        table = papers.load(what["paper"]).table(what["table"])
        rows: list[list[Cell]] = []
        for name in METRICS:
            column = "RL " + name
            printed = next(
                (c.meant for c in table.cells if (c.row, c.column) == (what["row"], column)), None
            )
            paper = printed if isinstance(printed, float) else None
            ours = record["values"].get(column)
            if ours is None and paper is None:
                continue
            reason = record["details"]["missing"].get(name, "")
            rows.append(
                [
                    name,
                    None if paper is None else f"{paper:.1f}",
                    None if ours is None else f"{ours:.2f}",
                    _difference(ours, paper),
                    record["status"] if ours is not None else "not run",
                    reason,
                ]
            )
        blocks.append(
            Table(
                f"released-{record['details']['predictions'].removesuffix('.json')}",
                f"{record['details']['predictions']}: {PAPERS[what['paper']].title}, "
                f"Table {what['table']}, {what['row']}",
                ("metric", "paper", "ours", "difference", "status", "why not"),
                rows,
            )
        )
        blocks.append(Paragraph(f"Signature: `{record['signature']}`, {record['n']} images."))
    blocks.append(
        Paragraph(
            "Which run of v1 the released captions come from is not said; its row agrees closely, "
            "not exactly. PureT's is a comparison in v2's Table II, and agrees to the printed "
            "digit."
        )
    )
    blocks.append(provenance(made))
    return Section(title, blocks)


def _difference(ours: float | None, paper: float | None) -> str | None:
    return None if ours is None or paper is None else f"{ours - paper:+.2f}"
