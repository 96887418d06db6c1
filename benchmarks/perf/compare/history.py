"""Comparisons as series: each benchmark over the tracked revisions, one device at a time.

Times of different sessions are not comparable. A series is a chain of ratios, each measured in one
session against the revision before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import kinds
from benchmarks.errors import InputError
from benchmarks.figures import curves
from benchmarks.kinds import Comparison
from benchmarks.perf.compare.checkout import Revision, label, resolve
from benchmarks.records import Record, of_kind
from benchmarks.statistics import Estimate


@dataclass(frozen=True)
class Entry:
    """One revision's newest record in a series."""

    record: Record  # of the comparison
    number: int  # its index in the series, from 1
    reachable: bool | None  # whether HEAD has the commit in its history; None if unknown
    # speed relative to the first of its chain, a product of ratios; None if not timed
    level: float | None
    since: str  # that first revision's label: levels of two chains are not comparable

    @property
    def label(self) -> str:
        """The revision, with a plus where the tree was dirty."""
        return _label(self.record.details.revision)

    @property
    def against(self) -> str:
        """The revision that it was compared with; empty if none."""
        against = self.record.details.against
        return _label(against) if against else ""

    @property
    def verdict(self) -> str:
        """The record's verdict, with the counts that grew or became nondeterministic."""
        details = self.record.details
        more = [f"more {name}" for name, by in details.grown.items() if by > 0]
        nondeterministic = [f"{name} nondeterministic" for name in details.unsteady]
        return ", ".join([details.verdict, *more, *nondeterministic])

    @property
    def ratio(self) -> Estimate | None:
        """Speed relative to the revision that it was compared with."""
        values = self.record.values
        if "ratio" not in values:
            return None
        return Estimate(values["ratio"], values["ratio low"], values["ratio high"])

    @property
    def notes(self) -> str:
        """Whether the commit is not in history, and whether the tree was dirty."""
        said = ["not in history"] if self.reachable is False else []
        if self.record.details.revision.dirty:
            said.append("dirty tree")
        return ", ".join(said)

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        names = ("number", "label", "against", "verdict", "level", "since", "reachable")
        fields = {name: getattr(self, name) for name in names}
        return {**fields, "values": self.record.values, "time": self.record.time}


Name = tuple[str, str]
"""A series: benchmark with implementation, and device."""


def series(records: Sequence[Record], order: Sequence[str] = ()) -> dict[Name, list[Entry]]:
    """All series among the records, without the tests of `is_test`.

    ``order`` lists commits, the oldest first; others, unreachable, come before the first of these
    that was measured later. Without it a series is by time.
    """
    place = {commit: i for i, commit in enumerate(order)}
    grouped: dict[Name, list[Record]] = {}
    for record in sorted(of_kind(records, Comparison), key=lambda r: r.time):
        if not is_test(record):
            details = record.details
            name = f"{details.benchmark} ({details.implementation})", record.device.label
            grouped.setdefault(name, []).append(record)
    return {name: _entries(comparisons, place) for name, comparisons in sorted(grouped.items())}


def is_test(record: Record) -> bool:
    """Whether a comparison tests `compare`: equal revisions, or a planted slowdown."""
    details = record.details
    return bool(details.planted) or details.revision == details.against


def _entries(records: Sequence[Record], place: Mapping[str, int]) -> list[Entry]:
    """The entries of one series; ``records`` are sorted by time."""
    levels: dict[kinds.Revision | None, tuple[float, str]] = {}
    newest: dict[kinds.Revision, tuple[int, Record, float | None, str]] = {}
    for time, record in enumerate(records):
        details, ratio = record.details, record.values.get("ratio")
        revision, against = details.revision, details.against
        level, since = None, ""
        if against in levels and ratio:
            before, since = levels[against]
            level = before * ratio
        elif "seconds" in record.values:
            level, since = 1.0, _label(details.revision)
        if level is not None:
            levels[revision] = level, since
        newest[revision] = time, record, level, since

    def where(record: Record) -> int | None:
        return place.get(record.details.revision.commit)

    known = [(at, t) for t, r, _, _ in newest.values() if (at := where(r)) is not None]

    def position(entry: tuple[int, Record, float | None, str]) -> tuple[int, bool, int]:
        time, at = entry[0], where(entry[1])
        reachable = at is not None
        if at is None:
            at = min((other for other, later in known if later > time), default=len(place))
        return at, reachable, time

    return [
        Entry(record, number, where(record) is not None if place else None, level, since)
        for number, (_, record, level, since) in enumerate(
            sorted(newest.values(), key=position), start=1
        )
    ]


def _label(revision: kinds.Revision) -> str:
    return label(revision.commit, revision.dirty)


def drawing(entries: Sequence[Entry]) -> str:
    """A series as SVG: a line per chain of ratios, and every slower or faster revision."""
    timed = [entry for entry in entries if entry.level is not None]
    lines, points = {}, {}
    for since in dict.fromkeys(entry.since for entry in timed):
        lines[f"since {since}"] = _points([entry for entry in timed if entry.since == since])
    for verdict in ("slower", "faster"):
        beyond = [e for e in timed if e.record.details.verdict == verdict]
        if beyond:
            points[verdict] = _points(beyond)
    return curves(lines, "revision, as numbered", "speedup", points=points)


def _points(entries: Sequence[Entry]) -> tuple[list[float], list[float]]:
    return [float(e.number) for e in entries], [e.level or 0.0 for e in entries]


COLUMNS = (
    *("no.", "revision", "ms", "speedup", "baseline", "speedup since first"),
    *("verdict", "notes"),
)


def cells(entry: Entry) -> list[str]:
    """An entry as a row of `COLUMNS`."""
    values, ratio = entry.record.values, entry.ratio
    return [
        str(entry.number),
        entry.label,
        f"{1000 * values['seconds']:.4g}" if "seconds" in values else "",
        f"{ratio.value:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]" if ratio else "",
        entry.against,
        "" if entry.level is None else f"{entry.level:.3f} since {entry.since}",
        entry.verdict,
        entry.notes,
    ]


FILE = "comparison.jsonl"


def previous(
    known: Sequence[Record], now: Revision, device: str, repository: Path
) -> Revision | None:
    """The last revision tracked on the device that is not ``now`` and can be checked out.

    A dirty tree cannot, nor a commit that git no longer has.
    """
    # times are whole seconds: equal ones are in the file's order
    by_time = sorted(of_kind(known, Comparison), key=lambda r: r.time)
    for record in by_time[::-1]:
        if is_test(record) or record.device.label != device:
            continue
        revision = record.details.revision
        if revision.dirty or (revision.commit == now.commit and not now.dirty):
            continue
        try:
            return resolve(repository, revision.commit)
        except InputError:
            continue
    return None
