"""What a device record is made of, the most important first."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial

from tqdm import tqdm

from benchmarks.perf import run as running
from benchmarks.perf.cases import suites
from benchmarks.perf.cases.case import Case
from benchmarks.perf.roofline.at_hand import at_hand
from benchmarks.perf.roofline.descriptions import Device
from benchmarks.perf.scaling import run as scaling
from benchmarks.perf.scaling.ladders import LADDERS, Ladder
from benchmarks.perf.session import Session
from benchmarks.records import Record


@dataclass(frozen=True)
class Stage:
    """A part of a device record.

    Args:
        name: as in the manifest.
        about: what it measures.
        run: session, tiny -> measures what has no record there yet, while there is time.
    """

    name: str
    about: str
    run: Callable[[Session, bool], None]


def _timed(name: str, about: str, suite: str) -> Stage:
    def run(session: Session, tiny: bool) -> None:
        session.time(_cases(suite, session, tiny))

    return Stage(name, about, run)


def _cases(suite: str, session: Session, tiny: bool) -> list[Case]:
    cases = suites.SUITES[suite](suites.drawn.SEED)
    if session.device.type != "cuda":
        cases = [case for case in cases if case.precision != "tf32"]
    if tiny:
        cases = [replace(case, sizes=case.sizes.tiny()) for case in cases]
    return list(dict.fromkeys(cases))


def _scaled(session: Session, tiny: bool) -> None:
    """Every ladder, by every number of threads."""
    for threads in session.threads:
        described = running.describe(session.device, threads, pinned=True)
        best = cache(partial(at_hand, session.device, threads, session.made))
        for ladder in tqdm(LADDERS.values(), unit="ladder", file=sys.stderr, disable=None):
            key = scaling.key(ladder, session.budget, described, tiny)
            climb = partial(_climbed, session, threads, ladder, best, tiny)
            session.measured(ladder.name, key, climb)


def _climbed(
    session: Session, threads: int, ladder: Ladder, best: Callable[[], Device], tiny: bool
) -> list[Record]:
    return scaling.climb(ladder, session.device, threads, session.budget, best(), tiny=tiny)


def stages(suite: str) -> list[Stage]:
    """All stages of a suite, "cpu" or "gpu", but verification, which comes before them."""
    return [
        _timed("timing", "what the targets need, and more", suite),
        _timed("memory", "what memory grows with", "memory"),
        Stage("scaling", "how time and memory grow with every size", _scaled),
        _timed("grid", "every expansion coefficient of the ablations", "grid"),
    ]
