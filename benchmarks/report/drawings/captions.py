"""Captions of the expansion papers' models, side by side; and how validation went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from benchmarks import figures
from benchmarks.files import slug
from benchmarks.kinds import Ablation, Captions, Evaluation
from benchmarks.papers.expansionnet_v2.ablation import BASELINE, BOTH, TABLES, V1, V2
from benchmarks.papers.paired import by_row
from benchmarks.records import Record, of_kind
from benchmarks.report.document import Block, Figure, Photograph, Photographs, Table
from benchmarks.report.drawings.examples import side_by_side

SHOWN = {V1: "Tables 6 and 7", V2: "Table VIII"}
"""Each paper's tables of captions."""


def expansion(
    paper: str, records: Sequence[Record], jpegs: Mapping[int, bytes]
) -> list[Photographs]:
    """The paper's tables of captions, of each form: the baseline and an ExpansionNet."""
    made = [r for r in of_kind(records, Captions) if r.what.table == TABLES[paper]]
    shown = []
    for form in dict.fromkeys(r.details.form for r in made):
        of_form = [r for r in made if r.details.form == form]
        about = (
            f"{SHOWN[paper]}: test images of {of_form[0].data.name} captioned by the "
            "baseline and by an ExpansionNet; evenly spaced in the split, not chosen"
        )
        name = slug(paper, "captions", form or "")
        shown += side_by_side(name, about, by_row(of_form), (BASELINE, BOTH), jpegs)
    return shown


def ablation(records: Sequence[Record], jpegs: Mapping[int, bytes]) -> list[Block]:
    """What the rows of v2's Table I say: of generated scenes, and of photographs."""
    shown: list[Block] = []
    scenes = of_kind(records, Ablation)
    captions = [
        [r.what.row, e.caption, e.reference]
        for r in sorted(scenes, key=lambda r: r.what.row)
        if r.seeds == min(s.seeds for s in scenes)
        for e in r.details.examples
    ]
    if captions:
        columns = ("encoder | decoder", "caption", "a reference")
        about = "Captions of the first generated test scenes"
        shown.append(Table("ablation-captions", about, columns, captions, folded=True))
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
        shown.append(Figure("flickr8k-validation", about, seen, draw))
        items = [
            Photograph(
                str(e.image),
                [f"**{e.caption}**", f"A person wrote: {e.reference}"],
                jpegs.get(e.image),
            )
            for e in seen[0].details.examples
        ]
        about = "Test photographs, evenly spaced in the split, not chosen."
        shown.append(Photographs("flickr8k-captions", about, items))
    return shown
