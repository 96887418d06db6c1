"""The ledger of claims: a page of all, and for each paper its own; every verdict is computed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import compress
from typing import Any

from benchmarks.papers.claims import NOT_SETTLED, OUTCOMES, Verdict, verdicts
from benchmarks.records import Record
from benchmarks.report.document import Cell, Page, Section, Table, Value
from benchmarks.report.tables import quantity

RULE = (
    "No verdict is written by hand. A comparison is settled where the 95 % interval of the paired "
    "difference over at least three seeds excludes zero; **by Holm** judges all comparisons of a "
    "table together. A training that was still improving settles nothing."
)


def of_all(made: Sequence[Record[Any]]) -> dict[str, list[Verdict]]:
    """The verdicts by paper."""
    found: dict[str, list[Verdict]] = {}
    for verdict in verdicts(made):
        found.setdefault(verdict.paper, []).append(verdict)
    return found


def counts(of_paper: Sequence[Verdict]) -> str:
    """How many claims have which verdict."""
    counted = Counter(verdict.verdict for verdict in of_paper)
    return ", ".join(f"{counted[o]} {o}" for o in OUTCOMES if counted[o])


def caveat(of_paper: Sequence[Verdict]) -> str:
    """The commonest reason why a claim is not settled."""
    why = Counter(v.reason for v in of_paper if v.verdict == NOT_SETTLED and v.reason)
    return f". Most often {why.most_common(1)[0][0].partition(':')[0]}." if why else ""


def page(
    titles: Mapping[str, str], found: Mapping[str, Sequence[Verdict]], made: Sequence[Record[Any]]
) -> Page:
    """All claims, a table a paper."""
    total = sum(map(len, found.values()))
    every = counts([verdict for of_paper in found.values() for verdict in of_paper])
    return Page(
        "claims",
        "Claims",
        f"{total} testable claims of the five papers, judged from the records: {every}. {RULE}",
        [
            Section(f"{title}: {counts(found[paper])}", [table(paper, found[paper], made)])
            for paper, title in titles.items()
            if paper in found
        ],
    )


def table(paper: str, found: Sequence[Verdict], made: Sequence[Record[Any]]) -> Table:
    """A paper's claims, each with its verdict and the comparison that decides it."""
    by_key = {record.key: record for record in made if record.what.paper == paper}
    rows: list[list[Cell]] = []
    for one in found:
        records = [by_key[key] for key in one.records if key in by_key]
        effect: Cell = None
        if one.effect is not None and records:
            ends = one.interval
            detail = "" if ends is None else f"[{', '.join(map(quantity, ends))}]"
            effect = Value(quantity(one.effect), records, one.status, detail=detail)
        seeds = f"{len(one.seeds)} seeds" if one.seeds else ""
        data = ", ".join(filter(None, (one.status, one.data, seeds)))
        holm = "" if one.by_holm == one.verdict else one.by_holm
        rows.append([one.claim, one.where, one.verdict, effect, one.unit, holm, data, one.reason])
    columns = ("claim", "where", "verdict", "effect", "of", "by Holm", "data", "why not settled")
    said = [any(cells) or name != "by Holm" for name, *cells in zip(columns, *rows, strict=True)]
    return Table(
        f"claims-{paper}",
        f"Claims, and what the records say of them: {counts(found)}",
        list(compress(columns, said)),
        [list(compress(row, said)) for row in rows],
    )
