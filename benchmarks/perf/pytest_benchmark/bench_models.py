"""A captioner's halves, and a step of its training."""

from benchmarks.perf.pytest_benchmark import over, time


@over("encoder", "decoder", "xe-step")
def test_models(benchmark, case, implementation):
    """Timed, with its counts."""
    time(benchmark, case, implementation)
