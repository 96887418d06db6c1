"""The ledger of claims: each verdict follows from records, and from nothing else."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import papers, records
from benchmarks.cli import main as cli
from benchmarks.errors import InputError
from benchmarks.kinds import Captions, Losses, Released, Words
from benchmarks.papers import claims
from benchmarks.papers.cells import times
from benchmarks.papers.claim_tests import (
    CONTRADICTED,
    NO_VALUES,
    NOT_SETTLED,
    OUTCOMES,
    SUPPORTED,
    UNTESTABLE,
    Above,
    Alike,
    AsPrinted,
    Claim,
    Trend,
    Untestable,
    Within,
)
from benchmarks.papers.claims import Verdict
from benchmarks.papers.convergence import weakness
from benchmarks.records import Record
from benchmarks.verify.tolerances import assert_close
from tests.support.records import record
from tests.support.tolerances import CLAIMED, EFFECTS

PAPER, IMAGES = "expansionnet_v2", 40
STAGES = [{"optimisation": {"epochs": 9}, "patience": 3}]


def rows_of(test: Any) -> set[str]:
    names = [getattr(test, "rows", []), *getattr(test, "pairs", [])]
    flat = [name for part in names for name in part]
    return {name for one in flat for name in ([one] if isinstance(one, str) else one)}


@pytest.fixture(scope="module")
def published() -> list[Record]:
    return records.load(records.PUBLISHED)


@pytest.mark.parametrize("paper", papers.names())
def test_claims_name_rows_and_columns_that_there_are(paper: str, published) -> None:
    listed = claims.load(paper)
    assert len(listed) >= 5 and len({claim.says for claim in listed}) == len(listed)
    tables = {table.name: table for table in papers.load(paper).tables}
    for test in (claim.test for claim in listed):
        test = test.would if isinstance(test, Untestable) else test
        if test is None or isinstance(test, float):
            continue
        here = [r for r in published if (r.what.paper, r.what.table) == (paper, test.table)]
        rows, columns = {r.what.row for r in here}, {c for r in here for c in r.values}
        if table := tables.get(test.table):
            rows |= {row.name for row in table.rows}
            columns |= {column.name for column in table.columns}
        assert rows_of(test) <= rows and test.column in columns


def runs(row: str, each: list[float], epoch: int = 2, **changes: Any) -> list[Record]:
    """A record a seed, whose images score around ``each``, trained until validation got worse."""
    made = []
    for seed, level in enumerate(each):
        scores = level / 100 + np.random.default_rng(seed).uniform(-0.1, 0.1, IMAGES)
        scores += level / 100 - scores.mean()
        made.append(
            record(
                Captions,
                {"CIDEr-D": level},
                row=row,
                table="I",
                key=f"{row}{seed}",
                n=IMAGES,
                seeds=[seed],
                cider_d=scores.tolist(),
                stages=STAGES,
                validations=[{"epoch": epoch, "metric": "CIDEr-D", "CIDEr-D": 1.0}],
                **changes,
            )
        )
    return made


def judged(monkeypatch: pytest.MonkeyPatch, test: Any, made: list[Record]) -> Verdict:
    monkeypatch.setattr(claims, "load", lambda paper: [Claim(says="s", where="w", test=test)])
    (found,) = claims.verdicts(made, PAPER)
    return found


def above(**changes: Any) -> Above:
    return Above(**{"table": "I", "column": "CIDEr-D", "pairs": [("a", "b")]} | changes)


levels = st.lists(st.floats(-1, 1), min_size=3, max_size=5)


@given(levels, st.floats(-30, 30), st.booleans())
def test_a_settled_difference_supports_or_contradicts(noise, gap, lower) -> None:
    with pytest.MonkeyPatch.context() as patch:
        made = runs("a", [50 + gap + x for x in noise]) + runs("b", [50.0] * len(noise))
        found = judged(patch, above(lower=lower), made)
        turned = judged(patch, above(lower=not lower), made)
    assert found.interval is not None and found.effect is not None
    assert found.effect == pytest.approx(gap + np.mean(noise), **EFFECTS)
    low, high = found.interval
    rises, falls = low > 0, high < 0
    assert (found.verdict == SUPPORTED) == (falls if lower else rises)
    assert (found.verdict == CONTRADICTED) == (rises if lower else falls)
    opposite = {SUPPORTED: CONTRADICTED, CONTRADICTED: SUPPORTED, NOT_SETTLED: NOT_SETTLED}
    assert turned.verdict == opposite[found.verdict]
    assert (found.n, found.data, found.status) == (IMAGES, "scenes", "embedded")
    assert set(found.records) == {r.key for r in made}


@given(st.permutations([row.name for row in papers.load(PAPER).table("I").rows]))
def test_where_the_paper_s_own_values_are_measured_the_effect_is_the_printed_one(order) -> None:
    table = papers.load(PAPER).table("I")
    levels = {row: float(table.cell(row, "CIDEr-D").meant) for row in order[:3]}
    made = [r for row, level in levels.items() for r in runs(row, [level] * 3)]
    a, b, c = levels
    trend = Trend(table="I", column="CIDEr-D", rows=[a, b, c])
    ratio = Within(table="I", column="CIDEr-D", rows=[(a, b)])
    for test in (above(pairs=[(a, b)]), trend, ratio):
        with pytest.MonkeyPatch.context() as patch:
            found = judged(patch, test, made)
        assert found.effect == pytest.approx(found.printed, **EFFECTS)
    with pytest.MonkeyPatch.context() as patch:
        assert judged(patch, above(), runs("a", [1.0] * 3) + runs("b", [2.0] * 3)).printed is None


def test_all_pairs_must_hold_and_one_contradicts(monkeypatch) -> None:
    made = runs("a", [60.0, 61, 62]) + runs("b", [50.0, 51, 52]) + runs("c", [70.0, 71, 72])
    both = [("a", "b"), ("c", "b")]
    assert judged(monkeypatch, above(pairs=both), made).verdict == SUPPORTED
    assert judged(monkeypatch, above(pairs=[*both, ("a", "c")]), made).verdict == CONTRADICTED
    same = [records.replace(r, status="same data") for r in made]
    assert judged(monkeypatch, above(by=9.0), same).verdict == SUPPORTED
    assert judged(monkeypatch, above(by=11.0), same).verdict == CONTRADICTED
    # of other data signs compare, amounts do not
    for by in (9.0, 11.0):
        found = judged(monkeypatch, above(by=by), made)
        assert (found.verdict, found.reason) == (NOT_SETTLED, NO_VALUES)


def test_rows_of_a_trend_rise_together_whatever_their_records_order(monkeypatch) -> None:
    made = runs("a", [50.0, 52, 51]) + runs("b", [53.0, 55, 54]) + runs("c", [56.0, 58, 57])
    rows = ["a", "b", "c"]
    of = {"table": "I", "column": "CIDEr-D"}
    up = judged(monkeypatch, Trend(rows=rows, **of), made[::-1])
    down = judged(monkeypatch, Trend(rows=rows[::-1], **of), made)
    assert (up.verdict, down.verdict) == (SUPPORTED, CONTRADICTED)
    assert_close([up.effect, down.effect], [3.0, -3.0])


@pytest.mark.parametrize(("margin", "word"), [(3.0, SUPPORTED), (1.0, CONTRADICTED)])
def test_rows_are_alike_within_a_margin(monkeypatch, margin, word) -> None:
    made = runs("a", [52.0, 52, 52]) + runs("b", [50.0, 50, 50])
    test = Alike(table="I", column="CIDEr-D", pairs=[("a", "b")], margin=margin)
    assert judged(monkeypatch, test, made).verdict == word


@given(st.floats(0.5, 2), st.floats(0.01, 0.3))
def test_a_value_is_as_printed_within_its_share(factor, share) -> None:
    printed = 115.8  # of the baseline, in the paper's Table I
    row = "attention | attention"
    made = [record(Released, {"CIDEr-D": factor * printed}, row=row, status="same data")]
    of = {"table": "I", "column": "CIDEr-D"}
    with pytest.MonkeyPatch.context() as patch:
        found = judged(patch, AsPrinted(share=share, rows=[row], **of), made)
        bound = judged(patch, Within(rows=[row], least=printed, **of), made)
    assert (found.verdict == SUPPORTED) == (1 - share < factor < 1 + share)
    assert (bound.verdict == SUPPORTED) == (factor > 1)
    assert found.verdict in (SUPPORTED, CONTRADICTED)


@pytest.mark.parametrize(
    "made",
    [
        [],
        runs("a", [60.0, 61, 62]),
        runs("a", [60.0, 61]) + runs("b", [50.0, 51]),
        runs("a", [60.0, 61, 62], epoch=8) + runs("b", [50.0, 51, 52], epoch=8),
    ],
    ids=["no records", "no baseline", "two seeds", "still improving"],
)
def test_what_says_too_little_settles_nothing(monkeypatch, made) -> None:
    found = judged(monkeypatch, above(), made)
    assert (found.verdict, found.by_holm) == (NOT_SETTLED, NOT_SETTLED)


@pytest.mark.parametrize(("loss", "reason"), [(3.0, ""), (8.0, "a training diverged")])
def test_a_training_has_diverged_where_a_uniform_guess_is_better(loss, reason) -> None:
    """A perplexity is far above the logarithm of the vocabulary's size, and no loss."""
    values = {
        "training loss": 2.0,
        "evaluation loss": loss,
        "evaluation perplexity": float(np.exp(loss)),
    }
    of = {"stages": [{"patience": 3}], "configuration": {"vocabulary_size": 2541}}
    assert weakness({"a": [record(Losses, values, table="losses", **of)]}) == reason


