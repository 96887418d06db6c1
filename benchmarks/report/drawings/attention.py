"""Where a decoder looks for each word: v1's Figure 6 and v2's Figure 4, on a generated scene.

A record holds the weights; the scene is generated again from its id.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from benchmarks import figures
from benchmarks.data import scenes
from benchmarks.data.scenes.detector import Box
from benchmarks.data.scenes.layout import CANVAS, Draw
from benchmarks.kinds import Ablation
from benchmarks.records import Record, of_kind
from benchmarks.report.ablation import BASELINE, BOTH
from benchmarks.report.document import Figure

Heat = npt.NDArray[np.float64]


def of_both(records: Sequence[Record]) -> list[Figure]:
    """v1's Figure 6: the baseline and an ExpansionNet, the mean of the heads."""
    made = _first(records)
    if not {BASELINE.name, BOTH.name} <= made.keys():
        return []
    return [
        _figure(
            "attention-heads",
            "ExpansionNet v1, Figure 6: what the decoder attends to for each word, the mean of the "
            "heads of the last layer",
            {name: (made[name], None) for name in (BASELINE.name, BOTH.name)},
        )
    ]


def of_a_head(records: Sequence[Record]) -> list[Figure]:
    """v2's Figure 4: an ExpansionNet, each head by itself."""
    made = _first(records).get(BOTH.name)
    if made is None:
        return []
    heads = range(len(made.details.attention.weights))
    return [
        _figure(
            "attention-by-head",
            f"ExpansionNet v2, Figure 4: what each head of the last layer of {BOTH.name} attends "
            "to, word by word",
            {f"head {head}": (made, head) for head in heads},
        )
    ]


def heat(boxes: Sequence[Box], weights: Sequence[float]) -> Heat:
    """For each pixel of a scene the weight of the detections that cover it, (64, 64)."""
    found = np.zeros((CANVAS, CANVAS))
    for (x, y, half), weight in zip(boxes, weights, strict=True):
        found[max(y - half, 0) : y + half + 1, max(x - half, 0) : x + half + 1] += weight
    return found


def _first(records: Sequence[Record]) -> dict[str, Record]:
    """By row, the record of its first seed that holds weights of a caption."""
    found: dict[str, Record] = {}
    for record in sorted(of_kind(records, Ablation), key=lambda r: r.seeds):
        if record.details.attention and record.details.attention.words:
            found.setdefault(record.what.row, record)
    return found


def _figure(name: str, about: str, rows: dict[str, tuple[Record, int | None]]) -> Figure:
    """A line a row: a record, and one of its heads or their mean."""
    image = next(iter(rows.values()))[0].details.attention.image
    scene = scenes.scene(0, image)
    _, boxes = scenes.detections(scene, Draw(0, image, 2))
    drawn = {}
    for row, (record, head) in rows.items():
        held = record.details.attention
        weights = np.array(held.weights)
        chosen = weights.mean(0) if head is None else weights[head]
        maps = [heat(boxes, of_word) for of_word in chosen.tolist()]
        drawn[row] = list(zip(held.words, maps, strict=True))
    return Figure(
        name,
        f"{about}; the first generated test scene, on **embedded** data. A detection's weight lies "
        "on all of its box, and adds up where boxes overlap; each word has a scale of its own.",
        [record for record, _ in rows.values()],
        partial(figures.overlays, scenes.render(scene), drawn),
    )
