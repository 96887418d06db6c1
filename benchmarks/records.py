"""Records: one JSON line for each measurement, append-only, with its provenance.

Scores and fractions (accuracy, self-BLEU) in ``values`` are times 100, as captioning papers print
them; a table printed in fractions of 1 says so in its paper's file. Times are in seconds, losses in
nats, distances as in their equations. The type of the details, see `benchmarks.kinds`, is the
record's kind; numbers of single images in them are in the scorer's unit.

A line begins with the SHA-256 of its rest, so that edited, cut or damaged lines are refused.
"""

from __future__ import annotations

import fcntl
import getpass
import hashlib
import json
import math
import os
import platform
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar, get_args

import msgspec
from msgspec import field

from benchmarks import reachable
from benchmarks.errors import InputError
from benchmarks.kinds import (
    AnyDetails,
    Comparison,
    Details,
    Measured,
    OfDevice,
    Part,
    Prediction,
    TrainingTime,
)

ROOT = Path(__file__).resolve().parent.parent
CHECKOUT = (ROOT / "pyproject.toml").is_file()
"""Whether this is a checkout; an installed package has no published records."""
REPORTS = ROOT / "reports" if CHECKOUT else Path("captionbench-report")
PUBLISHED = REPORTS / "records"
LOCAL = REPORTS / "local" / "records"

SCHEMA: Literal[2] = 2
PREDICTED: Literal["predicted"] = "predicted"
"""The status of predictions, which are not measured."""
MEASURED: Literal["measured"] = "measured"
"""The status of our own code's timings and counts, which have no counterpart in a paper."""
Status = Literal["same data", "recorded means", "other data", "embedded", "measured", "predicted"]
STATUSES: tuple[Status, ...] = get_args(Status)
_PACKAGES = ("torch", "numpy", "pycocoevalcap", "hypothesis", "triton")

D = TypeVar("D")


class What(Part, frozen=True):
    """The row of a table that values belong to."""

    paper: str
    table: str
    row: str


class Data(Part, frozen=True, omit_defaults=True):
    """A data set, the hash of its content, and the split; empty if there is no data."""

    name: str = ""
    fingerprint: str = ""
    split: str = ""


NO_DATA = Data()


class Device(Part, frozen=True, omit_defaults=True):
    """A CPU with its ``threads`` and the cores they were ``pinned`` to, or a GPU (other fields)."""

    kind: str
    name: str
    cores: int | None = None
    threads: int | None = None
    pinned: list[int] = field(default_factory=list)
    memory: int | None = None
    multiprocessors: int | None = None
    capability: str | None = None
    cuda: str | None = None
    driver: str | None = None

    @property
    def label(self) -> str:
        """The name and, for a CPU, the number of threads."""
        if self.kind != "cpu":
            return self.name
        return f"{self.name}, {self.threads} thread{'' if self.threads == 1 else 's'}"


class Environment(Part, frozen=True):
    """Commit, whether the working tree is clean, device and package versions of a process."""

    commit: str | None
    clean: bool | None
    device: Device
    versions: dict[str, str]


class Record(Part, Generic[D], frozen=True, kw_only=True, omit_defaults=True):
    """A measurement."""

    schema: Literal[2]
    what: What  # the row of a table that the values belong to
    values: dict[str, int | float]  # by column
    status: Status  # how it compares with the paper; predicted is never measured
    details: D  # fields of the record's kind
    key: str  # hash of all inputs; nothing with a recorded key is measured again
    command: str
    commit: str | None
    clean: bool | None
    device: Device
    versions: dict[str, str]
    time: str
    n: int | None = None  # number of images, cases or rounds of calls
    seeds: list[int] = field(default_factory=list)  # of training
    data: Data = NO_DATA
    signature: str = ""  # how captions were scored: tokeniser, metric, references
    checkpoint: str | None = None  # SHA-256 of the weights that were scored
    wall_s: float | None = None
    # hash of all source code, in older records whose key is not of reachable code
    code: str | None = None

    def __post_init__(self) -> None:
        """Check what types cannot; a ValueError names the field."""
        for name, value in self.values.items():
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"value {name!r} is {value}, expected a finite number")
        if isinstance(self.details, Prediction | TrainingTime) and self.status != PREDICTED:
            raise ValueError(f"status {self.status!r} of a prediction, not {PREDICTED!r}")
        try:
            timed = datetime.fromisoformat(self.time).tzinfo is not None
        except ValueError:
            timed = False
        if not timed:
            raise ValueError(f"time is {self.time!r}, expected one of ISO 8601 with its zone")
        on_cpu = self.device.kind == "cpu"
        if isinstance(self.details, Measured) and on_cpu and self.device.threads is None:
            raise ValueError("field 'device' of a timing on a CPU must say how many threads")

    @property
    def kind(self) -> str:
        """The tag of the details' type."""
        return kind_of(self.details)


