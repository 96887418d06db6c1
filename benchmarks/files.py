"""Files: atomic replace, locks, and reading with errors that name the file."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, TypeVar

import msgspec
import numpy.typing as npt
from filelock import FileLock, Timeout

from benchmarks.errors import InputError
from torch_impl.common.files import atomic_replace


@contextmanager
def write_atomically(path: Path, mode: str = "w") -> Iterator[IO[Any]]:
    """Open a temporary file that replaces ``path`` when the block ends without an exception.

    On any failure, including a full disk or Ctrl-C, the old file is unchanged. Links are followed;
    a device or a pipe is written in place.

    Raises:
        InputError: the folder cannot be written or the disk is full.
    """
    try:
        with atomic_replace(path, mode) as file:
            yield file
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"{path}: cannot be written ({reason})") from error


@contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[None]:
    """Lock ``path``, a file or a folder, between processes.

    Args:
        path: need not exist; a link is followed.
        wait: print a message and wait while another process holds the lock; else raise.

    Raises:
        InputError: its folder cannot be written; or, without ``wait``, another process, which is
            named, holds the lock.
    """
    target = Path(os.path.realpath(path))
    # a folder may be writable where its parent is not: a mounted volume
    inside = target.is_dir() and not (target.name and os.access(target.parent, os.W_OK))
    place = target / ".lock" if inside else target.with_name(f".{target.name}.lock")
    made = [folder for folder in place.parents if not folder.exists()]
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        owner = place.read_text() if place.exists() else ""
        lock = FileLock(place)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            said = f"{path}: process {owner} works there" if owner else f"{path}: in use"
            if not wait:
                raise InputError(f"{said}, expected it to end first") from None
            print(f"{said}, waiting for it", file=sys.stderr)
            lock.acquire()
        place.write_text(str(os.getpid()))
    except OSError as error:
        raise InputError(f"{place}: cannot be written ({error.strerror})") from error
    try:
        yield
    finally:
        # unlink before release: a waiting process sees that its file is gone and locks a new one
        place.unlink(missing_ok=True)
        lock.release()
        with suppress(OSError):  # what the block did not use
            for folder in made:
                folder.rmdir()


@contextmanager
def all_or_nothing(folder: Path) -> Iterator[None]:
    """On an exception, remove the files that the block added to ``folder``, and a new folder."""
    before = set(folder.iterdir()) if folder.is_dir() else None
    try:
        yield
    except BaseException:
        with suppress(OSError):
            for path in set(folder.iterdir()) - (before or set()):
                path.unlink()
            if before is None:
                folder.rmdir()
        raise


SCRATCH = "captionbench-"
DAY = 24 * 60 * 60.0
"""In seconds."""
LONGEST = 230
"""The longest name of a file to write, in bytes: temporary names are longer."""
T = TypeVar("T")


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A temporary folder, removed at the end of the block, or after a kill by the next call.

    Those of SPICE, which have no lock, are removed by a call a day later.
    """
    for left in Path(tempfile.gettempdir()).glob(f"{SCRATCH}*"):
        with suppress(OSError), (left / ".lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(left)
    for left in Path(tempfile.gettempdir()).glob(f"{SCRATCH}spice-*"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > DAY:
                shutil.rmtree(left)
    with tempfile.TemporaryDirectory(prefix=SCRATCH) as name:
        folder = Path(name)
        # locked before it gets the name that other processes look for
        with (folder / ".new").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            (folder / ".new").rename(folder / ".lock")
            yield folder


def check_writable(path: Path) -> None:
    """Check, before long work, that its result can be written to ``path``.

    Raises:
        InputError: it is a folder, it or its own folder cannot be written, or its name is too long.
    """
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise InputError(f"{path}: a folder, expected a file to write")
    folder = next(parent for parent in target.parents if parent.exists())
    if target.exists() and not target.is_file():
        return
    if not _holds_files(folder):
        raise InputError(f"{path}: expected a file in a folder that can be written")
    if len(os.fsencode(target.name)) > LONGEST:
        raise InputError(f"{path}: expected a name of at most {LONGEST} bytes")
    if target.exists() and not os.access(target, os.W_OK):
        raise InputError(f"{path}: cannot be written (it is read-only)")


def check_folder(path: Path) -> None:
    """Check, before long work, that its files can be written to the folder ``path``.

    Raises:
        InputError: it is a file, or it or the folder to create it in cannot be written.
    """
    place = next(p for p in (Path(path), *Path(path).absolute().parents) if p.exists())
    if not _holds_files(place):
        raise InputError(f"{path}: expected a folder that can be written")


def _holds_files(folder: Path) -> bool:
    """Whether a file can be created there: in /proc root may write, but none can."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


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
        InputError: the file is missing, truncated or no JSON; the message has the position.
    """
    data = read_bytes(path, what)
    try:
        return json.loads(data.decode("utf-8-sig"), object_pairs_hook=_once)
    except UnicodeDecodeError:
        raise InputError(f"{path}: not UTF-8 text, expected {what}") from None
    except json.JSONDecodeError as error:
        place = f"line {error.lineno} column {error.colno}"
        raise InputError(
            f"{path}: not valid JSON at {place} ({error.msg}), truncated? Expected {what}"
        ) from None
    except (ValueError, RecursionError) as error:
        # a duplicate key, a number of thousands of digits, or thousands of nested lists
        raise InputError(f"{path}: not valid JSON ({error}), expected {what}") from None


def read_typed(path: Path, kind: type[T], what: str) -> T:
    """The file's JSON value, converted to the msgspec type ``kind``.

    Raises:
        InputError: as `read_json`; or a field is missing, unknown or of another type.
    """
    try:
        return msgspec.convert(read_json(path, what), kind)
    except msgspec.ValidationError as error:
        raise InputError(f"{path}: not {what}: {error}") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse duplicate keys, of which ``json`` keeps only the last."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice!r} stands twice in one object")
    return fields


def sha256(data: bytes) -> str:
    """The hexadecimal SHA-256 of ``data``."""
    return hashlib.sha256(data).hexdigest()


def sha256_of_arrays(arrays: Mapping[str, npt.NDArray[Any]]) -> str:
    """The hexadecimal SHA-256 of arrays and their names, in order."""
    return sha256(b"".join(name.encode() + array.tobytes() for name, array in arrays.items()))


def slug(*names: str) -> str:
    """Names as one file name: lower-case letters and digits, hyphens for all else."""
    return re.sub(r"[^a-z0-9]+", "-", " ".join(names).lower()).strip("-")
