"""Karpathy's layout: images, captions and splits, and the data set with its features.

``{"images": [{"cocoid" or "imgid", "split", "filename", "sentences": [{"raw"}]}]}``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.data import CaptionData, FeatureStore, Split, json_fields
from benchmarks.data.features import ShardedFeatures, require
from benchmarks.data.vocabulary import Vocabulary
from benchmarks.errors import InputError
from benchmarks.files import read_bytes, read_json, sha256

LAYOUT = "captions and splits in Karpathy's layout"
MIN_COUNT = 5
"""Rarer words are unknown (ExpansionNet v1 section 4, v2 section IV-A). A file may have its own
``min_count`` and ``tokeniser``."""


@dataclass(frozen=True)
class Image:
    """One entry of the layout's ``images``, and its place in the file."""

    path: Path
    place: str
    id_name: str
    image_id: int
    split: str
    record: Mapping[str, Any]

    @property
    def filename(self) -> str:
        """The photograph's file name.

        Raises:
            InputError: the entry has none.
        """
        expected = "a file's name"
        name = json_fields.field(self.path, self.record, self.place, "filename", str, expected)
        return str(name)

    @property
    def captions(self) -> list[str]:
        """The raw captions.

        Raises:
            InputError: the entry has no list of sentences, or a caption is no text.
        """
        sentences = json_fields.field(
            *(self.path, self.record, self.place, "sentences", list, "a list of sentences")
        )
        return [
            json_fields.caption(self.path, sentence, f"{self.place}.sentences[{j}]", "raw")
            for j, sentence in enumerate(sentences)
        ]


@dataclass(frozen=True)
class Photograph:
    """An image's photograph and split."""

    image_id: int
    split: str
    filename: str


def images(path: Path, data: Any) -> list[Image]:
    """The images of all splits, by ``cocoid`` or else ``imgid``.

    Raises:
        InputError: another layout, or an image occurs twice in a split.
    """
    listed = data.get("images") if isinstance(data, dict) else None
    if not isinstance(listed, list) or not listed:
        raise InputError(f'{path}: no images, expected {LAYOUT} with a list "images"')
    id_name = "cocoid" if isinstance(listed[0], dict) and "cocoid" in listed[0] else "imgid"
    found: dict[tuple[str, int], Image] = {}
    for i, record in enumerate(listed):
        place = f"images[{i}]"
        split = json_fields.field(path, record, place, "split", str, "the name of a split")
        image_id = json_fields.integer(path, record, place, id_name)
        if (split, image_id) in found:
            raise InputError(f"{path}: {place}: {id_name} {image_id} stands twice in the split")
        found[split, image_id] = Image(path, place, id_name, image_id, split, record)
    return list(found.values())


def references(path: Path, data: Mapping[str, Any], split: str | None) -> dict[int, list[str]]:
    """The captions of a split's images; ``split`` may be None if there is only one.

    Raises:
        InputError: there is no such split, or as `images`.
    """
    listed = images(path, data)
    available = sorted({image.split for image in listed})
    if split is None and len(available) > 1:
        raise InputError(f"{path}: no split named, expected one of {', '.join(available)}")
    wanted = available[0] if split is None else split
    if wanted not in available:
        raise InputError(f"{path}: no split {wanted!r}, expected one of {', '.join(available)}")
    return {image.image_id: image.captions for image in listed if image.split == wanted}


def read_photographs(path: Path) -> list[Photograph]:
    """The photographs of all splits.

    Raises:
        InputError: the file is missing, truncated or of another layout, or an image occurs twice.
    """
    photographs: dict[int, Photograph] = {}
    for image in images(path, read_json(path, LAYOUT)):
        if image.image_id in photographs:
            name = f"{image.id_name} {image.image_id}"
            raise InputError(f"{path}: {image.place}: {name} stands twice")
        photographs[image.image_id] = Photograph(image.image_id, image.split, image.filename)
    return list(photographs.values())


PICTURES = "photographs", "pictures_sha256"
"""Of a signature: what the pictures are, the rest is the backbone."""


def sources(photographs: list[Photograph]) -> str:
    """SHA-256 of the file name of each image id, independent of their order."""
    lines = sorted(f"{photograph.image_id}\t{photograph.filename}" for photograph in photographs)
    return sha256("\n".join(lines).encode())


def load(path: Path, features: Path) -> CaptionData:
    """The data set at ``path`` with a folder of features (``captionbench features``).

    The split "restval" of the COCO release belongs to the train set, as in the papers.

    Raises:
        InputError: a bad file; features of other photographs; or an image has no features.
    """
    path = Path(path)
    photographs = read_photographs(path)
    store = ShardedFeatures(features)
    expected = sources(photographs)
    if store.index.signature.get("photographs", expected) != expected:
        raise InputError(f"{features}: features of other photographs than those of {path}")
    require(store, (photograph.image_id for photograph in photographs), str(features))
    signature = {k: v for k, v in store.index.signature.items() if k not in PICTURES}
    return replace(with_features(path, store), backbone=signature)


def with_features(path: Path, store: FeatureStore) -> CaptionData:
    """The data set at ``path`` with the features of ``store``.

    Raises:
        InputError: a bad file.
    """
    layout = read_json(path, LAYOUT)
    by_split: dict[str, dict[int, list[str]]] = {}
    for image in images(path, layout):
        if not (captions := image.captions):
            raise InputError(f"{path}: image {image.image_id} has no references, expected some")
        split = "train" if image.split == "restval" else image.split
        by_split.setdefault(split, {})[image.image_id] = captions
    if "train" not in by_split:
        raise InputError(f"{path}: no split 'train', expected one to take the vocabulary from")
    return CaptionData(
        name=path.stem.removeprefix("dataset_"),
        fingerprint=sha256(f"{sha256(read_bytes(path, LAYOUT))} {store.fingerprint}".encode()),
        vocabulary=_vocabulary(path, layout, by_split["train"]),
        splits={name: Split(list(texts), texts, store) for name, texts in by_split.items()},
    )


def _vocabulary(
    path: Path, layout: Mapping[str, Any], references: Mapping[int, list[str]]
) -> Vocabulary:
    """The vocabulary of ``references``, by the layout's tokeniser and minimum count."""
    min_count, tokeniser = layout.get("min_count", MIN_COUNT), layout.get("tokeniser", "words")
    if type(min_count) is not int or type(tokeniser) is not str:
        raise InputError(f"{path}: expected an integer min_count and a tokeniser's name")
    captions = (text for texts in references.values() for text in texts)
    try:
        return Vocabulary.from_captions(captions, min_count, tokeniser)
    except ValueError as error:
        raise InputError(f"{path}: {error}") from error
