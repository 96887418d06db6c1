"""The section on models trained on real photographs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from benchmarks import figures
from benchmarks.kinds import Evaluation
from benchmarks.papers.paired import verdict
from benchmarks.records import Record, of
from benchmarks.report.document import (
    Block,
    Cell,
    Figure,
    Paragraph,
    Photograph,
    Photographs,
    Section,
    Table,
)
from benchmarks.report.sections.evidence import not_run, provenance
from benchmarks.scoring.quality import METRICS
from benchmarks.statistics import paired_difference


def photographs(records: Sequence[Record], jpegs: Mapping[int, bytes]) -> Section:
    """Models trained on real photographs, beside one that does not see them."""
    made = [r for r in of(records, Evaluation) if r.status == "other data"]
    title = "Real photographs: Flickr8k"
    if not made:
        how = "`captionbench train --preset flickr8k` and `captionbench evaluate` make its numbers."
        return Section(title, [not_run("No model was trained on photographs here:", how)])
    made = sorted(made, key=lambda r: -r.values["CIDEr-D"])
    metrics = [m for m in METRICS if any(m in r.values for r in made)]
    rows: list[list[Cell]] = [
        [
            r.what.row,
            f"{(r.details.parameters or 0) / 1e6:.1f}",
            r.details.epochs,
            f"{r.details.training_seconds / 60:.0f}",
            *(f"{r.values[m]:.1f}" if m in r.values else None for m in metrics),
        ]
        for r in made
    ]
    blocks: list[Block] = [
        Paragraph(
            "A small ExpansionNet v2 trained by cross-entropy on features of EfficientNet-lite0, "
            "and the same model with every image's features replaced by their mean: what language "
            "alone gives. **Other data** than the papers', so no value compares with theirs."
        ),
        Table(
            "flickr8k",
            f"{made[0].data.name}, {made[0].data.split} split, {made[0].n} images, "
            f"beam {made[0].details.beam_size}",
            ("encoder | decoder", "10^6 parameters", "epochs", "minutes", *metrics),
            rows,
        ),
    ]
    best = made[0]
    blind = next((r for r in made if "mean" in r.what.row), None)
    if blind is not None and blind is not best:
        ours = 100 * np.array([best.details.cider_d])
        found = paired_difference(ours, 100 * np.array([blind.details.cider_d]))
        blocks.append(
            Paragraph(
                f"What seeing adds to CIDEr-D, of one seed each, with a 95 % interval over images: "
                f"{verdict(found)}."
            )
        )
    curves = {
        r.what.row: (
            [v["epoch"] for v in r.details.validations],
            [100 * v["CIDEr-D"] for v in r.details.validations],
        )
        for r in made
    }
    blocks.append(
        Figure(
            "flickr8k-validation",
            "CIDEr-D on the validation split while training (greedy decoding).",
            partial(figures.curves, curves, "epoch", "CIDEr-D (x 100)"),
        )
    )
    blocks.append(
        Photographs(
            "flickr8k-captions",
            "Eight test photographs, evenly spaced in the split, not chosen.",
            [
                Photograph(
                    str(e.image),
                    [f"**{e.caption}**", f"A person wrote: {e.reference}"],
                    jpegs.get(e.image),
                )
                for e in best.details.examples
            ],
        )
    )
    blocks.append(Paragraph(f"Signature: `{best.signature}`."))
    blocks.append(provenance(made))
    return Section(title, blocks)
