"""The papers' testable claims, and their verdicts, which are computed from records.

A paper's claims are in its ``claims.json``: a sentence of ours, its place in the paper, and a test,
one of `Comparing` or `Untestable`. `verdicts` evaluates every test on the records of one training
form that has all its rows: converged ones first, then the paper's own data, then the most records.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np

from benchmarks import papers
from benchmarks.files import read_typed
from benchmarks.kinds import DenoisingRatio, Digits, Losses, Rewards
from benchmarks.papers.paired import Rows, by_row, compare, grouped, numbers, shared
from benchmarks.records import PREDICTED, STATUSES, Record, newest
from benchmarks.statistics import Interval, holm, paired_difference

Outcome = Literal["supported", "contradicted", "not settled", "cannot be tested here"]
SUPPORTED: Outcome = "supported"
CONTRADICTED: Outcome = "contradicted"
NOT_SETTLED: Outcome = "not settled"
UNTESTABLE: Outcome = "cannot be tested here"
OUTCOMES: tuple[Outcome, ...] = (SUPPORTED, CONTRADICTED, NOT_SETTLED, UNTESTABLE)


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class _Test(_Part, frozen=True, kw_only=True, tag_field="test"):
    """Base of tests that compare rows by a column of a paper's table, or of a table of ours.

    An effect must lie between two bounds, with its whole interval.
    """

    table: str
    column: str


class Above(_Test, frozen=True, kw_only=True, tag="above"):
    """Each pair's first row exceeds its second by more than ``by``; below it if ``lower``."""

    pairs: list[tuple[str, str]]
    by: float = 0.0
    lower: bool = False


class Alike(_Test, frozen=True, kw_only=True, tag="alike"):
    """The rows of each pair differ by less than ``margin``."""

    pairs: list[tuple[str, str]]
    margin: float


class Trend(_Test, frozen=True, kw_only=True, tag="trend"):
    """The column's least-squares slope over the rows, in this order, is positive."""

    rows: list[str]


class Within(_Test, frozen=True, kw_only=True, tag="within"):
    """Each row's value, or the ratio of two rows, is between ``least`` and ``most``."""

    rows: list[str | tuple[str, str]]
    least: float = -math.inf
    most: float = math.inf


class AsPrinted(_Test, frozen=True, kw_only=True, tag="as printed"):
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


class Finding(_Part, frozen=True, kw_only=True):
    """One comparison of a test.

    Attributes:
        what: the compared row or rows.
        effect: a difference, slope, ratio or value, depending on the test.
        printed: the effect in the paper's values; None if it does not print them all.
        interval: the 95 % interval of the effect, if any.
        outcome: of this comparison alone.
        by_holm: the outcome after Holm's correction over all claimed differences of the table.
    """

    what: str
    effect: float
    printed: float | None = None
    interval: tuple[float, float] | None = None
    outcome: Outcome
    by_holm: Outcome


class Verdict(_Part, frozen=True, kw_only=True):
    """The verdict on a claim.

    Attributes:
        unit: the column of the effects.
        place: the paper's table and row of ``printed``.
        reason: why the claim is not settled or not testable.
        by_holm: the verdict after Holm's correction over all claimed differences of the table.
        effect: of the deciding finding, as ``printed`` and ``interval``.
        n: number of images or cases.
        status: of the records.
        records: their keys.
    """

    paper: str
    claim: str
    where: str
    verdict: Outcome
    by_holm: Outcome
    reason: str = ""
    unit: str = ""
    place: tuple[str, str] = ("", "")
    effect: float | None = None
    printed: float | None = None
    interval: tuple[float, float] | None = None
    n: int | None = None
    seeds: list[int] = []
    data: str = ""
    status: str = ""
    records: list[str] = []
    findings: list[Finding] = []


def load(paper: str) -> list[Claim]:
    """The paper's claims.

    Raises:
        InputError: no such paper, or an invalid file; the message names the place.
    """
    return read_typed(papers.file_of(paper, "claims.json"), list[Claim], "the claims of a paper")


def verdicts(records: Iterable[Record[Any]], paper: str | None = None) -> list[Verdict]:
    """The verdicts on all claims of every paper, or of one, in the order of the papers."""
    made = newest(records)
    return [
        verdict
        for name in ([paper] if paper else papers.names())
        for verdict in _of_paper(name, [r for r in made if r.what.paper == name])
    ]


