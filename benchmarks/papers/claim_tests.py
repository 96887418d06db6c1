"""The papers' testable claims, read from ``claims.json``, and what can be tested.

A claim is a sentence of ours, its place in the paper, and a test, one of `Comparing` or
`Untestable`.
"""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from benchmarks import papers
from benchmarks.files import read_typed

Outcome = Literal["supported", "contradicted", "not settled", "cannot be tested here"]
SUPPORTED: Outcome = "supported"
CONTRADICTED: Outcome = "contradicted"
NOT_SETTLED: Outcome = "not settled"
UNTESTABLE: Outcome = "cannot be tested here"
OUTCOMES: tuple[Outcome, ...] = (SUPPORTED, CONTRADICTED, NOT_SETTLED, UNTESTABLE)


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class Test(_Part, frozen=True, kw_only=True, tag_field="test"):
    """Base of tests that compare rows by a column of a paper's table, or of a table of ours.

    An effect must lie between two bounds, with its whole interval.
    """

    table: str
    column: str


class Above(Test, frozen=True, kw_only=True, tag="above"):
    """Each pair's first row exceeds its second by more than ``by``; below it if ``lower``."""

    pairs: list[tuple[str, str]]
    by: float = 0.0
    lower: bool = False


class Alike(Test, frozen=True, kw_only=True, tag="alike"):
    """The rows of each pair differ by less than ``margin``."""

    pairs: list[tuple[str, str]]
    margin: float


class Trend(Test, frozen=True, kw_only=True, tag="trend"):
    """The column's least-squares slope over the rows, in this order, is positive."""

    rows: list[str]


class Within(Test, frozen=True, kw_only=True, tag="within"):
    """Each row's value, or the ratio of two rows, is between ``least`` and ``most``."""

    rows: list[str | tuple[str, str]]
    least: float = -math.inf
    most: float = math.inf


class AsPrinted(Test, frozen=True, kw_only=True, tag="as printed"):
    """The values of the rows (default: all printed ones) equal the paper's.

    ``share`` is the relative tolerance.
    """

    share: float
    rows: list[str] = []


Comparing = Above | Alike | Trend | Within | AsPrinted
COMPARED = ("other data", "embedded")
"""Statuses for which differences between rows, but not values, compare with the paper's."""
NO_VALUES = "of other data, values do not compare with print"


class Untestable(_Part, frozen=True, kw_only=True, tag_field="test", tag="untestable"):
    """A claim that cannot be tested here, and why; ``would`` is its test, or the printed number."""

    why: str
    would: Comparing | float | None = None


class Claim(_Part, frozen=True, kw_only=True):
    """A claim of the paper in our words, its place in the paper, and its test."""

    says: str
    where: str
    test: Comparing | Untestable


def load(paper: str) -> list[Claim]:
    """The paper's claims.

    Raises:
        InputError: no such paper, or an invalid file; the message names the place.
    """
    return read_typed(papers.file_of(paper, "claims.json"), list[Claim], "the claims of a paper")
