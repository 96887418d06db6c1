"""``captionbench report``: run the main job, then write the report from its records."""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import closing
from pathlib import Path

from tqdm import tqdm

from benchmarks import kinds, records
from benchmarks.cli.options import add_data
from benchmarks.errors import InputError
from benchmarks.records import PUBLISHED, REPORTS, Record
from benchmarks.report import build, jobs, pictures
from benchmarks.scoring import java
from benchmarks.workers import Job, run_all


def configure(parser: argparse.ArgumentParser) -> None:
    add_data(parser, "folder of real data", "; without, released captions are not scored")
    parts = parser.add_mutually_exclusive_group()
    parts.add_argument(
        "--quick",
        action="store_true",
        help="a short form in a minute or two, kept apart under local/quick",
    )
    parts.add_argument(
        "--published",
        action="store_true",
        help="measure nothing: the site of the published records alone, in half a minute",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=REPORTS,
        metavar="DIR",
        help="folder of the report and of what it measures (default: %(default)s)",
    )
    parts.add_argument(
        "--check",
        action="store_true",
        help="run nothing: exit 1 if the published pages are not what the published records give",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run what has no record yet, write the pages, and print where they are; 1 if a check fails.

    Raises:
        InputError: the data folder is missing or invalid.
    """
    if arguments.check:
        return check()
    data = Path(arguments.data) if arguments.data else None
    if data is not None and not data.is_dir():
        raise InputError(f"{data}: no such folder, expected the data folder (--data)")
    began = time.perf_counter()
    folder = arguments.out / "local"
    if arguments.quick:
        folder /= "quick"
        site, kept = folder / "site", []
    else:
        site, kept = arguments.out / "site", records.load(PUBLISHED)
    local = []
    if not arguments.published:
        local = measure(jobs.plan(data, arguments.quick), folder / "records")
    made = [*kept, *local]
    jpegs = pictures.jpegs(data, pictures.shown(made))
    page = build.write_site(build.pages(made, jpegs, quick=arguments.quick), site)
    print(f"{page}: the report, after {time.perf_counter() - began:.0f} s")
    failed = [
        row
        for record in records.of_kind(local, kinds.Verification)
        for row in record.details.rows
        if not row.passed
    ]
    for row in failed:
        print(f"FAILED: {row.operator} {row.what} in {row.dtype}: {row.worst}")
    return int(bool(failed))


def measure(planned: list[Job], folder: Path) -> list[Record]:
    """Run the planned jobs that have no record under ``folder`` yet; returns the records to report.

    These are the planned jobs', and those that other commands (training, timing) keep there.
    """
    known = {record.key for record in records.load(folder)}
    missing = [job for job in planned if not job.gives() <= known]
    if len(missing) < len(planned):
        print(f"{len(planned) - len(missing)} of {len(planned)} measurements are on record")
    path = folder / "report.jsonl"
    bar = tqdm(total=len(missing), unit="job", disable=not missing, file=sys.stderr)
    with bar, closing(run_all(missing, path, initialise=java.keep_meteor)) as running:
        for job, _ in running:
            bar.write(job.name, file=sys.stderr)
            bar.update()
    keys = {key for job in planned for key in job.gives()}
    return [r for r in records.load(folder) if r.key in keys or _of_its_own(r)]


OF_REPORT = (
    kinds.Ablation,
    kinds.Equations,
    kinds.Operations,
    kinds.Parameters,
    kinds.Released,
    kinds.TrainingTime,
    kinds.Verification,
)
"""What only the main job measures: outdated unless a planned job has its key."""


def _of_its_own(record: Record) -> bool:
    """Whether another command made it; `time` and `record` verify other devices too."""
    elsewhere = isinstance(record.details, kinds.Verification) and record.device.kind != "cpu"
    return elsewhere or not isinstance(record.details, OF_REPORT)


def check() -> int:
    """Compare the published pages with what the published records give."""
    names = build.stale(records.load(PUBLISHED), REPORTS)
    for name in names:
        print(f"reports/{name}: stale, expected what reports/records gives (captionbench import)")
    return 1 if names else 0
