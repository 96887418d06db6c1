"""Pictures for captioners with their own backbone: read as pixels on access, or encoded once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from benchmarks.data import CaptionData, Features, FeatureStore, pictures, scenes
from benchmarks.data.features import ShardedFeatures, ShardWriter
from benchmarks.data.karpathy import read_photographs, sources
from benchmarks.data.photographs import Photographs
from benchmarks.files import sha256
from torch_impl.layers.swin import SwinTransformer
from torch_impl.models.vision import Swin, normalise

PER_BATCH = 4
"""Batch size of a backbone: larger ones exceed a CPU's cache."""


@dataclass(frozen=True)
class Pictures:
    """The pictures of a data set."""

    # (image id, size) -> (size, size, 3) uint8 RGB
    read: Callable[[int, int], npt.NDArray[np.uint8]]
    fingerprint: str  # of the picture of each image id


def of_scenes(seed: int = 0) -> Pictures:
    """The rendered pictures of the generated scenes."""

    def read(image_id: int, size: int) -> npt.NDArray[np.uint8]:
        drawn = scenes.render(scenes.scene(seed, image_id))
        return pictures.squeeze(Image.fromarray(drawn), size)

    return Pictures(read, sha256(f"scenes {seed}".encode()))


def of_photographs(path: Path, places: Sequence[Path]) -> Pictures:
    """The photographs of a data set in Karpathy's layout.

    Raises:
        InputError: a bad file, or a photograph is missing.
    """
    listed = read_photographs(path)
    photographs = Photographs(places)
    photographs.require(photograph.filename for photograph in listed)
    names = {photograph.image_id: photograph.filename for photograph in listed}
    return Pictures(lambda i, size: photographs.read(names[i], size), sources(listed))


class Pixels:
    """A store of pixels, for captioners whose backbone is trained end to end."""

    def __init__(
        self, pictures: Pictures, image_ids: Sequence[int], backbone: SwinTransformer
    ) -> None:
        self.image_ids = image_ids
        self.fingerprint = pictures.fingerprint
        self.d_feature, self.num_features = backbone.d_feature, backbone.num_features
        self._size = backbone.configuration.image_size
        self._pictures = pictures

    def features(self, image_id: int) -> Features:
        """The pixels (3, size, size) float32, normalised as the backbone's weights expect.

        Raises:
            InputError: the picture is damaged.
        """
        pixels = torch.from_numpy(self._pictures.read(image_id, self._size).copy())
        array: Features = normalise(pixels[None])[0].numpy()
        return array


def unencoded(data: CaptionData, pictures: Pictures, backbone: SwinTransformer) -> CaptionData:
    """``data`` with `Pixels` as features, for an end-to-end captioner."""
    return _seen_as(data, Pixels(pictures, _image_ids(data), backbone), {})


def encoded(
    data: CaptionData, pictures: Pictures, backbone: SwinTransformer, folder: Path, device: str
) -> CaptionData:
    """``data`` with features of the frozen backbone, extracted once into a folder of ``folder``.

    Raises:
        InputError: a picture is damaged, or the folder cannot be written.
    """
    sees = Swin(backbone).eval()
    made_by = sees.signature
    folder = folder / made_by["weights_sha256"][:16]
    signature = {**made_by, "photographs": pictures.fingerprint}
    writer = ShardWriter(folder, signature, sees.d_feature, dtype="float32")
    todo = [image_id for image_id in _image_ids(data) if image_id not in writer.done]
    sees.to(device)
    for start in range(0, len(todo), PER_BATCH):
        batch = todo[start : start + PER_BATCH]
        pixels = np.stack([pictures.read(image_id, sees.image_size) for image_id in batch])
        made = sees(torch.from_numpy(pixels).to(device)).cpu().numpy()
        for image_id, rows in zip(batch, made, strict=True):
            writer.add(image_id, rows)
    writer.flush()
    return _seen_as(data, ShardedFeatures(folder), made_by)


def _image_ids(data: CaptionData) -> list[int]:
    return list(dict.fromkeys(i for split in data.splits.values() for i in split.image_ids))


def _seen_as(data: CaptionData, store: FeatureStore, backbone: Mapping[str, str]) -> CaptionData:
    return replace(
        data,
        fingerprint=sha256(f"{data.fingerprint} {store.fingerprint}".encode()),
        splits={name: replace(split, store=store) for name, split in data.splits.items()},
        backbone=dict(backbone),
    )
