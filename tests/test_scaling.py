"""Exponents: exact where growth is a power, honest where it is noisy, explained elsewhere."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from benchmarks import records
from benchmarks.cli.main import EXIT_INTERRUPTED, main
from benchmarks.perf import resources, session
from benchmarks.perf.cases.case import Case, Sizes, Work
from benchmarks.perf.cases.suites import SUBJECTS
from benchmarks.perf.kernels import dispatched
from benchmarks.perf.roofline.devices import find_spec
from benchmarks.perf.roofline.roofline import Prediction
from benchmarks.perf.scaling import growth, saved_activations
from benchmarks.perf.scaling.growth import Growth
from benchmarks.perf.scaling.ladders import (
    ALONG,
    DYNAMIC,
    FORMS,
    LADDERS,
    LSTM,
    STATIC,
    ZONEOUT,
    dynamic_macs,
    lstm_macs,
    static_macs,
)
from benchmarks.report.sections import speed
from benchmarks.statistics import exponent, measured_exponent
from tests.support.pages import files as files_of
from tests.support.records import from_json
from tests.support.tolerances import EXPONENTS

ladders = st.lists(st.integers(1, 10**5), min_size=2, max_size=7, unique=True).map(sorted)
powers = st.floats(-3, 3)
positive = st.floats(1e-6, 1e6)


@given(ladders, powers, positive)
def test_the_exponent_of_a_monomial_is_its_power(sizes, power, factor):
    values = [factor * n**power for n in sizes]
    assert exponent(sizes, values) == pytest.approx(power, **EXPONENTS)
    found = measured_exponent(sizes, [values] * 5)
    assert (found.low, found.high) == pytest.approx((power, power), **EXPONENTS)


@given(ladders, positive, st.integers(1, 1000), st.data())
def test_units_change_no_exponent(sizes, unit, times, data):
    values = data.draw(st.lists(positive, min_size=len(sizes), max_size=len(sizes)))
    scaled = exponent([times * n for n in sizes], [unit * y for y in values])
    assert scaled == pytest.approx(exponent(sizes, values), **EXPONENTS)


@given(ladders, positive, positive, powers, powers)
def test_a_sum_of_powers_grows_between_them(sizes, a, b, p, q):
    values = [a * n**p + b * n**q for n in sizes]
    for last in (len(sizes), 2):
        slope = exponent(sizes[-last:], values[-last:])
        assert min(p, q) - 1e-9 <= slope <= max(p, q) + 1e-9


def test_the_interval_covers_the_truth_as_often_as_it_says():
    sizes, power, trials = (16, 32, 64, 128, 256), 1.3, 100
    covered = 0
    for seed in range(trials):
        noise = np.random.default_rng(seed).lognormal(0, 0.2, size=(25, len(sizes)))
        found = measured_exponent(sizes, noise * np.array(sizes) ** power)
        assert found.low <= found.value <= found.high
        covered += found.low <= power <= found.high
    # of 95 %: a binomial of 100 falls below 88 once in five hundred times
    assert covered >= 88


@given(ladders, st.integers(0, 100))
def test_a_pause_in_all_sizes_of_a_round_changes_little(sizes, seed):
    noise = np.random.default_rng(seed).lognormal(0, 1.0, size=(9, 1))
    found = measured_exponent(sizes, noise * np.array(sizes, dtype=float) ** 1.5)
    assert found.value == pytest.approx(1.5, **EXPONENTS)


@pytest.mark.parametrize(
    ("sizes", "values"),
    [([1], [1]), ([2, 2], [1, 2]), ([1, 2], [1]), ([1, 2], [0, 1]), ([0, 2], [1, 1]), ([], [])],
)
def test_what_has_no_slope_is_refused(sizes, values):
    with pytest.raises(ValueError, match=r"expected as many|not above 0"):
        exponent(sizes, values)


def sizes_of(batch: int, length: int, G: Sequence[int], N_E: int, d: int) -> Sizes:
    """As many words as rows of features."""
    return Sizes(
        batch=batch,
        length=length,
        tokens=length,
        d_model=d,
        encoder=f"static:{','.join(map(str, G))}",
        decoder=f"dynamic:{N_E}",
    )


@settings(max_examples=4)
@given(
    st.sampled_from(FORMS),
    st.integers(1, 3),
    st.integers(2, 24),
    st.integers(2, 40),
    st.sampled_from((8, 16, 48)),
)
def test_closed_forms_are_what_both_passes_multiply(form, batch, length, vectors, d):
    sizes = sizes_of(batch, length, [vectors], vectors, d)
    for subject, macs in ((STATIC, static_macs), (DYNAMIC, dynamic_macs)):
        case = Case(SUBJECTS[subject], (form,), sizes)
        counted = sum(k.flops for k in dispatched(case, form, cuda=True))
        assert counted == 2 * macs(sizes, form)


groups = st.lists(st.integers(1, 9), min_size=1, max_size=4)


@settings(max_examples=15)
@given(
    st.sampled_from(FORMS),
    st.integers(1, 3),
    st.integers(1, 12),
    groups,
    st.integers(1, 6),
    st.sampled_from((8, 16, 48)),
)
def test_closed_forms_are_the_bytes_that_autograd_keeps(form, batch, length, G, N_E, d):
    sizes = sizes_of(batch, length, G, N_E, d)
    for subject, forms in (
        (STATIC, saved_activations.STATIC),
        (DYNAMIC, saved_activations.DYNAMIC),
    ):
        case = Case(SUBJECTS[subject], (form,), sizes)
        work = case.work(form, torch.device("cpu"))
        counted = resources.count(work, torch.device("cpu"))["saved bytes"]
        expected = saved_activations.value(forms[form], saved_activations.symbols(sizes))
        if length == 1 and (subject, form) == (DYNAMIC, "factored"):
            expected -= 2 * 4 * (N_E - 1)  # the masks of one token are not copied for each vector
        assert counted == expected


@settings(max_examples=8)
@example((ZONEOUT, saved_activations.ZONEOUT), "literal", 2, 1, 3)
@given(
    st.sampled_from([(LSTM, saved_activations.LSTM), (ZONEOUT, saved_activations.ZONEOUT)]),
    st.sampled_from((*ALONG, "library")),
    st.integers(1, 3),
    st.integers(1, 6),
    st.integers(1, 9),
)
def test_closed_forms_of_an_lstm_are_what_both_passes_multiply_and_keep(of, form, batch, T, d):
    subject, forms = of
    if form not in SUBJECTS[subject].implementations:
        return
    sizes = Sizes(batch=batch, tokens=T, d_model=d)
    case, device = Case(SUBJECTS[subject], (form,), sizes), torch.device("cpu")
    work = case.work(form, device)
    counted = resources.count(work, device)
    assert counted["flops"] == 2 * lstm_macs(sizes, form)
    if form in forms:  # what the library saves is its own affair
        expected = saved_activations.value(forms[form], saved_activations.symbols(sizes))
        if T == 1 and (subject, form) == (ZONEOUT, "literal"):
            expected -= 2 * 4 * batch * d  # of the zeros before a single step no mask is needed
        assert counted["saved bytes"] == expected


def test_a_gpu_s_lstm_is_counted_as_a_cpu_s():
    """On tensors without memory: the operator that CUDA has is dispatched, and nothing runs."""
    T, B, d_x, d = 5, 3, 2, 4
    with torch.device("meta"):
        weights = [torch.empty(4 * d, n) for n in (d_x, d)] + [torch.empty(4 * d)] * 2
        arguments = torch.empty(T, B, d_x), weights, 4, None, *torch.empty(2, 1, B, d)
        rest = 2, d, 0, 1, False, 0.0, True, False, [], None
        given = [arguments[0], *weights]

        def call():
            torch.ops.aten._cudnn_rnn(*arguments, *rest)

        counted = resources.count(Work(call, given), torch.device("cpu"))
    assert counted["flops"] == 2 * T * B * 4 * d * (d_x + d)


@given(st.integers(1, 50), st.integers(1, 50), st.integers(0, 4), st.integers(1, 9))
def test_a_form_is_computed_as_it_reads(x, y, power, factor):
    numbers = {"x": x, "y": y}
    assert saved_activations.value(f"{factor} x^{power} y", numbers) == factor * x**power * y
    assert (
        saved_activations.value(f"{factor} x + 2 y - 3 x y", numbers)
        == factor * x + 2 * y - 3 * x * y
    )


def test_every_ladder_doubles_one_size():
    for ladder in LADDERS.values():
        assert all(b == 2 * a for a, b in zip(ladder.sizes, ladder.sizes[1:], strict=False))
        first, last = (
            ladder.case(n, ladder.implementations[0]) for n in (ladder.sizes[0], ladder.sizes[-1])
        )
        changed = {
            name
            for name in first.subject.sizes
            if getattr(first.sizes, name) != getattr(last.sizes, name)
        }
        assert len(changed) == 1
        assert set(ladder.implementations) <= set(first.subject.implementations)


SHORT = replace(LADDERS["dynamic-vectors"], sizes=(1, 2, 4))


def growth_of(power, expected, roofline, macs=True):
    sizes = (10, 20, 40)
    noise = np.random.default_rng(0).lognormal(0, 0.02, size=(9, len(sizes)))
    rounds = 1e-3 * noise * np.array(sizes, dtype=float) ** power
    closed = [float(n**expected) for n in sizes]
    parts = [Prediction(1e-3 * n**roofline, 0.0, 1e-3, 1, 1.0, 1.0) for n in sizes]
    return Growth(sizes, rounds, closed, closed if macs else None, parts)


def test_what_agrees_is_said_to_and_what_departs_is_explained():
    assert (
        growth_of(1.0, 1.0, 1.0)
        .explanation()
        .startswith("grows as the closed form: 1.00 is within")
    )
    slower = growth_of(0.5, 1.0, 1.0).explanation()
    assert slower.startswith("grows more slowly than the closed form, 1.00: at 10 compute")
    assert "launch" in slower
    assert "outside the interval" in slower
    faster = growth_of(1.5, 1.0, 1.0, macs=False).explanation()
    assert faster.startswith("grows faster than the count, 1.00")


def test_the_command_measures_keeps_and_shows(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(session, "local_device", lambda *_: find_spec("A100"))
    monkeypatch.setitem(LADDERS, "dynamic-vectors", SHORT)
    path, drawing = tmp_path / "s.jsonl", tmp_path / "s.svg"
    words = ["scale", "--only", "dynamic-v", "--tiny", "--seconds", "0.001", "--out", str(path)]
    assert main([*words, "--json"]) == 0
    printed = capsys.readouterr().out
    made = from_json(json.loads(printed))
    assert made == records.read(path)
    assert main([*words, "--json"]) == 0
    assert capsys.readouterr().out == printed
    assert [r.details.implementation for r in made] == list(FORMS)
    for record in made:
        values, details = record.values, record.details
        assert values["exponent low"] <= values["exponent"] <= values["exponent high"]
        assert values["expected"] == exponent(details.sizes, details.macs)
        assert details.flops == [2 * macs for macs in details.macs]
        ladder, name = LADDERS[details.ladder], details.implementation
        cases = [ladder.case(n, name, tiny=True) for n in ladder.sizes]
        kept = [
            saved_activations.value(details.saved_form, saved_activations.symbols(c.sizes))
            for c in cases
        ]
        assert details.saved_bytes == kept
        assert len(details.samples) == record.n
    assert made[0].values["expected"] == pytest.approx(1)
    assert main([*words, "--plot", str(drawing)]) == 0
    assert made == records.read(path)  # nothing is measured twice
    said = capsys.readouterr().out
    for record in made:
        saved_power = f"counted: saved bytes ^{record.values['saved bytes']:.2f}, peak bytes ^"
        assert saved_power in said
        assert f"; saved bytes are {record.details.saved_form}\n" in said
    assert f"{drawing}: time over size" in said
    assert "dynamic-vectors: literal over N_E = 1, 2, 4" in said
    page = files_of(speed.scaling(made))
    (figure,) = (text for name, text in page.items() if name.endswith(".svg"))
    assert figure == drawing.read_text()  # the section draws what the command does
    assert all(form in figure for form in ("dynamic-vectors", *FORMS))
    assert "dynamic-vectors: factored" in "".join(page.values())


def test_a_ladder_is_printed_as_it_ends(tmp_path, capsys, monkeypatch):
    path, measure = tmp_path / "s.jsonl", growth.measure_ladder
    monkeypatch.setattr(session, "local_device", lambda *_: find_spec("A100"))
    monkeypatch.setitem(LADDERS, "dynamic-vectors", SHORT)

    def once(*arguments, **options):
        if path.exists():
            raise KeyboardInterrupt
        return measure(*arguments, **options)

    monkeypatch.setattr(growth, "measure_ladder", once)
    words = ["--only", "dynamic-v", "static-v", "--tiny", "--seconds", "0.001", "--out", str(path)]
    assert main(["scale", *words]) == EXIT_INTERRUPTED
    said = capsys.readouterr().out
    assert all(record.what.row in said for record in records.read(path))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--only", "nothing"], "no such ladder, expected the beginning of one of static-length"),
        (["--seconds", "0"], "--seconds"),
        (["--threads", "none"], "--threads: none"),
        (["--device", "nowhere"], "--device nowhere"),
        (["--plot", "."], ".: a folder, expected a file to write"),
    ],
)
def test_bad_input_is_one_line(capsys, words, said):
    assert main(["scale", *words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
