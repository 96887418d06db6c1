"""``captionbench time``: what is timed computes the same, records are whole, targets are judged."""

from __future__ import annotations

import argparse
import json
import os
import re
import threading
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import cli, records
from benchmarks.cli import main
from benchmarks.errors import InputError
from benchmarks.report import build, markdown
from benchmarks.report import command as report
from benchmarks.speed import drawn, layers, options, plot, run, suites, targets, threads
from benchmarks.speed.case import COMPILED, PRECISIONS, Case, Sizes
from benchmarks.speed.ceilings import COPY, PRODUCT
from benchmarks.speed.session import Session
from benchmarks.speed.subjects import SUBJECTS
from benchmarks.speed.targets import BEST, TARGETS, Target, judge
from benchmarks.timing import Budget, measure
from tests.tolerances import COUNTED, SAME_WORK, error
from torch_impl.kernels.support import interpreted

CPU = torch.device("cpu")
QUICK = ["--tiny", "--seconds", "0.001"]


def tiny(subject: str, **sizes) -> Case:
    return Case(SUBJECTS[subject], SUBJECTS[subject].implementations, Sizes(**sizes).tiny())


def results(subject: str, **sizes):
    """What each implementation that can be had gives."""
    case, found = tiny(subject, **sizes), {}
    for name in case.implementations:
        if not name.endswith(COMPILED):
            try:
                found[name] = case.subject.make(case, name, CPU).call()
            except ValueError:
                continue
    return found


@pytest.mark.parametrize(
    "subject", [name for name in SUBJECTS if name.endswith(" forward") or name == "reward"]
)
def test_what_is_timed_against_each_other_computes_the_same(subject):
    found = results(subject)
    assert len(found) >= 2
    first, *others = (torch.as_tensor(np.asarray(value)) for value in found.values())
    assert first.abs().max() > 0
    for other in others:
        # they are held to the oracle elsewhere; here a wrong argument would show
        assert error(other, first) < SAME_WORK


@pytest.mark.parametrize("subject", ["greedy", "beam"])
@pytest.mark.parametrize("encoder", ["static:64", "attention"])
def test_captions_that_are_timed_have_the_full_length_and_are_equal(subject, encoder):
    found = results(subject, encoder=encoder)
    assert set(found) == {"prefix", "incremental", "prefix-auto"}
    tokens = []
    for captions in found.values():
        best = [c[0] if isinstance(c, list) else c for c in captions]
        tokens.append([caption.tokens for caption in best])
        assert {len(caption) for caption in tokens[-1]} == {Sizes().tiny().tokens}
    assert tokens[0] == tokens[1] == tokens[2]


@pytest.mark.parametrize("implementation", ["literal", "auto"])
def test_a_step_that_is_timed_trains(implementation):
    case = tiny("xe-step", dropout=0.3)
    work = case.subject.make(case, implementation, CPU)
    before = [x.detach().clone() for x in work.given]
    for _ in range(7):  # as run, the first five updates move nothing
        work.call()
    changed = [not torch.equal(a, b) for a, b in zip(before, work.given, strict=True)]
    assert sum(changed) > 20
    assert not any(changed[-4:])  # the batch


@settings(max_examples=10)
@given(
    st.sampled_from(["static", "dynamic"]),
    st.sampled_from(PRECISIONS),
    st.integers(1, 3),
    st.integers(1, 5),
    st.integers(1, 4),
)
def test_the_least_bytes_are_those_of_all_inputs_and_the_output(kind, precision, B, L, N):
    sizes = Sizes(
        batch=B, length=L, tokens=L, d_model=6, encoder=f"static:{N},2", decoder=f"dynamic:{N}"
    )
    for part in ("operator", "layer"):
        subject = SUBJECTS[f"{kind}-{part} forward"]
        case = Case(subject, ("literal",), sizes, precision)
        work = subject.make(case, "literal", CPU)
        out = work.call()
        inputs = [x for x in work.given if part == "operator" or x.dim() > 1]  # no biases
        e = 2 if precision == "bfloat16" else 4
        width = {x.data_ptr(): e if x.dim() == 3 else 4 for x in inputs}
        expected = sum(x.numel() * width[x.data_ptr()] for x in inputs) + out.numel() * e
        if part == "layer":  # what the projections write and the operator reads
            expected += 2 * (len(inputs) - 3) * B * L * 6 * e
        assert subject.least_bytes(case) == expected
        trained = SUBJECTS[f"{kind}-{part} forward+backward"]
        assert trained.least_bytes(replace(case, subject=trained)) > 2 * expected


