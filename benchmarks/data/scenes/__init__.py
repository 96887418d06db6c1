"""The embedded data: small generated scenes, so that everything runs anywhere in minutes.

It is synthetic and never stands for a paper's data. A scene has two or three groups of equal
objects in a place (`layout`). Its features simulate a detector's noisy, repeated detections
(`detector`), its captions mention some of the facts (`grammar`), and it can be rendered
(`pictures`). `motion` has moving scenes. Everything is byte-identical on every machine.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from benchmarks.data import CaptionData, Features, Split
from benchmarks.data.features import ArrayFeatures
from benchmarks.data.scenes.detector import detections
from benchmarks.data.scenes.grammar import captions
from benchmarks.data.scenes.layout import Draw, scene
from benchmarks.data.scenes.pictures import render
from benchmarks.data.vocabulary import Vocabulary
from benchmarks.errors import InputError
from benchmarks.files import sha256

__all__ = ["assemble", "captions", "detections", "make", "render", "scene"]

FIRST_ID = {"train": 0, "val": 1_000_000, "test": 2_000_000}
"""The first image id of each split, so that its scenes do not depend on other splits' sizes."""
REFERENCES = 5
MIN_COUNT = 2


def make(seed: int = 0, train: int = 2000, val: int = 250, test: int = 250) -> CaptionData:
    """The data set, determined by the arguments on every machine.

    Args:
        seed: of all random choices.
        train: number of images in "train"; ``val`` and ``test`` likewise.

    Raises:
        InputError: a negative seed, or a split of no or too many images.
    """

    def example(image_id: int, references: int) -> tuple[list[str], Features]:
        drawn = scene(seed, image_id)
        said = captions(drawn, Draw(seed, image_id, 1), references)
        return said, detections(drawn, Draw(seed, image_id, 2))[0]

    return assemble("scenes", seed, {"train": train, "val": val, "test": test}, example)


def assemble(
    name: str,
    seed: int,
    sizes: Mapping[str, int],
    example: Callable[[int, int], tuple[list[str], Features]],
) -> CaptionData:
    """A data set of generated examples.

    Args:
        name: of the data set.
        seed: of the examples.
        sizes: number of examples in each split.
        example: (image id, number of captions) -> (captions, features).

    Raises:
        InputError: a negative seed, or a split of no or too many images.
    """
    if seed < 0:
        raise InputError(f"{name}: seed is {seed}, expected at least 0")
    splits = {}
    for split, size in sizes.items():
        if not 0 < size <= FIRST_ID["val"]:
            raise InputError(f"{name}: {split} is {size} images, expected 1 to {FIRST_ID['val']}")
        ids = range(FIRST_ID[split], FIRST_ID[split] + size)
        examples = {i: example(i, REFERENCES) for i in ids}
        features = ArrayFeatures({i: rows for i, (_, rows) in examples.items()})
        splits[split] = Split(list(ids), {i: said for i, (said, _) in examples.items()}, features)
    texts = [text for written in splits["train"].references.values() for text in written]
    content = {n: [s.references, s.store.fingerprint] for n, s in splits.items()}
    return CaptionData(
        name=name,
        fingerprint=sha256(json.dumps(content, sort_keys=True).encode()),
        vocabulary=Vocabulary.from_captions(texts, MIN_COUNT),
        splits=splits,
    )
