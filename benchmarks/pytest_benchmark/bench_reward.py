"""The reward of self-critical training."""

from benchmarks.pytest_benchmark import each, time
from benchmarks.speed import suites
from benchmarks.speed.subjects import SUBJECTS


@each([suites.case("reward", SUBJECTS["reward"].implementations, candidates=40)])
def test_reward(benchmark, case, implementation):
    """Timed, with its counts."""
    time(benchmark, case, implementation)
