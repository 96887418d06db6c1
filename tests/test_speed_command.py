"""``captionbench time``: what is chosen, kept, gone on with, drawn and refused."""

from __future__ import annotations

import argparse
import json
import os
import re
import threading
from dataclasses import replace
from functools import wraps

import pytest
import torch

from benchmarks import records
from benchmarks.cli import case_options
from benchmarks.cli import main as cli
from benchmarks.cli.main import main
from benchmarks.kinds import Verified
from benchmarks.perf import case_records, coefficient_curves, threads
from benchmarks.perf.cases import suites
from benchmarks.perf.cases.case import eager
from benchmarks.perf.cases.ceilings import COPY, PRODUCT
from benchmarks.perf.cases.suites import SUBJECTS
from benchmarks.perf.session import Session
from benchmarks.perf.timing import Budget, measure
from benchmarks.report.sections import speed
from benchmarks.typeset import SVG, typeset
from tests.support import pages
from tests.support.records import from_json
from tests.support.speed import CPU, QUICK, counted_elsewhere, forbidden, record, timed, tiny

__all__ = ["counted_elsewhere"]
pytestmark = pytest.mark.usefixtures("counted_elsewhere")


def test_records_are_what_was_printed_and_are_not_measured_again(tmp_path, capsys, monkeypatch):
    words = ["--only", "static-layer forward+", "dynamic-memory", "--json"]
    made = timed(tmp_path, *words)
    printed = capsys.readouterr().out
    assert from_json(json.loads(printed)) == made
    assert {r.kind for r in made} == {"timing", "counted"}
    literal, factored = made[:2]
    assert literal.details.verdict == "baseline"
    assert literal.values["ratio"] == 1
    for name in ("saved bytes", "peak bytes", "flops", "least bytes", "floor", "seconds"):
        assert factored.values[name] > 0
    assert len(factored.details.samples) == factored.n >= 5
    assert factored.device.threads == 1
    assert (factored.details.cache, factored.details.jumps) == ("warm", 0)
    monkeypatch.setattr(case_records, "time_case", forbidden(case_records.time_case))
    assert timed(tmp_path, *words) == made
    assert capsys.readouterr().out == printed


def test_an_interruption_leaves_whole_cases_and_the_next_run_goes_on(tmp_path, monkeypatch, capsys):
    time_case = case_records.time_case
    calls = []

    @wraps(time_case)
    def interrupted(*arguments, **options):
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return time_case(*arguments, **options)

    monkeypatch.setattr(case_records, "time_case", interrupted)
    only = ["--only", "dynamic-layer"]
    assert len(timed(tmp_path, *only, code=130)) == 2
    assert capsys.readouterr().err.endswith("captionbench: interrupted\n")
    assert len(timed(tmp_path, *only)) == 4
    assert len(calls) == 3


