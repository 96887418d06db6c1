"""What a comparison says of times and of counts, whatever revisions they are of."""

from __future__ import annotations

import itertools
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.perf import clock
from benchmarks.perf.cases.case import Work
from benchmarks.perf.compare.benchmarks import BENCHMARKS
from benchmarks.perf.compare.comparison import (
    CONFIDENCE,
    LEAST_ROUNDS,
    STRETCHES,
    compare,
    compare_until_narrow,
)
from benchmarks.perf.compare.counts import (
    CALLS,
    agreed,
    count,
)
from benchmarks.perf.compare.outcome import Checked, Outcome
from benchmarks.statistics import Estimate, verdict
from benchmarks.verify.tolerances import SUMS
from tests.support.tolerances import TIMES

seeds = st.integers(0, 10_000)
SMALLEST = 0.02


def machine(seed, slowed=1.0, *, between=0.01, within=0.05, processes=4, rounds=30, sides=3):
    """Rounds on a noisy machine: each process has a speed of its own, each round another load,
    and now and then somebody else takes half of the time."""
    random = np.random.default_rng(seed)
    load = np.exp(np.cumsum(random.normal(0, 0.1, rounds)))
    found = {}
    for side in ("A", "A again", "B")[:sides]:
        own = random.lognormal(0, between, (processes, 1))
        busy = np.where(random.random((processes, rounds)) < 0.2, 2, 1)
        times = own * load * busy * random.lognormal(0, within, (processes, rounds))
        found[side] = times * (slowed if side == "B" else 1.0)
    return found


def verdict_of(seed, *parameters, rounds=30, **noise):
    sides = machine(seed, *parameters, rounds=STRETCHES * rounds, **noise)
    ends = itertools.count(rounds, rounds)

    def longer():
        end = next(ends)
        return {side: times[:, :end] for side, times in sides.items()}, 0

    return compare_until_narrow(longer, SMALLEST).verdict


def verdicts(number, *parameters, **noise):
    return [verdict_of(i, *parameters, **noise) for i in range(number)]


@pytest.mark.parametrize("between", [0.0, 0.02, 0.1])
@pytest.mark.parametrize("processes", [2, 4])
def test_equal_revisions_are_hardly_ever_called_slower(between, processes):
    # 0.8 % two-sided, so 0.4 % are slower, less what is within the floor: 4 of 300 are unheard of
    found = verdicts(300, between=between, processes=processes)
    assert found.count("slower") <= 4
    assert found.count("faster") <= 4


def test_of_equal_revisions_at_most_one_comparison_in_40_has_a_false_alarm():
    """Of all benchmarks together, whatever processes differ by."""
    assert len(BENCHMARKS) * (100 - CONFIDENCE) / 2 <= 2.5
    for between in (0.003, 0.02):
        found = verdicts(500 * len(BENCHMARKS), between=between, rounds=12)
        alarms = np.array(found).reshape(500, len(BENCHMARKS)) == "slower"
        assert alarms.any(1).mean() <= 0.025


def test_a_twentieth_is_found_in_most_comparisons_and_a_tenth_in_all():
    """Where equal processes differ by half a percent."""
    assert verdicts(100, 1.05, between=0.005, rounds=100).count("slower") >= 80
    assert verdicts(100, 1.1, between=0.005, rounds=100).count("slower") == 100


def test_a_tenth_is_found_where_processes_differ_by_a_hundredth():
    assert verdicts(100, 1.1).count("slower") >= 95
    assert verdicts(100, 1 / 1.1).count("faster") >= 95


def test_what_processes_differ_by_hides_what_is_smaller():
    # rounds without end do not help: the process is the unit
    many = [machine(i, 1.02, between=0.1, within=0.001, rounds=200) for i in range(40)]
    assert [compare(sides, 0, SMALLEST).verdict for sides in many].count("slower") <= 1


@given(seeds)
def test_same_is_said_only_within_the_smallest_change(seed):
    found = compare(machine(seed, between=0.001, within=0.005, rounds=60), 0, SMALLEST)
    assert found.verdict == "same"
    assert compare(machine(seed, between=0.001, within=0.005, rounds=60), 0, 0.0).verdict != "same"


@given(seeds, st.floats(0.5, 2.0))
def test_a_slowdown_of_all_calls_is_the_ratio_s(seed, factor):
    plain = compare(machine(seed), 0, SMALLEST).ratio
    slowed = compare(machine(seed, factor), 0, SMALLEST).ratio
    for name in ("low", "value", "high"):
        assert getattr(slowed, name) * factor == pytest.approx(getattr(plain, name), **TIMES)


@given(st.floats(0.2, 5), st.floats(1e-6, 10), st.integers(2, 5))
def test_seconds_are_those_of_each_side(factor, seconds, processes):
    calls = np.full((processes, 9), seconds)
    found = compare({"A": calls, "A again": calls, "B": calls * factor}, 0, SMALLEST)
    assert 1 <= found.floor <= 1 + SUMS  # equal but for the last bit of a mean
    for side, value in (("A", seconds), ("A again", seconds), ("B", seconds * factor)):
        assert found.seconds[side].value == pytest.approx(value)


@given(seeds, st.floats(1e-6, 1e6))
def test_what_all_have_in_common_cancels(seed, factor):
    sides = machine(seed)
    shared = np.random.default_rng(seed).lognormal(0, 1, 30) * factor
    moved = {side: times * shared for side, times in sides.items()}
    before, after = compare(sides, 0, SMALLEST), compare(moved, 0, SMALLEST)
    assert after.ratio.value == pytest.approx(before.ratio.value, **TIMES)
    assert after.floor == pytest.approx(before.floor, **TIMES)


