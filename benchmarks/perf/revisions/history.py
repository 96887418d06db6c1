"""``captionbench history``: each benchmark over the tracked revisions, per device."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.figures import curves
from benchmarks.perf.revisions.series import Entry


def drawing(entries: Sequence[Entry]) -> str:
    """A series as SVG: a line for each chain of ratios, and every slower or faster revision."""
    timed = [entry for entry in entries if entry.level is not None]
    lines, points = {}, {}
    for since in dict.fromkeys(entry.since for entry in timed):
        lines[f"since {since}"] = _points([entry for entry in timed if entry.since == since])
    for verdict in ("slower", "faster"):
        of = [e for e in timed if e.record["details"]["verdict"] == verdict]
        if of:
            points[verdict] = _points(of)
    return curves(lines, "revision, as numbered", "times as fast", points=points)


def _points(entries: Sequence[Entry]) -> tuple[list[float], list[float]]:
    return [float(e.number) for e in entries], [e.level or 0.0 for e in entries]


COLUMNS = ("", "revision", "ms", "times as fast", "than", "in all", "verdict", "")


def cells(entry: Entry) -> list[str]:
    """An entry as a row of `COLUMNS`."""
    values, ratio = entry.record["values"], entry.ratio
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
