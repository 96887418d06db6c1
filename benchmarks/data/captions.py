"""Reference captions in Karpathy's layout or COCO's caption format, and predicted captions.

Karpathy's layout: ``{"images": [{"cocoid" or "imgid", "split", "sentences": [{"raw"}]}]}``.
COCO's caption format: ``{"images": [{"id"}], "annotations": [{"image_id", "caption"}]}``.
Predictions in COCO's result format: ``[{"image_id", "caption"}]``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.errors import InputError
from benchmarks.files import read_json

LAYOUTS = "references in Karpathy's layout or COCO's caption format"
RESULTS = 'predictions in COCO\'s result format, [{"image_id": ..., "caption": ...}, ...]'


def _shown(value: Any) -> str:
    """``value`` as JSON, short enough for one line."""
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _field(path: Path, record: Any, place: str, name: str, kind: type, expected: str) -> Any:
    """``record[name]``, which must be there and of the ``kind``."""
    if not isinstance(record, dict):
        raise InputError(f"{path}: {place} is {_shown(record)}, expected an object with {name!r}")
    if name not in record:
        raise InputError(f"{path}: {place} has no {name!r}, expected {expected}")
    value = record[name]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise InputError(f"{path}: {place}.{name} is {_shown(value)}, expected {expected}")
    return value


def _id(path: Path, record: Any, place: str, name: str) -> int:
    return int(_field(path, record, place, name, int, "an integer"))


def _caption(path: Path, record: Any, place: str, name: str) -> str:
    caption = str(_field(path, record, place, name, str, "a caption as a string"))
    try:
        caption.encode()
    except UnicodeEncodeError:
        shown = _shown(caption)
        raise InputError(
            f"{path}: {place}.{name} is {shown}, which has half a surrogate pair, expected text"
        ) from None
    return caption


def _karpathy(path: Path, data: dict[str, Any], split: str | None) -> dict[int, list[str]]:
    images = data["images"]
    splits = [
        _field(path, image, f"images[{i}]", "split", str, "the name of a split")
        for i, image in enumerate(images)
    ]
    available = sorted(set(splits))
    if split is None and len(available) > 1:
        raise InputError(f"{path}: no split named, expected one of {', '.join(available)}")
    wanted = available[0] if split is None else split
    if wanted not in available:
        raise InputError(f"{path}: no split {wanted!r}, expected one of {', '.join(available)}")

    id_name = "cocoid" if "cocoid" in images[0] else "imgid"
    references: dict[int, list[str]] = {}
    for i, image in enumerate(images):
        if splits[i] != wanted:
            continue
        place = f"images[{i}]"
        image_id = _id(path, image, place, id_name)
        if image_id in references:
            raise InputError(f"{path}: {place}: {id_name} {image_id} stands twice in the split")
        sentences = _field(path, image, place, "sentences", list, "a list of sentences")
        references[image_id] = [
            _caption(path, sentence, f"{place}.sentences[{j}]", "raw")
            for j, sentence in enumerate(sentences)
        ]
    return references


def _coco(path: Path, data: dict[str, Any], split: str | None) -> dict[int, list[str]]:
    if split is not None:
        raise InputError(
            f"{path}: no split {split!r}: COCO's caption format has no splits, name none"
        )
    references: dict[int, list[str]] = {}
    for i, image in enumerate(data["images"]):
        image_id = _id(path, image, f"images[{i}]", "id")
        if image_id in references:
            raise InputError(f"{path}: images[{i}]: id {image_id} stands twice")
        references[image_id] = []
    for i, annotation in enumerate(data["annotations"]):
        place = f"annotations[{i}]"
        image_id = _id(path, annotation, place, "image_id")
        if image_id not in references:
            raise InputError(f"{path}: {place}: image_id {image_id} is not among the images")
        references[image_id].append(_caption(path, annotation, place, "caption"))
    return references


def read_references(path: Path | str, split: str | None = None) -> dict[int, list[str]]:
    """The raw reference captions of each image, by ``cocoid`` or, where there is none, ``imgid``.

    ``split`` may be left out where the file has one split only, and must be for COCO's format.

    Raises:
        InputError: the file is missing, truncated or of another layout; the split is not there; an
            image stands twice or has no references; an id is no integer or a caption no text.
    """
    path = Path(path)
    data = read_json(path, LAYOUTS)
    if not isinstance(data, dict) or not isinstance(data.get("images"), list):
        raise InputError(f'{path}: no list "images", expected {LAYOUTS}')
    if not data["images"]:
        raise InputError(f'{path}: "images" is empty, expected at least one image')
    if isinstance(data.get("annotations"), list):
        references = _coco(path, data, split)
    elif any(isinstance(image, dict) and "sentences" in image for image in data["images"]):
        references = _karpathy(path, data, split)
    else:
        raise InputError(
            f'{path}: neither "annotations" nor "sentences" in the images, expected {LAYOUTS}'
        )
    for image_id, captions in references.items():
        if not captions:
            raise InputError(f"{path}: image {image_id} has no references, expected at least one")
    return references


def read_predictions(path: Path | str) -> dict[int, str]:
    """The predicted caption of each image, by ``image_id``.

    Raises:
        InputError: the file is missing, truncated, of another layout or empty; an image_id stands
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
        image_id = _id(path, record, f"[{i}]", "image_id")
        if image_id in predictions:
            raise InputError(f"{path}: [{i}]: image_id {image_id} stands twice, expected once")
        predictions[image_id] = _caption(path, record, f"[{i}]", "caption")
    return predictions
