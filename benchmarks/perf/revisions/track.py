"""Which of the tracked revisions the next is measured against."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.errors import InputError
from benchmarks.perf.revisions.revisions import Revision, resolve
from benchmarks.perf.revisions.series import is_test
from benchmarks.perf.targets import device_name
from benchmarks.records import Record

FILE = "comparison.jsonl"


def previous(
    known: Sequence[Record], now: Revision, device: str, repository: Path
) -> Revision | None:
    """The revision tracked last on the device that is another than ``now`` and can still be had.

    A dirty tree cannot, nor a commit that git has since forgotten.
    """
    # times are whole seconds: of two in one the later in the file is the later
    by_time = sorted(known, key=lambda r: r["time"])
    for record in by_time[::-1]:
        if record["kind"] != "comparison" or is_test(record) or device_name(record) != device:
            continue
        revision = record["details"]["revision"]
        if revision["dirty"] or (revision["commit"] == now.commit and not now.dirty):
            continue
        try:
            return resolve(repository, revision["commit"])
        except InputError:
            continue
    return None
