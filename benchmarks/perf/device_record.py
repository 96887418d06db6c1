"""All records of one device in one file to send: gzipped JSON lines.

The first line is the manifest. Names of users, hosts and folders are not in it.
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
"""Limit of the unpacked bytes, against mistakes and malicious files."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of a device record."""

    captionbench: Literal["device record"]
    schema: Literal[1]
    suite: str
    device: Device
    commit: str | None
    clean: bool | None
    versions: dict[str, str]
    stages: dict[str, bool]  # by name, whether it is complete
    failed: dict[str, str]  # by row, why it failed (out of memory, say)
    tiny: bool  # whether made with --tiny
    records: int  # number of lines that follow
    sha256: str  # of those lines
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
    """Pack a manifest and the newest record of each slot, deterministically except for the time."""
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
    """Write a packed file atomically."""
    with write_atomically(path, "wb") as file:
        file.write(data)


def read(path: Path) -> list[Record]:
    """Read and check the records of a file, packed or plain JSON lines.

    Raises:
        InputError: the file is missing, truncated, modified, of another schema, not a file of
            records, or made with ``--tiny``.
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
    # session -> records; missing ones are measured while there is time
    run: Callable[[Session], Iterable[list[Record]]]


def stages(
    suite: str, device: torch.device, *, tiny: bool, wrong: Collection[str] = ()
) -> list[RecordStage]:
    """The stages of suite "cpu" or "gpu" after verification, the most important first.

    Implementations in ``wrong`` are not timed; ``tiny`` uses the smallest sizes.
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