def test_memory_grows_with_n_e_by_no_vectors():
    case = suites.case("dynamic-memory", ("literal", "factored"), batch=48, tokens=8, d_model=16)
    literal, factored = (case.subject.count(case, name, CPU) for name in ("literal", "factored"))
    assert factored["growth"] == pytest.approx(1, **COUNTED)
    assert literal["growth"] > 1.2
    for found in (literal, factored):
        assert found["linearity"] == pytest.approx(1, **COUNTED)


def test_shapes_are_drawn_again_by_an_equal_seed():
    cases = drawn.cases()
    assert cases == drawn.cases()
    assert cases != drawn.cases(seed=1)
    assert len({case.row for case in cases}) == 2 * drawn.SHAPES


def timed(tmp_path, *words: str, code: int = 0):
    """The records that a command wrote."""
    path = tmp_path / "r.jsonl"
    assert main(["time", *QUICK, "--out", str(path), *words]) == code
    return records.read(path)


def test_records_are_what_was_printed_and_are_not_measured_again(tmp_path, capsys, monkeypatch):
    words = ["--only", "static-layer", "dynamic-memory", "--json"]
    made = timed(tmp_path, *words)
    assert json.loads(capsys.readouterr().out) == made
    assert {r["kind"] for r in made} == {"timing"}
    literal, factored = made[:2]
    assert literal["details"]["verdict"] == "baseline"
    assert literal["values"]["ratio"] == 1
    for name in ("saved bytes", "peak bytes", "flops", "least bytes", "floor", "seconds"):
        assert factored["values"][name] > 0
    assert len(factored["details"]["samples"]) == factored["n"] >= 5
    assert factored["device"]["threads"] == 1
    assert (factored["details"]["cache"], factored["details"]["jumps"]) == ("warm", 0)
    monkeypatch.setattr(run, "time_case", lambda *_, **__: pytest.fail("measured again"))
    assert timed(tmp_path, *words) == made
    assert json.loads(capsys.readouterr().out) == made


def test_an_interruption_leaves_whole_cases_and_the_next_run_goes_on(tmp_path, monkeypatch, capsys):
    time_case = run.time_case
    calls = []

    def interrupted(*arguments, **options):
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return time_case(*arguments, **options)

    monkeypatch.setattr(run, "time_case", interrupted)
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
    line = ["time", "--suite", "gpu", "--dtype", "float32", *words, *names]
    cases = options.chosen(cli.parser_for("time").parse_args(line), CPU)
    for name, count in names.items():
        of = [case for case in cases if case.subject.name == name]
        assert len({case.row for case in of}) == count
        attends = [case for case in of if case.implementations == ("attention",)]
        assert len({case.row for case in attends}) == (1 if "forward" in name else 0)


def test_every_number_of_threads_is_timed_and_pinned_to_as_many_cores(tmp_path):
    before = os.sched_getaffinity(0)
    made = timed(tmp_path, "--only", "dynamic-layer forward+", "--threads", "1", "all", "1")
    assert [r["device"]["threads"] for r in made] == [
        n for n in dict.fromkeys([1, threads.usable()]) for _ in range(2)
    ]
    for one in made:
        pinned = one["device"]["pinned"]
        assert len(pinned) == one["device"]["threads"]
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


def test_a_cut_line_is_named_and_spoils_no_other(tmp_path, capsys):
    words = ["--only", "dynamic-layer forward"]
    path = tmp_path / "r.jsonl"
    whole = timed(tmp_path, *words)
    path.write_bytes(path.read_bytes()[:-30])
    cut = path.read_bytes()
    assert main(["time", *QUICK, "--out", str(path), *words]) == 2
    assert re.search(r"r.jsonl: line 4: not valid JSON .*Delete that line", capsys.readouterr().err)
    assert path.read_bytes() == cut
    records.append(whole[:1], path)  # another run, that had read it before
    lines = path.read_text().splitlines()
    path.write_text("".join(f"{line}\n" for n, line in enumerate(lines) if n != 3))
    assert records.read(path) == [*whole[:3], whole[0]]


