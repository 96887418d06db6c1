"""Captions from a checkpoint, and their scores: beam search, metrics, discrepancy, diversity."""