def test_the_longest_training_comes_first_and_then_the_papers_own_data(monkeypatch) -> None:
    def pair(gap: float, **changes: Any) -> list[Record]:
        return runs("a", [50 + gap] * 3, **changes) + runs("b", [50.0] * 3, **changes)

    short = pair(-5, epoch=8, form="reduced", status="other data")
    scenes, other = pair(5, form="c"), pair(-5, form="c", status="other data")
    assert judged(monkeypatch, above(), short + scenes).verdict == SUPPORTED
    assert judged(monkeypatch, above(), short + scenes + other).status == "other data"
    assert judged(monkeypatch, above(), short).reason.startswith("trained too briefly")


def test_each_pair_is_of_the_form_that_has_converged(monkeypatch) -> None:
    """A form without all rows of a claim gives the pairs that it has."""
    short = {"epoch": 8, "form": "reduced"}
    made = runs("a", [45.0] * 3, **short) + runs("b", [50.0] * 3, **short)
    made += runs("c", [70.0] * 3, **short)
    other = {"form": "c", "data": records.Data(name="longer")}
    long = runs("a", [58.0, 56, 57], **other) + runs("b", [50.0] * 3, **other)
    long = [msgspec.structs.replace(one, key=f"{one.key}long") for one in long]
    both = above(pairs=[("c", "b"), ("a", "b")])
    assert judged(monkeypatch, both, made).reason.startswith("trained too briefly")
    found = judged(monkeypatch, both, made + long)
    assert found.verdict == NOT_SETTLED and found.effect == pytest.approx(7.0, **EFFECTS)
    about = "1 of 2 comparisons are converged, the others trained too briefly"
    assert found.reason.startswith(about)
    assert found.findings[1].outcome == SUPPORTED
    assert set(found.findings[1].records) == {r.key for r in long}
    turned = judged(monkeypatch, above(pairs=both.pairs, lower=True), made + long)
    assert turned.verdict == CONTRADICTED and turned.part.startswith(about) and not turned.reason
    assert set(turned.records) == {r.key for r in made + long} - {r.key for r in made[:3]}