def _plain(value: Any) -> float:
    """Convert NumPy's float64, a subclass of float."""
    if isinstance(value, float):
        return float(value)
    raise NotImplementedError


_encode = msgspec.json.Encoder(order="deterministic", enc_hook=_plain).encode
_decode: Callable[[bytes], Record[Any]] = msgspec.json.Decoder(Record[AnyDetails]).decode


def kind_of(details: Any) -> str:
    """The tag of a kind, or of details of it."""
    return str(details.__struct_config__.tag)


KINDS = tuple(map(kind_of, get_args(AnyDetails)))


def key_of(
    job: Callable[..., Any] | Sequence[Callable[..., Any]],
    *parts: Any,
    without: tuple[str, ...] = (),
) -> str:
    """A hash of exactly what a measurement depends on.

    Args:
        job: the measuring function, or several; all code that they can reach is hashed.
        parts: options, fingerprints of data, seeds.
        without: modules that are imported but never run, see `reachable.reach`.
    """
    jobs = [job] if callable(job) else job
    text = json.dumps(
        [reachable.fingerprint(*jobs, without=without), *parts], sort_keys=True, default=str
    )
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, timeout=20
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


@cache
def environment() -> Environment:
    """The environment of this process."""
    changes = _git("status", "--porcelain", "--untracked-files=no")
    return Environment(
        commit=_git("rev-parse", "HEAD"),
        clean=changes == "" if changes is not None else None,
        device=Device(kind="cpu", name=_cpu_name(), cores=os.cpu_count()),
        versions={"python": platform.python_version(), **_versions()},
    )


def _versions() -> dict[str, str]:
    versions = {}
    for name in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


_PATH = re.compile(r"""(?<![\w.])(?:~|\.\.)?(?:/[^\s/:;,'"()\[\]]+)+/?""")


def anonymous(text: str) -> str:
    """Remove what identifies this machine from a text.

    Paths are cut to their last part; the names of the user and the host become "user" and "host".
    """
    home = Path.home()
    if home.name:
        text = text.replace(str(home), "~")
    text = _PATH.sub(lambda path: path[0].rstrip("/").rpartition("/")[2], text)
    for name, instead in ((_user(), "user"), (home.name, "user"), (socket.gethostname(), "host")):
        if name:
            text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", instead, text)
    return text


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return ""


def _command() -> str:
    """This process's command line as a shell reads it, see `anonymous`."""
    return shlex.join(["captionbench", *map(anonymous, sys.argv[1:])])


