"""Verdicts on the papers' claims, computed from records.

Each comparison of a claim's test is made from the records of one training form that has its rows:
first those that can settle it (converged, of enough seeds), then the paper's own data, then the
most records. Effects and bounds are in the paper's unit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np

from benchmarks import papers
from benchmarks.kinds import DenoisingRatio
from benchmarks.papers.cells import times
from benchmarks.papers.claim_tests import (
    COMPARED,
    CONTRADICTED,
    NO_VALUES,
    NOT_SETTLED,
    SUPPORTED,
    UNTESTABLE,
    Above,
    Alike,
    AsPrinted,
    Claim,
    Comparing,
    Outcome,
    Test,
    Trend,
    Untestable,
    Within,
    load,
)
from benchmarks.papers.convergence import weakness
from benchmarks.papers.paired import Rows, by_row, compare, grouped, numbers, shared
from benchmarks.records import PREDICTED, STATUSES, Record, newest
from benchmarks.statistics import Interval, holm, paired_difference

Measure = Literal["difference", "slope", "ratio", "times smaller", "value"]
"""What an effect is: of two rows, of a row along others, of one row."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One comparison of a test.

    Attributes:
        what: the compared row or rows.
        rows: of the records.
        place: the paper's rows of ``printed``.
        effect: a difference, slope, ratio or value, as ``measure`` says.
        printed: the effect in the paper's values; None if it does not print them all.
        interval: the 95 % interval of the effect, if any.
        outcome: of this comparison alone.
        by_holm: the outcome after Holm's correction over all claimed differences of the table.
        reason: why it settles nothing; empty if it does.
        weak: whether that is for its records: predicted, diverged, trained too briefly.
        records: their keys.
    """

    what: str
    rows: list[str] = []
    place: list[str]
    measure: Measure
    effect: float
    printed: float | None = None
    interval: tuple[float, float] | None = None
    outcome: Outcome
    by_holm: Outcome
    reason: str = ""
    weak: bool = False
    n: int | None = None
    seeds: list[int] = []
    data: str = ""
    status: str = ""
    records: list[str] = []


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on a claim.

    Attributes:
        table: of the records.
        unit: the column of the effects.
        place: the paper's table and row of ``printed``.
        reason: why the claim is not settled or not testable.
        part: which comparisons have records that can settle them, if some and not all have.
        by_holm: the verdict after Holm's correction over all claimed differences of the table.
        measure: of the deciding finding, as ``effect``, ``printed``, ``interval`` and what follows.
        n: number of images or cases.
        status: of its records.
        records: the keys of all findings' records, which others of other rows may share.
    """

    paper: str
    claim: str
    where: str
    verdict: Outcome
    by_holm: Outcome
    reason: str = ""
    part: str = ""
    table: str = ""
    unit: str = ""
    place: tuple[str, str] = ("", "")
    measure: Measure = "value"
    effect: float | None = None
    printed: float | None = None
    interval: tuple[float, float] | None = None
    n: int | None = None
    seeds: list[int] = []
    data: str = ""
    status: str = ""
    records: list[str] = []
    findings: list[Finding] = []


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


class _Comparison(NamedTuple):
    """A comparison of a test: the rows that it needs, and what compares their records."""

    rows: Sequence[str]
    of: Callable[[Rows], Compared]


class _Evidence(NamedTuple):
    """The comparisons of a test; without any, why there are none."""

    found: list[Compared]
    reason: str = ""


