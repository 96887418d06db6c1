"""A session on one device: measures what has no record yet, for a limited time."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import chain, groupby
from pathlib import Path

import torch
from tqdm import tqdm

from benchmarks import records
from benchmarks.perf import case_records
from benchmarks.perf import threads as cpu_threads
from benchmarks.perf.cases.case import Case
from benchmarks.perf.roofline.devices import DeviceSpec, local_device
from benchmarks.perf.scaling import growth
from benchmarks.perf.scaling.ladders import Ladder
from benchmarks.perf.timing import Budget
from benchmarks.records import Record
from benchmarks.verify.conformance import PROJECT_QUICK_EXAMPLES
from benchmarks.verify.project import EXPANSIONS, implementations
from benchmarks.verify.search import MANY


@dataclass
class Session:
    """Where and how long to measure, and where the records go.

    Raises:
        InputError: ``path`` is not a file of records.
    """

    device: torch.device
    path: Path | None  # file of records, read and appended to; None keeps none
    threads: Sequence[int] = (1,)  # CPU threads: every case is timed with each number
    budget: Budget = field(default_factory=Budget)  # of a case's rounds
    flush: bool = True  # whether a CUDA device's cache is emptied before each call
    minutes: float | None = None  # no case starts after this time
    # of this session, found or measured
    records: list[Record] = field(default_factory=list, init=False)
    left: int = field(default=0, init=False)  # cases that there was no time for
    # by row, what a case's baseline raised (out of memory, say)
    failed: dict[str, str] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._began = time.perf_counter()
        self._known: dict[str, list[Record]] = {}
        if self.path is None:
            return
        for record in records.read(self.path) if self.path.exists() else []:
            self._known.setdefault(record.key, []).append(record)

    @property
    def time_is_up(self) -> bool:
        """Whether the time limit has passed."""
        return self.minutes is not None and time.perf_counter() - self._began > 60 * self.minutes

    def known(self, key: str, implementations: Sequence[str] = ()) -> list[Record]:
        """The records with the key from an earlier session, which become this session's too.

        Empty if one of the ``implementations`` is missing, as after a damaged line.
        """
        known = self._known.get(key, [])
        for name in implementations:
            if not any(name in (r.details.implementation, *r.details.unavailable) for r in known):
                return []
        self.records += known
        return known

    def append(self, new: Sequence[Record]) -> None:
        """Append new records."""
        if self.path:
            records.append(new, self.path)
        self.records += new

    def verify(self) -> list[Record]:
        """The records of verifying every implementation on this device, old and new.

        Of kernels on all large sizes, which run every loop more than once.
        """
        described = case_records.describe(self.device, torch.get_num_threads())
        names = dict.fromkeys(each.operator for each in implementations(str(self.device)))
        on_gpu = self.device.type != "cpu"
        examples = {
            name: MANY if on_gpu and name in EXPANSIONS else PROJECT_QUICK_EXAMPLES
            for name in names
        }
        found: dict[str, list[Record]] = {
            name: self.known(case_records.verification_key(described, examples[name], name))[-1:]
            for name in names
        }
        missing = [name for name in names if not found[name]]
        made = chain.from_iterable(
            case_records.verify(self.device, number, [*of], processes=cpu_threads.usable())
            for number, of in groupby(missing, examples.__getitem__)
        )
        said, quiet = "comparing with the oracle", None if missing else True
        for new in tqdm(made, said, len(missing), file=sys.stderr, disable=quiet):
            self.append([new])
            found[new.details.rows[0].operator] = [new]
        return [record for known in found.values() for record in known]

    def time(self, cases: Sequence[Case], *, strict: bool = False) -> Iterator[list[Record]]:
        """Yield the records of each case and number of threads; missing ones are measured.

        Raises:
            InputError: an implementation is unavailable with ``strict``, the records cannot be
                written, or the clock jumps again and again.
        """
        described = {n: case_records.describe(self.device, n, pinned=True) for n in self.threads}
        turns = [(case, threads) for case in cases for threads in self.threads]
        bar = tqdm(turns, unit="case", file=sys.stderr, disable=None)
        for case, threads in bar:
            bar.set_description(case.subject.name)
            measure = partial(
                case_records.time_case,
                *(case, self.device, threads, self.budget),
                strict=strict,
                flush=self.flush,
            )
            key = case_records.key(case, self.budget, described[threads], self.flush)
            yield self.load_or_measure(case.row, key, measure, case.implementations)

    def scale(
        self, ladders: Iterable[Ladder], *, tiny: bool, known: Sequence[Record] = ()
    ) -> Iterator[list[Record]]:
        """Yield the records of each ladder and number of threads; missing ones are measured.

        ``tiny`` uses the smallest widths; ``known`` records may have the device's ceilings.
        """
        for threads in self.threads:
            described = case_records.describe(self.device, threads, pinned=True)
            best = cache(partial(local_device, self.device, threads, [*known, *self.records]))

            def measure(
                ladder: Ladder, threads: int = threads, best: Callable[[], DeviceSpec] = best
            ) -> list[Record]:
                return growth.measure_ladder(
                    ladder, self.device, threads, self.budget, best(), tiny=tiny
                )

            bar = tqdm(ladders, unit="ladder", file=sys.stderr, disable=None)
            for ladder in bar:
                bar.set_description(ladder.name)
                key = growth.key(ladder, self.budget, described, tiny)
                yield self.load_or_measure(ladder.name, key, partial(measure, ladder))

    def load_or_measure(
        self,
        row: str,
        key: str,
        measure: Callable[[], list[Record]],
        implementations: Sequence[str] = (),
    ) -> list[Record]:
        """The records with the key, else those that ``measure`` returns while there is time.

        Empty if the time is up or ``measure`` fails, which is noted under ``row``.
        """
        if known := self.known(key, implementations):
            return known
        if self.time_is_up:
            self.left += 1
            return []
        try:
            new = measure()
        except (RuntimeError, MemoryError) as error:
            self.failed[row] = case_records.one_line(error)
            tqdm.write(f"\n{row}: FAILED ({self.failed[row]})", file=sys.stderr)
            return []
        self.append(new)
        return new
