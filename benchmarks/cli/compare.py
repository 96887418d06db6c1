"""``captionbench compare``: is one revision slower than another, or does it take more?"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks import records
from benchmarks.errors import InputError
from benchmarks.perf.compare import measurement
from benchmarks.perf.compare.benchmarks import BENCHMARKS, chosen
from benchmarks.perf.compare.checkout import (
    checked_out,
    resolve,
)
from benchmarks.perf.compare.outcome import (
    configure_measurement,
    lines,
    progress,
    record,
    refuse_nothing,
    settings_of,
)
from benchmarks.perf.compare.worker_process import unwound_by_signals
from benchmarks.records import ROOT, Record


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument("a", metavar="REV_A", help="a commit, a tag or a branch: the baseline")
    parser.add_argument(
        "b", metavar="REV_B", nargs="?", help="another (default: the working tree as it is)"
    )
    configure_measurement(parser)
    parser.add_argument(
        "--counts-only",
        action="store_true",
        help="time nothing: a gate on what is counted, the same on every run",
    )
    parser.add_argument(
        "--repeat",
        type=int,
        default=1,
        metavar="N",
        help="time N times over, by fresh processes, and count the verdicts: of equal revisions, "
        "the false alarms",
    )
    parser.add_argument(
        "--plant",
        nargs="+",
        default=[],
        metavar="FACTOR:NAME",
        help="to test the test: slow B down in a benchmark, as 1.10:dynamic-operator",
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="append the records here")


def run(arguments: argparse.Namespace) -> int:
    """Compare and print; 1 if B is wrong, slower, lost, or takes more of what is counted.

    Lost is what A runs and B does not.

    Raises:
        InputError: a revision, device or option that is none; nothing could be compared.
    """
    if arguments.plant and arguments.counts_only:
        raise InputError("--plant: expected without --counts-only, by which nothing is timed")
    settings = settings_of(arguments, _plants(arguments.plant))
    if arguments.repeat < 1:
        raise InputError(f"--repeat {arguments.repeat}: expected at least 1")
    what = chosen(arguments.only, arguments.implementation)
    revisions = [resolve(ROOT, name) for name in (arguments.a, arguments.b)]
    made: list[Record] = []
    verdicts: dict[str, Counter[str]] = {}
    regressed = False
    with progress() as say, unwound_by_signals(), checked_out(ROOT, revisions) as trees:
        checked = measurement.verify_and_count(trees, what, settings, say)
        for _ in range(arguments.repeat):
            began = time.perf_counter()
            timed = not arguments.counts_only
            outcomes = measurement.time_in_turn(trees, checked, settings, say) if timed else checked
            wall_s = time.perf_counter() - began
            found = [record(outcome, trees, settings, wall_s) for outcome in outcomes]
            if arguments.out:
                records.append(found, arguments.out)
            made += found
            regressed |= any(outcome.regressed for outcome in outcomes)
            for outcome in outcomes:
                verdicts.setdefault(outcome.benchmark.name, Counter())[outcome.verdict] += 1
            if not arguments.json:
                say.write("\n".join(lines(outcomes, revisions)), file=sys.stdout)
    if arguments.json:
        print(json.dumps(records.to_json(made), indent=2))
    elif arguments.repeat > 1:
        for name, counter in verdicts.items():
            said = ", ".join(f"{n} {verdict}" for verdict, n in counter.most_common())
            print(f"{name}: {said} of {arguments.repeat}")
    refuse_nothing(outcomes, revisions)
    return int(regressed)


def _plants(texts: Sequence[str]) -> dict[str, float]:
    found = {}
    for text in texts:
        factor, _, name = text.partition(":")
        try:
            more = float(factor) - 1
        except ValueError:
            more = math.nan
        if not 0 < more <= 9 or name not in BENCHMARKS:
            raise InputError(
                f"--plant {text}: expected a factor above 1, up to 10, and a benchmark, as "
                f"1.10:{next(iter(BENCHMARKS))}"
            )
        found[name] = round(more, 6)
    return found