def _compared(
    what: str,
    place: Sequence[str],
    measure: Measure,
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
    outcome, reason = NOT_SETTLED, ""
    if from_bound is None or from_bound.enough:
        if low > least and high < most:
            outcome = SUPPORTED
        elif high < least or low > most:
            outcome = CONTRADICTED
        else:
            inside = (f"{bound:g}" for bound in bounds if low <= bound <= high)
            reason = f"the interval contains {' and '.join(inside)}"
    else:
        reason = "too few seeds"
    interval = ends if math.isfinite(high) and (from_bound or low < high) else None
    finding = Finding(
        what=what,
        place=list(place),
        measure=measure,
        effect=effect,
        printed=printed,
        interval=interval,
        outcome=outcome,
        by_holm=outcome,
        reason=reason,
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
    test = claim.test
    findings = [finding for finding, _ in evidence.found]
    outcome: Outcome = UNTESTABLE if isinstance(test, Untestable) else NOT_SETTLED
    place, unit, printed = _theirs(paper, test.would if isinstance(test, Untestable) else test)
    nothing = Verdict(
        paper=paper,
        claim=claim.says,
        where=claim.where,
        verdict=outcome,
        by_holm=outcome,
        reason=evidence.reason,
        unit=unit,
        place=place,
        printed=printed,
    )
    if not findings or isinstance(test, Untestable):
        return nothing
    verdict, by_holm = _all([f.outcome for f in findings]), _all([f.by_holm for f in findings])
    able = [f for f in findings if not f.weak] or findings
    decides = next((f for f in able if f.outcome == verdict), able[0])
    part = _part(findings)
    unsettled = verdict == NOT_SETTLED and not decides.reason
    return msgspec.structs.replace(
        nothing,
        verdict=verdict,
        by_holm=by_holm,
        reason=part if unsettled else decides.reason,
        part="" if unsettled else part,
        table=test.table,
        place=("", "") if decides.printed is None else (test.table, decides.place[0]),
        measure=decides.measure,
        effect=decides.effect,
        printed=decides.printed,
        interval=decides.interval,
        n=decides.n,
        seeds=decides.seeds,
        data=decides.data,
        status=decides.status,
        records=list(dict.fromkeys(key for f in findings for key in f.records)),
        findings=findings,
    )


def _part(findings: Sequence[Finding]) -> str:
    """Which comparisons have records that can settle them, if some and not all have."""
    weak = [f.reason for f in findings if f.weak]
    if not weak or len(weak) == len(findings):
        return ""
    left = len(findings) - len(weak)
    why = " or ".join(dict.fromkeys(weak))
    return f"{left} of {len(findings)} comparisons are converged, the others {why}"


def _all(outcomes: Sequence[Outcome]) -> Outcome:
    """What all comparisons are; contradicted if any is."""
    if CONTRADICTED in outcomes:
        return CONTRADICTED
    return outcomes[0] if len(set(outcomes)) == 1 else NOT_SETTLED


# --- the records of a test


def _evidence(paper: str, test: Comparing | Untestable, made: Sequence[Record[Any]]) -> _Evidence:
    if isinstance(test, Untestable):
        return _Evidence([], test.why)
    comparisons = _comparisons(paper, test)
    here = [r for r in made if r.what.table == test.table and test.column in r.values]
    forms = [by_row(form) for form in grouped(here, _source).values()]
    needed = {row for one in comparisons for row in one.rows}
    weak = [_why_weak(form, needed) for form in forms]
    found = []
    for one in comparisons:
        able = [
            (_rank(form, why, made_of[1]), made_of, form, why)
            for form, why in zip(forms, weak, strict=True)
            if _have(form, one.rows)
            for made_of in [one.of(form)]
        ]
        if not able:
            return _Evidence([], f"not run: `captionbench reproduce {paper}` trains it")
        _, (finding, from_bound), form, why = min(able, key=lambda each: each[0])
        used = [r for row in one.rows for r in form[row]]
        why = why or _of_values(test, used)
        found.append((_of_records(finding, used, why), from_bound))
    return _Evidence(found)


def _have(form: Rows, names: Sequence[str]) -> bool:
    """Whether a form has records of all rows, with common seeds or of ensembles."""
    if not form.keys() >= set(names):
        return False
    runs = [form[name] for name in names]
    return bool(shared(*runs)) or any(map(_ensemble, runs))


def _why_weak(form: Rows, needed: set[str]) -> str:
    """Why a form's records cannot settle a claim that needs these rows; empty if they can."""
    own = {row: runs for row, runs in form.items() if row in needed}
    return (own and weakness(own)) or weakness(form)


def _of_values(test: Comparing, used: Sequence[Record[Any]]) -> str:
    """Why records cannot settle a claim about values or by how much; empty if they can."""
    about_values = isinstance(test, AsPrinted) or (isinstance(test, Above) and test.by != 0)
    return NO_VALUES if about_values and used[0].status in COMPARED else ""


def _of_records(finding: Finding, used: Sequence[Record[Any]], weak: str) -> Finding:
    """The finding with its evidence, which settles nothing if it is ``weak``."""
    first = used[0]
    if weak:
        outcome = UNTESTABLE if first.status == PREDICTED else NOT_SETTLED
        finding = msgspec.structs.replace(
            finding, outcome=outcome, by_holm=outcome, reason=weak, weak=True
        )
    return msgspec.structs.replace(
        finding,
        rows=list(dict.fromkeys(r.what.row for r in used)),
        n=first.n,
        seeds=sorted({seed for r in used for seed in r.seeds}),
        data=first.data.name,
        status=first.status,
        records=list(dict.fromkeys(r.key for r in used)),
    )


def _source(record: Record[Any]) -> tuple[object, ...]:
    """What must be equal in records that are compared."""
    form, data = getattr(record.details, "form", None), record.data
    return record.kind, form, record.status, data.name, data.split, record.signature


def _ensemble(runs: Sequence[Record[Any]]) -> bool:
    """Whether a row's records are of ensembles."""
    return any(len(run.seeds) > 1 for run in runs)


def _printed(paper: str, test: Comparing) -> dict[str, float]:
    """The column's intended values by row; empty for tables of ours."""
    table = next((t for t in papers.load(paper).tables if t.name == test.table), None)
    if table is None:
        return {}
    cells = (c for c in table.cells if c.column == test.column and isinstance(c.meant, float))
    return {c.row: float(c.meant or 0) for c in cells}


def _rank(form: Rows, weak: str, from_bound: Interval | None) -> tuple[bool, int, int]:
    """Sort key: what can settle a comparison, then the paper's own data, then the most records."""
    made = [r for runs in form.values() for r in runs]
    few = from_bound is not None and not from_bound.enough
    return bool(weak) or few, STATUSES.index(made[0].status), -len(made)


# --- comparisons


def _comparisons(paper: str, test: Comparing) -> list[_Comparison]:
    printed, column = _printed(paper, test), test.column
    unit = times(papers.load(paper), test.table, column)
    if isinstance(test, Above | Alike | Trend):
        bounds = _bounds(test)
        measure: Measure = "slope" if isinstance(test, Trend) else "difference"
        return [
            _Comparison(
                list(of), partial(_difference, printed, what, of, measure, column, unit, bounds)
            )
            for what, of in _weighted(test)
        ]
    if isinstance(test, Within):
        within = [(one, (test.least, test.most)) for one in test.rows]
    else:
        shares = 1 - test.share, 1 + test.share
        names = test.rows or list(printed)
        within = [(row, (shares[0] * printed[row], shares[1] * printed[row])) for row in names]
    return [
        _Comparison(names, partial(_value, printed, names, column, unit, bounds))
        for one, bounds in within
        for names in [[one] if isinstance(one, str) else list(one)]
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
        return -math.inf, 0.0 - test.by
    return test.by if isinstance(test, Above) else 0.0, math.inf


def _theirs(
    paper: str, test: Comparing | float | None
) -> tuple[tuple[str, str], str, float | None]:
    """The place, column and printed effect of a test's first comparison, as far as printed."""
    if not isinstance(test, Test):
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
    what: str,
    weights: Mapping[str, float],
    measure: Measure,
    column: str,
    unit: float,
    bounds: tuple[float, float],
    rows: Rows,
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
    total = sum(w * side for w, side in zip(weights.values(), sides, strict=True)) / unit
    found = difference(total, np.zeros_like(total))
    nearest = min(filter(math.isfinite, bounds), key=lambda bound: abs(found.mean - bound))
    from_bound = difference(total, np.full_like(total, nearest))
    theirs, ends = _summed(printed, weights), (found.low, found.high)
    return _compared(what, list(weights), measure, found.mean, theirs, ends, bounds, from_bound)


def _value(
    printed: Mapping[str, float],
    names: Sequence[str],
    column: str,
    unit: float,
    bounds: tuple[float, float],
    rows: Rows,
) -> Compared:
    """A row's value with its record's interval, or the ratio of two rows, and the bounds."""
    first = rows[names[0]][0].details
    measure: Measure = "ratio" if len(names) > 1 else "value"
    compared = names
    if isinstance(first, DenoisingRatio):
        compared, measure = [first.of, first.over], "times smaller"
    means = {name: float(np.mean([r.values[column] for r in rows[name]])) / unit for name in names}
    value = _over(means, names)
    theirs = _over(printed, compared) if printed.keys() >= set(compared) else None
    single = rows[names[0]] if len(names) == 1 and len(rows[names[0]]) == 1 else []
    low, high = (value, value)
    if single and column in single[0].details.interval:
        low, high = (end / unit for end in single[0].details.interval[column])
    what = " over ".join(names)
    return _compared(what, compared, measure, value, theirs, (low, high), bounds)


def _over(values: Mapping[str, float], names: Sequence[str]) -> float:
    first, *others = (values[name] for name in names)
    return first / math.prod(others)
