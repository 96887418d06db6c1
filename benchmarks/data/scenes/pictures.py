"""Render a generated scene, and write a folder of scenes' pictures and captions."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from benchmarks.data.scenes.grammar import captions
from benchmarks.data.scenes.layout import CANVAS, Draw, Scene, scene
from benchmarks.errors import InputError
from benchmarks.files import write_atomically

Integers = npt.NDArray[np.int64]
Pixels = npt.NDArray[np.bool_]

PALETTE = {
    "red": (214, 39, 40),
    "orange": (255, 140, 20),
    "yellow": (250, 220, 50),
    "green": (20, 120, 50),
    "blue": (40, 80, 220),
    "purple": (140, 50, 170),
    "black": (25, 25, 25),
    "white": (255, 255, 255),
}
GROUNDS = {
    "grass": (150, 205, 120),
    "snow": (222, 232, 240),
    "sand": (232, 212, 165),
    "water": (135, 195, 225),
}
SHADE = (90, 90, 90)
CAPTIONS = "captions.csv"


def render(scene: Scene) -> npt.NDArray[np.uint8]:
    """Render the scene, (64, 64, 3) uint8 RGB.

    Rolling objects have streaks beside them, jumping ones a shadow below, spinning ones two marks
    on a circle, resting ones a line below.
    """
    picture = np.empty((CANVAS, CANVAS, 3), np.uint8)
    picture[:] = GROUNDS[scene.place]
    rows, columns = np.mgrid[:CANVAS, :CANVAS]
    for group in scene.groups:
        for thing in group.things:
            x, y, r = columns - thing.x, rows - thing.y, thing.radius
            picture[_trace(group.action, x, y, r)] = SHADE
            picture[_outline(group.shape, x, y, r)] = PALETTE[group.colour]
    return picture


def _outline(shape: str, x: Integers, y: Integers, r: int) -> Pixels:
    """The pixels of a shape of radius ``r`` around the origin."""
    pixels: Pixels = (abs(x) <= r) & (abs(y) <= r)
    if shape == "cross":
        pixels &= (3 * abs(x) <= r) | (3 * abs(y) <= r)
    elif shape == "triangle":
        pixels &= 2 * abs(x) <= y + r
    elif shape == "star":
        pixels &= 2 * abs(x) * abs(y) <= r + 1
    elif shape in ("ball", "ring"):
        pixels &= x * x + y * y <= r * r
    if shape == "ring":
        pixels &= 4 * (x * x + y * y) >= r * r
    return pixels


def _trace(action: str, x: Integers, y: Integers, r: int) -> Pixels:
    """The pixels that show what an object of radius ``r`` does."""
    pixels: Pixels
    if action == "rolling":
        pixels = (x < -r) & (x >= -r - 2) & (y % 3 == 0) & (abs(y) <= r)
    elif action == "jumping":
        pixels = (y == r + 2) & (2 * abs(x) <= r)
    elif action == "spinning":
        pixels = (abs(x) <= r + 1) & (abs(y) <= r + 1) & (x * y > 0) & (abs(x + y) >= 2 * r - 1)
    else:
        pixels = (y == r + 1) & (abs(x) <= r)
    return pixels


def write(folder: Path, images: int, references: int, first: int = 0) -> None:
    """Write ``images`` scenes of seed 0 as PNG files, and their captions as CSV.

    The captions are written last: a folder with them is complete.

    Raises:
        InputError: a number is out of range, the folder holds other files or cannot be written.
    """
    limits = ("num-images", images, 1), ("num-references", references, 1), ("first", first, 0)
    for name, value, least in limits:
        if value < least:
            raise InputError(f"--{name} is {value}, expected at least {least}")
    names = {i: f"scene_{i:06d}.png" for i in range(first, first + images)}
    if folder.is_dir():
        others = {path.name for path in folder.iterdir()} - {*names.values(), CAPTIONS}
        if orphans := sorted(name for name in others if not name.startswith(".")):
            raise InputError(
                f"{folder}: holds other files, {orphans[0]} say, expected a new folder"
            )
    rows = [("image", "caption")]
    for i, name in names.items():
        shown, buffer = scene(0, i), io.BytesIO()
        Image.fromarray(render(shown)).save(buffer, "png")
        with write_atomically(folder / name, "wb") as file:
            file.write(buffer.getvalue())
        rows += [(name, text) for text in captions(shown, Draw(0, i, 1), references)]
    with write_atomically(folder / CAPTIONS) as file:
        csv.writer(file, lineterminator="\n").writerows(rows)
