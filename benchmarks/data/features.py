"""Image features: in memory, or in memory-mapped shards whose index is checked.

A folder of shards holds ``index.json`` and ``00000.npy``, ``00001.npy``, ...: each a (rows,
d_feature) array with the rows of its images one after the other, as ``numpy.load`` reads it. The
index says what the features depend on (the signature), and of each shard its SHA-256, size, images
and how many rows each image has.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.data import Features, FeatureStore
from benchmarks.errors import InputError
from benchmarks.files import read_bytes, read_json, sha256, write_atomically

INDEX = "index.json"
FORMAT = "captionbench features 1"
WHAT = "the index as `captionbench features` wrote it"
DTYPES = ("float16", "float32")
MADE_FROM = {"weights_sha256", "pictures_sha256"}
"""Of a signature: what features are but for rounding."""


class ArrayFeatures:
    """Features in memory.

    Args:
        arrays: (L, d_feature) of each image.

    Raises:
        InputError: no images, different widths, or features that are not finite.
    """

    def __init__(self, arrays: Mapping[int, npt.NDArray[np.floating]]) -> None:
        if not arrays:
            raise InputError("no features, expected those of at least one image")
        self.d_feature = next(iter(arrays.values())).shape[-1]
        self._arrays = {
            image_id: _checked(image_id, array, self.d_feature).astype(np.float32, copy=False)
            for image_id, array in arrays.items()
        }
        self.image_ids = list(self._arrays)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the features in the order of the images."""
        parts = [f"{i}:{sha256(array.tobytes())}" for i, array in self._arrays.items()]
        return sha256("\n".join(parts).encode())

    def features(self, image_id: int) -> Features:
        """(L, d_feature) float32.

        Raises:
            InputError: there is no such image.
        """
        if image_id not in self._arrays:
            raise InputError(f"image {image_id} has no features")
        return self._arrays[image_id]


@dataclass(frozen=True)
class Shard:
    """What the index says of one file."""

    file: str
    bytes: int
    sha256: str
    image_ids: list[int]
    lengths: list[int]


@dataclass(frozen=True)
class Index:
    """The index of a folder of shards."""

    signature: dict[str, str]
    dtype: str
    d_feature: int
    shards: list[Shard]

    @property
    def fingerprint(self) -> str:
        """SHA-256 of everything that the index says, the shards' own hashes included."""
        return sha256(json.dumps(asdict(self), sort_keys=True).encode())

    def write(self, folder: Path) -> None:
        """Replace the folder's index, or leave the old one whole.

        Raises:
            InputError: the folder cannot be written or the disk is full.
        """
        content = {"format": FORMAT, "fingerprint": self.fingerprint, **asdict(self)}
        with write_atomically(folder / INDEX) as file:
            json.dump(content, file)

    @classmethod
    def read(cls, folder: Path) -> Index:
        """The folder's index.

        Raises:
            InputError: it is missing, of another layout, or not as it was written.
        """
        path = folder / INDEX
        content = read_json(path, f"{WHAT}, or another folder")
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise InputError(f"{path}: not of the format {FORMAT!r}, expected {WHAT}")
        try:
            index = cls(
                signature=dict(content["signature"]),
                dtype=content["dtype"],
                d_feature=content["d_feature"],
                shards=[Shard(**shard) for shard in content["shards"]],
            )
            whole = index.fingerprint == content["fingerprint"]
        except (KeyError, TypeError, ValueError) as error:
            reason = f"a field is missing or wrong ({error})"
            raise InputError(f"{path}: {reason}, expected {WHAT}, or another folder") from None
        if not whole:
            raise InputError(
                f"{path}: damaged or edited: it does not match its own fingerprint; expected {WHAT}"
                ", or another folder"
            )
        return index


