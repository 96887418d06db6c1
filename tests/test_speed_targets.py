"""Targets: met or missed by whole intervals, and in the report as they are."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from benchmarks import records
from benchmarks.cli import report
from benchmarks.kinds import Equations, Prediction, Verification
from benchmarks.perf import targets
from benchmarks.perf.cases import expansions, suites
from benchmarks.perf.cases.case import Case, Sizes
from benchmarks.perf.cases.ceilings import COPY, PRODUCT
from benchmarks.perf.roofline.devices import find_spec
from benchmarks.perf.targets import BEST, TARGETS, Target, evaluate_targets
from benchmarks.report.sections import speed
from tests.support.pages import files
from tests.support.records import altered
from tests.support.records import record as a_record
from tests.support.speed import GPU, STATIC, counted_elsewhere, record, timed

__all__ = ["counted_elsewhere"]


def test_every_target_is_in_its_suite():
    measured = {
        kind: [case.recorded() for case in suite()]
        for kind, suite in (("cpu", suites.cpu), ("cuda", suites.gpu))
    }
    for target in TARGETS:
        cases = [case for case in measured[target.device] if target.is_of(case)]
        implementations = {name for case in cases for name in case.implementations}
        assert cases and target.implementation in {BEST, *implementations}


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(1.5, 1.7, "met"), (1.4, 1.6, "not settled"), (1.2, 1.4, "missed")],
)
def test_a_target_is_met_or_missed_by_the_whole_interval(low, high, expected):
    target = Target("it", STATIC.subject.name, "factored", targets.RATIO, 1.45)
    values = {"ratio": (low + high) / 2, "ratio low": low, "ratio high": high}
    made = [record(STATIC, "factored", values)]
    (outcome,) = evaluate_targets(made, [target])
    assert outcome.verdict == expected
    assert evaluate_targets(made, [replace(target, device="cuda")])[0].verdict == "not run"
    assert evaluate_targets(made, [replace(target, implementation="auto")])[0].verdict == "not run"
    assert evaluate_targets(made, [replace(target, implementation=BEST)])[0].verdict == expected
    assert evaluate_targets([], [target])[0].verdict == "not run"


def test_another_baseline_is_another_measurement(tmp_path, counted_elsewhere):
    only = ["--only", "dynamic-operator forward", "--implementation"]
    usual = timed(tmp_path, *only, "literal", "factored")
    other = timed(tmp_path, *only, "factored", "literal")[len(usual) :]
    assert len(records.newest([*usual, *other])) == 2 * len(usual) == 8
    sizes = Sizes().tiny()
    target = Target("it", "dynamic-operator forward", "literal", targets.RATIO, 0, sizes)
    assert evaluate_targets(other, [target])[0].verdict == "not run"
    assert evaluate_targets(usual, [target])[0].verdict == "met"


def test_small_quantities_are_bounded_above():
    made = [record(STATIC, "factored", {"saved ratio": 0.4, "ratio": 1.0})]
    for bound, expected in ((0.5, "met"), (0.3, "missed")):
        (outcome,) = evaluate_targets(
            made, [Target("it", STATIC.subject.name, "factored", targets.SAVED, bound)]
        )
        assert outcome.verdict == expected


def test_a_roofline_is_of_the_slower_of_bytes_and_operations():
    times = {"seconds": 2.0, "seconds low": 1.0, "seconds high": 4.0}
    made = [
        record(STATIC, "factored", {**times, "least bytes": 60.0, "flops": 10.0}),
        record(suites.case("ceilings", ()), "device", {COPY: 60.0, PRODUCT: 40.0}),
    ]
    target = Target("it", STATIC.subject.name, "factored", targets.ROOFLINE, 0.5)
    found = targets.roofline(made[0], made)
    assert (found.value, found.low, found.high) == (0.5, 0.25, 1.0)
    assert evaluate_targets(made, [target])[0].verdict == "not settled"
    assert evaluate_targets(made[:1], [target])[0].verdict == "not run"
    made[0] = altered(made[0], values=made[0].values | {"flops": 80.0})
    assert targets.roofline(made[0], made).value == 1.0


def test_one_slower_shape_is_one_too_many():
    (target,) = [t for t in TARGETS if t.what == "static layers of random shapes"]
    cases = [case for case in suites.random_shapes() if case.subject is suites.RANDOM_STATIC]
    values = {"ratio low": 1.2, "ratio high": 1.4, "floor": 1.1}
    made = [record(case, "auto", values, verdict="faster") for case in cases]
    assert evaluate_targets(made, [target])[0].verdict == "met"
    assert evaluate_targets(made[1:], [target])[0].verdict == "not settled"
    made[3] = altered(made[3], verdict="slower")
    (outcome,) = evaluate_targets(made, [target])
    assert (outcome.verdict, outcome.measured) == ("missed", "1 of 20")


def test_a_quicker_form_than_the_chosen_one_is_counted():
    (target,) = [t for t in TARGETS if t.what == "dynamic layers of random shapes"]
    case = next(case for case in suites.random_shapes() if case.subject is suites.RANDOM_DYNAMIC)
    auto = {"ratio": 1.0, "ratio low": 0.9, "ratio high": 1.1, "floor": 1.1}
    for low, said in ((1.2, "0 of 1"), (1.3, "0 of 1, 1 chosen wrongly")):
        quicker = {"ratio": 1.4, "ratio low": low, "ratio high": 1.5, "floor": 1.1}
        made = [
            record(case, "auto", auto, verdict="not settled"),
            record(case, "factored", quicker, verdict="faster"),
        ]
        assert evaluate_targets(made, [target])[0].measured == said


def test_a_machine_s_record_does_not_replace_another_s():
    here = record(STATIC, "literal", {})
    there = altered(here, device=structs.replace(here.device, name="another"))
    threads = altered(here, device=structs.replace(here.device, threads=2))
    assert len(records.newest([here, there, threads, here])) == 3


def pages(made):
    return files(*speed.sections(made))


def section(made) -> str:
    return files(speed.targets(made))["README.md"]


def test_the_report_has_every_target_and_fills_nothing_in():
    text = section([])
    assert text.count("| not predicted |") == len(TARGETS)
    assert "Nothing was timed" in text
    values = {"ratio": 1.6, "ratio low": 1.5, "ratio high": 1.7}
    made = [
        record(STATIC, name, {**values, "seconds": 1.0, "seconds low": 0.9, "seconds high": 1.1,
                              "floor": 1.01, "saved bytes": 2e6}, verdict=verdict)
        for name, verdict in (("literal", "baseline"), ("factored", "faster"))
    ]  # fmt: skip
    text = section(made)
    asked = "at least 1.45 times as fast<br>since 2026-11-21"
    found = f"1.6 [1.5, 1.7]<br>{made[1].time[:10]}"
    line = f"| static layer, both passes | {asked} | {found} | a machine, 1 thread | met |"
    assert line in text
    assert text.count("| not predicted |") == len(TARGETS) - 1
    assert "1 of 1 verdicts on the processors measured are met; " in text
    rows = pages(made)["tables/speed.md"].splitlines()[4:]
    assert [row.split(" | ")[1] for row in rows] == ["literal", "factored"]
    assert "1000<br>[900, 1100] | 1.6<br>[1.5, 1.7] | faster |" in rows[1]
    assert "| counted: A/A floor 1.010; 2 MB saved |" in rows[1]


def test_the_report_of_a_gpu_names_its_roofline():
    times = {"seconds": 2.0, "seconds low": 2.0, "seconds high": 2.0, "least bytes": 60.0}
    ratio = {"ratio": 7.0, "ratio low": 7.0, "ratio high": 7.0, "floor": 1.0}
    operator = suites.case("static-operator forward+backward", ())
    ceilings = suites.case("ceilings", (), copied=2**30, product=8192)
    made = [
        record(operator, "fused", {**times, **ratio}, verdict="faster"),
        record(ceilings, "device", {COPY: 60.0, PRODUCT: 40.0}),
    ]
    made = [altered(one, device=GPU) for one in made]
    text = section(made)
    (row,) = (row for row in text.splitlines() if row.endswith("| met |"))
    assert "at least 0.5 of its roofline<br>" in row
    assert f"| 0.5<br>{made[0].time[:10]} | a GPU of theirs |" in row


@settings(max_examples=3)
@given(st.floats(1, 100), st.floats(0, 1), st.floats(0.01, 1))
def test_a_gpu_s_target_that_was_not_run_has_the_roofline_s_prediction(ratio, launches, left):
    target = next(t for t in TARGETS if t.device == "cuda" and t.quantity == targets.RATIO)
    case = Case(suites.SUBJECTS[target.subject], (), target.sizes, target.precision)
    assert target.is_of(case.recorded())
    plain, *_, ours = case.subject.implementations
    numbers = {plain: (ratio, ratio), ours: (1.0, left)}
    made = [
        a_record(
            Prediction,
            {"seconds": seconds, "graphed seconds": graphed, "launch share": launches},
            status="predicted",
            row=name,
            key=name,
        )
        for name, (seconds, graphed) in numbers.items()
    ]
    device = find_spec("A100").to_dict()
    made = [
        altered(r, case=case.recorded(), implementation=r.what.row, device=device) for r in made
    ]
    table = files(speed.targets(made))["tables/speed-not-run.md"]
    (row,) = (line for line in table.splitlines() if "A100" in line)
    assert f"| {ratio:.3g} times as fast<br>A100, {ours}: " in row
    assert f"launches are {100 * launches:.0f} % of its time" in row
    assert f"leave {100 * left:.0f} %, {ratio / left:.3g} times as fast" in row
    assert target.what in row and target.bound_text in row


def test_what_was_timed_here_is_in_the_next_report(tmp_path):
    timing = record(STATIC, "literal", {})
    there = a_record(Verification, {}, row="x", device=GPU)
    other = a_record(Equations, {}, row="y")
    records.append([timing, there, other], tmp_path / "timing.jsonl")
    assert report.measure([], tmp_path) == [timing, there]


def test_a_model_with_nothing_to_expand_says_so():
    with pytest.raises(ValueError, match="has no expansion"):
        expansions.implement(torch.nn.Linear(1, 1), "literal")
