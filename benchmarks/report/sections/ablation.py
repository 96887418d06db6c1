"""The section on the ablation over expansion coefficients, on embedded data."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from benchmarks import figures
from benchmarks.kinds import Ablation
from benchmarks.papers.paired import (
    RULE,
    by_row,
    difference,
    mean,
    mean_and_spread,
    verdict,
)
from benchmarks.records import Record, of
from benchmarks.report.ablation import BASELINE, ROWS
from benchmarks.report.document import (
    Block,
    Cell,
    Figure,
    Paragraph,
    Section,
    Table,
)
from benchmarks.report.sections.attention import attention
from benchmarks.report.sections.evidence import not_run, provenance
from benchmarks.scoring.quality import METRICS


def ablation(records: Sequence[Record]) -> Section:
    """The ablation over expansion coefficients on the embedded scenes."""
    made = of(records, Ablation)
    title = "An ablation over expansion coefficients"
    if not made:
        return Section(title, [not_run("", "`captionbench report` trains it.")])
    runs = by_row(made)
    names = sorted(runs, key=_row_order)
    baseline = runs.get(BASELINE.name, [])
    metrics = [m for m in METRICS if any(m in r.values for r in made)]
    rows: list[list[Cell]] = []
    for name in names:
        means: list[Cell] = [mean_and_spread(runs[name], m) for m in metrics]
        against = baseline if name != BASELINE.name else []
        above = verdict(difference(runs[name], against))
        rows.append([name, len(runs[name]), *means, above])
    missing = {m: why for r in made for m, why in r.details.missing.items()}
    data = made[0].data
    blocks: list[Block] = [
        Paragraph(
            "Trained, decoded and scored here on **embedded data**: small generated scenes, never "
            f"the papers' data ({data.name}, {data.split} split, {made[0].n} images, beam "
            f"{made[0].details.beam_size}). The order of rows may be compared with the "
            f"papers', the values may not. {RULE}"
        ),
        Table(
            "ablation-embedded",
            "Mean over seeds, ± half the range",
            (
                "encoder | decoder",
                "seeds",
                *metrics,
                "CIDEr-D against baseline (95 % interval)",
            ),
            rows,
        ),
        Figure(
            "ablation-embedded",
            "CIDEr-D on the embedded scenes: a dot a seed, a bar at the mean, the baseline's mean "
            "dashed.",
            partial(
                figures.dots,
                {name: [r.values["CIDEr-D"] for r in runs[name]] for name in names},
                "CIDEr-D (x 100)",
                mean(baseline, "CIDEr-D") if baseline else None,
            ),
        ),
    ]
    examples = [
        [name, e.caption, e.reference] for name in names for e in runs[name][0].details.examples
    ]
    blocks.append(
        Table(
            "ablation-captions",
            "Captions of the first test scenes",
            ("encoder | decoder", "caption", "a reference"),
            examples,
            folded=True,
        )
    )
    blocks += attention(made)
    for metric, why in sorted(missing.items()):
        blocks.append(Paragraph(f"{metric} is not run: {why}"))
    blocks.append(Paragraph(f"Signature: `{made[0].signature}`."))
    blocks.append(provenance(made))
    return Section(title, blocks)


def _row_order(name: str) -> tuple[int, str]:
    order = [row.name for row in ROWS]
    return (order.index(name) if name in order else len(order), name)
