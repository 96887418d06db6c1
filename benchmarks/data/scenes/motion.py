"""Moving scenes: a few frames of two objects with different motions, captioned for one of them.

Synthetic data for video captioning. A motion shows only in the change between frames. Its verb is a
caption's only word in "-ing"; one caption in eight has none. Most captions are about the first
object, in the foreground. The features are one vector for each frame, like a network's last layer.
Everything is byte-identical on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchmarks.data import CaptionData, Features
from benchmarks.data.scenes import assemble
from benchmarks.data.scenes.grammar import COLOUR_WORDS, NUMBERS, PLACE_WORDS, different, one_word
from benchmarks.data.scenes.layout import CANVAS, COLOURS, PLACES, Draw

NOUNS = {
    "ball": ("ball", "sphere"),
    "box": ("box", "block"),
    "triangle": ("triangle", "pyramid"),
    "star": ("star",),
    "cross": ("cross", "plus"),
}
"""Without "ring", which ends in "-ing" but is no verb."""
VERBS = {
    "left": (("rolling", "sliding", "drifting"), "to the left"),
    "right": (("rolling", "sliding", "drifting"), "to the right"),
    "up": (("rising", "climbing"), "to the top"),
    "down": (("falling", "sinking"), "to the bottom"),
    "grow": (("growing", "swelling"), ""),
    "shrink": (("shrinking", "fading"), ""),
    "bounce": (("bouncing", "hopping"), "up and down"),
    "rest": (("resting", "waiting"), ""),
}
"""For each motion its verbs, the most frequent first, and its direction."""
FRAMES = range(4, 7)
STEP = 6
"""Movement from one frame to the next, in pixels."""

D_FEATURE = 64
UNIT = 64
"""1.0 in the fixed-point format that keeps every sum exact."""
NOISE = 32
"""Feature noise is the sum of four uniform integers in [-NOISE, NOISE], in 1 / `UNIT`."""
_OF_A_MOVER = len(NOUNS) + len(COLOURS) + 3
# fixed for all seeds: the meaning of a feature does not depend on the data
_PROJECTION = 2 * Draw(64, 37).array(0, 1, 2 * _OF_A_MOVER + len(PLACES), D_FEATURE) - 1


@dataclass(frozen=True)
class Mover:
    """A moving object; ``path`` has (x, y, radius) in pixels for each frame, y downwards."""

    shape: str
    colour: str
    motion: str
    path: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class Clip:
    """The facts of a moving scene; most captions are about the first object."""

    place: str
    first: Mover
    second: Mover


def clip(seed: int, image_id: int) -> Clip:
    """The moving scene of one id: two objects of different shapes and motions."""
    draw = Draw(seed, image_id, 10)
    frames = draw.one_of(FRAMES)
    shapes, motions = draw.shuffled(list(NOUNS)), draw.shuffled(list(VERBS))
    first, second = (
        Mover(shape, draw.one_of(COLOURS), motion, _path(motion, frames, draw))
        for shape, motion in zip(shapes[:2], motions[:2], strict=True)
    )
    return Clip(draw.one_of(PLACES), first, second)


def _path(motion: str, frames: int, draw: Draw) -> tuple[tuple[int, int, int], ...]:
    x, y = (CANVAS // 4 + draw.below(CANVAS // 2) for _ in range(2))
    radius = 8 + draw.below(5)
    path = []
    for t in range(frames):
        way = STEP * t - STEP * (frames - 1) // 2
        dx = {"left": -way, "right": way}.get(motion, 0)
        dy = {"up": -way, "down": way, "bounce": STEP * (t % 2)}.get(motion, 0)
        dr = {"grow": way // 3, "shrink": -way // 3}.get(motion, 0)
        path.append((x + dx, y + dy, radius + dr))
    return tuple(path)


def frames(scene: Clip, draw: Draw) -> Features:
    """The features of a moving scene, (L, 64) float32, one row for each frame."""
    rows = np.zeros((len(scene.first.path), len(_PROJECTION)), np.int64)
    for i, mover in enumerate((scene.first, scene.second)):
        of_mover = rows[:, i * _OF_A_MOVER : (i + 1) * _OF_A_MOVER]
        of_mover[:, list(NOUNS).index(mover.shape)] = UNIT
        of_mover[:, len(NOUNS) + COLOURS.index(mover.colour)] = UNIT
        x, y, radius = np.array(mover.path, np.int64).T
        of_mover[:, -3:] = np.stack([2 * x - CANVAS, 2 * y - CANVAS, 6 * radius - CANVAS], 1)
    rows[:, PLACES.index(scene.place) - len(PLACES)] = UNIT
    noise = draw.array(-NOISE, NOISE, 4, len(rows), D_FEATURE).sum(axis=0)
    # integers below 2^24 divided by a power of two: exact in float32 on every machine
    exact: npt.NDArray[np.int64] = rows @ _PROJECTION + noise
    return exact.astype(np.float32) / np.float32(2 * UNIT)


def captions(scene: Clip, draw: Draw, number: int) -> list[str]:
    """``number`` different captions that are true of the moving scene, as raw text."""
    return different(lambda: _caption(scene, draw), number)


def _caption(scene: Clip, draw: Draw) -> str:
    about, beside = scene.first, scene.second
    if draw.chance(25):
        about, beside = beside, about
    one, other = (_noun_phrase(mover, draw) for mover in (about, beside))
    verbs, where = VERBS[about.motion]
    place, doing = one_word(PLACE_WORDS[scene.place], draw), one_word(verbs, draw)
    template = draw.below(8)
    if template == 0:
        text = f"there is {one} and {other} {place}"
    elif template < 4:
        text = f"{one} is {doing} {where}"
    elif template < 6:
        text = f"{one} {doing} {where} {place}"
    else:
        text = f"{one} is {doing} {where} near {other}"
    text = " ".join(text.split())
    return f"{text[0].upper()}{text[1:]}."


def _noun_phrase(mover: Mover, draw: Draw) -> str:
    words = [one_word(NUMBERS[1], draw)]
    if draw.chance(80):
        words.append(one_word(COLOUR_WORDS.get(mover.colour, (mover.colour,)), draw))
    text = " ".join([*words, one_word(NOUNS[mover.shape], draw)])
    return f"an{text[1:]}" if text.startswith("a orange") else text


def make(seed: int = 0, train: int = 1200, val: int = 100, test: int = 250) -> CaptionData:
    """The data set, determined by the arguments on every machine.

    Args:
        seed: of all random choices.
        train: number of moving scenes in "train"; ``val`` and ``test`` likewise.

    Raises:
        InputError: a negative seed, or a split of no or too many moving scenes.
    """

    def example(image_id: int, references: int) -> tuple[list[str], Features]:
        drawn = clip(seed, image_id)
        said = captions(drawn, Draw(seed, image_id, 11), references)
        return said, frames(drawn, Draw(seed, image_id, 12))

    return assemble("moving scenes", seed, {"train": train, "val": val, "test": test}, example)