def test_effects_are_in_the_papers_unit(monkeypatch) -> None:
    """ARNet prints fractions; records have percent."""
    table = papers.load("arnet").table("3")
    a, b = "Encoder-Decoder + ARNet", "Encoder-Decoder"
    made = [
        record(
            Captions,
            {"B4": level + seed},
            paper="arnet",
            table="3",
            row=row,
            key=f"{row}{seed}",
            seeds=[seed],
            stages=STAGES,
            validations=[{"epoch": 2, "metric": "CIDEr-D", "CIDEr-D": 1.0}],
        )
        for row, level in ((a, 30.0), (b, 28.0))
        for seed in range(3)
    ]
    test = Above(table="3", column="B4", pairs=[(a, b)])
    monkeypatch.setattr(claims, "load", lambda _: [Claim(says="s", where="w", test=test)])
    (found,) = claims.verdicts(made, "arnet")
    assert found.effect == pytest.approx(0.02, **EFFECTS)
    printed = table.cell(a, "B4").meant - table.cell(b, "B4").meant
    assert found.printed == pytest.approx(printed, **EFFECTS)


def test_what_is_predicted_or_without_a_test_is_not_tested(monkeypatch) -> None:
    test = Untestable(why="no server")
    found = judged(monkeypatch, test, [])
    assert (found.verdict, found.reason, found.records) == (UNTESTABLE, "no server", [])


@pytest.mark.parametrize("paper", papers.names())
def test_what_was_not_run_carries_the_number_in_print(paper) -> None:
    """Of a claim without records the paper's number is that of its claim with them."""
    for one, claim in zip(claims.verdicts([], paper), claims.load(paper), strict=True):
        test = claim.test.would if isinstance(claim.test, Untestable) else claim.test
        if not isinstance(test, Within | AsPrinted):
            continue
        table = next((t for t in papers.load(paper).tables if t.name == test.table), None)
        known = {c.row: c.meant for c in table.cells if c.column == test.column} if table else {}
        rows = test.rows or list(known)
        first = [rows[0]] if isinstance(rows[0], str) else list(rows[0]) if rows else []
        if all(isinstance(known.get(row), float) for row in first) and first:
            share = known[first[0]] / (known[first[1]] if len(first) > 1 else 1)
            assert one.printed == pytest.approx(share, **CLAIMED)


