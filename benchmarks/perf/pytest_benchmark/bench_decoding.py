"""Captions from a model."""

from benchmarks.perf.pytest_benchmark import over, time


@over("greedy", "beam")
def test_decoding(benchmark, case, implementation):
    """Timed, with its counts."""
    time(benchmark, case, implementation)
