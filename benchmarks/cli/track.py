"""``captionbench track``: measure this revision, and keep the records for the history."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from benchmarks import records
from benchmarks.cli.compare import check_any_measured, configure_measurement, lines, settings_of
from benchmarks.cli.options import add_records, own_records, starting_with
from benchmarks.cli.terminal import progress
from benchmarks.perf.case_records import describe
from benchmarks.perf.compare import measurement
from benchmarks.perf.compare.benchmarks import BENCHMARKS, Benchmark, chosen
from benchmarks.perf.compare.checkout import checked_out, resolve
from benchmarks.perf.compare.history import FILE, previous
from benchmarks.perf.compare.outcome import Settings, record
from benchmarks.records import ROOT
from benchmarks.workers import unwound_by_signals


def configure(parser: argparse.ArgumentParser) -> None:
    configure_measurement(parser)
    add_records(parser)


def run(arguments: argparse.Namespace) -> int:
    """Compare the working tree with the revision tracked last, and append the records.

    Returns 1 if a benchmark is wrong, slower or no longer available, or a count grew.

    Raises:
        InputError: an invalid option or file of records; nothing could be run.
    """
    settings = settings_of(arguments, {})
    names = starting_with(BENCHMARKS, arguments.only, "benchmark")
    what = chosen(names, arguments.implementation)
    with own_records(arguments, FILE) as path:
        assert path is not None
        return _track(arguments, settings, what, path)


def _track(
    arguments: argparse.Namespace,
    settings: Settings,
    what: Sequence[tuple[Benchmark, str]],
    path: Path,
) -> int:
    known = records.read(path) if path.exists() else []
    now = resolve(ROOT, None)
    described = describe(torch.device(settings.device), settings.threads)
    before = previous(known, now, described.label, ROOT)
    revisions = [before, now] if before else [now]
    with progress() as say, unwound_by_signals(), checked_out(ROOT, revisions) as trees:
        began = time.perf_counter()
        outcomes = measurement.time_in_turn(
            trees, measurement.verify_and_count(trees, what, settings, say), settings, say
        )
        wall_s = time.perf_counter() - began
        check_any_measured(outcomes, revisions)
        new = [record(one, trees, settings, wall_s) for one in outcomes]
        records.append(new, path)
    if arguments.json:
        print(json.dumps(records.to_json(new), indent=2))
    else:
        print("\n".join(lines(outcomes, revisions)))
        print(f"{path}: the records", file=sys.stderr)
    return int(before is not None and any(one.regressed for one in outcomes))