def test_values_of_other_data_settle_no_claim_about_printed_values(monkeypatch) -> None:
    test = AsPrinted(table="words", column="100 commonest, % of all words", share=0.5)
    words = {"paper": "lstm_readonly", "table": "words", "row": "MS-COCO"}
    for status, verdict in (("same data", SUPPORTED), ("other data", NOT_SETTLED)):
        made = record(Words, {test.column: 40.0}, status=status, **words)
        monkeypatch.setattr(claims, "load", lambda _: [Claim(says="s", where="w", test=test)])
        (found,) = claims.verdicts([made], "lstm_readonly")
        assert found.verdict == verdict


def test_holm_takes_back_what_one_of_many_differences_settles(monkeypatch) -> None:
    found = judged(monkeypatch, above(), runs("a", [54.0, 52, 53]) + runs("b", [50.0, 50, 50]))
    assert (found.verdict, found.by_holm) == (SUPPORTED, SUPPORTED)
    many = [f"row {n}" for n in range(6)]
    made = runs("a", [54.0, 52, 53]) + runs("b", [50.0, 50, 50])
    made += [r for row in many for r in runs(row, [49.0, 51, 50])]
    listed = [above(), *(above(pairs=[(row, "b")]) for row in many)]
    monkeypatch.setattr(
        claims, "load", lambda paper: [Claim(says="s", where="w", test=t) for t in listed]
    )
    first, *rest = claims.verdicts(made, PAPER)
    assert (first.verdict, first.by_holm) == (SUPPORTED, NOT_SETTLED)
    assert {one.verdict for one in rest} == {NOT_SETTLED}


def test_every_published_verdict_is_recomputed_from_the_records_it_names(published) -> None:
    """Effects again from the values of the records alone, verdicts from effects and intervals."""
    newest = records.newest(published)
    found = claims.verdicts(published)
    tests = [claim.test for paper in papers.names() for claim in claims.load(paper)]
    assert len(found) == len(tests)
    for one, test in zip(found, tests, strict=True):
        assert one.verdict in OUTCOMES and one.by_holm in OUTCOMES
        assert one.reason or one.verdict in (SUPPORTED, CONTRADICTED)
        if one.reason or isinstance(test, Untestable):
            assert one.verdict in (NOT_SETTLED, UNTESTABLE)
        if isinstance(test, Above):
            unit = times(papers.load(one.paper), test.table, test.column)
            for pair, finding in zip(test.pairs, one.findings, strict=True):
                values: dict[str, dict[int, float]] = {}
                for r in newest:
                    here = (r.what.paper, r.what.table) == (one.paper, test.table)
                    if here and r.key in finding.records and len(r.seeds) == 1:
                        assert (r.data.name, r.status) == (finding.data, finding.status)
                        number = r.values[test.column] / unit
                        values.setdefault(r.what.row, {})[r.seeds[0]] = number
                if all(row in values for row in pair):
                    seeds = set.intersection(*(set(values[row]) for row in pair))
                    gaps = [values[pair[0]][s] - values[pair[1]][s] for s in seeds]
                    assert finding.effect == pytest.approx(np.mean(gaps), **CLAIMED)
        alone = [f.outcome for f in one.findings]
        if one.verdict == SUPPORTED:
            assert set(alone) == {SUPPORTED}
        if one.verdict == CONTRADICTED:
            assert CONTRADICTED in alone


def test_the_command_prints_every_verdict_and_its_data(capsys) -> None:
    assert cli.main(["claims", "--json", "--records", str(records.PUBLISHED)]) == 0
    found = msgspec.convert(json.loads(capsys.readouterr().out), list[Verdict])
    assert found == claims.verdicts(records.load(records.PUBLISHED))
    assert cli.main(["claims", "middle_out", "--records", str(records.PUBLISHED)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    for one in found:
        shown = f"{one.verdict.upper()} {one.claim} ({one.where})"
        assert (shown in out) == (one.paper == "middle_out")
        if one.records and one.paper == "middle_out":
            assert f"{one.status}, {one.data}" in out


def test_an_unknown_paper_and_a_damaged_file_are_named(monkeypatch, tmp_path) -> None:
    with pytest.raises(InputError, match="unknown paper 'x', expected one of arnet"):
        claims.load("x")
    (tmp_path / PAPER).mkdir()
    (tmp_path / PAPER / "claims.json").write_text('[{"says": "s"}]')
    monkeypatch.setattr(papers, "names", lambda: (PAPER,))
    monkeypatch.setattr(papers, "FOLDER", tmp_path)
    with pytest.raises(InputError, match=r"claims\.json: not the claims of a paper"):
        claims.load(PAPER)
