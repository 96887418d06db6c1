"""The page of all claims and each paper's table of claims; every verdict is computed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import compress
from typing import Any

from benchmarks import papers
from benchmarks.papers.cells import NOT_RUN
from benchmarks.papers.claim_tests import OUTCOMES
from benchmarks.papers.claims import Finding, Verdict, verdicts
from benchmarks.papers.paired import grouped
from benchmarks.records import Record
from benchmarks.report import sources
from benchmarks.report.document import (
    Block,
    Box,
    Cell,
    Page,
    Paragraph,
    Section,
    Table,
    Value,
    evidenced,
    footnotes,
)
from benchmarks.report.sentences import printed as as_printed
from benchmarks.report.sentences import quantity

RULE = (
    "No verdict is written by hand. A comparison is settled where the 95 % interval of the paired "
    "difference over at least three seeds excludes zero; **by Holm** judges all comparisons of a "
    "table together. A training that was still improving settles nothing: each comparison is of a "
    "converged training where there is one. **here** is the comparison that decides, **paper** the "
    "same of its printed values."
)


def of_all(made: Sequence[Record[Any]]) -> dict[str, list[Verdict]]:
    """The verdicts by paper."""
    return grouped(verdicts(made), lambda verdict: verdict.paper)


def counts(of_paper: Sequence[Verdict]) -> str:
    """The numbers of verdicts, in words."""
    counted = Counter(verdict.verdict for verdict in of_paper)
    return ", ".join(f"{counted[o]} {o}" for o in OUTCOMES if counted[o])


def page(
    titles: Mapping[str, str], found: Mapping[str, Sequence[Verdict]], made: Sequence[Record[Any]]
) -> Page:
    """All claims, a table per paper."""
    total = sum(map(len, found.values()))
    every = counts([verdict for of_paper in found.values() for verdict in of_paper])
    return Page(
        "claims",
        "Claims",
        f"{total} testable claims of the five papers, judged from the records: {every}. {RULE}",
        [
            Section(title, table(paper, found[paper], made))
            for paper, title in titles.items()
            if paper in found
        ],
    )


def table(paper: str, found: Sequence[Verdict], made: Sequence[Record[Any]]) -> list[Block]:
    """A paper's claims, each with its verdict and the comparison that decides it; then notes."""
    reasons = [_reason(one) for one in found]
    marks = footnotes(reason for reason, n in Counter(reasons).items() if n > 1)
    rows: list[list[Cell]] = []
    for one, reason in zip(found, reasons, strict=True):
        decides = _decides(one)
        theirs: Cell = "prints none"
        if one.printed is not None:
            place = sources.printed(paper, *one.place)
            of = "" if decides is None else _of_printed(one, decides.place)
            theirs = Value(printed=_number(one, one.printed, 4), detail=of, source=place)
        what = one.unit or ("the text's number" if one.printed else "no measure")
        records = _evidence(one, made)
        effect: Cell = NOT_RUN
        if decides is not None and records:
            ends = one.interval
            detail = "" if ends is None else f"[{', '.join(map(quantity, ends))}]"
            own = _of(one, decides, made)
            effect = Value(_number(one, decides.effect, 4), own, one.status, detail=detail)
            what = f"{one.unit}: {decides.what}"
        holm = "" if one.by_holm == one.verdict else one.by_holm
        (noted,) = evidenced(records, f"note {marks[reason]}" if reason in marks else reason)
        rows.append([one.claim, one.where, one.verdict, theirs, effect, what, holm, noted])
    columns = ("claim", "where", "verdict", "paper", "here", "compared", "by Holm", "evidence")
    said = [any(cells) or name != "by Holm" for name, *cells in zip(columns, *rows, strict=True)]
    rows = [[cell or "the same" for cell in row] for row in rows]
    shown = Table(
        f"claims-{paper}",
        f"Claims, and what the records say of them: {counts(found)}",
        list(compress(columns, said)),
        [list(compress(row, said)) for row in rows],
    )
    return [shown, *(Paragraph(f"**note {mark}**: {reason}.") for reason, mark in marks.items())]