def test_a_drawing_has_every_implementation_over_the_sum_of_coefficients(tmp_path, capsys):
    drawing = tmp_path / "a" / "p.svg"
    words = ["--only", "encoder forward+backward", "decoder forward+backward", "--suite", "grid"]
    coefficients = ["--groups", "none", "64", "128", "64,192", "--num-expansions", "64", "192"]
    made = timed(tmp_path, *words, *coefficients, "--plot", str(drawing))
    assert "time and memory over expansion coefficients" in capsys.readouterr().out
    encoder, decoder = reversed(plot.curves(made))
    assert (encoder.half, decoder.half) == ("encoder", "decoder")
    for curve, sums in ((encoder, [1, 2, 4]), (decoder, [1, 3])):
        panel = curve.panel("seconds")
        assert list(panel.lines) == ["literal", "factored"]
        for name, (x, y, low, high) in panel.lines.items():
            assert list(x) == sums
            assert all(a <= b <= c for a, b, c in zip(low, y, high, strict=True))
            values = [
                r["values"]["seconds"]
                for r in made
                if r["details"]["implementation"] == name and r in curve.made
            ]
            assert sorted(values) == sorted(y)
    assert [list(curve.panel("peak bytes").levels) for curve in (encoder, decoder)] == [
        ["attention"],
        [],
    ]
    text = drawing.read_text()
    assert text == plot.draw(plot.curves(made))
    for word in ("sum of G", "N_E", "literal", "factored", "peak bytes"):
        assert word in text
    files = markdown.files(build.document(made))
    assert "Over expansion coefficients: encoder forward+backward, B=2" in files["README.md"]
    assert files["figures/speed-coefficients-2.svg"] == plot.draw([encoder])


def test_curves_hold_the_other_half_at_v2_s(tmp_path):
    made = []
    for groups in (16, 64):
        for vectors in (4, 16):
            sizes = {"encoder": f"static:{groups}", "decoder": f"dynamic:{vectors}"}
            case = suites.case("xe-step", (), **sizes)
            times = {"seconds": 1.0, "seconds low": 1.0, "seconds high": 1.0}
            made.append(record(case, "literal", times))
    by_half = {curve.half: curve for curve in plot.curves(made)}
    sizes = [r["details"]["case"]["sizes"] for r in by_half["encoder"].made]
    assert {s["decoder"] for s in sizes} == {"dynamic:16"}
    assert {s["encoder"] for s in sizes} == {"static:16", "static:64"}
    # no record has v2's encoder: either will do, but one alone
    assert len({r["details"]["case"]["sizes"]["encoder"] for r in by_half["decoder"].made}) == 1
    assert plot.curves(made[:1]) == []


