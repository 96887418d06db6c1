"""One revision against another, and all of them over time: speed, counts, correctness first."""
