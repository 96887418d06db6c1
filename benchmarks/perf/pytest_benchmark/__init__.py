"""`benchmarks.perf.counts.CASES` under pytest-benchmark, for who prefers its tools."""
