"""``captionbench compare``: is one revision slower than another, or does it take more?"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks import records
from benchmarks.cli.options import (
    above_0,
    add_json,
    at_least,
    check_device,
    check_records,
    starting_with,
)
from benchmarks.cli.terminal import progress
from benchmarks.errors import InputError
from benchmarks.perf import threads
from benchmarks.perf.compare import measurement
from benchmarks.perf.compare.benchmarks import BENCHMARKS, chosen
from benchmarks.perf.compare.checkout import Revision, checked_out, resolve
from benchmarks.perf.compare.comparison import STRETCHES
from benchmarks.perf.compare.outcome import Outcome, Settings, record
from benchmarks.perf.compare.worker import CLOCKS
from benchmarks.records import ROOT, Record
from benchmarks.workers import unwound_by_signals

USUAL = Settings()
MOST_PROCESSES = 16
SHOWN = 3
"""Failures that are printed per revision and benchmark."""


def configure(parser: argparse.ArgumentParser) -> None:
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
        type=at_least(1),
        default=1,
        metavar="N",
        help="time N times over, by fresh processes, and count the verdicts: of equal revisions, "
        "the false alarms",
    )
    parser.add_argument(
        "--plant",
        nargs="+",
        type=_plant,
        default=[],
        metavar="FACTOR:NAME",
        help="to test the test: slow B down in a benchmark, as 1.10:dynamic-operator",
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="append the records here")


def run(arguments: argparse.Namespace) -> int:
    """Compare and print; 1 if B is wrong or slower, lacks what A can run, or a count grew.

    Raises:
        InputError: an invalid revision, device or option; nothing could be compared.
    """
    if arguments.plant and arguments.counts_only:
        raise InputError("--plant: expected without --counts-only, by which nothing is timed")
    if arguments.out:
        check_records(arguments.out)
    settings = settings_of(arguments, dict(arguments.plant))
    names = starting_with(BENCHMARKS, arguments.only, "benchmark")
    what = chosen(names, arguments.implementation)
    revisions = [resolve(ROOT, name) for name in (arguments.a, arguments.b)]
    kept: list[Record] = []
    every: list[Sequence[Outcome]] = []
    with progress() as say, unwound_by_signals(), checked_out(ROOT, revisions) as trees:
        checked = measurement.verify_and_count(trees, what, settings, say)
        for _ in range(arguments.repeat):
            began = time.perf_counter()
            timed = not arguments.counts_only
            outcomes = measurement.time_in_turn(trees, checked, settings, say) if timed else checked
            wall_s = time.perf_counter() - began
            new = [record(outcome, trees, settings, wall_s) for outcome in outcomes]
            if arguments.out:
                records.append(new, arguments.out)
            kept += new
            every.append(outcomes)
            if not arguments.json:
                say.write("\n".join(lines(outcomes, revisions)), file=sys.stdout)
    if arguments.json:
        print(json.dumps(records.to_json(kept), indent=2))
    elif arguments.repeat > 1:
        for of_one in zip(*every, strict=True):
            counter = Counter(_printed(outcome.verdict) for outcome in of_one)
            said = ", ".join(f"{n} {verdict}" for verdict, n in counter.most_common())
            print(f"{of_one[0].benchmark.name}: {said} of {len(every)}")
        slower = sum(any(one.verdict == "slower" for one in outcomes) for outcomes in every)
        print(f"slower in any benchmark: {slower} of {len(every)} comparisons")
    check_any_measured(outcomes, revisions)
    return int(any(outcome.regressed for outcomes in every for outcome in outcomes))


def _plant(text: str) -> tuple[str, float]:
    factor, _, name = text.partition(":")
    try:
        more = float(factor) - 1
    except ValueError:
        more = math.nan
    if not 0 < more <= 9 or name not in BENCHMARKS:
        raise argparse.ArgumentTypeError(
            f"{text}, expected a factor above 1, up to 10, and a benchmark, as "
            f"1.10:{next(iter(BENCHMARKS))}"
        )
    return name, round(more, 6)


def configure_measurement(parser: argparse.ArgumentParser) -> None:
    """Add the options that ``compare`` and ``track`` share."""
    parser.add_argument(
        "--only",
        nargs="+",
        metavar="NAME",
        help=f"the benchmarks whose names begin so: {', '.join(BENCHMARKS)}",
    )
    parser.add_argument("--implementation", metavar="NAME", help="other than each one's usual")
    parser.add_argument("--device", default="cpu", help="where PyTorch computes (default: cpu)")
    parser.add_argument(
        "--threads", type=at_least(1, threads.usable()), default=1, help="CPU threads (default: 1)"
    )
    parser.add_argument(
        "--seconds",
        type=above_0,
        default=USUAL.seconds,
        help=f"computing time per benchmark (default: {USUAL.seconds:g}), up to {STRETCHES} times "
        "that while its interval is wider than --smallest",
    )
    parser.add_argument(
        "--clock",
        choices=CLOCKS,
        help="cpu: CPU time (default on one CPU thread); wall: elapsed time",
    )
    parser.add_argument(
        "--processes",
        type=at_least(2, MOST_PROCESSES),
        default=USUAL.processes,
        metavar="K",
        help=f"processes for each of A, A again and B (default: {USUAL.processes})",
    )
    parser.add_argument(
        "--smallest",
        type=float,
        default=100 * USUAL.smallest,
        metavar="PERCENT",
        help=f"the smallest change that matters (default: {100 * USUAL.smallest:g})",
    )
    add_json(parser)


def settings_of(arguments: argparse.Namespace, plant: Mapping[str, float]) -> Settings:
    """The options as settings; the default clock is CPU time if one thread does all the work.

    Raises:
        InputError: an invalid value, or an unavailable device.
    """
    if not 0 <= arguments.smallest < 100:
        raise InputError(
            f"--smallest {arguments.smallest}: expected a percentage from 0 to below 100"
        )
    check_device(arguments.device)
    alone = arguments.device == "cpu" and arguments.threads == 1
    if arguments.clock == "cpu" and not alone:
        raise InputError("--clock cpu: expected one thread of a CPU, which then does all the work")
    return Settings(
        arguments.device,
        arguments.threads,
        arguments.seconds,
        arguments.clock or ("cpu" if alone else "wall"),
        arguments.processes,
        arguments.smallest / 100,
        plant,
    )


def check_any_measured(outcomes: Sequence[Outcome], revisions: Sequence[Revision]) -> None:
    """Raise InputError if nothing could be run: a mistake, not a result."""
    if all(outcome.verdict == "not run" for outcome in outcomes):
        why = next(_reasons(outcomes[0], revisions), "no reason given")
        raise InputError(f"nothing could be measured: {outcomes[0].benchmark.name}: {why}")


def lines(outcomes: Sequence[Outcome], revisions: Sequence[Revision]) -> Iterator[str]:
    """The printed lines of a session."""
    sides = zip("AB", revisions, strict=False)
    yield "; ".join(f"{side}: {r.name} ({r.label})" for side, r in sides)
    for outcome in outcomes:
        word = _printed(outcome.verdict)
        said = f"{word}: a regression" if outcome.verdict == "lost" else word
        yield f"{outcome.benchmark.name} ({outcome.implementation}): {said}"
        for reason in _reasons(outcome, revisions):
            yield f"  {reason}; not timed"
        if compared := outcome.comparison:
            seconds = {s: compared.seconds[s].value for s in "AB" if s in compared.seconds}
            ms = ", ".join(f"{side} {1000 * value:.4g} ms" for side, value in seconds.items())
            if r := compared.ratio:
                ms += f": {r.value:.3f} times as fast [{r.low:.3f}, {r.high:.3f}]"
            discarded = compared.discarded
            jumped = f"; {discarded} discarded: the clock jumped" if discarded else ""
            yield f"  {ms}; A/A floor {compared.floor:.3f}; {compared.rounds} rounds{jumped}"
        if outcome.can_be_timed:
            yield f"  {'; '.join(_counts(outcome))}"


def _printed(verdict: str) -> str:
    return "unavailable in B" if verdict == "lost" else verdict


def _reasons(outcome: Outcome, revisions: Sequence[Revision]) -> Iterator[str]:
    for revision, checked in zip(revisions, outcome.checked, strict=True):
        if checked.refused:
            yield f"{revision.name} {checked.refused}"
        fails = f"{revision.name} ({revision.label}) fails verification"
        for line in checked.wrong[:SHOWN]:
            yield f"{fails}: {line}"
        if (more := len(checked.wrong) - SHOWN) > 0:
            yield f"{fails}: {more} more"
    if outcome.refused:
        yield outcome.refused


def _counts(outcome: Outcome) -> Iterator[str]:
    first, last = outcome.checked[0].counts, outcome.checked[-1].counts
    for name, value in last.items():
        by = outcome.count_changes.get(name)
        if value is None:
            was = " (was deterministic: a regression)" if name in outcome.nondeterministic else ""
            yield f"{name} nondeterministic{was}"
        elif by:
            yield f"{name} {value:,} ({by:+,}{', more than before' if by > 0 else ''})"
        else:
            yield f"{name} {value:,}"
    yield from (f"{name} not counted" for name in first if name not in last)
