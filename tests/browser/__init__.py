"""Checks of the report in a real browser: ``python -m tests.browser``."""
