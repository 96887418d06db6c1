"""Records: one JSON line a measurement, append-only, with where the number came from.

Scores in ``values`` are times 100, as captioning papers print them, and so are shares (accuracy,
self-BLEU): a table printed in fractions of 1 says so in its paper's file. Times are in seconds,
losses in nats, distances as their equations give them. The details, whose type is the record's
kind, are in `benchmarks.kinds`; numbers of single images in them are as the scorer gives them.

A line begins with the SHA-256 of the rest of it, so that one edited, cut or damaged is refused.
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
"""The status of a number that nobody measured, and of every record of a prediction."""
MEASURED: Literal["measured"] = "measured"
"""The status of what was timed or counted of our own code, beside no number of a paper."""
Status = Literal["same data", "recorded means", "other data", "embedded", "measured", "predicted"]
STATUSES: tuple[Status, ...] = get_args(Status)
_PACKAGES = ("torch", "numpy", "pycocoevalcap", "hypothesis", "triton")

D = TypeVar("D")


class What(Part, frozen=True):
    """The line of a table that values belong to."""

    paper: str
    table: str
    row: str


class Data(Part, frozen=True, omit_defaults=True):
    """What was captioned or counted: a data set, its content's hash, and its split; or nothing."""

    name: str = ""
    fingerprint: str = ""
    split: str = ""


NO_DATA = Data()


class Device(Part, frozen=True, omit_defaults=True):
    """What computed; ``threads`` of a CPU, and the cores they were ``pinned`` to; rest of a GPU."""

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
        """Its name, with the threads of a CPU."""
        if self.kind != "cpu":
            return self.name
        return f"{self.name}, {self.threads} thread{'' if self.threads == 1 else 's'}"


class Environment(Part, frozen=True):
    """Commit, cleanliness of the tree, device and versions of a process."""

    commit: str | None
    clean: bool | None
    device: Device
    versions: dict[str, str]


class Record(Part, Generic[D], frozen=True, kw_only=True, omit_defaults=True):
    """A measurement."""

    schema: Literal[2]
    what: What  # the line of a table that the values belong to
    values: dict[str, int | float]  # by column
    status: Status  # how it compares with the paper; predicted is never measured
    details: D  # what else is known, by kind
    key: str  # hash of all inputs; what has a record of an equal key is not measured again
    command: str
    commit: str | None
    clean: bool | None
    device: Device
    versions: dict[str, str]
    time: str
    n: int | None = None  # how many images (cases, rounds of calls) the values are over
    seeds: list[int] = field(default_factory=list)  # of training
    data: Data = NO_DATA
    signature: str = ""  # how captions were scored: tokeniser, metric, references
    checkpoint: str | None = None  # SHA-256 of the weights that were scored
    wall_s: float | None = None
    # hash of all source code, in records made before keys were of reachable code
    code: str | None = None

    def __post_init__(self) -> None:
        """Check what types do not say; ValueError names the field."""
        for name, value in self.values.items():
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"value {name!r} is {value}, expected a finite number")
        if isinstance(self.details, Prediction | TrainingTime) and self.status != PREDICTED:
            raise ValueError(f"status {self.status!r} of a prediction, not {PREDICTED!r}")
        on_cpu = self.device.kind == "cpu"
        if isinstance(self.details, Measured) and on_cpu and self.device.threads is None:
            raise ValueError("field 'device' of a timing on a CPU must say how many threads")

    @property
    def kind(self) -> str:
        """Of the details, in a word."""
        return kind_of(self.details)


def _plain(value: Any) -> float:
    """NumPy's float64, which is a float."""
    if isinstance(value, float):
        return float(value)
    raise NotImplementedError


_encode = msgspec.json.Encoder(order="deterministic", enc_hook=_plain).encode
_decode: Callable[[bytes], Record[Any]] = msgspec.json.Decoder(Record[AnyDetails]).decode


def kind_of(details: Any) -> str:
    """The word for a kind of record, or for details of it."""
    return str(details.__struct_config__.tag)


KINDS = tuple(map(kind_of, get_args(AnyDetails)))


def key_of(
    job: Callable[..., Any] | Sequence[Callable[..., Any]],
    *parts: Any,
    without: tuple[str, ...] = (),
) -> str:
    """A hash of what a measurement depends on, and of nothing else.

    Args:
        job: the function that measures, or several: the code that they can reach counts.
        parts: options, fingerprints of data, seeds.
        without: modules that are imported and not run, as of ``reachable.reach``.
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
    """Of this process."""
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
    """The text without what tells whose machine this is.

    Of paths only the last name stays; the user's and the host's names, as words, become "user" and
    "host".
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
    except (KeyError, OSError):  # a container's user need not have a name
        return ""


def _command() -> str:
    """This process's command line; of a path on this machine only the name."""
    return " ".join(["captionbench", *map(anonymous, sys.argv[1:])])


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
    """A record of a measurement that was just made in this process, as it will be read back.

    Raises:
        InputError: a field is of another type than its kind's, or a value is not finite.
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
    """The record with other fields; those of `What` may be named too.

    Raises:
        InputError: as `make`.
    """
    what = {name: changes.pop(name) for name in ("paper", "table", "row") if name in changes}
    if what:
        changes["what"] = msgspec.structs.replace(record.what, **what)
    with _refused():
        return _decode(_encode(msgspec.structs.replace(record, **changes)))


def of_kind(records: Iterable[Record[Any]], *kinds: type[D]) -> list[Record[D]]:
    """The records of some kinds, in their order; a base stands for all kinds that share it."""
    return [record for record in records if isinstance(record.details, kinds)]


def line(record: Record[Any]) -> bytes:
    """A record as it is kept."""
    return seal(_encode(record))


def seal(content: bytes) -> bytes:
    """A JSON object as a line that begins with its hash."""
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
    """The records of lines, and what is wrong with those that are none."""
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
    """Append whole lines under a lock: two writers at once lose nothing and mix nothing.

    ``once``: unless the file has records of their key, as when two did the same at once.

    Raises:
        InputError: the file cannot be written; it is as it was then.
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
                lines = b"\n" + lines  # a cut line stays one line, and spoils no other
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
    """The records of one file; lines that are none are left out, with a warning.

    Raises:
        InputError: the file cannot be read, or no line of it looks like one of ours.
    """
    if path.exists() and not path.is_file():
        raise InputError(f"{path}: a pipe, a device or a folder, expected a file of records")
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH)  # no line that another run is writing just now
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
    """All records under the folders, oldest first."""
    paths = [path for folder in folders for path in sorted(folder.glob("*.jsonl"))]
    return sorted((r for path in paths for r in read(path)), key=lambda r: r.time)


def slot(record: Record[Any]) -> tuple[object, ...]:
    """What a later record of the same measurement replaces; a comparison is replaced by none.

    Scores of one model are other measurements where the data (what was done to its features
    included), the search or the tokeniser differ.
    """
    details: Details = record.details
    device = (record.device.name, record.device.threads) if isinstance(details, OfDevice) else ()
    key = record.key if isinstance(details, Comparison) else None
    return (
        *(record.kind, record.what, tuple(record.seeds), record.data, record.signature),
        *(details.slot, device, key),
    )


def newest(records: Iterable[Record[Any]]) -> list[Record[Any]]:
    """The last record of each slot, in the order of time."""
    ordered = sorted(records, key=lambda r: r.time)
    return sorted({slot(r): r for r in ordered}.values(), key=lambda r: r.time)
