"""How sections compare rows: by the seeds that both have, and by one rule."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import records
from benchmarks.kinds import Captions
from benchmarks.papers import paired
from benchmarks.report.sections.examples import of_one_seed
from benchmarks.statistics import (
    SEEDS,
    Interval,
    difference_of_seeds,
    paired_difference,
)
from benchmarks.verify.tolerances import assert_close
from tests.support.records import record as a_record

IMAGES = 4
WORDS = ("worse", "better")


def record(row: str, seed: int) -> records.Record:
    """With numbers that are the seed's and the row's own."""
    scores = np.random.default_rng([seed, *row.encode()]).uniform(0, 2, IMAGES).tolist()
    of = {"row": row, "key": f"{row}{seed}", "n": IMAGES, "seeds": [seed]}
    return a_record(Captions, {"CIDEr-D": 100 * float(np.mean(scores))}, **of, cider_d=scores)


seeds = st.lists(st.integers(0, 6), unique=True, max_size=5)


def runs(row: str, of: list[int]) -> list[records.Record]:
    return [record(row, seed) for seed in of]


@given(st.lists(seeds, min_size=1, max_size=4))
def test_records_are_paired_by_the_seeds_that_all_rows_have(each: list[list[int]]) -> None:
    rows = {f"row {i}": runs(f"row {i}", of) for i, of in enumerate(each)}
    found = paired.shared(*rows.values())
    common = sorted(set.intersection(*map(set, each)))
    assert [[r.seeds for r in pair] for pair in found] == [[[s]] * len(each) for s in common]
    assert all([r.what.row for r in pair] == list(rows) for pair in found)
    shown = of_one_seed(rows, list(rows))
    assert list(shown) == (list(rows) if common else [])
    assert all(r.seeds == [common[0]] for r in shown.values())


@given(seeds, seeds, st.booleans())
def test_a_difference_is_that_of_the_shared_seeds_alone(
    ours: list[int], theirs: list[int], one_number: bool
) -> None:
    numbers = paired.value("CIDEr-D") if one_number else paired.percent("cider_d")
    a, b = runs("a", ours), runs("b", theirs)
    found = paired.difference(a, b, numbers)
    common = sorted(set(ours) & set(theirs))
    if not common:
        assert found is None
        return
    sides = [[numbers(record(row, seed)) for seed in common] for row in "ab"]
    judge = difference_of_seeds if one_number else paired_difference
    assert found == judge(*sides) and found.seeds == len(common)
    # whatever the order of records
    assert paired.difference(a[::-1], b[::-1], numbers) == found
    other = paired.difference(b, a, numbers)
    assert other is not None and (other.mean, other.settled) == (-found.mean, found.settled)


def test_a_record_without_the_number_is_of_no_pair() -> None:
    a, b = runs("a", [0, 1, 2]), runs("b", [0, 1, 2])
    a[1].values.pop("CIDEr-D")
    found = paired.difference(a, b, paired.value("CIDEr-D"))
    assert found == paired.difference(a[::2], b, paired.value("CIDEr-D"))
    assert found is not None and found.seeds == 2


@given(st.lists(seeds, min_size=2, max_size=4), st.data())
def test_every_pair_that_is_expected_to_differ_has_its_own_seeds(
    each: list[list[int]], data: st.DataObject
) -> None:
    rows = {f"row {i}": runs(f"row {i}", of) for i, of in enumerate(each)}
    expected = {row: data.draw(st.sampled_from([1.0, 2.0, 3.0])) for row in [*rows, "not run"]}
    pairs = {(p.first, p.second): p for p in paired.ordered_pairs(rows, expected)}
    for i, one in enumerate(rows):
        for other in list(rows)[i + 1 :]:
            found = paired.difference(rows[one], rows[other])
            if expected[one] == expected[other] or found is None:
                assert (one, other) not in pairs
            else:
                pair = pairs.pop((one, other))
                assert pair.found == found
                assert_close(pair.expected, expected[one] - expected[other])
    assert not pairs


ends = st.tuples(st.floats(-9, 9), st.floats(-9, 9)).map(sorted)


@given(ends, st.one_of(st.none(), st.integers(1, 5)), st.sampled_from([WORDS, ("less", "more")]))
def test_a_word_is_said_only_of_enough_seeds_and_without_zero(
    pair: list[float], count: int | None, words: tuple[str, str]
) -> None:
    (low, high), (below, above) = pair, words
    found = Interval((low + high) / 2, low, high, 0.0, count)
    said, _, word = paired.verdict(found, below, above).rpartition(": ")
    assert said == paired.measured(found)
    if count is not None and count < SEEDS:
        assert word == "too few seeds"
    else:
        assert word == (above if low > 0 else below if high < 0 else "not settled")


@given(st.floats(-9, 9), st.integers(0, 4))
def test_one_number_of_one_seed_has_no_interval_to_show(gap: float, digits: int) -> None:
    found = difference_of_seeds([gap], [0.0])
    assert paired.verdict(found, digits=digits) == f"{found.mean:+.{digits}f}: too few seeds"


def test_nothing_is_said_of_nothing() -> None:
    assert paired.verdict(paired.difference([], [])) == ""


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_rule_is_what_is_done(count: int) -> None:
    """However large a gap, it is called something over as many seeds as the rule says."""
    assert f"at least {SEEDS} seeds" in paired.RULE
    found = paired_difference(np.full((count, IMAGES), 99.0), np.zeros((count, IMAGES)))
    assert ("better" in paired.verdict(found)) == (count >= SEEDS)
