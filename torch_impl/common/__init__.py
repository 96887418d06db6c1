"""Shared foundations: padding, dropout, autocast, weights by name."""
