"""A data set in Karpathy's layout, with features extracted from its photographs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.data import CaptionData, FeatureStore, Split
from benchmarks.data.captions import read_references
from benchmarks.data.features import ShardedFeatures, require
from benchmarks.data.vocabulary import Vocabulary
from benchmarks.errors import InputError
from benchmarks.files import read_bytes, read_json, sha256

LAYOUT = "captions and splits in Karpathy's layout"
MIN_COUNT = 5
"""Rarer words are unknown (ExpansionNet v1 section 4, v2 section IV-A), unless the file has a
``min_count`` of its own, as it may name its ``tokeniser``."""


@dataclass(frozen=True)
class Photograph:
    """One entry of the layout's ``images``."""

    image_id: int
    split: str
    filename: str


def read_photographs(path: Path) -> list[Photograph]:
    """The photographs of every split, by ``cocoid`` or, where there is none, ``imgid``.

    Raises:
        InputError: the file is missing, truncated or of another layout, or an image stands twice.
    """
    data = read_json(path, LAYOUT)
    images = data.get("images") if isinstance(data, dict) else None
    if not isinstance(images, list) or not images:
        raise InputError(f'{path}: no images, expected {LAYOUT} with a list "images"')
    id_name = "cocoid" if isinstance(images[0], dict) and "cocoid" in images[0] else "imgid"
    photographs: dict[int, Photograph] = {}
    for i, image in enumerate(images):
        try:
            image_id, split, filename = image[id_name], image["split"], image["filename"]
        except (KeyError, TypeError):
            raise InputError(
                f"{path}: images[{i}] lacks {id_name!r}, 'split' or 'filename', expected {LAYOUT}"
            ) from None
        if type(image_id) is not int or type(split) is not str or type(filename) is not str:
            raise InputError(f"{path}: images[{i}]: expected an integer {id_name} and two strings")
        if image_id in photographs:
            raise InputError(f"{path}: images[{i}]: {id_name} {image_id} stands twice")
        photographs[image_id] = Photograph(image_id, split, filename)
    return list(photographs.values())


def sources(photographs: list[Photograph]) -> str:
    """SHA-256 of which photograph each image id stands for, whatever their order."""
    lines = sorted(f"{photograph.image_id}\t{photograph.filename}" for photograph in photographs)
    return sha256("\n".join(lines).encode())


def load(path: Path, features: Path) -> CaptionData:
    """The data set at ``path`` with the folder of ``features`` (``captionbench features``).

    The split "restval" of the COCO release is trained on, as the papers do.

    Raises:
        InputError: a bad file; features of other photographs, or none for some image.
    """
    path = Path(path)
    photographs = read_photographs(path)
    store = ShardedFeatures(features)
    expected = sources(photographs)
    if store.index.signature.get("photographs", expected) != expected:
        raise InputError(f"{features}: features of other photographs than those of {path}")
    require(store, (photograph.image_id for photograph in photographs), str(features))
    signature = {k: v for k, v in store.index.signature.items() if k != "photographs"}
    return replace(with_features(path, store), backbone=signature)


def with_features(path: Path, store: FeatureStore) -> CaptionData:
    """The data set at ``path``, whose images are seen as ``store`` has them.

    Raises:
        InputError: a bad file.
    """
    references: dict[str, dict[int, list[str]]] = {}
    for name in dict.fromkeys(photograph.split for photograph in read_photographs(path)):
        merged = "train" if name == "restval" else name
        references.setdefault(merged, {}).update(read_references(path, name))
    if "train" not in references:
        raise InputError(f"{path}: no split 'train', expected one to take the vocabulary from")
    return CaptionData(
        name=path.stem.removeprefix("dataset_"),
        fingerprint=sha256(f"{sha256(read_bytes(path, LAYOUT))} {store.fingerprint}".encode()),
        vocabulary=_vocabulary(path, references["train"]),
        splits={name: Split(list(texts), texts, store) for name, texts in references.items()},
    )


def _vocabulary(path: Path, references: Mapping[int, list[str]]) -> Vocabulary:
    """The words of ``references``, tokenised and counted as the file at ``path`` says."""
    layout = read_json(path, LAYOUT)
    min_count, tokeniser = layout.get("min_count", MIN_COUNT), layout.get("tokeniser", "words")
    if type(min_count) is not int or type(tokeniser) is not str:
        raise InputError(f"{path}: expected an integer min_count and a tokeniser's name")
    captions = (text for texts in references.values() for text in texts)
    try:
        return Vocabulary.from_captions(captions, min_count, tokeniser)
    except ValueError as error:
        raise InputError(f"{path}: {error}") from error