def test_of_tiny_sizes_nothing_is_kept_unless_told(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(records, "LOCAL", tmp_path)
    assert main(["time", *QUICK, "--only", "dynamic-layer forward"]) == 0
    assert "no records kept" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_coefficients_are_all_paired_and_what_does_not_matter_is_timed_once(tmp_path):
    words = ["--groups", "none", "64", "128x2", "--num-expansions", "none", "4", "--only"]
    names = {
        "greedy": 3 * 2, "encoder forward+backward": 3, "decoder forward+backward": 2, "reward": 1,
    }  # fmt: skip
    line = ["time", "--suite", "gpu", "--precision", "float32", *words, *names]
    cases = case_options.chosen(cli.parser_for("time").parse_args(line), CPU)
    for name, count in names.items():
        of = [case for case in cases if case.subject.name == name]
        assert len({case.row for case in of}) == count
        attends = [case for case in of if case.implementations == ("attention",)]
        assert len({case.row for case in attends}) == (1 if "forward" in name else 0)


def test_every_number_of_threads_is_timed_and_pinned_to_as_many_cores(tmp_path):
    before = os.sched_getaffinity(0)
    made = timed(tmp_path, "--only", "dynamic-layer forward+", "--threads", "1", "all", "1")
    assert [r.device.threads for r in made] == [
        n for n in dict.fromkeys([1, threads.usable()]) for _ in range(2)
    ]
    for one in made:
        pinned = one.device.pinned
        assert len(pinned) == one.device.threads
        assert set(pinned) <= before
    assert os.sched_getaffinity(0) == before


def test_work_of_every_thread_stays_on_the_cores_it_is_pinned_to():
    before = os.sched_getaffinity(0)
    barrier, seen = threading.Barrier(2), []

    def look() -> None:
        barrier.wait()
        seen.append(os.sched_getaffinity(0))
        barrier.wait()

    there = threading.Thread(target=look)
    there.start()
    cores = threads.cores(1)
    with pytest.raises(KeyboardInterrupt), threads.pinned(cores):
        barrier.wait()
        barrier.wait()
        raise KeyboardInterrupt
    there.join()
    assert seen == [set(cores)]
    assert os.sched_getaffinity(0) == before


@pytest.mark.parametrize(
    ("listed", "count", "expected"),
    [
        ({0: "0-1", 1: "0-1", 2: "2-3", 3: "2-3"}, 2, [0, 2]),
        ({0: "0,2", 1: "1,3", 2: "0,2", 3: "1,3"}, 2, [0, 1]),
        ({0: "0,2", 1: "1,3", 2: "0,2", 3: "1,3"}, 3, [0, 1, 3]),
        ({}, 2, [2, 3]),
        ({0: "none"}, 4, [0, 1, 2, 3]),
    ],
)
def test_physical_cores_come_before_second_threads_of_any(
    listed, count, expected, tmp_path, monkeypatch
):
    for core, siblings in listed.items():
        folder = tmp_path / f"cpu{core}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(siblings + "\n")
    monkeypatch.setattr(threads, "TOPOLOGY", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    assert threads.cores(count) == expected


def test_a_cut_line_is_named_and_costs_its_case_alone(tmp_path, capsys):
    words = ["--only", "dynamic-layer forward"]
    path = tmp_path / "r.jsonl"
    whole = timed(tmp_path, *words)
    path.write_bytes(path.read_bytes()[:-30])
    again = timed(tmp_path, *words)
    assert f"warning: {path}: line {len(whole)}: edited, cut off" in capsys.readouterr().err
    # a line costs its whole case, whose implementations were timed in turn
    of = sum(record.key == whole[-1].key for record in whole)
    assert again[: len(whole) - 1] == whole[:-1]
    assert [record.what for record in again[-of:]] == [record.what for record in whole[-of:]]


def test_a_drawing_has_every_implementation_over_the_sum_of_coefficients(
    tmp_path, monkeypatch, capsys
):
    drawing = tmp_path / "a" / "p.svg"
    words = ["--only", "encoder forward+backward", "decoder forward+backward", "--suite", "grid"]
    coefficients = ["--groups", "none", "1", "1,3", "--num-expansions", "1", "3"]
    made = timed(tmp_path, *words, *coefficients, "--plot", str(drawing))
    assert "time and memory over expansion coefficients" in capsys.readouterr().out
    encoder, decoder = reversed(coefficient_curves.curves(made))
    assert (encoder.half, decoder.half) == ("encoder", "decoder")
    for curve, sums in ((encoder, [1, 4]), (decoder, [1, 3])):
        panel = curve.panel("seconds")
        assert list(panel.lines) == ["literal", "factored"]
        for name, (x, y, low, high) in panel.lines.items():
            assert list(x) == sums
            assert all(a <= b <= c for a, b, c in zip(low, y, high, strict=True))
            values = [
                r.values["seconds"]
                for r in made
                if r.details.implementation == name and r in curve.records
            ]
            assert sorted(values) == sorted(y)
    assert [list(curve.panel("peak bytes").levels) for curve in (encoder, decoder)] == [
        ["attention"],
        [],
    ]
    text = drawing.read_text()
    assert text == coefficient_curves.draw(coefficient_curves.curves(made))
    for word in ("sum of G", typeset("N_E", SVG), "literal", "factored", "peak bytes"):
        assert word in text
    files = pages.files(*speed.sections(made))
    assert "Over expansion coefficients: encoder forward+backward, B=2" in files["README.md"]
    assert files["figures/speed-coefficients-2.svg"] == coefficient_curves.draw([encoder])


def test_curves_hold_the_other_half_at_v2_s(tmp_path):
    made = []
    for groups in (16, 64):
        for vectors in (4, 16):
            sizes = {"encoder": f"static:{groups}", "decoder": f"dynamic:{vectors}"}
            case = suites.case("xe-step", (), **sizes)
            times = {"seconds": 1.0, "seconds low": 1.0, "seconds high": 1.0}
            made.append(record(case, "literal", times))
    by_half = {curve.half: curve for curve in coefficient_curves.curves(made)}
    sizes = [r.details.case.sizes for r in by_half["encoder"].records]
    assert {s["decoder"] for s in sizes} == {"dynamic:16"}
    assert {s["encoder"] for s in sizes} == {"static:16", "static:64"}
    # no record has v2's encoder: either will do, but one alone
    assert len({r.details.case.sizes["encoder"] for r in by_half["decoder"].records}) == 1
    assert coefficient_curves.curves(made[:1]) == []
    both = coefficient_curves.about(coefficient_curves.curves(made))
    assert both == "time and memory over expansion coefficients"
    # every second is of one N_E
    assert (
        coefficient_curves.about(coefficient_curves.curves(made[::2]))
        == f"{both}; no curve over the decoder: fewer than two coefficients timed"
    )
    assert coefficient_curves.about([]) == "nothing to draw yet"


def test_no_time_left_says_so(tmp_path, capsys):
    path = tmp_path / "r.jsonl"
    words = ["--only", "dynamic-layer", "--minutes", "1e-9"]
    assert main(["time", *QUICK, "--out", str(path), *words]) == 0
    assert not path.exists()
    assert "2 cases not done; run the same command to resume" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--only", "sttic"], "--only sttic: no such case"),
        (["--device", "cuda:99"], "--device cuda:99: PyTorch cannot use it"),
        (["--implementation", "quick"], "--implementation quick: none of these cases has it"),
        (
            ["--only", "static-layer f", "--implementation", "literal", "attention"],
            "--implementation attention: none of these cases has it",
        ),
        (
            ["--only", "encoder", "--suite", "grid", "--implementation", "attention"],
            "implementation attention is unavailable (it has expansions)",
        ),
        (["--precision", "tf32"], "--precision tf32: expected a CUDA device"),
        (["--groups", "12y4"], "--groups: 12y4, expected none, 64"),
        (["--groups", "0"], "--groups: 0, expected none, 64"),
        (["--num-expansions", "-1"], "--num-expansions: -1, expected none or 1 to 65,536"),
        (["--seed", "-1"], "--seed: -1, expected at least 0"),
        (["--batch-size", "0"], "--batch-size: 0, expected at least 1 and at most 65536"),
        (["--length", "9" * 20], f"--length: {'9' * 20}, expected at least 1"),
        (["--threads", "999999"], "--threads: 999999, expected at least 1 and at most"),
        (["--out", ".", "--only", "reward"], ".: a folder, expected a file to write"),
        (["--out", os.devnull, "--only", "reward"], "--out /dev/null: a folder, a pipe or a dev"),
        (["--threads", "none"], "--threads: none, expected a whole number"),
        (["--seconds", "0"], "--seconds: 0, expected a finite"),
        (["--minutes", "0"], "--minutes: 0, expected a finite number above 0"),
        (["--seconds", "nan"], "--seconds: nan, expected a finite number"),
        (["--seconds", "inf"], "--seconds: inf, expected a finite number"),
        (["--minutes", "nan"], "--minutes: nan, expected a finite number"),
        (["--only", ""], "--only (empty): no such case"),
        (
            ["--only", "reward", "--precision", "bfloat16"],
            "--precision bfloat16: makes no difference",
        ),
        (["--only", "reward", "--groups", "64"], "--groups: makes no difference to any of reward"),
        (["--only", "static", "--num-expansions", "4"], "--num-expansions: makes no difference"),
        (
            ["--only", "reward", "--batch-size", "4"],
            "--batch-size: makes no difference to any of reward",
        ),
        (["--only", "dynamic-layer", "--length", "4"], "--length: makes no difference"),
        (["--only", "reward", "--seed", "4"], "--seed: no random shapes in any of reward"),
        (["--no-flush"], "--no-flush: makes no difference on a CPU"),
        (["--threads", "1", "0"], "--threads: 0, expected at least 1"),
        (["--out", "/dev/null/r.jsonl"], "/dev/null/r.jsonl: expected a file in a folder"),
        (["--only", "reward", "--plot", "p.svg"], "--plot: nothing is timed at two sums of"),
    ],
)
def test_what_cannot_be_timed_is_one_line(words, said, tmp_path, capsys, monkeypatch):
    assert main(["time", "--tiny", "--out", str(tmp_path / "r.jsonl"), *words]) == 2
    error = capsys.readouterr().err
    assert f"captionbench: error: {said}" in error or said in error.splitlines()[-1]
    assert "Traceback" not in error


