"""What is timed against each other computes the same, and takes what is said of it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.perf import case_records, timing
from benchmarks.perf.cases import suites
from benchmarks.perf.cases.case import (
    HALVES,
    PRECISIONS,
    Case,
    Sizes,
    eager,
)
from benchmarks.perf.cases.decoding import ROUNDED
from benchmarks.perf.cases.suites import SUBJECTS
from benchmarks.verify.tolerances import SAME_WORK, error
from tests.support.speed import CPU, tiny
from tests.support.tolerances import COUNTED
from torch_impl.kernels.support import interpreted
from torch_impl.training import optimisation
from torch_impl.training.sampling import SAMPLINGS


def results(subject: str, **sizes):
    """What each implementation that is available gives."""
    case, found = tiny(subject, **sizes), {}
    for name in case.implementations:
        if name == eager(name):
            try:
                found[name] = case.work(name, CPU).call()
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
    tokens = {}
    for name, captions in found.items():
        best = [c[0] if isinstance(c, list) else c for c in captions]
        tokens[name] = [caption.tokens for caption in best]
        assert {len(caption) for caption in tokens[name]} == {Sizes().tiny().tokens}
    for name in ROUNDED:  # of other weights
        tokens.pop(name)
    assert tokens.keys() == {"prefix", "incremental", "prefix-auto"}
    assert tokens["prefix"] == tokens["incremental"] == tokens["prefix-auto"]


@pytest.mark.parametrize(
    ("subject", "implementation"),
    [("xe-step", "literal"), ("xe-step", "auto"), *(("sc-step", name) for name in SAMPLINGS)],
)
def test_a_step_that_is_timed_trains(subject, implementation):
    case = tiny(subject, dropout=0.3)
    work = case.work(implementation, CPU)
    before = [x.detach().clone() for x in work.given]
    for _ in range(7):  # as run, the first five updates move nothing
        work.call()
    changed = [not torch.equal(a, b) for a, b in zip(before, work.given, strict=True)]
    assert sum(changed) > 20
    assert not any(changed[-3:])  # the batch


@pytest.mark.parametrize("subject", ["digits-step", "middle-out-step"])
def test_a_step_of_an_lstm_trains_the_same_by_every_form(subject):
    case, trained = tiny(subject), {}
    for name in case.implementations:
        work = case.work(name, CPU)
        before = [x.detach().clone() for x in work.given]
        for _ in range(7):
            work.call()
        changed = [not torch.equal(a, b) for a, b in zip(before, work.given, strict=True)]
        assert sum(changed) >= 8 and not any(changed[-2:])  # the batch
        trained[name] = np.concatenate([x.detach().double().ravel() for x in work.given])
    first, *others = trained.values()
    for other in others:
        assert error(other, first) < SAME_WORK


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
        e = 2 if precision in HALVES else 4
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
    cases = suites.random_shapes()
    assert cases == suites.random_shapes()
    assert cases != suites.random_shapes(seed=1)
    assert len({case.row for case in cases}) == 2 * suites.SHAPES


@pytest.mark.parametrize("subject", ["static-layer forward", "dynamic-operator forward"])
def test_what_is_compiled_computes_the_same(subject, monkeypatch):
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    for precision in ("float32", "bfloat16"):
        case = replace(tiny(subject), precision=precision)
        one, other = (case.work(name, CPU).call() for name in ("literal", "literal+compile"))
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
    case = replace(case, sizes=replace(case.sizes, tokens=6))
    one, other = (case.work(name, CPU).call() for name in ("incremental", "incremental+compile"))
    assert one == other
    # the encoder; a step with no past, with one token's, with any; and where hypotheses diverge
    assert len(graphs) <= 5
    torch.compiler.reset()


def test_a_step_of_compiled_kernels_trains(monkeypatch):
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    torch.compiler.reset()
    # as run, the first five updates move nothing
    monkeypatch.setattr(optimisation, "rectification", lambda *_: 1.0)
    case = tiny("xe-step", batch=1)
    with interpreted():
        work = case.work("fused+compile", CPU)
        before = [x.detach().clone() for x in work.given]
        work.call()
    assert sum(not torch.equal(a, b) for a, b in zip(before, work.given, strict=True)) > 20
    torch.compiler.reset()


@pytest.mark.parametrize("subject", ["greedy", "static-layer forward"])
def test_bytes_a_second_are_of_the_least_bytes_or_of_those_moved(subject):
    case = tiny(subject)
    case = replace(case, implementations=case.implementations[:2])
    for record in case_records.time_case(case, CPU, 1, timing.Budget(seconds=0.01), strict=True):
        values = record.values
        (name,) = {"least bytes", "moved bytes"} & set(values)
        assert (name == "least bytes") == (subject == "static-layer forward")
        assert values[f"{name} a second"] == values[name] / values["seconds"] > 0
