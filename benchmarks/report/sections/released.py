"""The section on captions that authors released, scored again."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks import papers
from benchmarks.kinds import Released
from benchmarks.records import Record, of
from benchmarks.report.document import (
    Block,
    Cell,
    Paragraph,
    Section,
    Table,
)
from benchmarks.report.sections.evidence import not_run, provenance
from benchmarks.scoring.quality import METRICS
from reference.equations import PAPERS

REMARKS = {
    "expansionnet_v1.json": "Which run of v1 these captions come from is not said.",
    "puret.json": "PureT's row is a comparison in v2's table.",
}
"""What must be known of released captions beside their scores."""


def released(records: Sequence[Record], *, quick: bool = False) -> Section:
    """Captions that authors released, scored again; the ``quick`` form leaves them out."""
    made = of(records, Released)
    title = "Published predictions, scored again"
    if not made and quick:
        how = "the short form leaves them out; `captionbench report` without `--quick` scores them."
        return Section(title, [not_run("Released captions were not scored:", how)])
    if not made:
        how = (
            "it needs the references and the released captions: set `CAPTIONBENCH_DATA` to a "
            "folder that has them in `coco_karpathy/`."
        )
        return Section(title, [not_run("Released captions were not scored:", how)])
    blocks: list[Block] = []
    scored = [record for record in made if record.values]
    for record in made:
        what = record.what
        table = papers.load(what.paper).table(what.table)
        rows: list[list[Cell]] = []
        pairs: list[tuple[float, float]] = []
        for name in METRICS:
            column = "RL " + name
            printed = next(
                (c.meant for c in table.cells if (c.row, c.column) == (what.row, column)), None
            )
            paper = printed if isinstance(printed, float) else None
            ours = record.values.get(column)
            if ours is None and paper is None:
                continue
            if ours is not None and paper is not None:
                pairs.append((ours, paper))
            reason = record.details.missing.get(name, "")
            rows.append(
                [
                    name,
                    None if paper is None else f"{paper:.1f}",
                    None if ours is None else f"{ours:.2f}",
                    _difference(ours, paper),
                    record.status if ours is not None else "not run",
                    reason,
                ]
            )
        blocks.append(
            Table(
                f"released-{record.details.predictions.removesuffix('.json')}",
                f"{record.details.predictions}: {PAPERS[what.paper].title}, "
                f"Table {what.table}, {what.row}",
                ("metric", "paper", "ours", "difference", "status", "why not"),
                rows,
            )
        )
        if record in scored:
            blocks.append(Paragraph(_about(record, pairs)))
    if scored:
        blocks.append(provenance(scored))
    return Section(title, blocks)


def _about(record: Record, pairs: Sequence[tuple[float, float]]) -> str:
    """How many of our scores agree with the paper's, and what the row is."""
    equal = sum(f"{ours:.1f}" == f"{paper:.1f}" for ours, paper in pairs)
    text = f"{record.n} images. "
    if pairs:
        text += f"{equal} of {len(pairs)} scores agree with the paper's to the printed digit. "
    text += REMARKS.get(record.details.predictions, "")
    if record.signature:
        text += f" Signature: `{record.signature}`."
    return text


def _difference(ours: float | None, paper: float | None) -> str | None:
    return None if ours is None or paper is None else f"{ours - paper:+.2f}"
