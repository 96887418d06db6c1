"""Attention maps for each word: v1's Figure 6 and v2's Figure 4, for each data set.

A record has the weights. A scene is rendered from its id; a photograph is shown if the data are
available, else the weights alone.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
from PIL import Image

from benchmarks import figures
from benchmarks.data import scenes
from benchmarks.data.scenes.detector import Box
from benchmarks.data.scenes.layout import CANVAS, Draw
from benchmarks.files import slug
from benchmarks.kinds import Ablation, Evaluation
from benchmarks.papers.expansionnet_v2.ablation import BASELINE, BOTH
from benchmarks.records import Record
from benchmarks.report.document import Figure

Heat = npt.NDArray[np.float64]
Jpegs = Mapping[int, bytes]


def of_both(records: Sequence[Record], jpegs: Jpegs) -> list[Figure]:
    """v1's Figure 6: the baseline and an ExpansionNet, the mean of the heads."""
    about = (
        "ExpansionNet v1, Figure 6: what the decoder attends to for each word, the mean of the "
        "heads of the last layer"
    )
    return [
        _figure("heads", about, {name: (of_row[name], None) for name in (BASELINE, BOTH)}, jpegs)
        for of_row in _first(records)
        if of_row.keys() >= {BASELINE, BOTH}
    ]


def of_a_head(records: Sequence[Record], jpegs: Jpegs) -> list[Figure]:
    """v2's Figure 4: an ExpansionNet, each head separately."""
    about = (
        f"ExpansionNet v2, Figure 4: what each head of the last layer of {BOTH} attends to, "
        "word by word"
    )
    return [
        _figure("by-head", about, {f"head {n}": (found, n) for n in range(heads)}, jpegs)
        for of_row in _first(records)
        if (found := of_row.get(BOTH)) and (heads := len(found.details.attention.weights))
    ]


def heat(boxes: Sequence[Box], weights: Sequence[float]) -> Heat:
    """For each pixel of a scene the sum of the weights of detections that cover it, (64, 64)."""
    found = np.zeros((CANVAS, CANVAS))
    for (x, y, half), weight in zip(boxes, weights, strict=True):
        found[max(y - half, 0) : y + half + 1, max(x - half, 0) : x + half + 1] += weight
    return found


def _first(records: Sequence[Record]) -> Iterator[dict[str, Record]]:
    """For each data set, by row, the record with weights of its first seed."""
    found: dict[str, dict[str, Record]] = {}
    for record in sorted(records, key=lambda r: r.seeds):
        if isinstance(record.details, Ablation | Evaluation) and _drawn(record):
            found.setdefault(record.data.name, {}).setdefault(record.what.row, record)
    yield from found.values()


def _drawn(record: Record) -> bool:
    """Whether the record has weights to draw: of a scene, or of a photograph's square grid."""
    held = record.details.attention
    if not held or not held.words:
        return False
    rows = len(held.weights[0][0])
    return isinstance(record.details, Ablation) or (
        record.status == "other data" and math.isqrt(rows) ** 2 == rows
    )


def _figure(
    name: str, about: str, rows: Mapping[str, tuple[Record, int | None]], jpegs: Jpegs
) -> Figure:
    """A line per row: a record, and one of its heads or (None) their mean."""
    first = next(record for record, _ in rows.values())
    image = first.details.attention.image
    if isinstance(first.details, Ablation):
        scene = scenes.scene(0, image)
        _, boxes = scenes.detections(scene, Draw(0, image, 2))
        picture, spread = scenes.render(scene), partial(heat, boxes)
        which = (
            "the first generated test scene, on **embedded** data. A detection's weight lies on "
            "all of its box, and adds up where boxes overlap"
        )
    else:
        size = (CANVAS, CANVAS)
        seen = Image.open(io.BytesIO(jpegs[image])) if image in jpegs else Image.new("RGB", size)
        picture = np.asarray(seen.convert("RGB"))
        spread = partial(grid, shape=picture.shape[:2])
        which = (
            f"the first test photograph of {first.data.name}. A feature's weight lies on its cell"
        )
    drawn = {}
    for row, (record, head) in rows.items():
        held = record.details.attention
        weights = np.array(held.weights)
        chosen = weights.mean(0) if head is None else weights[head]
        maps = [spread(of_word) for of_word in chosen.tolist()]
        drawn[row] = list(zip(held.words, maps, strict=True))
    return Figure(
        slug("attention", name, "" if first.data.name == "scenes" else first.data.name),
        f"{about}; {which}; each word has a scale of its own.",
        [record for record, _ in rows.values()],
        partial(figures.overlays, picture, drawn),
    )


def grid(weights: Sequence[float], shape: tuple[int, int]) -> Heat:
    """For each pixel of a picture the weight of its cell, in a square grid row by row."""
    side = math.isqrt(len(weights))
    y, x = (np.arange(n) * side // n for n in shape)
    return np.array(weights).reshape(side, side)[np.ix_(y, x)]