def make(
    details: D,
    *,
    paper: str,
    table: str,
    row: str,
    values: Mapping[str, float],
    status: str,
    key: str,
    n: int | None = None,
    seeds: Sequence[int] = (),
    data: Data = NO_DATA,
    signature: str = "",
    checkpoint: str | None = None,
    wall_s: float | None = None,
    device: Device | None = None,
) -> Record[D]:
    """A record of a measurement in this process, encoded and decoded once to check it.

    Raises:
        InputError: a field has a wrong type, or a value is not finite.
    """
    here = environment()
    with _refused():
        record: Record[Any] = Record(
            schema=SCHEMA,
            what=What(paper=paper, table=table, row=row),
            values=dict(values),
            n=n,
            seeds=list(seeds),
            status=status,  # type: ignore[arg-type]  # checked by decoding
            details=details,
            data=data,
            signature=signature,
            checkpoint=checkpoint,
            key=key,
            command=_command(),
            commit=here.commit,
            clean=here.clean,
            device=device or here.device,
            versions=here.versions,
            wall_s=wall_s,
            time=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        return _decode(_encode(record))


@contextmanager
def _refused() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise InputError(f"new record: {error}") from error


def replace(record: Record[Any], **changes: Any) -> Record[Any]:
    """The record with changed fields, including those of `What`.

    Raises:
        InputError: as `make`.
    """
    what = {name: changes.pop(name) for name in ("paper", "table", "row") if name in changes}
    if what:
        changes["what"] = msgspec.structs.replace(record.what, **what)
    with _refused():
        return _decode(_encode(msgspec.structs.replace(record, **changes)))


def of_kind(records: Iterable[Record[Any]], *kinds: type[D]) -> list[Record[D]]:
    """The records of some kinds, in their order; a base class selects all its kinds."""
    return [record for record in records if isinstance(record.details, kinds)]


def line(record: Record[Any]) -> bytes:
    """A record as a line of a file."""
    return seal(_encode(record))


def seal(content: bytes) -> bytes:
    """Prepend the hash of a JSON object to it, as a line."""
    return b'{"hash":"%s",%s\n' % (hashlib.sha256(content).hexdigest().encode(), content[1:])


def to_json(records: Record[Any] | Sequence[Record[Any]]) -> Any:
    """Records as JSON values."""
    return msgspec.to_builtins(records)


_LINE = re.compile(rb'\{"hash":"([0-9a-f]{64})",(.*)', re.DOTALL)


def _read_line(text: bytes, place: str) -> Record[Any]:
    """The record of a line.

    Raises:
        InputError: names ``place`` and what is wrong.
    """
    sealed = _LINE.fullmatch(text)
    if sealed is None:
        raise InputError(f"{place}: cut off, or not a record of schema {SCHEMA} with its hash")
    content = b"{" + sealed[2]
    if hashlib.sha256(content).hexdigest().encode() != sealed[1]:
        raise InputError(f"{place}: edited, cut off or damaged: its content has another hash")
    try:
        return _decode(content)
    except msgspec.MsgspecError as error:
        raise InputError(f"{place}: not a record ({error})") from None


def _read_lines(data: bytes, where: str, first: int) -> tuple[list[Record[Any]], list[InputError]]:
    """The records of lines, and the errors of invalid lines."""
    found, bad = [], []
    for number, text in enumerate(data.removesuffix(b"\n").split(b"\n") if data else (), first):
        try:
            found.append(_read_line(text, f"{where}: line {number}"))
        except InputError as error:
            bad.append(error)
    return found, bad


def parse(data: bytes, where: str, first: int = 1) -> list[Record[Any]]:
    """Records from lines, the first of which is line ``first`` of ``where``.

    Raises:
        InputError: a line is no valid record; the message names it.
    """
    found, bad = _read_lines(data, where, first)
    if bad:
        raise bad[0]
    return found


def append(records: Iterable[Record[Any]], path: Path, *, once: bool = False) -> None:
    """Append whole lines under a lock, so that concurrent writers are safe.

    With ``once``, records whose key is already in the file are skipped.

    Raises:
        InputError: the file cannot be written; it is left unchanged.
    """
    new = list(records)
    if not new:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab+", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if once:
                file.seek(0)
                known = {record.key for record in _read_lines(file.read(), "", 1)[0]}
                new = [record for record in new if record.key not in known]
            lines = b"".join(map(line, new))
            end = file.seek(0, os.SEEK_END)
            if end and (file.seek(end - 1), file.read(1))[1] != b"\n":
                lines = b"\n" + lines  # end a truncated last line first
            try:
                while lines:
                    lines = lines[file.write(lines) :]
                os.fsync(file.fileno())
            except OSError:
                file.truncate(end)
                raise
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror})") from error


def read(path: Path) -> list[Record[Any]]:
    """The records of one file; invalid lines are left out with a warning.

    Raises:
        InputError: the file cannot be read, or no line is a JSON object.
    """
    if path.exists() and not path.is_file():
        raise InputError(f"{path}: a pipe, a device or a folder, expected a file of records")
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH)  # wait for another process that is appending
            data = file.read()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    if data and not any(text.startswith(b"{") for text in data.split(b"\n")):
        raise InputError(f"{path}: not a file of records, expected JSON lines")
    found, bad = _read_lines(data, str(path), 1)
    if bad:
        more = f", and {len(bad) - 1} more like it" if bad[1:] else ""
        print(f"warning: {bad[0]}; left out{more}", file=sys.stderr)
    return found


def load(*folders: Path) -> list[Record[Any]]:
    """All records under the folders, oldest first.

    Raises:
        InputError: a folder or a file cannot be read.
    """
    for folder in folders:
        if folder.is_dir() and not os.access(folder, os.R_OK | os.X_OK):
            raise InputError(f"{folder}: cannot be read (Permission denied)")
    paths = [path for folder in folders for path in sorted(folder.glob("*.jsonl"))]
    return sorted((r for path in paths for r in read(path)), key=lambda r: r.time)


def slot(record: Record[Any]) -> tuple[object, ...]:
    """The identity of a measurement: a later record of the same slot replaces this one.

    Scores of one model differ in slot if the data (including its features), the beam search or the
    tokeniser differ. Every comparison has its own slot.
    """
    details: Details = record.details
    device = (record.device.name, record.device.threads) if isinstance(details, OfDevice) else ()
    key = record.key if isinstance(details, Comparison) else None
    return (
        *(record.kind, record.what, tuple(record.seeds), record.data, record.signature),
        *(details.slot, device, key),
    )


def newest(records: Iterable[Record[Any]]) -> list[Record[Any]]:
    """The last record of each `slot`, in the order of time."""
    ordered = sorted(records, key=lambda r: r.time)
    return sorted({slot(r): r for r in ordered}.values(), key=lambda r: r.time)
