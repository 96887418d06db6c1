"""Every kernel compiled ahead of time for sm_80 and sm_90, which takes no GPU."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

import triton
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia import __file__ as backend
from triton.compiler import ASTSource

from torch_impl.kernels import dynamic, launch, static

pytestmark = pytest.mark.skipif(
    triton.knobs.runtime.interpret, reason="TRITON_INTERPRET is set: Triton compiles nothing"
)

SHARED = {80: 163 * 1024, 90: 227 * 1024}
"""Bytes of shared memory that one program may have."""

STACK = 16
"""Bytes: ptxas may keep a number or two there, of no loop, with registers to spare."""

THOROUGH = pytest.mark.skipif(
    os.environ.get("HYPOTHESIS_PROFILE") != "thorough",
    reason="as for sm_80, which has less shared memory; with HYPOTHESIS_PROFILE=thorough",
)

CUOBJDUMP = Path(backend).parent / "bin" / "cuobjdump"

TYPES = {
    torch.bfloat16: "*bf16",
    torch.float32: "*fp32",
    torch.int32: "*i32",
    torch.uint8: "*u8",
}

Launch = tuple[str, Sequence[Tensor], dict[str, Any]]


class Recorder:
    """Instead of the programs: records their launches."""

    def __init__(self) -> None:
        self.launches: dict[str, Launch] = {}

    def __getattr__(self, name: str) -> Any:
        return Program(name, self.launches)


class Program:
    def __init__(self, name: str, launches: dict[str, Launch]) -> None:
        self.name, self.launches = name, launches
        self.arg_names = getattr(launch.programs(interpreted=False), name).arg_names

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def keep(*tensors: Tensor, **options: Any) -> None:
            options = {key: constant.value for key, constant in options.items()}
            dtypes = "".join(TYPES[x.dtype] for x in tensors)
            self.launches[f"{self.name} {dtypes} {options}"] = (self.name, tensors, options)

        return keep


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    recorder, programs = Recorder(), launch.programs

    def replaced(interpreted: bool) -> Any:
        return recorder if interpreted else programs(interpreted)

    monkeypatch.setattr(launch, "programs", replaced)
    yield recorder


def launch_all(kind: str, dtype: torch.dtype) -> None:
    """Forward and backward of v2's configuration: its encoder's layer, its decoder's."""

    def new(*shape: int) -> Tensor:
        return torch.zeros(*shape, dtype=dtype)

    B, d = 16, 512
    if kind == "static":
        L, groups = 144, (32, 64, 128, 256, 512)
        learned = [new(sum(groups), d) for _ in range(2)]
        tensors = [*learned, *(new(B, L, d) for _ in range(4)), torch.ones(B, L, dtype=torch.bool)]
        out, *saved = static.forward(*tensors, groups, False, True, True)
        static.backward(out, *tensors, *saved, groups, False)
    else:
        L, N_E = 20, 16
        learned = [new(N_E, d) for _ in range(2)]
        tensors = [*learned, *(new(B, L, d) for _ in range(5)), torch.ones(B, L, dtype=torch.bool)]
        out, *saved = dynamic.forward(*tensors, True, False, True)
        dynamic.backward(out, *tensors, *saved, True, False)


def source(name: str, tensors: Sequence[Tensor], options: dict[str, Any]) -> ASTSource:
    """The program as a launch would specialise it: on dtypes, on ones, on multiples of 16."""
    program = getattr(launch.programs(interpreted=False), name)
    signature: dict[str, str] = {}
    constants: dict[str, Any] = {}
    multiples: dict[tuple[int], list[list[Any]]] = {}
    for index, parameter in enumerate(program.params):
        value = tensors[index] if index < len(tensors) else options[parameter.name]
        if isinstance(value, Tensor):
            signature[parameter.name] = TYPES[value.dtype]
        elif parameter.is_constexpr or value == 1:
            signature[parameter.name], constants[parameter.name] = "constexpr", value
        else:
            signature[parameter.name] = "i32" if isinstance(value, int) else "fp32"
        divisible = isinstance(value, int) and value % 16 == 0 and not parameter.is_constexpr
        if isinstance(value, Tensor) or divisible:
            multiples[index,] = [["tt.divisibility", 16]]
    return ASTSource(program, signature, constants, multiples)


@pytest.mark.parametrize(
    ("dtype", "capability"),
    [
        (torch.bfloat16, 80),
        (torch.bfloat16, 90),
        (torch.float32, 80),
        pytest.param(torch.float32, 90, marks=THOROUGH),
    ],
)
@pytest.mark.parametrize("kind", ["static", "dynamic"])
def test_programs_fit_registers_and_shared_memory(
    recorder: Recorder,
    kind: str,
    dtype: torch.dtype,
    capability: int,
    tmp_path: Path,
    record_property: Any,
) -> None:
    launch_all(kind, dtype)
    assert recorder.launches
    for name, tensors, options in recorder.launches.values():
        compiled = triton.compile(
            source(name, tensors, options),
            target=GPUTarget("cuda", capability, 32),
            options={key: options[key] for key in ("num_warps", "num_stages")},
        )
        assert compiled.metadata.shared <= SHARED[capability], name
        binary = tmp_path / "program.cubin"
        binary.write_bytes(compiled.asm["cubin"])
        command = [CUOBJDUMP, "--dump-resource-usage", binary]
        usage = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        found = re.search(r"REG:(\d+) STACK:(\d+)", usage)
        assert found is not None, usage
        registers, stack = map(int, found.groups())
        record_property(
            name, f"{registers} registers, {stack} stack, {compiled.metadata.shared} shared"
        )
        # no program has arrays of its own: what is on its stack are registers that it ran out of
        assert stack <= STACK, f"{name} spills {stack} bytes"
        if dtype == torch.bfloat16 and "PRECISION" in options:
            assert re.search(r"mma\.sync|wgmma", compiled.asm["ptx"]), f"{name}: no tensor cores"
