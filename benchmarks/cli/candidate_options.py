"""The options that name a candidate."""

from __future__ import annotations

import argparse

from benchmarks.verify.conversion import FRAMEWORKS


def add_candidate(parser: argparse.ArgumentParser, what: str) -> None:
    """Add the options; ``what`` is the help of ``--candidate``."""
    parser.add_argument("--candidate", metavar="WHERE", help=what)
    parser.add_argument("--operator", metavar="NAME", help="what the candidate claims to be")
    parser.add_argument(
        "--framework", choices=FRAMEWORKS, help="what the candidate works in, if not found out"
    )
