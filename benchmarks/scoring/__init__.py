"""Captions from a checkpoint, and their scores: search, metrics, discrepancy, diversity."""
