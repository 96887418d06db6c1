"""Options of the commands that take somebody else's function."""

from __future__ import annotations

import argparse

from benchmarks.verify.frameworks import FRAMEWORKS


def add_candidate(parser: argparse.ArgumentParser, what: str) -> None:
    """Add ``--candidate``, and what it is."""
    parser.add_argument("--candidate", metavar="WHERE", help=what)
    parser.add_argument("--operator", metavar="NAME", help="what the candidate claims to be")
    parser.add_argument(
        "--framework", choices=FRAMEWORKS, help="what the candidate works in, if not found out"
    )
