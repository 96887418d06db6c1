"""COCO's formats: reference captions, and predicted ones.

Captions: ``{"images": [{"id"}], "annotations": [{"image_id", "caption"}]}``.
Results: ``[{"image_id", "caption"}]``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.data import json_fields
from benchmarks.errors import InputError
from benchmarks.files import read_json

RESULTS = 'predictions in COCO\'s result format, [{"image_id": ..., "caption": ...}, ...]'


@dataclass(frozen=True)
class Annotation:
    """An entry of ``annotations``, its place in the file, and its image's entry."""

    place: str
    record: Mapping[str, Any]
    image: Mapping[str, Any]


def images(path: Path, data: Mapping[str, Any]) -> dict[int | str, Mapping[str, Any]]:
    """The entries of ``images`` by id.

    Raises:
        InputError: an id is neither an integer nor text, or occurs twice.
    """
    found: dict[int | str, Mapping[str, Any]] = {}
    for i, image in enumerate(data["images"]):
        image_id = json_fields.field(path, image, f"images[{i}]", "id", (int, str), "an integer")
        if image_id in found:
            raise InputError(f"{path}: images[{i}]: id {image_id} stands twice")
        found[image_id] = image
    return found


def annotated(path: Path, data: Mapping[str, Any]) -> list[Annotation]:
    """The entries of ``annotations``, in file order.

    Raises:
        InputError: as `images`, or one names an unknown image.
    """
    known = images(path, data)
    found = []
    for i, record in enumerate(data["annotations"]):
        place, expected = f"annotations[{i}]", "an integer"
        image_id = json_fields.field(path, record, place, "image_id", (int, str), expected)
        if image_id not in known:
            raise InputError(f"{path}: {place}: image_id {image_id} is not among the images")
        found.append(Annotation(place, record, known[image_id]))
    return found


def references(path: Path, data: Mapping[str, Any]) -> dict[int, list[str]]:
    """The captions of each image, by its id.

    Raises:
        InputError: as `annotated`, or an id is no integer or a caption no text.
    """
    found: dict[int, list[str]] = {}
    for i, image in enumerate(images(path, data).values()):
        found[json_fields.integer(path, image, f"images[{i}]", "id")] = []
    for each in annotated(path, data):
        caption = json_fields.caption(path, each.record, each.place, "caption")
        found[each.image["id"]].append(caption)
    return found


def read_predictions(path: Path | str) -> dict[int, str]:
    """The predicted caption of each image, by ``image_id``.

    Raises:
        InputError: the file is missing, truncated, of another layout or empty; an image_id occurs
            twice or is no integer; a caption is no text.
    """
    path = Path(path)
    data = read_json(path, RESULTS)
    if not isinstance(data, list):
        raise InputError(f"{path}: not a list, expected {RESULTS}")
    if not data:
        raise InputError(f"{path}: an empty list, expected at least one prediction")
    predictions: dict[int, str] = {}
    for i, record in enumerate(data):
        image_id = json_fields.integer(path, record, f"[{i}]", "image_id")
        if image_id in predictions:
            raise InputError(f"{path}: [{i}]: image_id {image_id} stands twice, expected once")
        predictions[image_id] = json_fields.caption(path, record, f"[{i}]", "caption")
    return predictions
