"""The expansions as operators and as layers."""

from benchmarks.perf.pytest_benchmark import over, time


@over("static-", "dynamic-")
def test_expansions(benchmark, case, implementation):
    """Timed, with its counts."""
    time(benchmark, case, implementation)
