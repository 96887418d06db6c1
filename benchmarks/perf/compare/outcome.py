"""``captionbench compare``: is one revision slower than another, or does it take more?"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from msgspec import convert
from tqdm import tqdm

from benchmarks import kinds, records
from benchmarks.devices import check_device
from benchmarks.errors import InputError
from benchmarks.perf.case_records import describe
from benchmarks.perf.compare.benchmarks import BENCHMARKS
from benchmarks.perf.compare.checkout import (
    Revision,
    Tree,
)
from benchmarks.perf.compare.measurement import Outcome, Settings
from benchmarks.perf.compare.worker import CLOCKS
from benchmarks.records import Record

TABLE = "revisions"
USUAL = Settings()
MOST_PROCESSES = 16
SHOWN = 3
"""Lines on what one revision does wrong in one benchmark."""


def configure_measurement(parser: argparse.ArgumentParser) -> None:
    """Add the options on what is measured and how."""
    parser.add_argument(
        "--only",
        nargs="+",
        metavar="NAME",
        help=f"the benchmarks whose names begin so: {', '.join(BENCHMARKS)}",
    )
    parser.add_argument("--implementation", metavar="NAME", help="other than each one's usual")
    parser.add_argument("--device", default="cpu", help="where PyTorch computes (default: cpu)")
    parser.add_argument("--threads", type=int, default=1, help="of the CPU (default: 1)")
    parser.add_argument(
        "--seconds",
        type=float,
        default=USUAL.seconds,
        help=f"that are computed for each benchmark (default: {USUAL.seconds:g})",
    )
    parser.add_argument(
        "--clock",
        choices=CLOCKS,
        help="cpu: the time that a process computed (default, on one thread of a CPU); wall: also "
        "what it waited, for others too",
    )
    parser.add_argument(
        "--processes",
        type=int,
        default=USUAL.processes,
        metavar="K",
        help=f"a side, of A, of A again and of B (default: {USUAL.processes})",
    )
    parser.add_argument(
        "--smallest",
        type=float,
        default=100 * USUAL.smallest,
        metavar="PERCENT",
        help=f"the smallest change that matters (default: {100 * USUAL.smallest:g})",
    )
    parser.add_argument("--json", action="store_true", help="print the records")


def settings_of(arguments: argparse.Namespace, plant: Mapping[str, float]) -> Settings:
    """The options as settings.

    Raises:
        InputError: a value that cannot be, a device that is not there.
    """
    cores = records.environment().device.cores
    if not 1 <= arguments.threads <= cores:
        raise InputError(f"--threads {arguments.threads}: expected a number from 1 to {cores}")
    if not 0 < arguments.seconds < math.inf:
        raise InputError(f"--seconds {arguments.seconds}: expected above 0")
    if not 2 <= arguments.processes <= MOST_PROCESSES:
        raise InputError(f"--processes {arguments.processes}: expected 2 to {MOST_PROCESSES}")
    if not 0 <= arguments.smallest < 100:
        raise InputError(
            f"--smallest {arguments.smallest}: expected a percentage from 0 to below 100"
        )
    check_device(arguments.device)
    return Settings(
        arguments.device,
        arguments.threads,
        arguments.seconds,
        _clock(arguments),
        arguments.processes,
        arguments.smallest / 100,
        plant,
    )


def _clock(arguments: argparse.Namespace) -> str:
    """The clock of the options or, by default, the one with least noise that times all work.

    Raises:
        InputError: the CPU's time, where it does not do all the work.
    """
    alone = arguments.device == "cpu" and arguments.threads == 1
    if arguments.clock == "cpu" and not alone:
        raise InputError("--clock cpu: expected one thread of a CPU, which then does all the work")
    return arguments.clock or ("cpu" if alone else "wall")


class progress(tqdm):  # noqa: N801  (used as a function)
    """A line on stderr that says what is going on."""

    def __init__(self) -> None:
        super().__init__(file=sys.stderr, bar_format="{desc} ({elapsed})", disable=None)

    def __call__(self, text: str) -> None:
        """Say it."""
        self.set_description_str(text)


def refuse_nothing(outcomes: Sequence[Outcome], revisions: Sequence[Revision]) -> None:
    """Raises InputError where nothing at all could be run: a mistake, not a result."""
    if any(outcome.verdict != "not run" for outcome in outcomes):
        return
    why = next(_reasons(outcomes[0], revisions), "no reason given")
    raise InputError(f"nothing could be measured: {outcomes[0].benchmark.name}: {why}")


def _reasons(outcome: Outcome, revisions: Sequence[Revision]) -> Any:
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


def lines(outcomes: Sequence[Outcome], revisions: Sequence[Revision]) -> list[str]:
    """What is printed of a session."""
    sides = zip("AB", revisions, strict=False)
    found = ["; ".join(f"{side}: {r.name} ({r.label})" for side, r in sides)]
    for outcome in outcomes:
        found.append(f"{outcome.benchmark.name} ({outcome.implementation}): {outcome.verdict}")
        found += [f"  {reason}; not timed" for reason in _reasons(outcome, revisions)]
        if outcome.verdict == "lost":
            found.append("  A runs it and B does not: a regression")
        if outcome.comparison:
            found.append(f"  {_times(outcome)}")
        if all(one.sound for one in outcome.checked):
            found.append(f"  {_counts(outcome)}")
    return found


def _times(outcome: Outcome) -> str:
    compared = outcome.comparison
    assert compared is not None
    ms = [
        f"{side} {1000 * compared.seconds[side].value:.4g} ms"
        for side in ("A", "B")
        if side in compared.seconds
    ]
    words = [", ".join(ms)]
    if ratio := compared.ratio:
        words[0] += f": {ratio.value:.3f} times as fast [{ratio.low:.3f}, {ratio.high:.3f}]"
    words.append(f"A/A floor {compared.floor:.3f}")
    words.append(f"{compared.rounds} rounds")
    if compared.thrown:
        words.append(f"{compared.thrown} thrown away: the clock jumped")
    return "; ".join(words)


def _counts(outcome: Outcome) -> str:
    first, last = outcome.checked[0].counts, outcome.checked[-1].counts
    grown, unsteady = outcome.grown, outcome.unsteady
    cells = []
    for name, value in last.items():
        if value is None:
            was = " (was steady: a regression)" if name in unsteady else ""
            cells.append(f"{name} not steady{was}")
        else:
            cells.append(f"{name} {value:,}" + _change(grown.get(name)))
    return "; ".join([*cells, *(f"{name} not counted" for name in first if name not in last)])


def _change(by: int | None) -> str:
    return "" if not by else f" ({by:+,}{', more than before' if by > 0 else ''})"


def _named(revision: Revision) -> kinds.Revision:
    return kinds.Revision(commit=revision.commit, dirty=revision.dirty)


def record(outcome: Outcome, trees: Sequence[Tree], settings: Settings, wall_s: float) -> Record:
    """The record of one benchmark's outcome."""
    compared = outcome.comparison
    counts = outcome.checked[-1].counts
    values: dict[str, float] = {n: value for n, value in counts.items() if value is not None}
    if compared:
        side = "B" if "B" in compared.seconds else "A"
        for name, estimate in (("seconds", compared.seconds[side]), ("ratio", compared.ratio)):
            if estimate:
                values[name] = estimate.value
                values[f"{name} low"], values[f"{name} high"] = estimate.low, estimate.high
        values["floor"] = compared.floor
    measured = trees[-1].revision
    against = trees[0].revision if len(trees) > 1 else None
    case = outcome.benchmark.case(outcome.implementation)
    described = describe(torch.device(settings.device), settings.threads)
    planted = settings.plant.get(outcome.benchmark.name)
    details = kinds.Comparison(
        benchmark=outcome.benchmark.name,
        implementation=outcome.implementation,
        case=convert(case.to_dict(), kinds.Case),
        revision=_named(measured),
        against=_named(against) if against else None,
        verdict=outcome.verdict,
        regressed=outcome.regressed,
        grown=outcome.grown,
        unsteady=outcome.unsteady,
        wrong=list(outcome.checked[-1].wrong),
        refused=outcome.refused or [one.refused for one in outcome.checked],
        processes=settings.processes,
        thrown=compared.thrown if compared else 0,
        smallest=settings.smallest,
        clock=settings.clock,
        planted=1 + planted if planted else None,
    )
    return records.make(
        details,
        paper="all",
        table=TABLE,
        row=f"{outcome.benchmark.name}: {outcome.implementation}",
        values=values,
        status="embedded",
        key=records.key_of((), details, described, wall_s),
        n=compared.rounds if compared else None,
        device=described,
        wall_s=wall_s,
    )
