"""Everything measured of one device by one command, in one file that can be sent.

The manifest, then the records, as compressed JSON lines. Nothing in it says whose machine it is: no
names of users, hosts or folders.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import filterfalse
from pathlib import Path
from typing import Literal

import msgspec
import torch

from benchmarks import records
from benchmarks.errors import InputError
from benchmarks.files import read_bytes, sha256, slug, write_atomically
from benchmarks.perf.cases import suites
from benchmarks.perf.cases.case import Case, eager
from benchmarks.perf.scaling.ladders import LADDERS
from benchmarks.perf.session import Session
from benchmarks.perf.targets import is_needed
from benchmarks.records import Device, Record

ENDING = ".captionbench.jsonl.gz"
MAGIC = b"\x1f\x8b"
LARGEST = 2**26
"""Bytes of records that are unpacked: beyond it a file is a mistake, or worse."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The first line."""

    captionbench: Literal["device record"]
    schema: Literal[1]
    suite: str
    device: Device
    commit: str | None
    clean: bool | None
    versions: dict[str, str]
    stages: dict[str, bool]  # by name, whether nothing of it was left
    failed: dict[str, str]  # what the device could not do, for lack of memory, say, and why, by row
    tiny: bool  # whether the sizes were the smallest, to try the command
    records: int  # how many lines follow
    sha256: str  # of all of them, as they are
    time: str


def pack(
    known: Sequence[Record],
    *,
    suite: str,
    device: Device,
    stages: Mapping[str, bool],
    failed: Mapping[str, str],
    tiny: bool,
) -> bytes:
    """The records, the newest of each slot, with a manifest; equal for equal arguments but time."""
    lines = b"".join(map(records.line, records.newest(known)))
    environment = records.environment()
    manifest = Manifest(
        captionbench="device record",
        schema=1,
        suite=suite,
        device=device,
        commit=environment.commit,
        clean=environment.clean,
        versions=environment.versions,
        stages=dict(stages),
        failed=dict(failed),
        tiny=tiny,
        records=lines.count(b"\n"),
        sha256=sha256(lines),
        time=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    return gzip.compress(msgspec.json.encode(manifest) + b"\n" + lines, mtime=0)


def name(device: Device) -> str:
    """The file's name: device, commit and day."""
    commit = (records.environment().commit or "unknown")[:10]
    device_name = slug(device.name) or "device"
    return f"{device_name}-{commit}-{datetime.now(UTC):%Y-%m-%d}{ENDING}"


def write(data: bytes, path: Path) -> None:
    """Write a packed file, whole or not at all."""
    with write_atomically(path, "wb") as file:
        file.write(data)


def read(path: Path) -> list[Record]:
    """The records of a file, packed or plain JSON lines; every one of them is checked.

    Raises:
        InputError: the file is missing, cut, changed, of another schema, or no file of records;
            or made with the smallest sizes, whose times mean nothing.
    """
    data = read_bytes(path, "records")
    if not data:
        raise InputError(f"{path}: is empty, expected records")
    if not data.startswith(MAGIC):
        return records.parse(data, str(path))
    text = _unpacked(data, path)
    first, _, lines = text.partition(b"\n")
    manifest = _manifest(first, path)
    if sha256(lines) != manifest.sha256:
        raise InputError(f"{path}: its records are not those that were packed (SHA-256 differs)")
    packed = records.parse(lines, str(path), first=2)
    if len(packed) != manifest.records:
        raise InputError(f"{path}: {len(packed)} records, its manifest says {manifest.records}")
    if manifest.tiny:
        raise InputError(f"{path}: made with --tiny, whose times mean nothing; record without it")
    return packed


def _unpacked(data: bytes, path: Path) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            text = file.read(LARGEST + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: cut off or damaged ({error}); ask for it again") from None
    if len(text) > LARGEST:
        raise InputError(f"{path}: over {LARGEST} bytes unpacked, expected a device record")
    return text


def _manifest(line: bytes, path: Path) -> Manifest:
    try:
        manifest = msgspec.json.decode(line, type=Manifest)
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{path}: no manifest ({error}), expected a file from `captionbench record`"
        ) from None
    return manifest


@dataclass(frozen=True)
class RecordStage:
    """A part of a device record."""

    name: str  # as in the manifest
    about: str  # what it measures
    # session -> records, those that there are not yet measured while there is time
    run: Callable[[Session], Iterable[list[Record]]]


def stages(
    suite: str, device: torch.device, *, tiny: bool, wrong: Collection[str] = ()
) -> list[RecordStage]:
    """Those of a suite, "cpu" or "gpu", the most important first; verification comes before them.

    Implementations that are ``wrong`` are not timed; ``tiny`` is at the smallest sizes.
    """

    def timed(name: str, about: str, cases: Iterable[Case]) -> RecordStage:
        chosen = list(dict.fromkeys(adapted(case) for case in cases if possible(case)))
        return RecordStage(name, about, lambda session: session.time(chosen))

    def possible(case: Case) -> bool:
        return case.precision != "tf32" or device.type == "cuda"

    def adapted(case: Case) -> Case:
        right = tuple(name for name in case.implementations if eager(name) not in wrong)
        sizes = case.sizes.tiny() if tiny else case.sizes
        return replace(case, sizes=sizes, implementations=right)

    cases = suites.SUITES[suite](suites.SEED)
    return [
        timed("targets", "what the targets need", filter(is_needed, cases)),
        timed("timing", "all else of the suite", filterfalse(is_needed, cases)),
        timed("memory", "what memory grows with", suites.SUITES["memory"](0)),
        RecordStage(
            "scaling",
            "how time and memory grow with every size",
            lambda session: session.scale(LADDERS.values(), tiny=tiny),
        ),
        timed("grid", "every expansion coefficient of the ablations", suites.SUITES["grid"](0)),
    ]