def test_no_time_left_says_so(tmp_path, capsys):
    path = tmp_path / "r.jsonl"
    words = ["--only", "dynamic-layer", "--minutes", "1e-9"]
    assert main(["time", *QUICK, "--out", str(path), *words]) == 0
    assert not path.exists()
    assert "2 cases are left, run again" in capsys.readouterr().out


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
            "implementation attention cannot be had (it has expansions)",
        ),
        (["--dtype", "tf32"], "--dtype tf32: expected a CUDA device"),
        (["--groups", "12y4"], "--groups 12y4: expected none, 64"),
        (["--groups", "0"], "--groups 0: expected none, 64"),
        (["--num-expansions", "-1"], "--num-expansions -1: expected none or a number"),
        (["--seed", "-1"], "--seed -1: expected at least 0"),
        (["--batch", "0"], "--batch 0: expected 1 to 65536"),
        (["--length", "9" * 20], f"--length {'9' * 20}: expected 1 to 65536"),
        (["--threads", "999999"], "--threads 999999: expected a number from 1 to"),
        (["--out", ".", "--only", "reward"], "--out .: is a folder, expected a file of records"),
        (["--threads", "none"], "--threads none: expected a number from 1 to"),
        (["--seconds", "0"], "--seconds: seconds is 0"),
        (["--minutes", "0"], "--minutes 0.0: expected a finite number above 0"),
        (["--seconds", "nan"], "--seconds: seconds is nan, expected a finite number"),
        (["--seconds", "inf"], "--seconds: seconds is inf, expected a finite number"),
        (["--minutes", "nan"], "--minutes nan: expected a finite number"),
        (["--only", ""], "--only (empty): no such case"),
        (["--only", "reward", "--dtype", "bfloat16"], "--dtype bfloat16: makes no difference"),
        (["--only", "reward", "--groups", "64"], "--groups: makes no difference to any of reward"),
        (["--only", "static", "--num-expansions", "4"], "--num-expansions: makes no difference"),
        (["--only", "reward", "--batch", "4"], "--batch: makes no difference to any of reward"),
        (["--only", "dynamic-layer", "--length", "4"], "--length: makes no difference"),
        (["--only", "reward", "--seed", "4"], "--seed: nothing is drawn in any of reward"),
        (["--no-flush"], "--no-flush: makes no difference on a CPU"),
        (["--threads", "1", "0"], "--threads 0: expected a number from 1 to"),
        (["--out", "/dev/null/r.jsonl"], "/dev/null/r.jsonl: cannot be written"),
        (["--only", "reward", "--plot", "p.svg"], "--plot: nothing is timed at two sums of"),
    ],
)
def test_what_cannot_be_timed_is_one_line(words, said, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(Session, "verify", lambda _: True)
    assert main(["time", "--tiny", "--out", str(tmp_path / "r.jsonl"), *words]) == 2
    error = capsys.readouterr().err
    assert f"captionbench: error: {said}" in error or said in error.splitlines()[-1]
    assert "Traceback" not in error


def test_one_command_for_a_gpu_verifies_measures_ceilings_and_times_everything(
    tmp_path, monkeypatch, capsys
):
    """On the CPU, at the smallest sizes, and with nothing compiled."""
    row = SimpleNamespace(
        passed=False, cases=3, numbers="2", operator="static_expansion", what="output",
        implementation="literal",
    )  # fmt: skip
    row.to_dict = lambda: (
        {name: getattr(row, name) for name in ("passed", "operator", "what")}
        | {"implementation": row.implementation}
    )
    monkeypatch.setattr(run.table, "rows", lambda device, examples: iter([row]))
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    monkeypatch.setattr(run.gc, "collect", lambda: 0)
    made = timed(tmp_path, "--suite", "gpu", code=1)
    out = capsys.readouterr().out
    assert "0 of 1 comparisons with the oracle hold" in out
    assert "FAILED: static_expansion output (literal)" in out
    assert made[0]["kind"] == "verification"
    rows = {r["what"]["row"] for r in made[1:]}
    for precision in ("float32", "bfloat16"):
        for name in ("literal", "factored", "literal+compile", "factored+compile"):
            assert any(r.startswith("xe-step") and r.endswith(f"{precision}: {name}") for r in rows)
    (ceilings,) = [r for r in made if r["what"]["row"].endswith("float32: device")]
    assert ceilings["values"][COPY] > 0 and ceilings["values"][PRODUCT] > 0
    assert re.search(r"factored .* of its roofline\n", out)
    assert re.search(r"fused: not available \(\S", out)
    assert "peak bytes" not in next(r for r in made if "+compile" in r["what"]["row"])["values"]


@pytest.mark.parametrize("subject", ["static-layer forward", "dynamic-operator forward"])
def test_what_is_compiled_computes_the_same(subject, monkeypatch):
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    for precision in ("float32", "bfloat16"):
        case = replace(tiny(subject), precision=precision)
        one, other = (
            case.subject.make(case, name, CPU).call() for name in ("literal", "literal+compile")
        )
        assert torch.equal(one, other)
        assert one.dtype == torch.bfloat16 if precision == "bfloat16" else torch.float32


def test_a_compiled_step_finds_the_same_captions_by_graphs_that_fit_all_lengths(monkeypatch):
    graphs = []

    def backend(graph, example_inputs):
        graphs.append(graph)
        return graph

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    torch.compiler.reset()
    case = tiny("beam")
    case = replace(case, sizes=replace(case.sizes, tokens=8))
    one, other = (
        case.subject.make(case, name, CPU).call() for name in ("incremental", "incremental+compile")
    )
    assert one == other
    # the encoder; a step with no past, with one token's, with any; and where hypotheses diverge
    assert len(graphs) <= 5
    torch.compiler.reset()


def test_a_step_of_compiled_kernels_trains(monkeypatch):
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    torch.compiler.reset()
    case = tiny("xe-step", batch=1)
    with interpreted():
        work = case.subject.make(case, "fused+compile", CPU)
        before = [x.detach().clone() for x in work.given]
        for _ in range(7):
            work.call()
    assert sum(not torch.equal(a, b) for a, b in zip(before, work.given, strict=True)) > 20
    torch.compiler.reset()


def test_what_fails_at_work_is_left_out_and_named(tmp_path, monkeypatch, capsys):
    def fails(function, **_):
        def compiled(*arguments):
            raise RuntimeError("no compiler\nis here")

        return compiled

    monkeypatch.setattr(torch, "compile", fails)
    monkeypatch.setattr(Session, "verify", lambda _: True)
    only = ["--suite", "gpu", "--only", "dynamic-layer forward+", "--dtype", "float32"]
    made = timed(tmp_path, *only)
    assert {r["details"]["implementation"] for r in made} == {"literal", "factored"}
    assert made[-1]["details"]["unavailable"]["literal+compile"] == "RuntimeError: no compiler"
    assert "literal+compile: not available (RuntimeError: no compiler)" in capsys.readouterr().out


def test_timings_with_a_warm_cache_on_cuda_are_a_row_of_their_own(monkeypatch):
    """With the clock of the CPU: what is recorded is asked for here."""
    flushed = []

    def measured(calls, device, budget, refused, *, flush):
        flushed.append(flush)
        return measure(calls, "cpu", budget, refused)

    monkeypatch.setattr(run, "measure", measured)
    case, budget = tiny("dynamic-operator forward"), Budget(1e-9, least=5, most=5)
    case = replace(case, implementations=("literal",))
    cold, warm = (
        run.time_case(case, CPU, 1, budget, strict=True, flush=flush)[0] for flush in (True, False)
    )
    assert flushed == [True, False]
    assert warm["details"]["row"] == f"{case.row}, {run.WARM}"
    assert len(records.newest([cold, warm])) == 2
    assert cold["key"] != warm["key"]


def test_a_baseline_that_fails_is_named_and_the_next_case_is_timed(tmp_path, monkeypatch, capsys):
    time_case = run.time_case

    def fails(case, *arguments, **options):
        if case.subject.name == "reward":
            raise RuntimeError("out of memory\nand more")
        return time_case(case, *arguments, **options)

    monkeypatch.setattr(run, "time_case", fails)
    made = timed(tmp_path, "--only", "reward", "dynamic-layer forward+", code=1)
    assert {r["details"]["case"]["subject"] for r in made} == {"dynamic-layer forward+backward"}
    error = capsys.readouterr().err
    assert re.search(r"reward, .*: FAILED \(RuntimeError: out of memory\)\n", error)


def test_a_foreign_timing_is_refused_by_field():
    made = record(STATIC, "literal", {})
    del made["details"]["row"]
    with pytest.raises(InputError, match="there: details must name row"):
        records.validate(made, "there")


def test_every_target_is_in_its_suite():
    measured = {
        kind: {(c.row, name) for c in suite() for name in c.implementations}
        for kind, suite in (("cpu", suites.cpu), ("cuda", suites.gpu))
    }
    for target in TARGETS:
        rows = {row for row, _ in measured[target.device]}
        if target.quantity == targets.SLOWER:
            assert any(row.startswith(target.case.subject.name) for row in rows)
        elif target.implementation == BEST:
            assert target.case.row in rows
        else:
            assert (target.case.row, target.implementation) in measured[target.device]


def record(case: Case, implementation: str, values: dict, **details):
    device = {"kind": "cpu", "name": "a machine", "cores": 2, "threads": 1}
    return records.make(
        "timing",
        paper="all",
        table=run.TABLE,
        row=f"{case.row}: {implementation}",
        values=values,
        status="embedded",
        key="k",
        device=device,
        details={
            "case": case.to_dict(),
            "row": case.row,
            "implementation": implementation,
            "baseline": "literal",
            "verdict": "not settled",
            **details,
        },
    )


STATIC = suites.case("static-layer forward+backward", ())
GPU = {"kind": "cuda", "name": "a GPU of theirs", "cores": 16, "threads": 1}


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(1.5, 1.7, "met"), (1.4, 1.6, "not settled"), (1.2, 1.4, "missed")],
)
def test_a_target_is_met_or_missed_by_the_whole_interval(low, high, expected):
    target = Target("it", STATIC, "factored", targets.RATIO, 1.45)
    values = {"ratio": (low + high) / 2, "ratio low": low, "ratio high": high}
    made = [record(STATIC, "factored", values)]
    (outcome,) = judge(made, [target])
    assert outcome.verdict == expected
    assert judge(made, [replace(target, device="cuda")])[0].verdict == "not run"
    assert judge(made, [replace(target, implementation="auto")])[0].verdict == "not run"
    assert judge(made, [replace(target, implementation=BEST)])[0].verdict == expected
    assert judge([], [target])[0].verdict == "not run"


