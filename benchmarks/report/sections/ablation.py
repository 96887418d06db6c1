"""The section on the ablation over expansion coefficients, on embedded data."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.ablation import BASELINE, ROWS
from benchmarks.records import Record
from benchmarks.report import figures
from benchmarks.report.document import (
    Block,
    Cell,
    Figure,
    Paragraph,
    Section,
    Table,
)
from benchmarks.report.sections.evidence import METRICS, not_run, of, provenance
from benchmarks.statistics import paired_difference


def ablation(records: Sequence[Record]) -> Section:
    """The ablation over expansion coefficients on the embedded scenes."""
    made = of(records, "ablation")
    title = "An ablation over expansion coefficients"
    if not made:
        return Section(title, [not_run("", "`captionbench report` trains it.")])
    by_row: dict[str, list[Record]] = {}
    for record in sorted(made, key=lambda r: r["seeds"]):
        by_row.setdefault(record["what"]["row"], []).append(record)
    names = sorted(by_row, key=_row_order)
    baseline = by_row.get(BASELINE.name)
    metrics = [m for m in METRICS if any(m in r["values"] for r in made)]
    rows: list[list[Cell]] = []
    for name in names:
        runs = by_row[name]
        means: list[Cell] = [_mean_and_spread([r["values"][m] for r in runs]) for m in metrics]
        rows.append([name, len(runs), *means, _against(runs, baseline)])
    missing = {m: why for r in made for m, why in r["details"]["missing"].items()}
    data = made[0]["data"]
    blocks: list[Block] = [
        Paragraph(
            "Trained, decoded and scored here on **embedded data**: small generated scenes, never "
            f"the papers' data ({data['name']}, {data['split']} split, {made[0]['n']} images, beam "
            f"{made[0]['details']['beam_size']}). The order of rows may be compared with the "
            "papers', the values may not. A difference is called better or worse only where its "
            "95 % interval, over images and seeds, excludes zero."
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
            figures.dots(
                {name: [r["values"]["CIDEr-D"] for r in by_row[name]] for name in names},
                "CIDEr-D (x 100)",
                None if not baseline else _mean([r["values"]["CIDEr-D"] for r in baseline]),
            ),
        ),
    ]
    examples = [
        [name, e["caption"], e["reference"]]
        for name in names
        for e in by_row[name][0]["details"]["examples"]
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
    for metric, why in sorted(missing.items()):
        blocks.append(Paragraph(f"{metric} is not run: {why}"))
    blocks.append(Paragraph(f"Signature: `{made[0]['signature']}`."))
    blocks.append(provenance(made))
    return Section(title, blocks)


def _row_order(name: str) -> tuple[int, str]:
    order = [row.name for row in ROWS]
    return (order.index(name) if name in order else len(order), name)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _mean_and_spread(values: Sequence[float]) -> str:
    half = (max(values) - min(values)) / 2
    return f"{_mean(values):.1f} ± {half:.1f}" if len(values) > 1 else f"{values[0]:.1f}"


def _against(runs: Sequence[Record], baseline: Sequence[Record] | None) -> str:
    if not baseline or runs[0]["what"]["row"] == baseline[0]["what"]["row"]:
        return ""
    theirs = {tuple(r["seeds"]): r["details"]["cider_d"] for r in baseline}
    pairs = [
        (r["details"]["cider_d"], theirs[tuple(r["seeds"])])
        for r in runs
        if tuple(r["seeds"]) in theirs
    ]
    if not pairs:
        return ""
    ours, base = (100 * np.array(side) for side in zip(*pairs, strict=True))
    found = paired_difference(ours, base)
    word = ("better" if found.mean > 0 else "worse") if found.excludes_zero else "not settled"
    return f"{found.mean:+.1f} ({found.low:+.1f} to {found.high:+.1f}): {word}"
