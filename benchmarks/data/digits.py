"""Permuted sequential MNIST: a digit's pixels as a sequence in a fixed random order.

ARNet section 5.3. A file ``mnist.npz`` holds ``x_train``, ``y_train``, ``x_test`` and ``y_test`` in
the official order, pixels as uint8.
"""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.errors import InputError
from benchmarks.files import read_bytes, sha256

MOST_BYTES = 2**28
LAYOUT = "MNIST: x_train, y_train, x_test, y_test (npz, pixels as bytes)"
CLASSES = 10

Images = npt.NDArray[np.uint8]
Labels = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Digits:
    """Images of digits and their labels."""

    images: Images  # (n, side, side)
    labels: Labels  # (n,), 0 to 9

    def __len__(self) -> int:
        return len(self.labels)

    def first(self, count: int | None) -> Digits:
        """The first ``count`` of them; all if None."""
        return Digits(self.images[:count], self.labels[:count])

    def halved(self) -> Digits:
        """Images of half the side, by 2 x 2 mean pooling: a quarter of the time steps."""
        n, side, _ = self.images.shape
        fours = self.images.reshape(n, side // 2, 2, side // 2, 2).astype(np.float64)
        return Digits(fours.mean((2, 4)).round().astype(np.uint8), self.labels)

    def sequences(self, permutation: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """The pixels (n, side^2, 1) in [0, 1], pixel ``permutation[t]`` at step t."""
        pixels = self.images.reshape(len(self), -1)[:, permutation]
        return (pixels.astype(np.float32) / np.float32(255))[..., np.newaxis]


@dataclass(frozen=True)
class Mnist:
    """The splits by name ("train", "test")."""

    fingerprint: str
    splits: dict[str, Digits]


def permutation(length: int, seed: int = 0) -> npt.NDArray[np.int64]:
    """A random order of ``length`` pixels, fixed by the seed."""
    return np.random.default_rng(seed).permutation(length)


def load(path: Path) -> Mnist:
    """The digits of the file at ``path``.

    Raises:
        InputError: the file is missing, damaged, or of another layout.
    """
    data = read_bytes(path, LAYOUT)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as packed:
            if sum(array.file_size for array in packed.infolist()) > MOST_BYTES:
                raise InputError(f"{path}: over {MOST_BYTES:,} bytes unpacked, expected {LAYOUT}")
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            splits = {
                name: Digits(arrays[f"x_{name}"], arrays[f"y_{name}"].astype(np.int64))
                for name in ("train", "test")
            }
    except (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"{path}: cannot be read ({error}), expected {LAYOUT}") from None
    for name, digits in splits.items():
        images, labels = digits.images, digits.labels
        if images.dtype != np.uint8 or images.ndim != 3 or images.shape[1] != images.shape[2]:
            raise InputError(
                f"{path}: x_{name} is {images.dtype} {images.shape}, expected {LAYOUT}"
            )
        if labels.shape != images.shape[:1] or not ((labels >= 0) & (labels < CLASSES)).all():
            raise InputError(f"{path}: y_{name} does not label x_{name}, expected {LAYOUT}")
    return Mnist(sha256(data), splits)
