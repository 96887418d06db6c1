"""Picture files as models see them: whatever a file holds becomes upright RGB of 8 bits.

Every command that reads pictures reads them here, so that what is captioned was prepared as what
was trained on.
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
"""What a file in a folder is called if it is a picture."""
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""What a picture may be, whatever it is called; other decoders of Pillow start programs."""

Image.init()
# a picture beyond Pillow's Image.MAX_IMAGE_PIXELS is refused, not read with a warning
warnings.simplefilter("error", Image.DecompressionBombWarning)
# what is odd but can be read is read
warnings.filterwarnings("ignore", category=UserWarning, module=r"PIL\.")


@dataclass(frozen=True)
class Header:
    """What a file says of itself."""

    width: int
    height: int
    frames: int
    """More than 1 in an animation, or where a file holds several pictures."""


def find(places: Sequence[Path]) -> list[Path]:
    """The files among ``places``, and the pictures in their folders, each once, sorted there.

    Raises:
        InputError: there is no such file or folder, or a folder without pictures.
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
    """The names of ``folder``'s files, at any depth, that are called as pictures are."""
    return by_suffix(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def by_suffix(names: Iterator[str] | Sequence[str]) -> list[str]:
    """Those of ``names`` that are called as pictures are, sorted."""
    paths = map(PurePosixPath, sorted(names))
    # names that begin with a dot are an operating system's notes beside the pictures
    return [str(p) for p in paths if p.suffix.lower() in SUFFIXES and not p.name.startswith(".")]


def header(path: Path, *, whole: bool = False) -> Header:
    """What the file says of its picture.

    Args:
        path: the file.
        whole: make of it what `read` does, of a JPEG at an eighth of its size, to find out
            whether that can be done.

    Raises:
        InputError: it cannot be opened, is no picture of a known format, or too large; with
            ``whole``, all that `read` raises.
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
    """The picture that the bytes of a file hold, as RGB of 8 bits a channel.

    It is the first of several, turned as its EXIF orientation says, on white where it is
    transparent, and with the upper 8 of 16 bits.

    Raises:
        InputError: ``where`` is no picture of a known format, too large or damaged.
    """
    return _decode(io.BytesIO(data), where)


def squeeze(image: Image.Image, size: int) -> npt.NDArray[np.uint8]:
    """(size, size, 3): the whole picture, squeezed to a square by bicubic interpolation."""
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
    """The picture, not yet decoded; what fails while it is used is the file's fault."""
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
        # decoders raise whatever a damaged file lets them trip over
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{where}: not a whole photograph ({reason})") from error
