"""Compare revisions: verify, count, time, and follow them over time."""
