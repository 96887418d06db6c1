"""The harness: verification, performance, data, training, scoring, papers, the report."""

__version__ = "0.1.0"
