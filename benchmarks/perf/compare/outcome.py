"""The outcome of a session for one benchmark, and its record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from benchmarks import kinds, records
from benchmarks.perf.case_records import describe
from benchmarks.perf.compare.benchmarks import Benchmark
from benchmarks.perf.compare.checkout import Revision, Tree
from benchmarks.perf.compare.comparison import Comparison
from benchmarks.records import Record

TABLE = "revisions"


@dataclass(frozen=True)
class Settings:
    """How to measure."""

    device: str = "cpu"  # where to compute
    threads: int = 1  # CPU threads
    seconds: float = 20.0  # of computing in rounds, for each benchmark
    # "cpu": CPU time of the process; "wall": elapsed time, other load included
    clock: str = "cpu"
    processes: int = 4  # per side, at least 2
    smallest: float = 0.02  # the smallest change that matters, 0.02 being 2 %
    # by benchmark, the fraction by which B's calls are prolonged, to test `compare`
    plant: Mapping[str, float] = field(default_factory=dict)


@dataclass
class Checked:
    """One revision's verification and counts."""

    builds: bool = True  # whether its ``torch_impl`` can be imported
    refused: str = ""  # why it cannot be run
    wrong: Sequence[str] = ()  # how it fails the oracle
    # resource counts of a call; None where calls disagree
    counts: Mapping[str, int | None] = field(default_factory=dict)

    @property
    def can_be_timed(self) -> bool:
        """Whether it may be timed."""
        return not self.refused and not self.wrong


@dataclass
class Outcome:
    """The outcome of one benchmark: of A and, if there is one, B."""

    benchmark: Benchmark
    implementation: str
    checked: Sequence[Checked]
    comparison: Comparison | None = None
    refused: str = ""

    @property
    def can_be_timed(self) -> bool:
        """Whether every revision may be timed."""
        return all(one.can_be_timed for one in self.checked)

    @property
    def count_changes(self) -> dict[str, int]:
        """B's counts minus A's, of those that are deterministic in both and differ."""
        before, after = self.checked[0].counts, self.checked[-1].counts
        if not self.can_be_timed:
            return {}
        counted = ((n, was, after.get(n)) for n, was in before.items() if was is not None)
        return {n: now - was for n, was, now in counted if now is not None and now != was}

    @property
    def nondeterministic(self) -> list[str]:
        """Counts that are deterministic in A and not in B."""
        before, after = self.checked[0].counts, self.checked[-1].counts
        return [n for n, was in before.items() if was is not None and after.get(n, was) is None]

    @property
    def verdict(self) -> str:
        """The verdict in a word or two."""
        first, last = self.checked[0], self.checked[-1]
        if last.wrong:
            return "wrong"
        if first.can_be_timed and last.refused and last.builds:
            return "lost"
        if self.refused or not self.can_be_timed:
            return "not run"
        return self.comparison.verdict if self.comparison else "not timed"

    @property
    def regressed(self) -> bool:
        """Whether B is wrong, lost or slower, or a count grew or became nondeterministic."""
        more = any(by > 0 for by in self.count_changes.values())
        return self.verdict in ("wrong", "lost", "slower") or more or bool(self.nondeterministic)


def record(outcome: Outcome, trees: Sequence[Tree], settings: Settings, wall_s: float) -> Record:
    """The record of one benchmark's outcome."""
    benchmark, compared, last = outcome.benchmark, outcome.comparison, outcome.checked[-1]
    values: dict[str, float] = {n: value for n, value in last.counts.items() if value is not None}
    if compared:
        side = "B" if "B" in compared.seconds else "A"
        for name, estimate in (("seconds", compared.seconds[side]), ("ratio", compared.ratio)):
            if estimate:
                values[name] = estimate.value
                values[f"{name} low"], values[f"{name} high"] = estimate.low, estimate.high
        values["floor"] = compared.floor
    described = describe(torch.device(settings.device), settings.threads)
    planted = settings.plant.get(benchmark.name)
    details = kinds.Comparison(
        benchmark=benchmark.name,
        implementation=outcome.implementation,
        case=benchmark.case(outcome.implementation).recorded(),
        revision=_named(trees[-1].revision),
        against=_named(trees[0].revision) if len(trees) > 1 else None,
        verdict=outcome.verdict,
        regressed=outcome.regressed,
        grown=outcome.count_changes,
        unsteady=outcome.nondeterministic,
        wrong=list(last.wrong),
        refused=outcome.refused or [one.refused for one in outcome.checked],
        processes=settings.processes,
        thrown=compared.discarded if compared else 0,
        smallest=settings.smallest,
        clock=settings.clock,
        planted=1 + planted if planted else None,
    )
    return records.make(
        details,
        paper="all",
        table=TABLE,
        row=f"{benchmark.name}: {outcome.implementation}",
        values=values,
        status=records.MEASURED,
        key=records.key_of((), details, described, wall_s),
        n=compared.rounds if compared else None,
        device=described,
        wall_s=wall_s,
    )


def _named(revision: Revision) -> kinds.Revision:
    return kinds.Revision(commit=revision.commit, dirty=revision.dirty)
