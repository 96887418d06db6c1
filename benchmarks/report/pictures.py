"""Pictures beside captions: photographs from the data folder, never published, and scenes."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from benchmarks.data import karpathy, scenes
from benchmarks.data.photographs import Photographs
from benchmarks.kinds import Scored, Scores
from benchmarks.records import Record

SIZE = 224


def shown(made: Iterable[Record]) -> set[int]:
    """Ids of the Flickr8k photographs whose captions are in the records."""
    return {
        example.image
        for record in made
        if record.data.name.startswith("flickr8k") and isinstance(record.details, Scores | Scored)
        for example in record.details.examples
    }


def of(record: Record, image: int, photographs: Mapping[int, bytes]) -> bytes | None:
    """The JPEG of an image of the record's data; None if there is none."""
    if record.data.name == "scenes":
        return _jpeg(scenes.render(scenes.scene(0, image)).repeat(3, 0).repeat(3, 1))
    return photographs.get(image)


def _jpeg(pixels: npt.NDArray[np.uint8]) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=85)
    return buffer.getvalue()


def jpegs(data: Path | None, image_ids: set[int]) -> dict[int, bytes]:
    """The Flickr8k photographs as JPEG by id, if the data folder has them."""
    folder = data / "flickr8k" if data else None
    if folder is None or not folder.is_dir() or not image_ids:
        return {}
    photographs = Photographs([folder, *sorted(folder.glob("*.zip"))])
    found = {}
    for photograph in karpathy.read_photographs(folder / "dataset_flickr8k.json"):
        if photograph.image_id in image_ids:
            found[photograph.image_id] = _jpeg(photographs.read(photograph.filename, SIZE))
    return found
