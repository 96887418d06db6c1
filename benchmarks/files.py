"""Files that are whole or not there: atomic writing, and reading with errors that name the file."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy.typing as npt

from benchmarks.errors import InputError


@contextmanager
def write_atomically(path: Path, mode: str = "w") -> Iterator[IO[Any]]:
    """Open a temporary neighbour of ``path`` that replaces it only when the block ends well.

    On any failure, a full disk or Ctrl-C included, the old file stays as it was. The neighbour has
    one name, so that what a killed process leaves the next to write ``path`` takes over.

    Raises:
        InputError: the folder cannot be written or the disk is full.
    """
    path = Path(path)
    partial = path.with_name(f".{path.name}.partial")
    encoding = None if "b" in mode else "utf-8"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open(mode, encoding=encoding) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException as error:
        with suppress(OSError):
            partial.unlink()
        if isinstance(error, OSError):
            reason = error.strerror or str(error)
            raise InputError(f"{path}: cannot be written ({reason})") from error
        raise


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Have ``path`` to oneself: another process that asks for it waits until the block ends.

    Raises:
        InputError: its folder cannot be written.
    """
    lock = path.with_name(f".{path.name}.lock")
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        file = lock.open("w")
    except OSError as error:
        raise InputError(f"{lock}: cannot be written ({error.strerror})") from error
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def check_writable(path: Path) -> None:
    """Find out before long work, whose result goes to ``path``, that it cannot be written.

    Raises:
        InputError: it is a folder, or its own folder cannot be written.
    """
    folder = next(parent for parent in Path(path).absolute().parents if parent.exists())
    if Path(path).is_dir():
        raise InputError(f"{path}: a folder, expected a file to write")
    if not (folder.is_dir() and os.access(folder, os.W_OK)):
        raise InputError(f"{path}: cannot be written ({folder} is no folder that can be)")


def check_folder(path: Path) -> None:
    """Find out before long work, which keeps files in the folder ``path``, that it cannot.

    Raises:
        InputError: it is a file, or it or the folder that it is to be made in cannot be written.
    """
    place = next(p for p in (Path(path), *Path(path).absolute().parents) if p.exists())
    if not (place.is_dir() and os.access(place, os.W_OK)):
        raise InputError(f"{path}: expected a folder that can be written")


def read_bytes(path: Path, what: str) -> bytes:
    """The file's bytes.

    Raises:
        InputError: there is no such file, or it cannot be read.
    """
    try:
        return Path(path).read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path}: no such file, expected {what}") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}), expected {what}") from error


def read_json(path: Path, what: str) -> Any:
    """The file's JSON value.

    Raises:
        InputError: the file is missing, truncated or no JSON; the message says where.
    """
    data = read_bytes(path, what)
    try:
        return json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise InputError(f"{path}: not UTF-8 text, expected {what}") from None
    except json.JSONDecodeError as error:
        place = f"line {error.lineno} column {error.colno}"
        raise InputError(
            f"{path}: not valid JSON at {place} ({error.msg}), truncated? Expected {what}"
        ) from None
    except (ValueError, RecursionError) as error:
        # valid to the letter, but a number of thousands of digits or lists nested as deep
        raise InputError(f"{path}: not valid JSON ({error}), expected {what}") from None


def sha256(data: bytes) -> str:
    """The hexadecimal SHA-256 of ``data``."""
    return hashlib.sha256(data).hexdigest()


def sha256_of_arrays(arrays: Mapping[str, npt.NDArray[Any]]) -> str:
    """The hexadecimal SHA-256 of arrays and their names, in their order."""
    return sha256(b"".join(name.encode() + array.tobytes() for name, array in arrays.items()))


def slug(*names: str) -> str:
    """Names as one file name: small letters and digits, with hyphens for all else."""
    return re.sub(r"[^a-z0-9]+", "-", " ".join(names).lower()).strip("-")
