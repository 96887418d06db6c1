"""The photographs that a report shows, from the data folder: they are never published."""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path

from PIL import Image

from benchmarks.data import karpathy
from benchmarks.data.photographs import Photographs
from benchmarks.kinds import Scored, Scores
from benchmarks.records import Record

SIZE = 224


def shown(made: Iterable[Record]) -> set[int]:
    """The ids of the photographs that records of trainings show with their captions."""
    return {
        example.image
        for record in made
        if record.status == "other data" and isinstance(record.details, Scores | Scored)
        for example in record.details.examples
    }


def jpegs(data: Path | None, image_ids: set[int]) -> dict[int, bytes]:
    """Those of Flickr8k's photographs as JPEG, as far as the data folder has them."""
    folder = data / "flickr8k" if data else None
    if folder is None or not folder.is_dir() or not image_ids:
        return {}
    photographs = Photographs([folder, *sorted(folder.glob("*.zip"))])
    found = {}
    for photograph in karpathy.read_photographs(folder / "dataset_flickr8k.json"):
        if photograph.image_id in image_ids:
            buffer = io.BytesIO()
            pixels = photographs.read(photograph.filename, SIZE)
            Image.fromarray(pixels).save(buffer, "JPEG", quality=85)
            found[photograph.image_id] = buffer.getvalue()
    return found
