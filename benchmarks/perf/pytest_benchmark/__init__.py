"""The cases of `benchmarks.perf.cases` under pytest-benchmark, for who prefers its tools.

    python -m pytest benchmarks/perf/pytest_benchmark --benchmark-autosave
    python -m pytest benchmarks/perf/pytest_benchmark --benchmark-compare

Each file's tests are grouped by case, so that implementations stand side by side; ``extra_info``
holds what was counted. What `captionbench time` does beyond it: it alternates implementations in
rounds, knows its noise, and gives intervals.
"""

from __future__ import annotations

import pytest
import torch
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.perf import counts, threads
from benchmarks.perf.cases.case import Case, settings
from benchmarks.perf.cases.subjects import named

SEED = 0


def over(*beginnings: str) -> pytest.MarkDecorator:
    """Parametrises by case and implementation: of `counts.CASES` those whose names begin so."""
    names = {subject.name for beginning in beginnings for subject in named(beginning)}
    cases = [case for case in counts.CASES if case.subject.name in names]
    return each(cases)


def each(cases: list[Case]) -> pytest.MarkDecorator:
    """Parametrises by case and implementation."""
    turns = [(case, name) for case in cases for name in case.implementations]
    ids = [f"{case.subject.name.replace(' ', '-')}-{name}" for case, name in turns]
    return pytest.mark.parametrize(("case", "implementation"), turns, ids=ids)


def time(benchmark: BenchmarkFixture, case: Case, implementation: str) -> None:
    """Time one implementation of a case on one core."""
    assert case.subject.make is not None
    benchmark.group = case.row
    benchmark.extra_info.update(counts.count(case, implementation))
    torch.manual_seed(SEED)
    with settings(case.precision, 1), threads.pinned(threads.cores(1)):
        benchmark(case.subject.make(case, implementation, torch.device("cpu")).call)
