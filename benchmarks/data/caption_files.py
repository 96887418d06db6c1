"""A user's own captions of pictures, from CSV or JSON.

CSV: a row a caption, with named columns. JSON: a list of objects or COCO's caption format, with the
same names, or an object whose keys are the pictures' names.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath
from typing import Any

from benchmarks.data import coco
from benchmarks.errors import InputError
from benchmarks.files import read_bytes, read_json

NAMES = {
    "image": ("image", "filename", "file_name", "file", "image_name", "path"),
    "caption": ("caption", "captions", "text", "sentence"),
    "split": ("split",),
}
"""Accepted names of each field, in any case."""

LAYOUT = (
    'a list of {"image": ..., "caption": ...}, an object {image: [captions]} or COCO\'s caption '
    "format"
)


@dataclass(frozen=True)
class Entry:
    """One caption of the file."""

    place: str
    """Its place in the file."""
    image: str
    """The picture's file name, without folders."""
    caption: str
    split: str | None = None
    """The split that the file names for it, if any."""


def read(path: Path) -> list[Entry]:
    """The captions of a .csv, .tsv or .json file, in file order; texts may be empty.

    Raises:
        InputError: the file is missing, damaged, of another layout, or has no captions.
    """
    path = Path(path)
    kind = path.suffix.lower()
    if kind in (".csv", ".tsv"):
        entries = list(_csv(path))
    elif kind == ".json":
        entries = list(_json(path))
    else:
        raise InputError(f"{path}: expected captions in a .csv, .tsv or .json file")
    if not entries:
        raise InputError(f"{path}: no captions, expected at least one")
    return entries


def _csv(path: Path) -> Iterator[Entry]:
    data = read_bytes(path, "captions as CSV")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text at byte {error.start}") from None
    first = text.partition("\n")[0]
    delimiter = max(",;\t", key=first.count)
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        header = next(rows, [])
        columns = _columns(path, header)
        for row in rows:
            if not row:
                continue
            if len(row) != len(header):
                raise InputError(
                    f"{path}: line {rows.line_num} has {len(row)} cells, expected {len(header)}: "
                    "are captions with commas in quotes?"
                )
            cells = {name: row[column] for name, column in columns.items()}
            yield _entry(path, f"line {rows.line_num}", **cells)
    except csv.Error as error:
        raise InputError(f"{path}: line {rows.line_num}: {error}") from None


def _columns(path: Path, header: Iterable[str]) -> dict[str, int]:
    """The index of each field's column, by `NAMES`."""
    found = [name.strip().lower() for name in header]
    columns = {}
    for field, names in NAMES.items():
        places = [i for i, name in enumerate(found) if name in names]
        if len(places) > 1:
            raise InputError(f"{path}: {len(places)} columns for the {field}, expected one")
        if places:
            columns[field] = places[0]
        elif field != "split":
            known = " or ".join(names)
            raise InputError(
                f"{path}: line 1 names no column for the {field} ({known}), "
                f"but {', '.join(filter(None, found)) or 'nothing'}"
            )
    return columns


def _json(path: Path) -> Iterator[Entry]:
    value = read_json(path, LAYOUT)
    if isinstance(value, dict) and isinstance(value.get("annotations"), list):
        yield from _coco(path, value)
    elif isinstance(value, dict):
        for image, captions in value.items():
            yield from _entries(path, repr(image), image, captions)
    elif isinstance(value, list):
        for i, record in enumerate(value):
            place = f"[{i}]"
            fields = _fields(path, place, record)
            yield from _entries(path, place, **fields)
    else:
        raise InputError(f"{path}: expected {LAYOUT}")


def _coco(path: Path, value: Mapping[str, Any]) -> Iterator[Entry]:
    if not isinstance(value.get("images"), list):
        raise InputError(f'{path}: no list "images", expected {LAYOUT}')
    named = {
        image_id: _fields(path, f"images[{i}]", image, caption=False)
        for i, (image_id, image) in enumerate(coco.images(path, value).items())
    }
    for each in coco.annotated(path, value):
        fields = named[each.image["id"]]
        yield from _entries(path, each.place, **fields, caption=each.record.get("caption"))


def _fields(path: Path, place: str, record: Any, *, caption: bool = True) -> dict[str, Any]:
    """The record's values by field, see `NAMES`."""
    if not isinstance(record, dict):
        raise InputError(f"{path}: {place} is no object, expected {LAYOUT}")
    lowered = {key.lower(): value for key, value in record.items()}
    fields = {}
    for field, names in NAMES.items():
        if field == "caption" and not caption:
            continue
        name = next((name for name in names if name in lowered), None)
        if name is not None:
            fields[field] = lowered[name]
        elif field != "split":
            raise InputError(f"{path}: {place} has no {field} ({' or '.join(names)})")
    return fields


def _entries(
    path: Path, place: str, image: Any, caption: Any, split: Any = None
) -> Iterator[Entry]:
    """One caption, or each of a list of them."""
    for text in caption if isinstance(caption, list) else [caption]:
        yield _entry(path, place, image, text, split)


def _entry(path: Path, place: str, image: Any, caption: Any, split: Any = None) -> Entry:
    for field, value in (("image", image), ("caption", caption), ("split", split or "")):
        if not isinstance(value, str):
            raise InputError(f"{path}: {place}: the {field} is {value!r:.40}, expected text")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InputError(f"{path}: {place}: the {field} has half a surrogate pair") from None
    # a path of any operating system; only the file name counts
    name = PureWindowsPath(image.strip()).name
    if not name:
        raise InputError(f"{path}: {place}: names no image")
    return Entry(place, name, " ".join(caption.split()), split.strip() if split else None)
