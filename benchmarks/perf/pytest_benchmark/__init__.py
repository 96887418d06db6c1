"""`benchmarks.perf.counts.CASES` under pytest-benchmark."""