def test_one_command_for_a_gpu_verifies_measures_ceilings_and_times(tmp_path, monkeypatch, capsys):
    """On the CPU, at the smallest sizes, and with nothing compiled."""
    row = Verified(
        operator="static_expansion",
        equations={},
        numbers="",
        what="output",
        implementation="literal",
        dtype="float32",
        device="cpu",
        cases=3,
        worst=2.0,
        bound=1.0,
        passed=False,
    )
    monkeypatch.setattr(case_records.table, "rows", lambda *_, **__: iter([row]))
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    taken = {"flops": 8, "operators": 1, "peak bytes": 8}
    monkeypatch.setattr(case_records.resources, "count", lambda *_: taken)
    only = ["ceilings", "xe-step", "dynamic-layer forward"]
    made = timed(tmp_path, "--suite", "gpu", "--only", *only, code=1)
    out = capsys.readouterr().out
    assert "0 of 1 comparisons with the oracle pass" in out
    assert "FAILED: static_expansion output (literal)" in out
    assert made[0].kind == "verification"
    rows = {r.what.row for r in made[1:]}
    for precision in ("float32", "bfloat16"):
        for name in ("literal", "factored", "literal+compile", "factored+compile"):
            assert any(r.startswith("xe-step") and r.endswith(f"{precision}: {name}") for r in rows)
    (ceilings,) = [r for r in made if r.what.row.endswith("float32: device")]
    assert ceilings.values[COPY] > 0 and ceilings.values[PRODUCT] > 0
    assert re.search(r"factored .* of its roofline\n", out)
    assert re.search(r"fused: not available \(\S", out)
    assert "peak bytes" not in next(r for r in made if "+compile" in r.what.row).values


