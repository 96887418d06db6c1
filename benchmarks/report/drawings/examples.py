"""Captions that different models give the same images, side by side.

A record's images are chosen before they are captioned: evenly spaced in the split.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.kinds import Example
from benchmarks.papers.paired import Rows, shared
from benchmarks.records import Record
from benchmarks.report import pictures
from benchmarks.report.document import Photograph, Photographs


def side_by_side(
    name: str, caption: str, runs: Rows, rows: Sequence[str], jpegs: Mapping[int, bytes]
) -> list[Photographs]:
    """The images that the records of all ``rows`` have, with each row's captions.

    Args:
        name: of the block.
        caption: above it; beam size and seed are added.
        runs: records by row.
        rows: to show, in order, of the first seed that all have; without one, nothing is shown.
        jpegs: photographs by image id.
    """
    if not (found := of_one_seed(runs, rows)):
        return []
    (seed,) = found[rows[0]].seeds
    beams = dict.fromkeys(str(record.details.beam_size) for record in found.values())
    made = {row: {e.image: e for e in r.details.examples} for row, r in found.items()}
    first, *others = made.values()
    shown = found[rows[0]]
    items = [
        Photograph(
            str(image),
            [*(_line(row, made[row][image]) for row in rows), f"A reference: {e.reference}"],
            pictures.of(shown, image, jpegs),
        )
        for image, e in first.items()
        if all(image in other for other in others)
    ]
    about = f"{caption}; beam {' and '.join(beams)}, seed {seed}."
    if shown.data.name.startswith("moving scenes"):
        about += " Moving scenes are features alone, without pictures."
    elif not any(item.jpeg for item in items):
        about += " The pictures are not at hand: `CAPTIONBENCH_DATA` names their folder."
    return [Photographs(name, about, items, list(found.values()))] if items else []


def of_one_seed(runs: Rows, rows: Sequence[str]) -> dict[str, Record]:
    """A record of each of ``rows``, of the first seed that all have; empty without one."""
    found = shared(*(runs.get(row, ()) for row in rows)) if rows else []
    return dict(zip(rows, found[0], strict=True)) if found else {}


def _line(row: str, example: Example) -> str:
    """A row's captions of an image, the best first, and the word that they begin with, if any."""
    begun = f" ({example.word})" if example.word else ""
    return f"{row}{begun}: " + "; ".join(f"**{c}**" for c in beam(example))


def beam(example: Example) -> list[str]:
    """The captions of an image in a record: the whole beam, or the best alone."""
    return example.beam or [example.caption]
