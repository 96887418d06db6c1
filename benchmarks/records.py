"""Records: one JSON line a measurement, append-only, with where the number came from.

A record is a plain dictionary:

    schema      1
    kind        equations | verification | flops | score | ablation | training | timing | comparison
                | prediction | scaling | denoising | words
    what        {"paper", "table", "row"}: the line of a table that the values belong to
    values      {column: number}
    n           how many images (cases, rounds of calls) the values are over
    seeds       the seeds of training
    status      same data | recorded means (FLOPs without the data) | other data | embedded
                | predicted (never measured)
    details     whatever else the report shows (per-image scores, captions, rows)
    data        {"name", "fingerprint", "split"}
    signature   how captions were scored (tokeniser, metric, references)
    checkpoint  SHA-256 of the weights that were scored, or null
    key         hash of all inputs: what has a record with an equal key is not measured again
    command, commit, clean, device, versions, wall_s, time
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
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks import reachable
from benchmarks.errors import InputError

Record = dict[str, Any]

ROOT = Path(__file__).resolve().parent.parent
PUBLISHED = ROOT / "reports" / "records"
LOCAL = ROOT / "reports" / "local" / "records"

SCHEMA = 1
KINDS = (
    "equations",
    "verification",
    "flops",
    "score",
    "ablation",
    "training",
    "timing",
    "comparison",
    "prediction",
    "scaling",
    "denoising",
    "words",
)
PREDICTED = "predicted"
"""The status of a number that nobody measured, and of every record of a prediction."""
STATUSES = ("same data", "recorded means", "other data", "embedded", PREDICTED)
_OF_A_DEVICE = ("timing", "prediction", "scaling")
"""Kinds whose numbers are one device's, and replace no other's."""
_PACKAGES = ("torch", "numpy", "pycocoevalcap", "hypothesis")
_OPTIONAL = ("triton",)


def key_of(job: Callable[..., Any] | Sequence[Callable[..., Any]], *parts: Any) -> str:
    """A hash of what a measurement depends on, and of nothing else.

    Args:
        job: the function that measures, or several: the code that they can reach counts.
        parts: options, fingerprints of data, seeds.
    """
    jobs = [job] if callable(job) else job
    text = json.dumps([reachable.fingerprint(*jobs), *parts], sort_keys=True, default=str)
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
def environment() -> dict[str, Any]:
    """Commit, cleanliness of the tree, device and versions of this process."""
    commit = _git("rev-parse", "HEAD")
    changes = _git("status", "--porcelain", "--untracked-files=no")
    return {
        "commit": commit,
        "clean": changes == "" if changes is not None else None,
        "device": {"kind": "cpu", "name": _cpu_name(), "cores": os.cpu_count()},
        "versions": {
            "python": platform.python_version(),
            **{name: metadata.version(name) for name in _PACKAGES},
            **_optional_versions(),
        },
    }


def _optional_versions() -> dict[str, str]:
    found = {}
    for name in _OPTIONAL:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


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
    kind: str,
    *,
    paper: str,
    table: str,
    row: str,
    values: Mapping[str, float],
    status: str,
    key: str,
    n: int | None = None,
    seeds: Sequence[int] = (),
    data: Mapping[str, Any] | None = None,
    signature: str | None = None,
    checkpoint: str | None = None,
    details: Mapping[str, Any] | None = None,
    wall_s: float | None = None,
    device: Mapping[str, Any] | None = None,
) -> Record:
    """A valid record of a measurement that was just made in this process."""
    record = {
        "schema": SCHEMA,
        "kind": kind,
        "what": {"paper": paper, "table": table, "row": row},
        "values": dict(values),
        "n": n,
        "seeds": list(seeds),
        "status": status,
        "details": dict(details or {}),
        "data": dict(data) if data else None,
        "signature": signature,
        "checkpoint": checkpoint,
        "key": key,
        "command": _command(),
        **environment(),
        "wall_s": wall_s,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    if device:
        record["device"] = dict(device)
    return validate(record, "new record")


def validate(record: Any, where: str) -> Record:
    """Check a record's fields.

    Raises:
        InputError: names ``where`` and the field that is missing or of the wrong kind.
    """
    if not isinstance(record, dict):
        raise InputError(f"{where}: not a record, expected a JSON object")
    if record.get("schema") != SCHEMA:
        raise InputError(f"{where}: schema {record.get('schema')!r}, expected {SCHEMA}")
    if record.get("kind") not in KINDS:
        raise InputError(f"{where}: kind {record.get('kind')!r}, expected one of {KINDS}")
    if record.get("status") not in STATUSES:
        raise InputError(f"{where}: status {record.get('status')!r}, expected one of {STATUSES}")
    what = record.get("what")
    if not isinstance(what, dict) or not all(
        isinstance(what.get(name), str) for name in ("paper", "table", "row")
    ):
        raise InputError(f"{where}: field 'what' must name paper, table and row")
    values = record.get("values")
    if not isinstance(values, dict):
        raise InputError(f"{where}: field 'values' must be an object of numbers")
    for name, value in values.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not math.isfinite(value):
            raise InputError(f"{where}: value {name!r} is {value!r}, expected a finite number")
    for name in ("key", "time", "command"):
        if not isinstance(record.get(name), str):
            raise InputError(f"{where}: field {name!r} must be text")
    for name, kinds, expected in _FIELDS:
        if not isinstance(record.get(name), kinds):
            raise InputError(f"{where}: field {name!r} must be {expected}")
    device = record["device"]
    if not isinstance(device.get("kind"), str) or not isinstance(device.get("name"), str):
        raise InputError(f"{where}: field 'device' must have a kind and a name")
    if record["kind"] == "prediction" and record["status"] != PREDICTED:
        raise InputError(f"{where}: status {record['status']!r} of a prediction, not {PREDICTED!r}")
    if record["kind"] == "timing":
        _validate_timing(record["details"], device, where)
    if record["kind"] == "comparison":
        _validate_comparison(record["details"], where)
    return record


_FIELDS: tuple[tuple[str, Any, str], ...] = (
    ("device", dict, "an object"),
    ("versions", dict, "an object"),
    ("details", dict, "an object"),
    ("seeds", list, "a list"),
    ("data", dict | None, "an object or null"),
    ("commit", str | None, "text or null"),
    ("clean", bool | None, "true, false or null"),
    ("wall_s", int | float | None, "a number or null"),
)


def _validate_timing(details: Record, device: Record, where: str) -> None:
    names = {"case", "row", "implementation", "baseline", "verdict"}
    if missing := names - set(details):
        raise InputError(f"{where}: details must name {', '.join(sorted(missing))}")
    case = details["case"]
    if not isinstance(case, dict) or not {"subject", "sizes", "precision"} <= set(case):
        raise InputError(f"{where}: details.case must have a subject, sizes and a precision")
    if device["kind"] == "cpu" and not isinstance(device.get("threads"), int):
        raise InputError(f"{where}: field 'device' of a timing on a CPU must say how many threads")


def _validate_comparison(details: Record, where: str) -> None:
    for name in ("benchmark", "implementation", "verdict"):
        if not isinstance(details.get(name), str):
            raise InputError(f"{where}: details.{name} of a comparison must be text")
    for name in ("revision", "against"):
        of = details.get(name)
        alone = name == "against" and of is None and name in details
        if not alone and not (
            isinstance(of, dict)
            and isinstance(of.get("commit"), str)
            and isinstance(of.get("dirty"), bool)
        ):
            raise InputError(f"{where}: details.{name} must have a commit and say if it is dirty")


def append(records: Iterable[Record], path: Path, *, once: bool = False) -> None:
    """Append whole lines under a lock: two writers at once lose nothing and mix nothing.

    ``once``: unless the file has records of their key, as when two did the same at once.
    """
    kept = [validate(record, "new record") for record in records]
    if not kept:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if once:
                file.seek(0)
                known = _keys(file)
                kept = [record for record in kept if record["key"] not in known]
            lines = "".join(json.dumps(record, sort_keys=True) + "\n" for record in kept)
            end = file.seek(0, os.SEEK_END)
            if end and (file.seek(end - 1), file.read(1))[1] != b"\n":
                lines = "\n" + lines  # a cut line stays one line, and spoils no other
            try:
                file.write(lines.encode())
                file.flush()
                os.fsync(file.fileno())
            except OSError:
                file.truncate(end)
                raise
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror})") from error


def _keys(lines: Iterable[bytes]) -> set[str]:
    """The keys of the lines that are whole."""
    found = set()
    for line in lines:
        with suppress(ValueError, TypeError, KeyError):
            found.add(json.loads(line)["key"])
    return found


def check_writable(path: Path) -> None:
    """Find out before hours of work, not after.

    Raises:
        InputError: records could not be appended to ``path``.
    """
    existing = next(p for p in (path, *path.absolute().parents) if p.exists())
    if not os.access(existing, os.W_OK) or (existing != path and not existing.is_dir()):
        raise InputError(f"{path}: cannot be written, expected a place for records")


def read(path: Path) -> list[Record]:
    """All records of one file.

    Raises:
        InputError: a line is no valid record; the message names file and line.
    """
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH)  # no line that another run is writing just now
            return parse(file.read(), str(path))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None


def parse(data: bytes, where: str, first: int = 1) -> list[Record]:
    """Records from JSON lines, the first of which is line ``first`` of ``where``.

    Raises:
        InputError: a line is no valid record; the message names it.
    """
    try:
        lines = data.decode().split("\n")
    except UnicodeDecodeError:
        raise InputError(f"{where}: not UTF-8 text, expected records as JSON lines") from None
    records = []
    for number, line in enumerate(lines, start=first):
        if not line and number == first + len(lines) - 1:
            break  # what follows the last line's end
        place = f"{where}: line {number}"
        try:
            value = json.loads(line)
        except json.JSONDecodeError as error:
            raise InputError(
                f"{place}: not valid JSON ({error.msg}), cut off? Delete that line: all others "
                "stand for themselves"
            ) from None
        except (ValueError, RecursionError) as error:
            raise InputError(f"{place}: not valid JSON ({error})") from None
        records.append(validate(value, place))
    return records


def load(*folders: Path) -> list[Record]:
    """All records under the folders, oldest first."""
    paths = [path for folder in folders for path in sorted(folder.glob("*.jsonl"))]
    return sorted((r for path in paths for r in read(path)), key=lambda r: r["time"])


def slot(record: Record) -> tuple[Any, ...]:
    """What a later record of the same measurement replaces; a comparison is replaced by none.

    Scores of one model are other measurements where the data (what was done to its features
    included), the search or the tokeniser differ.
    """
    what, data, details = record["what"], record["data"] or {}, record["details"]
    device = record["device"] if record["kind"] in _OF_A_DEVICE else {}
    return (
        record["kind"],
        *(what[name] for name in ("paper", "table", "row")),
        tuple(record["seeds"]),
        data.get("name"),
        data.get("fingerprint"),
        data.get("split"),
        record["signature"],
        details.get("beam_size"),
        details.get("max_length"),
        device.get("name"),
        device.get("threads"),
        record["key"] if record["kind"] == "comparison" else None,
    )


def newest(records: Iterable[Record]) -> list[Record]:
    """The last record of each slot, in the order of time."""
    ordered = sorted(records, key=lambda r: r["time"])
    return sorted({slot(r): r for r in ordered}.values(), key=lambda r: r["time"])
