"""Atomic replace of a file, by temporary files that no two writers share."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import IO, Any


@contextmanager
def atomic_replace(path: Path, mode: str = "w") -> Iterator[IO[Any]]:
    """Open a temporary file that replaces ``path`` only when the block ends well.

    On any failure, a full disk or Ctrl-C included, the old file stays as it was. Links are
    followed; a device or a pipe is written in place.

    Raises:
        OSError: the folder cannot be written or the disk is full.
    """
    target = Path(os.path.realpath(path))
    encoding = None if "b" in mode else "utf-8"
    if target.exists() and not target.is_file():
        with target.open(mode, encoding=encoding) as file:
            yield file
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    partial, descriptor = _temporary(target)
    try:
        if target.exists():
            os.fchmod(descriptor, stat.S_IMODE(target.stat().st_mode))  # a private file stays so
        with os.fdopen(descriptor, mode, encoding=encoding) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            partial.replace(target)
    except BaseException:
        with suppress(OSError):
            partial.unlink()
        raise


def _temporary(target: Path) -> tuple[Path, int]:
    """A locked, empty file beside ``target`` that no other writer has.

    Names are numbered; the first that is not locked is taken, even if a killed writer left it.
    """
    for number in count():
        path = target.with_name(f".{target.name}.{number}.partial")
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_open(path, descriptor):
                os.truncate(descriptor, 0)
                return path, descriptor
        except BlockingIOError:
            pass
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
    raise AssertionError


def _is_open(path: Path, descriptor: int) -> bool:
    """Whether ``path`` still names the open file: another writer may have renamed it meanwhile."""
    with suppress(FileNotFoundError):
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    return False