class ShardedFeatures:
    """A folder of shards, memory-mapped.

    Opening checks the index and the shards' sizes; a shard is hashed, and searched for numbers
    that are not finite, when the first image is read from it; `verify` does so for all of them.

    Raises:
        InputError: naming the index or the shard that is missing, truncated or altered.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        self.index = Index.read(self.folder)
        self.d_feature = self.index.d_feature
        self._places: dict[int, tuple[Shard, int, int]] = {}
        self._open: dict[str, npt.NDArray[np.floating]] = {}
        for shard in self.index.shards:
            check_size(self.folder, shard)
            stops = np.cumsum(shard.lengths).tolist()
            for image_id, length, stop in zip(shard.image_ids, shard.lengths, stops, strict=True):
                self._places[image_id] = shard, stop - length, stop
        self.image_ids = list(self._places)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of what the features are made from, if the signature says it all; else theirs.

        So features that another processor rounds otherwise are the same data.
        """
        index = self.index
        if not index.signature.keys() >= MADE_FROM:
            return index.fingerprint
        rows = sorted((i, stop - start) for i, (_, start, stop) in self._places.items())
        parts = index.signature, index.dtype, index.d_feature, rows
        return sha256(json.dumps(parts, sort_keys=True).encode())

    def features(self, image_id: int) -> Features:
        """(L, d_feature) float32.

        Raises:
            InputError: there is no such image, or its shard is damaged.
        """
        if image_id not in self._places:
            raise InputError(f"{self.folder}: image {image_id} has no features")
        shard, start, stop = self._places[image_id]
        if shard.file not in self._open:
            self._open[shard.file] = self._checked(shard)
        return self._open[shard.file][start:stop].astype(np.float32)

    def verify(self) -> None:
        """Hash every shard and search it for numbers that are not finite.

        Raises:
            InputError: naming the damaged shard or the image.
        """
        for shard in self.index.shards:
            self._open[shard.file] = self._checked(shard)

    def _checked(self, shard: Shard) -> npt.NDArray[np.floating]:
        check_hash(self.folder, shard)
        rows: npt.NDArray[np.floating]
        rows = np.load(self.folder / shard.file, mmap_mode="r", allow_pickle=False)
        if not np.isfinite(rows).all():
            stops = np.cumsum(shard.lengths)[:-1]
            parts = zip(shard.image_ids, np.split(rows, stops), strict=True)
            image_id = next(i for i, part in parts if not np.isfinite(part).all())
            raise InputError(f"{self.folder / shard.file}: image {image_id}: features not finite")
        return rows


def check_size(folder: Path, shard: Shard) -> None:
    """Check that a shard is there and as long as the index says.

    Raises:
        InputError: naming the shard.
    """
    path = folder / shard.file
    if not path.is_file():
        raise InputError(f"{path}: no such shard, though the index lists it")
    size = path.stat().st_size
    if size != shard.bytes:
        raise InputError(f"{path}: truncated or altered: {size} bytes, expected {shard.bytes}")


def check_hash(folder: Path, shard: Shard) -> None:
    """Check that a shard's bytes are those that were written.

    Raises:
        InputError: naming the shard.
    """
    path = folder / shard.file
    if sha256(read_bytes(path, "a shard of features")) != shard.sha256:
        raise InputError(f"{path}: corrupt: its SHA-256 is not the one in {INDEX}")


