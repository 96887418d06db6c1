"""The reward of self-critical training."""

from benchmarks.perf.cases import suites
from benchmarks.perf.cases.subjects import SUBJECTS
from benchmarks.perf.pytest_benchmark import each, time


@each([suites.case("reward", SUBJECTS["reward"].implementations, candidates=40)])
def test_reward(benchmark, case, implementation):
    """Timed, with its counts."""
    time(benchmark, case, implementation)
