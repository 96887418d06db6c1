"""Image features: in memory, or in memory-mapped shards with a hashed index.

A folder of shards holds ``index.json`` and ``00000.npy``, ``00001.npy``, ...: arrays (rows,
d_feature) with the rows of the shard's images concatenated. The index has the signature (what the
features depend on), and for each shard its SHA-256, size, images and number of rows of each image.
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
"""Fields of a signature that determine features up to rounding."""


class ArrayFeatures:
    """Features in memory.

    Args:
        arrays: (L, d_feature) of each image.

    Raises:
        InputError: no images, different widths, or non-finite features.
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
    """One file's entry in the index."""

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
        """SHA-256 of the index's content, the shards' hashes included."""
        return sha256(json.dumps(asdict(self), sort_keys=True).encode())

    def write(self, folder: Path) -> None:
        """Replace the folder's index atomically.

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
            InputError: it is missing, of another layout, damaged or edited.
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
    """A folder of memory-mapped shards.

    Opening checks the index and the shards' sizes. A shard's hash and finiteness are checked when
    its first image is read; `verify` checks all shards.

    Raises:
        InputError: the index or a shard, which is named, is missing, truncated or altered.
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
        """SHA-256 of the signature and shapes if they determine the features, else of the index.

        So features that another processor rounds differently are the same data.
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
        """Check every shard's hash, and that its features are finite.

        Raises:
            InputError: a shard is damaged or an image has non-finite features; it is named.
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
    """Check that a shard exists and has the index's size.

    Raises:
        InputError: it does not; it is named.
    """
    path = folder / shard.file
    if not path.is_file():
        raise InputError(f"{path}: no such shard, though the index lists it")
    size = path.stat().st_size
    if size != shard.bytes:
        raise InputError(f"{path}: truncated or altered: {size} bytes, expected {shard.bytes}")


def check_hash(folder: Path, shard: Shard) -> None:
    """Check that a shard has the index's hash.

    Raises:
        InputError: it has not; it is named.
    """
    path = folder / shard.file
    if sha256(read_bytes(path, "a shard of features")) != shard.sha256:
        raise InputError(f"{path}: corrupt: its SHA-256 is not the one in {INDEX}")


class ShardWriter:
    """Write features shard by shard; a writer that was killed is resumed by the next.

    A shard and then the index are replaced atomically, so the index never lists an incomplete
    shard; an index precedes the first shard. A listed shard that is damaged is dropped, to be
    written again.

    Args:
        folder: created if missing.
        signature: what the features depend on; a folder with another one is refused.
        d_feature: width of the rows.
        dtype: "float16" or "float32".
        shard_images: images a shard.

    Attributes:
        done: the images on disk.
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
        """Add one image's features, (L, d_feature); a full shard is written to disk.

        Raises:
            InputError: the image was already added; a wrong shape; numbers that are not finite in
                the shards' dtype; a shard cannot be written.
        """
        if image_id in self.done or image_id in self._pending:
            raise InputError(f"image {image_id}: its features are written already")
        # a number beyond float16 becomes infinite, which _checked refuses with the image's name
        with np.errstate(over="ignore"):
            stored = np.asarray(features).astype(self._index.dtype)
        self._pending[image_id] = _checked(image_id, stored, self._index.d_feature)
        if len(self._pending) == self._shard_images:
            self.flush()

    def flush(self) -> None:
        """Write the pending images, if any, as a shard.

        Raises:
            InputError: the folder cannot be written or the disk is full; the index stays valid.
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
        InputError: some have none; the message has their number and the first.
    """
    there = set(features.image_ids)
    missing = [image_id for image_id in image_ids if image_id not in there]
    if missing:
        raise InputError(f"{what}: {len(missing)} images have no features, first {missing[0]}")


def _checked(image_id: int, array: npt.NDArray[Any], d_feature: int) -> npt.NDArray[Any]:
    """``array``, if its shape and numbers are valid as features."""
    if array.ndim != 2 or len(array) == 0 or array.shape[1] != d_feature:
        shape = tuple(array.shape)
        raise InputError(f"image {image_id}: features are {shape}, expected (L > 0, {d_feature})")
    if not np.isfinite(array).all():
        raise InputError(f"image {image_id}: NaN or infinite features, expected finite numbers")
    return array