Compared = tuple[Finding, Interval | None]
"""A comparison and, for differences, the interval of the effect minus the nearest bound."""


class _Evidence(NamedTuple):
    """The records of a test, by row; why they cannot settle it; its comparisons."""

    rows: Rows
    reason: str
    found: list[Compared]


def _compared(
    what: str,
    effect: float,
    printed: float | None,
    ends: tuple[float, float],
    bounds: tuple[float, float],
    from_bound: Interval | None = None,
) -> Compared:
    """Compare an effect's interval ``ends`` with the bounds.

    The finding has no interval if the effect is a value without one or a difference of one seed.
    """
    (low, high), (least, most) = ends, bounds
    outcome = NOT_SETTLED
    if from_bound is None or from_bound.enough:
        if low > least and high < most:
            outcome = SUPPORTED
        elif high < least or low > most:
            outcome = CONTRADICTED
    interval = ends if math.isfinite(high) and (from_bound or low < high) else None
    finding = Finding(
        what=what,
        effect=effect,
        printed=printed,
        interval=interval,
        outcome=outcome,
        by_holm=outcome,
    )
    return finding, from_bound


def _of_paper(paper: str, made: Sequence[Record[Any]]) -> list[Verdict]:
    claims = load(paper)
    seen = [_evidence(paper, claim.test, made) for claim in claims]
    families: dict[str, list[tuple[list[Compared], int, Interval]]] = {}
    for claim, evidence in zip(claims, seen, strict=True):
        for place, (_, from_bound) in enumerate(evidence.found):
            if from_bound is not None and not isinstance(claim.test, Untestable):
                of = evidence.found, place, from_bound
                families.setdefault(claim.test.table, []).append(of)
    for family in families.values():
        for (found, place, bound), settled in zip(
            family, holm([bound for *_, bound in family]), strict=True
        ):
            if not settled:
                finding, _ = found[place]
                found[place] = msgspec.structs.replace(finding, by_holm=NOT_SETTLED), bound
    return [_verdict(paper, claim, of) for claim, of in zip(claims, seen, strict=True)]


def _verdict(paper: str, claim: Claim, evidence: _Evidence) -> Verdict:
    test, reason = claim.test, evidence.reason
    findings = [finding for finding, _ in evidence.found]
    made = [r for runs in evidence.rows.values() for r in runs]
    outcome: Outcome = UNTESTABLE if isinstance(test, Untestable) else NOT_SETTLED
    place, unit, printed = _theirs(paper, test.would if isinstance(test, Untestable) else test)
    nothing = Verdict(
        paper=paper,
        claim=claim.says,
        where=claim.where,
        verdict=outcome,
        by_holm=outcome,
        reason=reason,
        unit=unit,
        place=place,
        printed=printed,
    )
    if isinstance(test, Untestable) or not made:
        return nothing
    verdict, by_holm = _all([f.outcome for f in findings]), _all([f.by_holm for f in findings])
    decides = next((f for f in findings if f.outcome == verdict), findings[0])
    if made[0].status == PREDICTED:
        verdict = by_holm = UNTESTABLE
    elif reason:
        verdict = by_holm = NOT_SETTLED
    return msgspec.structs.replace(
        nothing,
        verdict=verdict,
        by_holm=by_holm,
        effect=decides.effect,
        printed=decides.printed,
        interval=decides.interval,
        n=made[0].n,
        seeds=sorted({seed for r in made for seed in r.seeds}),
        data=made[0].data.name,
        status=made[0].status,
        records=list(dict.fromkeys(r.key for r in made)),
        findings=findings,
    )


def _all(outcomes: Sequence[Outcome]) -> Outcome:
    """Supported if all comparisons are; contradicted if any is."""
    if CONTRADICTED in outcomes:
        return CONTRADICTED
    return SUPPORTED if set(outcomes) == {SUPPORTED} else NOT_SETTLED


# --- the records of a test


