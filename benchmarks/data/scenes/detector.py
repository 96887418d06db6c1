"""Simulated detector features of a generated scene.

An object is detected one to four times, with a shared uncertainty and independent errors; a few
objects are missed. The place is detected in one or two boxes of the whole picture. To count objects
a model must group detections by position; to name a colour it must average an object's detections.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from benchmarks.data import Features
from benchmarks.data.scenes.layout import (
    ACTIONS,
    CANVAS,
    COLOURS,
    PLACES,
    SHAPES,
    SIZES,
    Draw,
    Group,
    Scene,
    Thing,
)

Integers = npt.NDArray[np.int64]
Box = tuple[int, int, int]
"""A detected square in pixels: centre x, centre y, half the side."""

D_FEATURE = 64
UNIT = 256
"""1.0 in the fixed-point format that keeps every sum exact."""
MISSED_PERCENT = 3
DOUBT = 64
"""The greatest score of the confused class of an object, in units of 1 / `UNIT`."""
JITTER = 112
"""The greatest difference between a detection's doubt and its object's, in 1 / `UNIT`."""
NOISE = 256
"""Feature noise is the sum of four uniform integers in [-NOISE, NOISE], in 1 / `UNIT`."""

_ATTRIBUTES = len(SHAPES) + len(COLOURS) + len(SIZES) + len(ACTIONS) + len(PLACES)
_GEOMETRY = 12
# fixed for all seeds: the meaning of a feature does not depend on the data
_PROJECTION = 2 * Draw(64, 36).array(0, 1, _ATTRIBUTES + _GEOMETRY, D_FEATURE) - 1


def detections(scene: Scene, draw: Draw) -> tuple[Features, list[Box]]:
    """The features of a scene, (L, 64) float32 in random order, and their boxes."""
    rows: list[tuple[Integers, Box]] = []
    for group in scene.groups:
        for i, thing in enumerate(group.things):
            # every group has at least one detected object
            if i and draw.chance(MISSED_PERCENT):
                continue
            rows += _views(group, thing, 1 + draw.below(4), draw)
    nothing = np.zeros(_ATTRIBUTES - len(PLACES), np.int64)
    for _ in range(1 + draw.below(2)):
        place = _scores(PLACES, scene.place, *_doubts(PLACES, scene.place, 1, draw)[0])
        box = CANVAS // 2, CANVAS // 2, CANVAS // 2
        rows.append((np.concatenate([nothing, place, _geometry(*box)]), box))
    noise = draw.array(-NOISE, NOISE, 4, len(rows), D_FEATURE).sum(axis=0)
    # integers below 2^24 divided by a power of two: exact in float32 on every machine
    said, boxes = zip(*draw.shuffled(rows), strict=True)
    exact: Integers = np.stack(said) @ _PROJECTION + noise
    return exact.astype(np.float32) / np.float32(2 * UNIT), list(boxes)


def _views(group: Group, thing: Thing, number: int, draw: Draw) -> list[tuple[Integers, Box]]:
    """``number`` detections of one object: rows before projection and noise, with their boxes."""
    parts = []
    for classes, value in (
        (SHAPES, group.shape),
        (COLOURS, group.colour),
        (SIZES, group.size),
        (ACTIONS, group.action),
    ):
        doubts = _doubts(classes, value, number, draw)
        parts.append([_scores(classes, value, rival, doubt) for rival, doubt in doubts])
    shifts = draw.array(-2, 2, number, 3).tolist()
    boxes = [(thing.x + dx, thing.y + dy, thing.radius + dr) for dx, dy, dr in shifts]
    nowhere = np.zeros(len(PLACES), np.int64)
    return [
        (np.concatenate([*scores, nowhere, _geometry(*box)]), box)
        for *scores, box in zip(*parts, boxes, strict=True)
    ]


def _doubts(classes: Sequence[str], value: str, number: int, draw: Draw) -> list[tuple[str, int]]:
    """For each of ``number`` detections: the confused class, and its score."""
    rival = draw.one_of([name for name in classes if name != value])
    doubt = draw.below(DOUBT + 1)
    jitters = draw.array(-JITTER, JITTER, number).tolist()
    return [(rival, min(max(doubt + jitter, 0), UNIT)) for jitter in jitters]


def _scores(classes: Sequence[str], value: str, rival: str, doubt: int) -> Integers:
    scores = np.zeros(len(classes), np.int64)
    scores[classes.index(value)] = UNIT - doubt
    scores[classes.index(rival)] = doubt
    return scores


def _geometry(x: int, y: int, radius: int) -> Integers:
    """Position and size: linear, and as triangle waves that separate neighbours."""
    waves = [
        _wave(c + shift, period)
        for c in (x, y)
        for period in (32, 16)
        for shift in (0, period // 4)
    ]
    linear = [(x - CANVAS // 2) * 8, (y - CANVAS // 2) * 8, radius * 8, radius * radius]
    return np.array([*linear, *waves], np.int64)


def _wave(position: int, period: int) -> int:
    """A triangle wave between -UNIT/2 and UNIT/2."""
    return UNIT * 2 * abs(position % period - period // 2) // period - UNIT // 2
