"""Captions for Middle-Out's Tables 6 and 8 to 10, each form by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.kinds import Control, Diversity, MiddleOut
from benchmarks.papers.middle_out.captions import FORMS
from benchmarks.papers.middle_out.scores import BASELINE, MIDDLE_OUT
from benchmarks.papers.paired import by_row
from benchmarks.records import Record, of_kind
from benchmarks.report.document import Cell, Photographs, Table
from benchmarks.report.drawings.examples import of_one_seed, side_by_side

SHOWN = (MIDDLE_OUT, f"{BASELINE} + Self-Attention")
"""The rows of Table 2 whose captions Tables 8 and 9 show."""
CONTROLLED = (BASELINE, "Middle-Out + Self-Attention")
"""The rows of Tables 6 and 10."""


def _by_form(records: Sequence[Record]) -> dict[str, list[Record]]:
    """The paper's records by the form that they were run in, as far as there are any."""
    trained = of_kind(records, MiddleOut, Diversity, Control)
    found = {form: [r for r in trained if r.details.form == form] for form in FORMS}
    return {form: made for form, made in found.items() if made}


def pairs(records: Sequence[Record]) -> list[Table]:
    """Tables 6 and 10 themselves, of each form: the pairs that all records have."""
    shown = []
    for form, trained in _by_form(records).items():
        runs = by_row([r for r in trained if r.what.table == "6"])
        if not (made := of_one_seed(runs, list(CONTROLLED))):
            continue
        (seed,) = made[CONTROLLED[0]].seeds
        by_images = [
            {tuple(entry.image for entry in pair): pair for pair in record.details.pairs}
            for record in made.values()
        ]
        rows: list[list[Cell]] = []
        shared = [images for images in by_images[0] if all(images in other for other in by_images)]
        for number, images in enumerate(shared, start=1):
            for said in zip(*(held[images] for held in by_images), strict=True):
                captions = [entry.caption for entry in said]
                rows.append([number, said[0].word, said[0].reference, *captions])
        shown.append(
            Table(
                f"middle_out-6-captions-{form}",
                "Tables 6 and 10: the first pairs of the test split, not chosen; captions of both "
                "images of a pair by the word of each; "
                f"seed {seed}",
                ("pair", "word", "a reference", *made),
                rows,
                folded=True,
            )
        )
    return shown


def examples(records: Sequence[Record], jpegs: Mapping[int, bytes]) -> list[Photographs]:
    """Tables 8 and 9, of each form: captions of the same images from the middle and the left."""
    about = (
        "Tables 8 and 9: captions of the middle-out decoder, the word that it began with in "
        "brackets, and of the sequence-to-sequence model; evenly spaced in the split, not chosen"
    )
    shown = []
    for form, trained in _by_form(records).items():
        runs = by_row([r for r in trained if r.what.table == "2"])
        shown += side_by_side(f"middle_out-8-9-{form}", about, runs, SHOWN, jpegs)
    return shown
