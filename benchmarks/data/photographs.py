"""Photographs in zip files and folders, by file name."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath

import numpy as np
import numpy.typing as npt
from PIL import Image

from benchmarks.data import pictures
from benchmarks.errors import InputError
from benchmarks.files import read_bytes, sha256


class Photographs:
    """The image files in zip files and folders, at any depth, by file name.

    Raises:
        InputError: a place is missing or no zip file; a name occurs twice; no images at all.
    """

    def __init__(self, places: Sequence[Path]) -> None:
        self._places: dict[str, tuple[Path | zipfile.ZipFile, str]] = {}
        for place in map(Path, places):
            source = place if place.is_dir() else _open_zip(place)
            for member in _members(source):
                name = PurePosixPath(member).name
                if name in self._places:
                    raise InputError(f"{place}: {name} stands twice among the photographs")
                self._places[name] = source, member
        if not self._places:
            listed = ", ".join(map(str, places))
            raise InputError(f"{listed}: no photographs, expected zip files or folders of them")

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def require(self, names: Iterable[str]) -> None:
        """Check that no photograph of ``names`` is missing.

        Raises:
            InputError: some are; the message has their number and the first.
        """
        missing = [name for name in names if name not in self._places]
        if missing:
            raise InputError(f"{len(missing)} photographs are missing, first {missing[0]}")

    def read(self, name: str, size: int) -> npt.NDArray[np.uint8]:
        """The photograph as (size, size, 3) RGB, see `pictures.squeeze`.

        Raises:
            InputError: there is no such photograph, or it is damaged.
        """
        return pictures.squeeze(self.open(name), size)

    def open(self, name: str) -> Image.Image:
        """The photograph as RGB, see `pictures.decode`.

        Raises:
            InputError: there is no such photograph, or it is damaged.
        """
        return pictures.decode(*self._file(name))

    def fingerprint(self, names: Iterable[str]) -> str:
        """SHA-256 of the files of some photographs, independent of their order.

        Raises:
            InputError: a photograph is missing or cannot be read.
        """
        lines = sorted(f"{name}\t{sha256(self._file(name)[0])}" for name in names)
        return sha256("\n".join(lines).encode())

    def _file(self, name: str) -> tuple[bytes, Path]:
        """The content and the path of a photograph's file."""
        self.require([name])
        source, member = self._places[name]
        if isinstance(source, Path):
            path = source / member
            if path.exists() and not path.is_file():  # perhaps without end
                raise InputError(f"{path}: a pipe, a device or a folder, expected a photograph")
            return read_bytes(path, "a photograph"), path
        where = Path(source.filename or "") / member
        try:
            return source.read(member), where
        except (OSError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
            raise InputError(f"{where}: cannot be read ({error})") from error


def _open_zip(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file, expected a zip file or a folder") from None
    except (OSError, zipfile.BadZipFile) as error:
        raise InputError(
            f"{path}: cannot be read ({error}), expected a zip file of photographs or a folder"
        ) from error


def images_beside(path: Path) -> list[Path]:
    """The zip files beside ``path``, or its folder if there are none."""
    return sorted(path.parent.glob("*.zip")) or [path.parent]


def _members(source: Path | zipfile.ZipFile) -> list[str]:
    if isinstance(source, Path):
        return pictures.named_as_pictures(source)
    return pictures.by_suffix(source.namelist())
