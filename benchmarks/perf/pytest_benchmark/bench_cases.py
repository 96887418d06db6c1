"""Every case that is counted, timed by pytest-benchmark.

    python -m pytest benchmarks/perf/pytest_benchmark --benchmark-autosave
    python -m pytest benchmarks/perf/pytest_benchmark --benchmark-compare

Tests are grouped by case, so that implementations stand side by side; ``extra_info`` has the
counts. `captionbench time` also alternates implementations, measures its noise and gives intervals.
"""

from __future__ import annotations

import pytest
import torch
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.perf import counts, threads
from benchmarks.perf.cases import suites
from benchmarks.perf.cases.case import Case, settings
from benchmarks.perf.cases.suites import SUBJECTS

REWARD = suites.case("reward", SUBJECTS["reward"].implementations, candidates=40)
TURNS = [(case, name) for case in (*counts.CASES, REWARD) for name in case.implementations]
IDS = [f"{case.subject.name.replace(' ', '-')}-{name}" for case, name in TURNS]


@pytest.mark.parametrize(("case", "implementation"), TURNS, ids=IDS)
def test_case(benchmark: BenchmarkFixture, case: Case, implementation: str) -> None:
    """Timed on one core, with its counts."""
    benchmark.group = case.row
    benchmark.extra_info.update(counts.count(case, implementation))
    torch.manual_seed(0)
    with settings(case.precision, 1), threads.pinned(threads.cores(1)):
        benchmark(case.work(implementation, torch.device("cpu")).call)