def test_another_baseline_is_another_measurement(tmp_path):
    only = ["--only", "dynamic-operator forward", "--implementation"]
    usual = timed(tmp_path, *only, "literal", "factored")
    other = timed(tmp_path, *only, "factored", "literal")[len(usual) :]
    assert len(records.newest([*usual, *other])) == 2 * len(usual) == 8
    case = suites.case("dynamic-operator forward", ())
    case = replace(case, sizes=case.sizes.tiny())
    target = Target("it", case, "literal", targets.RATIO, 0)
    assert judge(other, [target])[0].verdict == "not run"
    assert judge(usual, [target])[0].verdict == "met"


def test_small_quantities_are_bounded_above():
    made = [record(STATIC, "factored", {"saved ratio": 0.4, "ratio": 1.0})]
    for bound, expected in ((0.5, "met"), (0.3, "missed")):
        (outcome,) = judge(made, [Target("it", STATIC, "factored", targets.SAVED, bound)])
        assert outcome.verdict == expected


def test_a_roofline_is_of_the_slower_of_bytes_and_operations():
    times = {"seconds": 2.0, "seconds low": 1.0, "seconds high": 4.0}
    made = [
        record(STATIC, "factored", {**times, "least bytes": 60.0, "flops": 10.0}),
        record(suites.case("ceilings", ()), "device", {COPY: 60.0, PRODUCT: 40.0}),
    ]
    target = Target("it", STATIC, "factored", targets.ROOFLINE, 0.5)
    found = targets.roofline(made[0], made)
    assert (found.value, found.low, found.high) == (0.5, 0.25, 1.0)
    assert judge(made, [target])[0].verdict == "not settled"
    assert judge(made[:1], [target])[0].verdict == "not run"
    made[0]["values"]["flops"] = 80.0
    assert targets.roofline(made[0], made).value == 1.0