def box(one: Verdict, made: Sequence[Record[Any]]) -> Box:
    """A verdict on what a table shows: the comparison that decides, and its caveats."""
    decides = _decides(one)
    assert decides is not None
    ends = "" if one.interval is None else f" [{', '.join(map(quantity, one.interval))}]"
    caveat = "; ".join(filter(None, (one.reason, one.part)))
    found = f"{decides.what}, {one.unit}: {_number(one, decides.effect, 4)}{ends}"
    said = "; ".join(filter(None, (found, caveat)))
    return Box(one.verdict, f"{said}.", _of(one, decides, made))


def _decides(one: Verdict) -> Finding | None:
    """The comparison that a verdict's numbers are of."""
    return next((f for f in one.findings if f.effect == one.effect), None)


def verdict(one: Verdict, made: Sequence[Record[Any]]) -> Cell:
    """A verdict on the first page: the deciding number and its caveats."""
    decides = _decides(one)
    records = [] if decides is None else _of(one, decides, made)
    if not records:
        return f"**{one.verdict}**"
    effect = "" if one.effect is None else f": {_number(one, one.effect, 2)}{_OF[one.measure]}"
    interval = "" if one.interval is None else "[{}, {}]".format(*(_to(x, 2) for x in one.interval))
    printed = "" if one.printed is None else f"printed {_number(one, one.printed, 2)}"
    numbers = ", ".join(filter(None, (interval, printed)))
    reason = (one.reason or _reason(one)).partition(" (")[0]
    part = one.part.partition(", ")[0].replace(" comparisons are", "")
    caveat = "; ".join(filter(None, (numbers, reason, part)))
    return Value(f"**{one.verdict}**{effect.format(one.unit)}", records, detail=caveat)


_OF = {
    "difference": " {}",
    "slope": " {} a row",
    "ratio": " the {}",
    "times smaller": " smaller {}",
    "value": " {}",
}
"""What follows a number of each measure, with its unit."""


def _number(one: Verdict, number: float, digits: int) -> str:
    """An effect as its measure is written: a difference with its sign, a ratio as times."""
    if one.measure == "value":
        return quantity(number)
    text = _to(number, digits)
    if one.measure in ("ratio", "times smaller"):
        return f"{text} times"
    return text if text.startswith("-") else f"+{text}"


def _to(number: float, digits: int) -> str:
    return quantity(float(f"{number:.{digits}g}"))


def _of_printed(one: Verdict, rows: Sequence[str]) -> str:
    """The two printed numbers that a difference or a ratio is of."""
    table, _ = one.place
    if len(rows) != 2 or not table:
        return ""
    values = (papers.load(one.paper).table(table).cell(row, one.unit).meant for row in rows)
    sign = " − " if one.measure == "difference" else " / "
    return sign.join(as_printed(value) for value in values)


def _evidence(one: Verdict, made: Sequence[Record[Any]]) -> list[Record[Any]]:
    return [record for finding in one.findings for record in _of(one, finding, made)]


def _of(one: Verdict, finding: Finding, made: Sequence[Record[Any]]) -> list[Record[Any]]:
    """A comparison's records: those of one training share its key."""
    return [
        r
        for r in made
        if (r.what.paper, r.what.table) == (one.paper, one.table)
        if r.what.row in finding.rows and r.key in finding.records
    ]


def _reason(one: Verdict) -> str:
    """The data and seeds of a verdict, and why it is not stronger."""
    seeds = f"{len(one.seeds)} seeds" if one.seeds and "seeds" not in one.data else ""
    status = one.status if one.status not in one.reason else ""
    data = ", ".join(filter(None, (status, one.data, seeds)))
    return "; ".join(filter(None, (data, one.reason, one.part)))