class ShardWriter:
    """Write features shard by shard; after a kill at any point, the next writer continues.

    A shard and then the index are replaced atomically, so the index never lists a shard that is
    not whole; the index comes before the first shard. A listed shard that was damaged since is
    dropped, to be written again.

    Args:
        folder: made if need be.
        signature: what the features depend on; a folder with another one is refused.
        d_feature: width of the rows.
        dtype: "float16" or "float32".
        shard_images: images a shard.

    Attributes:
        done: the images that are on disk.
        dropped: why each damaged shard was dropped.

    Raises:
        InputError: the folder holds other features, or shards without an index, or cannot be
            written.
    """

    def __init__(
        self,
        folder: Path,
        signature: Mapping[str, str],
        d_feature: int,
        *,
        dtype: str = "float16",
        shard_images: int = 256,
    ) -> None:
        if dtype not in DTYPES:
            raise InputError(f"dtype is {dtype!r}, expected one of {', '.join(DTYPES)}")
        self.folder = Path(folder)
        self.dropped: list[str] = []
        self._shard_images = shard_images
        self._pending: dict[int, npt.NDArray[Any]] = {}
        self._index = Index(dict(signature), dtype, d_feature, [])
        if (self.folder / INDEX).exists() or any(self.folder.glob("*.npy")):
            self._resume()
        self.done = {i for shard in self._index.shards for i in shard.image_ids}

    def _resume(self) -> None:
        old = Index.read(self.folder)
        for field in ("signature", "dtype", "d_feature"):
            was, now = getattr(old, field), getattr(self._index, field)
            if was != now:
                if isinstance(was, dict):
                    names = sorted(k for k in was.keys() | now.keys() if was.get(k) != now.get(k))
                    was, now = ({k: value.get(k) for k in names} for value in (was, now))
                raise InputError(
                    f"{self.folder}: holds features of another {field}: {was}, expected {now}"
                )
        for shard in old.shards:
            try:
                check_size(self.folder, shard)
                check_hash(self.folder, shard)
            except InputError as error:
                self.dropped.append(str(error))
            else:
                self._index.shards.append(shard)

    def add(self, image_id: int, features: npt.NDArray[np.floating]) -> None:
        """Take one image's features, (L, d_feature); a full shard goes to disk.

        Raises:
            InputError: the image was written before; a wrong shape; numbers that are not finite,
                or not once in the shards' dtype; a shard cannot be written.
        """
        if image_id in self.done or image_id in self._pending:
            raise InputError(f"image {image_id}: its features are written already")
        # a number beyond float16 becomes infinite, which is refused next, naming the image
        with np.errstate(over="ignore"):
            stored = np.asarray(features).astype(self._index.dtype)
        self._pending[image_id] = _checked(image_id, stored, self._index.d_feature)
        if len(self._pending) == self._shard_images:
            self.flush()

    def flush(self) -> None:
        """Write the images taken since the last shard as a shard of their own, if there are any.

        Raises:
            InputError: the folder cannot be written or the disk is full; the index stays whole.
        """
        if not self._pending:
            return
        taken = {shard.file for shard in self._index.shards}
        file = next(name for i in range(len(taken) + 1) if (name := f"{i:05d}.npy") not in taken)
        buffer = io.BytesIO()
        np.save(buffer, np.concatenate(list(self._pending.values())))
        data = buffer.getvalue()
        if not taken:
            self._index.write(self.folder)
        with write_atomically(self.folder / file, "wb") as output:
            output.write(data)
        lengths = [len(features) for features in self._pending.values()]
        shard = Shard(file, len(data), sha256(data), list(self._pending), lengths)
        index = Index(
            self._index.signature,
            self._index.dtype,
            self._index.d_feature,
            sorted([*self._index.shards, shard], key=lambda shard: shard.file),
        )
        index.write(self.folder)
        self._index = index
        self.done.update(self._pending)
        self._pending.clear()


def require(features: FeatureStore, image_ids: Iterable[int], what: str) -> None:
    """Check that every image of ``image_ids`` has features.

    Raises:
        InputError: how many have none, and the first of them.
    """
    there = set(features.image_ids)
    missing = [image_id for image_id in image_ids if image_id not in there]
    if missing:
        raise InputError(f"{what}: {len(missing)} images have no features, first {missing[0]}")


def _checked(image_id: int, array: npt.NDArray[Any], d_feature: int) -> npt.NDArray[Any]:
    """``array`` if it can be an image's features."""
    if array.ndim != 2 or len(array) == 0 or array.shape[1] != d_feature:
        shape = tuple(array.shape)
        raise InputError(f"image {image_id}: features are {shape}, expected (L > 0, {d_feature})")
    if not np.isfinite(array).all():
        raise InputError(f"image {image_id}: NaN or infinite features, expected finite numbers")
    return array