def _evidence(paper: str, test: Comparing | Untestable, made: Sequence[Record[Any]]) -> _Evidence:
    if isinstance(test, Untestable):
        return _Evidence({}, test.why, [])
    needed = _needed(paper, test)
    here = [r for r in made if r.what.table == test.table and test.column in r.values]
    found = [
        rows
        for group in grouped(here, _source).values()
        if needed <= (rows := by_row(group)).keys()
        and (shared(*map(rows.__getitem__, needed)) or any(map(_ensemble, rows.values())))
    ]
    if not found:
        return _Evidence({}, f"not run: `captionbench reproduce {paper}` trains it", [])
    rows = {row: runs for row, runs in min(found, key=_rank).items() if row in needed}
    status = next(iter(rows.values()))[0].status
    of_values = isinstance(test, AsPrinted) and status in COMPARED
    reason = weakness(rows) or (NO_VALUES if of_values else "")
    return _Evidence(rows, reason, _compare(paper, test, rows))


def _source(record: Record[Any]) -> tuple[object, ...]:
    """What must be equal in records that are compared."""
    form, data = getattr(record.details, "form", None), record.data
    return record.kind, form, record.status, data.name, data.split, record.signature


def _needed(paper: str, test: Comparing) -> set[str]:
    """The rows that a test compares."""
    if isinstance(test, Above | Alike):
        return {row for pair in test.pairs for row in pair}
    if isinstance(test, Within):
        return {row for one in test.rows for row in ([one] if isinstance(one, str) else one)}
    return set(test.rows) or set(_printed(paper, test))


def _ensemble(runs: Sequence[Record[Any]]) -> bool:
    """Whether a row's records are of ensembles."""
    return any(len(run.seeds) > 1 for run in runs)


def _printed(paper: str, test: Comparing) -> dict[str, float]:
    """The column's intended values by row, in the unit of records; empty for tables of ours."""
    table = next((t for t in papers.load(paper).tables if t.name == test.table), None)
    if table is None:
        return {}
    cells = (c for c in table.cells if c.column == test.column and isinstance(c.meant, float))
    return {c.row: table.times * float(c.meant or 0) for c in cells}


def _rank(rows: Rows) -> tuple[bool, int, int]:
    """Sort key: converged training first, then the paper's own data, then the most records."""
    made = [r for runs in rows.values() for r in runs]
    return bool(weakness(rows)), STATUSES.index(made[0].status), -len(made)


def weakness(rows: Rows) -> str:
    """Why the records cannot settle a claim; empty if they can."""
    made = [r for runs in rows.values() for r in runs]
    if made[0].status == PREDICTED:
        return "predicted here, not measured"
    if any(map(_diverged, made)):
        return "a training diverged"
    if 2 * sum(map(_improving, made)) > len(made):
        return "trained too briefly (validation was still improving)"
    return ""


def _improving(record: Record[Any]) -> bool:
    """Whether a stage of training ended while validation was still improving."""
    details = record.details
    if isinstance(details, Digits):
        return max(details.history, key=lambda entry: entry["val"]) is details.history[-1]
    stages = getattr(details, "stages", None)
    if not stages:
        return hasattr(details, "training_seconds")  # a training without recorded stages
    best = [details.best] if hasattr(details, "best") else getattr(details, "validations", [])
    if not best:
        return stages[-1].get("patience") is None
    if len(stages) == 1:
        best = [max(best, key=lambda entry: entry[entry["metric"]])]
    if isinstance(details, Rewards):
        best = [*details.cross_entropy.validations[:1], *best[:1]]
    return any(
        one["epoch"] >= stage["optimisation"]["epochs"] - 1
        for one, stage in zip(best, stages, strict=False)
    )


def _diverged(record: Record[Any]) -> bool:
    """Whether the loss a word exceeds that of a uniform distribution."""
    if not isinstance(record.details, Losses):
        return False
    guessing = math.log(record.details.configuration["vocabulary_size"])
    return any(value > guessing for value in record.values.values())


# --- comparisons


def _compare(paper: str, test: Comparing, rows: Rows) -> list[Compared]:
    column, printed = test.column, _printed(paper, test)
    if isinstance(test, Above | Alike | Trend):
        weighted, bounds = _weighted(test), _bounds(test)
        return [_difference(printed, rows, what, of, column, bounds) for what, of in weighted]
    if isinstance(test, Within):
        return [_value(printed, rows, one, column, (test.least, test.most)) for one in test.rows]
    return [
        _value(printed, rows, row, column, (meant * (1 - test.share), meant * (1 + test.share)))
        for row, meant in printed.items()
        if row in rows
    ]


