"""Options of the commands that take somebody else's function."""

from __future__ import annotations

import argparse

from benchmarks.errors import InputError
from benchmarks.verify.frameworks import FRAMEWORKS
from benchmarks.verify.operators import OPERATORS, Operator


def add_candidate(parser: argparse.ArgumentParser, what: str) -> None:
    """Add ``--candidate``, and what it is."""
    parser.add_argument("--candidate", metavar="WHERE", help=what)
    parser.add_argument("--operator", metavar="NAME", help="what the candidate claims to be")
    parser.add_argument(
        "--framework", choices=FRAMEWORKS, help="what the candidate works in, if not found out"
    )


def claimed(name: str | None) -> Operator:
    """The operator of ``--operator``.

    Raises:
        InputError: there is none of that name.
    """
    if name not in OPERATORS:
        given = "is missing" if name is None else f"{name!r} is unknown"
        raise InputError(f"--operator {given}: expected one of {', '.join(OPERATORS)}")
    return OPERATORS[name]
