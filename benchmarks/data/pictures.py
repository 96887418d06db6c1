"""Read picture files of any format as upright 8-bit RGB.

All commands read pictures here, so that training and captioning preprocess them equally.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps, UnidentifiedImageError

from benchmarks.errors import InputError

SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff"}
"""File name suffixes of pictures, for searching folders."""
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""Accepted formats, whatever the suffix; some other decoders of Pillow start programs."""

Image.init()
# refuse pictures beyond Pillow's Image.MAX_IMAGE_PIXELS instead of warning
warnings.simplefilter("error", Image.DecompressionBombWarning)
# Pillow warns about odd but readable files
warnings.filterwarnings("ignore", category=UserWarning, module=r"PIL\.")


@dataclass(frozen=True)
class Header:
    """The size in pixels and number of frames that a picture file declares."""

    width: int
    height: int
    frames: int
    """More than 1 in an animation, or where a file holds several pictures."""


def find(places: Sequence[Path]) -> list[Path]:
    """The files of ``places`` and the sorted pictures in its folders, without duplicates.

    Raises:
        InputError: a place does not exist, or is a folder without pictures.
    """
    found: dict[Path, None] = {}
    for place in map(Path, places):
        if place.is_dir():
            members = (place / name for name in named_as_pictures(place))
            if not (inside := [path for path in members if path.is_file()]):
                known = ", ".join(sorted(SUFFIXES))
                raise InputError(f"{place}: a folder without pictures, expected files {known}")
            found |= dict.fromkeys(inside)
        elif place.is_file():
            found[place] = None
        else:
            raise InputError(f"{place}: no such file, expected a picture or a folder of pictures")
    return list(found)


def named_as_pictures(folder: Path) -> list[str]:
    """The relative paths of the files in ``folder``, at any depth, with a picture's suffix."""
    return by_suffix(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def by_suffix(names: Iterator[str] | Sequence[str]) -> list[str]:
    """The ``names`` with a picture's suffix, sorted."""
    paths = map(PurePosixPath, sorted(names))
    # dot files are metadata of an operating system
    return [str(p) for p in paths if p.suffix.lower() in SUFFIXES and not p.name.startswith(".")]


def header(path: Path, *, whole: bool = False) -> Header:
    """The picture's header.

    Args:
        whole: also decode the picture, to check that `read` can; a JPEG at 1/8 of its size.

    Raises:
        InputError: it cannot be opened, is no picture of a known format, or too large; with
            ``whole``, also if it is damaged.
    """
    with _file(path) as file, _opened(file, path) as image:
        found = Header(*image.size, getattr(image, "n_frames", 1))
        if whole:
            image.draft("RGB", (1, 1))
            _upright(image, path)
        return found


def read(path: Path) -> Image.Image:
    """The file's picture as RGB, see `decode`.

    Raises:
        InputError: it cannot be opened, is no picture of a known format, too large or damaged.
    """
    with _file(path) as file:
        return _decode(file, path)


def decode(data: bytes, where: Path) -> Image.Image:
    """Decode a picture file's bytes to 8-bit RGB.

    Takes the first frame, applies the EXIF orientation, composes transparency on white, and scales
    16 bits to 8.

    Raises:
        InputError: ``where`` is no picture of a known format, too large or damaged.
    """
    return _decode(io.BytesIO(data), where)


def squeeze(image: Image.Image, size: int) -> npt.NDArray[np.uint8]:
    """Resize the whole picture to a square (size, size, 3) by bicubic interpolation."""
    if image.size != (size, size):
        image = image.resize((size, size), Image.Resampling.BICUBIC)
    return np.asarray(image)


def _decode(file: IO[bytes], where: Path) -> Image.Image:
    with _opened(file, where) as image:
        return _upright(image, where)


def _upright(image: Image.Image, where: Path) -> Image.Image:
    upright = ImageOps.exif_transpose(image)
    if upright.mode[0] in "IF":
        values = np.asarray(upright)
        if upright.mode == "F" or values.min() < 0 or values.max() > 65535:
            raise InputError(f"{where}: pixels of mode {upright.mode}, expected 8 or 16 bits")
        return Image.fromarray((values // 257).astype(np.uint8)).convert("RGB")
    if upright.has_transparency_data:
        white = Image.new("RGBA", upright.size, "white")
        return Image.alpha_composite(white, upright.convert("RGBA")).convert("RGB")
    return upright.convert("RGB")


@contextmanager
def _file(path: Path) -> Iterator[IO[bytes]]:
    try:
        file = path.open("rb")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    with file:
        yield file


@contextmanager
def _opened(file: IO[bytes], where: Path) -> Iterator[Image.Image]:
    """The undecoded picture; any error while it is used is raised as an InputError of the file."""
    try:
        with Image.open(file, formats=FORMATS) as image:
            yield image
    except InputError:
        raise
    except UnidentifiedImageError:
        raise InputError(f"{where}: not a whole photograph of a known format") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        limit = f"{Image.MAX_IMAGE_PIXELS:,}"
        raise InputError(f"{where}: too large, expected at most {limit} pixels") from None
    except Exception as error:
        # on damaged files decoders raise exceptions of any type
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{where}: not a whole photograph ({reason})") from error