def test_one_slower_shape_is_one_too_many():
    (target,) = [t for t in TARGETS if t.what == "static layers of drawn shapes"]
    cases = [case for case in drawn.cases() if case.subject is drawn.STATIC]
    values = {"ratio low": 1.2, "ratio high": 1.4, "floor": 1.1}
    made = [record(case, "auto", values, verdict="faster") for case in cases]
    assert judge(made, [target])[0].verdict == "met"
    assert judge(made[1:], [target])[0].verdict == "not settled"
    made[3]["details"]["verdict"] = "slower"
    (outcome,) = judge(made, [target])
    assert (outcome.verdict, outcome.measured) == ("missed", "1 of 20")


def test_a_quicker_form_than_the_chosen_one_is_counted():
    (target,) = [t for t in TARGETS if t.what == "dynamic layers of drawn shapes"]
    case = next(case for case in drawn.cases() if case.subject is drawn.DYNAMIC)
    auto = {"ratio": 1.0, "ratio low": 0.9, "ratio high": 1.1, "floor": 1.1}
    for low, said in ((1.2, "0 of 1"), (1.3, "0 of 1, 1 chosen wrongly")):
        quicker = {"ratio": 1.4, "ratio low": low, "ratio high": 1.5, "floor": 1.1}
        made = [
            record(case, "auto", auto, verdict="not settled"),
            record(case, "factored", quicker, verdict="faster"),
        ]
        assert judge(made, [target])[0].measured == said


def test_a_machine_s_record_does_not_replace_another_s():
    here = record(STATIC, "literal", {})
    there = {**here, "device": {**here["device"], "name": "another"}}
    threads = {**here, "device": {**here["device"], "threads": 2}}
    assert len(records.newest([here, there, threads, here])) == 3


def section(made) -> str:
    text = markdown.files(build.document(made))["README.md"]
    return text[text.index("## Speed") :].split("\n## ")[0]


