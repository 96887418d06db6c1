"""Options that several commands share, spelt one way."""

from __future__ import annotations

import argparse
from collections.abc import Callable


def at_least(smallest: int) -> Callable[[str], int]:
    """A type of options: whole numbers from ``smallest`` on."""

    def number(text: str) -> int:
        try:
            found = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text}, expected a whole number") from None
        if found < smallest:
            raise argparse.ArgumentTypeError(f"{found}, expected at least {smallest}")
        return found

    return number


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add ``--json``."""
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
