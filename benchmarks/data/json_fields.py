"""Typed access to JSON fields; errors name the file, the place and what was expected."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.errors import InputError


def shown(value: Any) -> str:
    """``value`` as JSON, cut to 40 characters."""
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def field(
    path: Path, record: Any, place: str, name: str, kind: type | tuple[type, ...], expected: str
) -> Any:
    """``record[name]``, which must exist and be of the ``kind``; a bool is not a number."""
    if not isinstance(record, dict):
        raise InputError(f"{path}: {place} is {shown(record)}, expected an object with {name!r}")
    if name not in record:
        raise InputError(f"{path}: {place} has no {name!r}, expected {expected}")
    value = record[name]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise InputError(f"{path}: {place}.{name} is {shown(value)}, expected {expected}")
    return value


def integer(path: Path, record: Any, place: str, name: str) -> int:
    """An integer field."""
    return int(field(path, record, place, name, int, "an integer"))


def caption(path: Path, record: Any, place: str, name: str) -> str:
    """A caption: a string that can be encoded as UTF-8."""
    text = str(field(path, record, place, name, str, "a caption as a string"))
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError(
            f"{path}: {place}.{name} is {shown(text)}, which has half a surrogate pair, expected "
            "text"
        ) from None
    return text
