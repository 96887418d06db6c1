"""Shared foundations: padding, dropout, precision, checks, weights by name."""