def test_the_report_has_every_target_and_fills_nothing_in():
    text = section([])
    assert text.count("| not run |") == len(TARGETS)
    assert "Nothing was timed" in text
    values = {"ratio": 1.6, "ratio low": 1.5, "ratio high": 1.7}
    made = [
        record(STATIC, name, {**values, "seconds": 1.0, "seconds low": 0.9, "seconds high": 1.1,
                              "floor": 1.01, "saved bytes": 2e6}, verdict=verdict)
        for name, verdict in (("literal", "baseline"), ("factored", "faster"))
    ]  # fmt: skip
    text = section(made)
    line = "| static layer, both passes | at least 1.45 times as fast | 1.6 [1.5, 1.7] | a machine"
    assert f"{line}, 1 thread | met |" in text
    assert text.count("| not run |") == len(TARGETS) - 1
    assert "a machine, 2 cores, 1 used" in text
    rows = markdown.files(build.document(made))["tables/speed.md"].splitlines()[4:]
    assert [row.split(" | ")[1] for row in rows] == ["literal", "factored"]
    assert "1e+03 [900, 1.1e+03] | 1.6 [1.5, 1.7] | faster | 1.010 | 2 |" in rows[1]


def test_the_report_of_a_gpu_names_its_roofline():
    times = {"seconds": 2.0, "seconds low": 2.0, "seconds high": 2.0, "least bytes": 60.0}
    ratio = {"ratio": 7.0, "ratio low": 7.0, "ratio high": 7.0, "floor": 1.0}
    operator = suites.case("static-operator forward+backward", ())
    ceilings = suites.case("ceilings", (), copied=2**30, product=8192)
    made = [
        record(operator, "fused", {**times, **ratio}, verdict="faster"),
        record(ceilings, "device", {COPY: 60.0, PRODUCT: 40.0}),
    ]
    for one in made:
        one["device"] = GPU
    text = section(made)
    assert "at least 0.5 of its roofline | 0.5 | a GPU of theirs | met |" in text
    assert "a GPU of theirs." in text


def test_what_was_timed_here_is_in_the_next_report(tmp_path):
    timing = record(STATIC, "literal", {})
    there = {**record(STATIC, "x", {}), "kind": "verification", "device": GPU}
    other = {**record(STATIC, "y", {}), "kind": "equations"}
    records.append([timing, there, other], tmp_path / "timing.jsonl")
    assert report.measure([], tmp_path) == [timing, there]


def test_a_model_with_nothing_to_expand_says_so():
    with pytest.raises(ValueError, match="has no expansion"):
        layers.expansions(torch.nn.Linear(1, 1), "literal")


@pytest.mark.parametrize("name", sorted(SUBJECTS))
def test_whatever_is_listed_can_be_timed_and_sizes_given_are_kept(name):
    parser = argparse.ArgumentParser()
    options.configure(parser)
    subject = SUBJECTS[name]
    given = ["--batch", "3"] if "batch" in subject.sizes else []
    arguments = parser.parse_args(["--only", name, "--tiny", *given])
    cases = options.chosen(arguments, torch.device("cpu"))
    assert name in {case.subject.name for case in cases}
    for case in cases:
        if "batch" in case.subject.sizes:
            assert case.sizes.batch == 3
        assert not {i for i in case.implementations if i.endswith(COMPILED)}


def test_every_name_of_several_is_timed(tmp_path, capsys):
    path = tmp_path / "r.jsonl"
    words = ["--only", "greedy", "static-operator forward", "--implementation", "literal", "prefix"]
    quick = ["--tiny", "--seconds", "0.001", "--out", str(path)]
    assert main(["time", *words, *quick]) == 0
    rows = {record["details"]["case"]["subject"] for record in records.read(path)}
    assert rows == {"greedy", "static-operator forward", "static-operator forward+backward"}


def test_float16_is_autocast(tmp_path):
    path = tmp_path / "r.jsonl"
    words = ["--only", "static-operator forward", "--dtype", "float16", "--implementation"]
    quick = ["literal", "factored", "--tiny", "--seconds", "0.001", "--out", str(path)]
    assert main(["time", *words, *quick]) == 0
    assert {record["details"]["case"]["precision"] for record in records.read(path)} == {"float16"}
