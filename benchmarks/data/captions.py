"""Reference captions, in Karpathy's layout or COCO's caption format."""

from __future__ import annotations

from pathlib import Path

from benchmarks.data import coco, karpathy
from benchmarks.errors import InputError
from benchmarks.files import read_json

LAYOUTS = "references in Karpathy's layout or COCO's caption format"


def read_references(path: Path | str, split: str | None = None) -> dict[int, list[str]]:
    """The raw reference captions of each image, by ``cocoid`` or else ``imgid``.

    ``split`` may be None if the file has one split, and must be None for COCO's format.

    Raises:
        InputError: the file is missing, truncated or of another layout; there is no such split; an
            image occurs twice or has no references; an id is no integer or a caption no text.
    """
    path = Path(path)
    data = read_json(path, LAYOUTS)
    if not isinstance(data, dict) or not isinstance(data.get("images"), list):
        raise InputError(f'{path}: no list "images", expected {LAYOUTS}')
    if not data["images"]:
        raise InputError(f'{path}: "images" is empty, expected at least one image')
    if isinstance(data.get("annotations"), list):
        if split is not None:
            raise InputError(
                f"{path}: no split {split!r}: COCO's caption format has no splits, name none"
            )
        references = coco.references(path, data)
    elif any(isinstance(image, dict) and "sentences" in image for image in data["images"]):
        references = karpathy.references(path, data, split)
    else:
        raise InputError(
            f'{path}: neither "annotations" nor "sentences" in the images, expected {LAYOUTS}'
        )
    for image_id, captions in references.items():
        if not captions:
            raise InputError(f"{path}: image {image_id} has no references, expected at least one")
    return references
