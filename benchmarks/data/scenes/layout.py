"""The objects of a generated scene and their positions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

SHAPES = ("ball", "box", "triangle", "star", "cross", "ring")
COLOURS = ("red", "orange", "yellow", "green", "blue", "purple", "black", "white")
SIZES = ("small", "large")
ACTIONS = ("rolling", "jumping", "spinning", "resting")
PLACES = ("grass", "snow", "sand", "water")
RELATIONS = ("left", "right", "above", "below")

CANVAS = 64
CELL = 16
COLUMNS = CANVAS // CELL

Item = TypeVar("Item")


@dataclass(frozen=True)
class Thing:
    """One object: its centre and radius in pixels, y downwards."""

    x: int
    y: int
    radius: int


@dataclass(frozen=True)
class Group:
    """Objects with equal attributes and action."""

    shape: str
    colour: str
    size: str
    action: str
    things: tuple[Thing, ...]

    def relations(self, other: Group) -> list[str]:
        """The relations of all of this group to all of the other, by whole cells of the canvas."""
        found = []
        for axis, before, after in (("x", "left", "right"), ("y", "above", "below")):
            mine = [getattr(thing, axis) // CELL for thing in self.things]
            theirs = [getattr(thing, axis) // CELL for thing in other.things]
            if max(mine) < min(theirs):
                found.append(before)
            if min(mine) > max(theirs):
                found.append(after)
        return found


@dataclass(frozen=True)
class Scene:
    """The facts of one image."""

    place: str
    groups: tuple[Group, ...]


class Draw:
    """Random integers, equal on every machine, from a PCG64's uniform numbers."""

    def __init__(self, *seed: int) -> None:
        """An independent stream for each ``seed``."""
        self._generator = np.random.Generator(np.random.PCG64(seed))

    def below(self, n: int) -> int:
        """Uniform in 0 .. n - 1."""
        return int(self._generator.random() * n)

    def chance(self, percent: int) -> bool:
        """True with probability ``percent`` / 100."""
        return self.below(100) < percent

    def one_of(self, items: Sequence[Item]) -> Item:
        return items[self.below(len(items))]

    def shuffled(self, items: Sequence[Item]) -> list[Item]:
        """A random permutation of the items."""
        rest = list(items)
        return [rest.pop(self.below(len(rest))) for _ in items]

    def array(self, low: int, high: int, *shape: int) -> npt.NDArray[np.int64]:
        """Uniform integers from ``low`` to ``high``, both included."""
        uniform = self._generator.random(shape)
        return low + (uniform * (high - low + 1)).astype(np.int64)


def scene(seed: int, image_id: int) -> Scene:
    """The scene of one image.

    The first two groups are always separated horizontally or vertically.
    """
    draw = Draw(seed, image_id, 0)
    counts = [draw.one_of((1, 1, 2, 3, 4)), draw.one_of((1, 1, 1, 2))]
    # with a third group there are at most six objects
    if sum(counts) < 6 and draw.chance(40):
        counts.append(1)

    line = 1 + draw.below(COLUMNS - 1)
    cells = [(x, y) for x in range(COLUMNS) for y in range(COLUMNS)]
    axis = draw.below(2)
    sides = [[c for c in cells if c[axis] < line], [c for c in cells if c[axis] >= line]]
    if draw.chance(50):
        sides.reverse()
    taken = [draw.shuffled(side)[:count] for side, count in zip(sides, counts, strict=False)]
    free = [cell for cell in cells if cell not in taken[0] + taken[1]]
    taken.append(draw.shuffled(free)[:1])

    looks = draw.shuffled([(shape, colour) for shape in SHAPES for colour in COLOURS])
    groups = []
    for (shape, colour), places, _ in zip(looks, taken, counts, strict=False):
        size = draw.one_of(SIZES)
        things = [
            Thing(
                x * CELL + CELL // 2 - 1 + draw.below(3),
                y * CELL + CELL // 2 - 1 + draw.below(3),
                (4 if size == "small" else 6) + draw.below(2),
            )
            for x, y in places
        ]
        groups.append(Group(shape, colour, size, draw.one_of(ACTIONS), tuple(things)))
    return Scene(draw.one_of(PLACES), tuple(groups))
