"""Kernels compiled ahead of time, which takes no GPU: they fit, propagate NaN, are counted."""

from __future__ import annotations

import json
import os
import re
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

pytest.importorskip("triton")

import triton

from benchmarks import records
from benchmarks.cli.main import main
from benchmarks.perf.roofline import compiled
from benchmarks.perf.roofline.compiled import ARCHITECTURES, Launch, Shape, launches
from benchmarks.report.sections import speed
from tests.support.pages import files
from tests.support.speed import forbidden
from torch_impl import kernels
from torch_impl.kernels import dynamic, launch, static, support

pytestmark = pytest.mark.skipif(
    triton.knobs.runtime.interpret, reason="TRITON_INTERPRET is set: Triton compiles nothing"
)

STACK = 16
"""Bytes: ptxas may keep a number or two there, of no loop, with registers to spare."""

THOROUGH = pytest.mark.skipif(
    os.environ.get("HYPOTHESIS_PROFILE") != "thorough",
    reason="as for sm_80, which has less shared memory; with HYPOTHESIS_PROFILE=thorough",
)
V2 = {shape.kind: shape for shape in compiled.V2}
BY_CAPABILITY = {architecture.capability: architecture for architecture in ARCHITECTURES}


@pytest.mark.parametrize(
    ("precision", "capability"),
    [
        ("bfloat16", 80),
        ("bfloat16", 90),
        ("float32", 80),
        pytest.param("float32", 90, marks=THOROUGH),
    ],
)
@pytest.mark.parametrize("kind", V2)
def test_programs_fit_registers_and_shared_memory_and_propagate_nan(
    kind: str, precision: str, capability: int
) -> None:
    distinct = {of.source().hash(): of for of in launches(V2[kind], precision)}
    maxima: set[str] = set()
    for of in distinct.values():
        made = of.compile(BY_CAPABILITY[capability])
        assert made.metadata.shared <= BY_CAPABILITY[capability].block, of.name
        # no program has arrays of its own: what is on its stack are registers that it ran out of
        _, stack = compiled.usage(made.asm["cubin"])
        assert stack <= STACK, f"{of.name} spills {stack} bytes"
        if precision == "bfloat16" and of.name in compiled.MACS:
            assert re.search(r"mma\.sync|wgmma", made.asm["ptx"]), f"{of.name}: no tensor cores"
        maxima |= set(re.findall(r"\bmax\.(\S*f\d+)", made.asm["ptx"]))
    assert maxima == {"NaN.f32"}  # as PyTorch's ReLU; without, a GPU would swallow it


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    """Supported ones, the largest and the smallest sizes among them."""

    def size(most: int) -> int:
        return draw(st.sampled_from([1, most]) | st.integers(1, most))

    kind, N = draw(st.sampled_from(list(V2))), size(support.MAX_VECTORS)
    groups = draw(st.integers(1, min(N, 3)) | st.just(N)) if kind == "static" else 1
    vectors = (*[1] * (groups - 1), N - groups + 1)
    B, L, d = map(size, (support.MAX_BATCH, support.MAX_LENGTH, support.MAX_VECTORS))
    return Shape(kind, B, L, d, vectors)


@settings(max_examples=15)
@given(shapes(), st.sampled_from(list(compiled.PRECISIONS)))
def test_every_supported_size_has_a_grid_and_the_flops_of_its_operator(
    shape: Shape, precision: str
) -> None:
    with FlopCounterMode(display=False) as products:
        found = launches(shape, precision)
    for of in found:
        assert all(0 < n <= most for n, most in zip(of.grid, launch.GRID, strict=False)), of.name
    rows, vectors = (shape.B, shape.L, shape.d), (sum(shape.vectors), shape.d)
    if shape.kind == "static":
        stored = [rows, vectors, *[()] * 9, (1,)]  # M, which is saved
        registered = static.forward_flops(vectors, None, rows) + static.backward_flops(*stored)
    else:
        registered = dynamic.forward_flops(vectors, None, rows)
        registered += dynamic.backward_flops(rows, vectors)
    own = sum(compiled.flops(of.name, shape) for of in found)
    assert own + products.get_total_flops() == registered


def test_a_grid_that_no_device_has_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "GRID", (1, 1, 1))
    x, vectors = torch.zeros(2, 3, 4), torch.zeros(3, 4)
    said = r"length_transformation: a grid of \(2, 2\) programs, expected at most \(1, 1, 1\)"
    with kernels.interpreted(), pytest.raises(ValueError, match=said):
        kernels.static_expansion(vectors, vectors, x, x, x, x, (1, 2))


@given(st.sampled_from(ARCHITECTURES), st.integers(0, 255), st.integers(0, 2**16), st.data())
def test_occupancy_falls_with_registers_and_shared_memory(
    architecture: compiled.Architecture, registers: int, shared: int, data: st.DataObject
) -> None:
    warps = data.draw(st.sampled_from([1, 4, 8]))
    usual = architecture.occupancy(registers, shared, warps)
    assert 0 < usual <= 1
    more = data.draw(st.integers(registers, 255)), data.draw(st.integers(shared, 2**16))
    assert architecture.occupancy(*more, warps) <= usual
    assert architecture.occupancy(0, 0, warps) == min(
        1, architecture.blocks * warps / architecture.warps
    )
    # 255 registers a thread are 8192 a warp, of 65536
    assert architecture.occupancy(255, 0, 8) == 8 / architecture.warps


def test_what_is_compiled_has_records_and_is_not_compiled_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any, capsys: Any
) -> None:
    shape = Shape("dynamic", 3, 2, 16, (2,))
    monkeypatch.setattr(compiled, "SHAPES", (shape,))
    monkeypatch.setattr(compiled, "PRECISIONS", ["bfloat16"])
    monkeypatch.setattr(compiled, "ARCHITECTURES", ARCHITECTURES[:1])
    words = ["predict", "--kernels", "--out", str(tmp_path / "r.jsonl"), "--json"]
    assert main(words) == 0
    (record,) = json.loads(capsys.readouterr().out)
    programs = record["details"]["programs"]
    assert [p["name"] for p in programs] == [of.name for of in launches(shape, "bfloat16")]
    values = record["values"]
    assert values["registers"] == max(p["registers"] for p in programs) > 0
    assert values["occupancy"] == min(p["occupancy"] for p in programs)
    assert values["flops"] == sum(p["flops"] for p in programs) > 0
    assert values["bytes"] == sum(p["bytes"] for p in programs)
    page = files(speed.compiled(records.read(tmp_path / "r.jsonl")))["README.md"]
    assert f"| {shape} | bfloat16 | {values['registers']} |" in page
    assert "compiled, not run" in page
    monkeypatch.setattr(Launch, "compile", forbidden(Launch.compile))
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out) == [record]