@given(seeds)
def test_neither_the_order_of_rounds_nor_of_processes_matters(seed):
    sides, random = machine(seed), np.random.default_rng(seed)
    rounds = random.permutation(30)
    moved = {side: times[random.permutation(4)][:, rounds] for side, times in sides.items()}
    before, after = compare(sides, 0, SMALLEST), compare(moved, 0, SMALLEST)
    assert after.ratio.low == pytest.approx(before.ratio.low, **TIMES)
    assert after.verdict == before.verdict


@given(seeds, st.integers(2, 3))
def test_intervals_hold_their_values_and_the_floor_is_at_least_1(seed, sides):
    found = compare(machine(seed, sides=sides), 0, SMALLEST)
    for estimate in (*found.seconds.values(), *([found.ratio] if found.ratio else [])):
        assert 0 < estimate.low <= estimate.value <= estimate.high
    assert found.floor >= 1
    assert (found.verdict == "first") == (sides == 2)


def test_too_few_rounds_and_a_clock_that_mostly_jumps_settle_nothing():
    sides = machine(0, 2.0)
    assert compare(sides, 30, SMALLEST).verdict == "slower"
    assert compare(sides, 31, SMALLEST).verdict == "not settled"
    few = {side: times[:, : LEAST_ROUNDS - 1] for side, times in sides.items()}
    assert compare(few, 0, SMALLEST).verdict == "not settled"


@pytest.mark.parametrize(
    ("interval", "floor", "expected"),
    [
        ((0.9, 0.85, 0.95), 1.05, "slower"),
        ((0.9, 0.85, 0.95), 1.2, "not settled"),
        ((0.9, 0.75, 1.05), 1.01, "not settled"),
        ((1.2, 1.1, 1.3), 1.05, "faster"),
        ((1.2, 1.1, 1.3), 1.25, "not settled"),
        ((0.99, 0.985, 0.995), 1.001, "same"),
        ((1.01, 0.999, 1.03), 1.0, "not settled"),
    ],
)
def test_a_verdict_needs_the_interval_beyond_1_and_the_ratio_beyond_the_floor(
    interval, floor, expected
):
    assert verdict(Estimate(*interval), floor, smallest=SMALLEST) == expected


def test_one_process_says_nothing_of_processes():
    with pytest.raises(ValueError, match=r"B is \(1, 30\), expected \(processes >= 2"):
        compare({**machine(0), "B": np.ones((1, 30))}, 0, SMALLEST)


counts = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 9) | st.none())


@given(counts, counts)
def test_counts_are_compared_exactly_and_only_where_both_are_steady(before, after):
    outcome = Outcome(BENCHMARKS["reward"], "tensors", [Checked(counts=c) for c in (before, after)])
    found = outcome.count_changes
    assert all(before[name] + by == after[name] and by for name, by in found.items())
    steady = [{name for name, n in side.items() if n is not None} for side in (before, after)]
    equal = {name for name in before if before[name] == after.get(name)}
    assert set(found) == (steady[0] & steady[1]) - equal
    assert set(outcome.nondeterministic) == steady[0] & (set(after) - steady[1])


@given(st.lists(st.integers(0, 3), min_size=1, max_size=6), st.randoms())
def test_a_count_is_what_most_of_at_least_two_calls_agree_on(values, random):
    (found,) = agreed([{"bytes": value} for value in values]).values()
    most = max(map(values.count, values))
    assert (found is None) == (most == 1)
    assert found is None or values.count(found) == most
    doubled = random.sample(values * 2, 2 * len(values))
    (again,) = agreed([{"bytes": value} for value in doubled]).values()
    assert values.count(again) == most


@given(st.lists(st.integers(1, 5), min_size=CALLS, max_size=CALLS))
def test_calls_are_counted_until_two_of_them_agree(sizes):
    rest = iter(sizes)
    work = Work(lambda: torch.empty(next(rest), dtype=torch.uint8))
    with patch("benchmarks.perf.compare.counts.graph_breaks", return_value=None):
        found = count(work, torch.device("cpu"))
    again = next((i for i, size in enumerate(sizes) if size in sizes[:i]), None)
    assert found["peak bytes"] == (None if again is None else sizes[again])
    assert list(rest) == ([] if again is None else sizes[again + 1 :])
    assert found["operators"] == 1


def test_an_optimizer_s_first_steps_hide_no_count():
    # RAdam's first five steps update nothing, so that the first call counted is not the second
    benchmark, device = BENCHMARKS["training-step"], torch.device("cpu")
    work = benchmark.find().make(benchmark.case("auto"), "auto", device)
    for _ in range(4):
        work.call()
    with patch("benchmarks.perf.compare.counts.graph_breaks", return_value=None):
        found = count(work, device)
    assert all(found[name] for name in ("flops", "saved bytes", "peak bytes", "operators"))


@given(st.floats(1e-3, 10), st.floats(-clock.DRIFT, clock.DRIFT))
def test_clocks_that_differ_by_drift_agree_and_a_jump_does_not(seconds, drift):
    assert clock.agree(seconds, seconds * (1 + drift))
    assert not clock.agree(seconds, seconds * 1.2 + 0.1)
    assert not clock.agree(seconds, seconds - 3600)
    assert not clock.agree(-seconds, -seconds)
    assert not clock.agree(0.0, 0.0)