def test_what_fails_at_work_is_left_out_and_named(tmp_path, monkeypatch, capsys):
    def fails(function, **_):
        def compiled(*arguments):
            raise RuntimeError("no compiler\nis here")

        return compiled

    monkeypatch.setattr(torch, "compile", fails)
    monkeypatch.setattr(Session, "verify", lambda _: None)
    monkeypatch.setattr("benchmarks.cli.time.print_verification", lambda *_, **__: True)
    only = ["--suite", "gpu", "--only", "dynamic-layer forward+", "--precision", "float32"]
    made = timed(tmp_path, *only)
    # the kernels are there too where a test before this one has Triton interpret them
    found = {r.details.implementation for r in made} - {"fused"}
    assert found == {"literal", "factored"}
    assert made[-1].details.unavailable["literal+compile"] == "RuntimeError: no compiler"
    assert "literal+compile: not available (RuntimeError: no compiler)" in capsys.readouterr().out


def test_timings_with_a_warm_cache_on_cuda_are_a_row_of_their_own(monkeypatch):
    """With the clock of the CPU: what is recorded is asked for here."""
    flushed = []

    def measured(calls, device, budget, refused, *, flush):
        flushed.append(flush)
        return measure(calls, "cpu", budget, refused)

    monkeypatch.setattr(case_records, "measure", measured)
    case, budget = tiny("dynamic-operator forward"), Budget(1e-9, least=5, most=5)
    case = replace(case, implementations=("literal",))
    cold, warm = (
        case_records.time_case(case, CPU, 1, budget, strict=True, flush=flush)[0]
        for flush in (True, False)
    )
    assert flushed == [True, False]
    assert warm.details.row == f"{case.row}, {case_records.WARM}"
    assert len(records.newest([cold, warm])) == 2
    assert cold.key != warm.key


def test_a_baseline_that_fails_is_named_and_the_next_case_is_timed(tmp_path, monkeypatch, capsys):
    time_case = case_records.time_case

    def fails(case, *arguments, **options):
        if case.subject.name == "reward":
            raise RuntimeError("out of memory\nand more")
        return time_case(case, *arguments, **options)

    monkeypatch.setattr(case_records, "time_case", fails)
    made = timed(tmp_path, "--only", "reward", "dynamic-layer forward+", code=1)
    assert {r.details.case.subject for r in made} == {"dynamic-layer forward+backward"}
    error = capsys.readouterr().err
    assert re.search(r"reward, .*: FAILED \(RuntimeError: out of memory\)\n", error)


@pytest.mark.parametrize("name", sorted(SUBJECTS))
def test_whatever_is_listed_can_be_timed_and_sizes_given_are_kept(name):
    parser = argparse.ArgumentParser()
    case_options.configure(parser)
    subject = SUBJECTS[name]
    given = ["--batch-size", "3"] if "batch" in subject.sizes else []
    arguments = parser.parse_args(["--only", name, "--tiny", *given])
    cases = case_options.chosen(arguments, torch.device("cpu"))
    assert name in {case.subject.name for case in cases}
    for case in cases:
        if "batch" in case.subject.sizes:
            assert case.sizes.batch == 3
        assert not {i for i in case.implementations if eager(i) != i}


def test_float16_is_autocast(tmp_path):
    path = tmp_path / "r.jsonl"
    words = ["--only", "static-operator forward", "--precision", "float16", "--implementation"]
    quick = ["literal", "factored", "--tiny", "--seconds", "0.001", "--out", str(path)]
    assert main(["time", *words, *quick]) == 0
    assert {record.details.case.precision for record in records.read(path)} == {"float16"}
