"""What several sections share: picking records, and the line that says where they came from."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.records import Record
from benchmarks.report.document import Paragraph

KEYS, KEY_LENGTH = 4, 8
"""How many keys of records an evidence line names, and how much of each."""


def provenance(records: Sequence[Record]) -> Paragraph:
    """One line that says where the numbers above it came from."""
    commits = sorted({(r.commit or "unknown")[:10] for r in records})
    dirty = any(r.clean is False for r in records)
    devices = sorted({_device(r) for r in records})
    days = sorted({r.time[:10] for r in records})
    keys = sorted({r.key[:KEY_LENGTH] for r in records})
    named = ", ".join([*keys[:KEYS], *(["..."] if keys[KEYS:] else [])])
    wall = sum(r.wall_s or 0 for r in records)
    text = (
        f"Evidence: {len(records)} record(s) ({named}), "
        f"{days[0]}{f' to {days[-1]}' if days[1:] else ''}; "
        f"commit {', '.join(commits)}{' with uncommitted changes' if dirty else ''}; "
        f"{'; '.join(devices)}"
    )
    return Paragraph(text + (f"; {wall:.0f} s of work." if wall else "."))


def _device(record: Record) -> str:
    device = record.device
    if device.kind != "cpu":
        return str(device.name)
    threads = f", {device.threads} used" if device.threads else ""
    return f"{device.name}, {device.cores} cores{threads}"


def not_run(what: str, how: str) -> Paragraph:
    """Says plainly what has no number here, and what would give it one."""
    return Paragraph(f"**Not run.** {what} {how}")