def _weighted(test: Above | Alike | Trend) -> list[tuple[str, dict[str, float]]]:
    """The compared effects: a description, and the weights of its rows in a weighted sum."""
    if isinstance(test, Trend):
        x = np.arange(len(test.rows)) - (len(test.rows) - 1) / 2
        what = f"a row's gain, from {test.rows[0]} to {test.rows[-1]}"
        return [(what, dict(zip(test.rows, x / (x @ x), strict=True)))]
    words, by = "above", ""
    if isinstance(test, Above):
        words, by = ("below" if test.lower else "above"), f" by {test.by:g}" if test.by else ""
    return [(f"{a} {words} {b}{by}", {a: 1.0, b: -1.0}) for a, b in test.pairs]


def _bounds(test: Above | Alike | Trend) -> tuple[float, float]:
    """The bounds of the weighted sum."""
    if isinstance(test, Alike):
        return -test.margin, test.margin
    if isinstance(test, Above) and test.lower:
        return -math.inf, -test.by
    return test.by if isinstance(test, Above) else 0.0, math.inf


def _theirs(
    paper: str, test: Comparing | float | None
) -> tuple[tuple[str, str], str, float | None]:
    """The place, column and printed effect of a test's first comparison, as far as printed."""
    if not isinstance(test, _Test):
        return ("", ""), "", test
    printed = _printed(paper, test)
    if isinstance(test, Above | Alike | Trend):
        _, weights = _weighted(test)[0]
        number, row = _summed(printed, weights), next(iter(weights))
    else:
        first = test.rows[0] if test.rows else next(iter(printed), "")
        names = [first] if isinstance(first, str) else list(first)
        number, row = _over(printed, names) if printed.keys() >= set(names) else None, names[0]
    return ("", "") if number is None else (test.table, row), test.column, number


def _summed(printed: Mapping[str, float], weights: Mapping[str, float]) -> float | None:
    known = printed.keys() >= weights.keys()
    return float(sum(w * printed[row] for row, w in weights.items())) if known else None


def _difference(
    printed: Mapping[str, float],
    rows: Rows,
    what: str,
    weights: Mapping[str, float],
    column: str,
    bounds: tuple[float, float],
) -> Compared:
    """The weighted sum of rows over their common seeds, compared with the bounds."""
    runs = [rows[row] for row in weights]
    together = list(filter(_ensemble, runs))
    if together:  # ensembles have no single seed: compare with the mean of their members
        members = {seed for r in together for one in r for seed in one.seeds}
        own = [[r for r in of if members.issuperset(r.seeds)] for of in runs]
        sides = [numbers(of, column).mean(0) for of in own]
        difference = paired_difference
    else:
        every = [r for side in zip(*shared(*runs), strict=True) for r in side]
        sides = np.split(numbers(every, column), len(runs))
        difference = compare
    total = sum(w * side for w, side in zip(weights.values(), sides, strict=True))
    found = difference(total, np.zeros_like(total))
    nearest = min(filter(math.isfinite, bounds), key=lambda bound: abs(found.mean - bound))
    from_bound = difference(total, np.full_like(total, nearest))
    theirs = _summed(printed, weights)
    return _compared(what, found.mean, theirs, (found.low, found.high), bounds, from_bound)


def _value(
    printed: Mapping[str, float],
    rows: Rows,
    one: str | tuple[str, str],
    column: str,
    bounds: tuple[float, float],
) -> Compared:
    """A row's value with its record's interval, or the ratio of two rows, and the bounds."""
    names = [one] if isinstance(one, str) else list(one)
    first = rows[names[0]][0].details
    compared = [first.of, first.over] if isinstance(first, DenoisingRatio) else names
    means = {name: float(np.mean([r.values[column] for r in rows[name]])) for name in names}
    value = _over(means, names)
    theirs = _over(printed, compared) if printed.keys() >= set(compared) else None
    single = rows[names[0]] if len(names) == 1 and len(rows[names[0]]) == 1 else []
    ends = single[0].details.interval.get(column, (value, value)) if single else (value, value)
    return _compared(" over ".join(names), value, theirs, ends, bounds)


def _over(values: Mapping[str, float], names: Sequence[str]) -> float:
    first, *others = (values[name] for name in names)
    return first / math.prod(others)
