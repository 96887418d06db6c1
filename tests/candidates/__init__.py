"""Somebody else's implementations, right and wrong, for ``captionbench verify --candidate``."""
