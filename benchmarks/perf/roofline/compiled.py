"""Triton kernels compiled ahead of time for GPUs that are not present; nothing is run.

A launch is compiled as its call would specialise it. Registers and spills are read from the binary
by ``cuobjdump``, and the occupancy follows from them. Bytes count each tensor argument once, a
lower bound; FLOPs are of matrix products, 2 per multiply-accumulate.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from benchmarks import records
from benchmarks.kinds import Compiled, Program
from benchmarks.perf.cases import suites
from benchmarks.perf.cases.case import HALVES, PRECISIONS
from benchmarks.records import Record
from torch_impl.kernels import dynamic, launch, static
from torch_impl.layers.transformer import Mixer

TABLE = "compiled kernels"
KIB = 1024
REGISTERS, REGISTERS_AT_ONCE = 65536, 256
"""Registers of a multiprocessor, and the unit that a warp is allocated them in."""
RESERVED = KIB
"""Bytes of shared memory that the system reserves per block."""
THREADS = 32
"""Threads of a warp."""


@dataclass(frozen=True)
class Architecture:
    """A multiprocessor's limits, from the CUDA programming guide."""

    capability: int
    shared: int  # bytes, of all its blocks
    block: int  # bytes, of one block
    warps: int
    blocks: int

    def occupancy(self, registers: int, shared: int, warps: int) -> float:
        """Fraction of the warps that blocks of ``warps`` and ``shared`` bytes can fill."""
        of_warp = -(-registers * THREADS // REGISTERS_AT_ONCE) * REGISTERS_AT_ONCE
        by_registers = REGISTERS // of_warp // warps if registers else self.blocks
        by_shared = self.shared // (shared + RESERVED)
        return min(self.blocks, self.warps // warps, by_registers, by_shared) * warps / self.warps


ARCHITECTURES = (
    Architecture(80, 164 * KIB, 163 * KIB, warps=64, blocks=32),
    Architecture(89, 100 * KIB, 99 * KIB, warps=48, blocks=24),
    Architecture(90, 228 * KIB, 227 * KIB, warps=64, blocks=32),
)
"""Of the A100; the L4 and the RTX 4090; the H100 and the H200."""
TYPES = {
    torch.float64: "*fp64",
    torch.float32: "*fp32",
    torch.bfloat16: "*bf16",
    torch.float16: "*fp16",
    torch.int32: "*i32",
    torch.uint8: "*u8",
}
"""Triton's pointer types."""


@dataclass(frozen=True)
class Shape:
    """Sizes of an expansion's call: (B, L, d), and the vectors of each group, or N_E."""

    kind: str  # "static" or "dynamic"
    B: int
    L: int
    d: int
    vectors: tuple[int, ...]

    def __str__(self) -> str:
        vectors = ",".join(map(str, self.vectors))
        return f"{self.kind}:{vectors}, B={self.B}, L={self.L}, d={self.d}"


SHAPES = (
    *(Shape("static", 48, 144, 512, Mixer.parse(e).coefficients) for e in suites.ENCODERS[1:]),
    Shape("static", 48, 36, 768, (64,)),
    *(Shape("dynamic", 48, 20, 512, Mixer.parse(d).coefficients) for d in suites.DECODERS[1:]),
    Shape("dynamic", 48, 20, 768, (16,)),
    *(
        Shape("static", 3, L, d, groups)
        for L, d, groups in ((17, 40, (65,)), (33, 130, (992,)), (200, 512, (65, 1, 2, 3, 4)))
    ),
    *(Shape("dynamic", 3, L, d, (N,)) for L, d, N in ((17, 40, 17), (33, 130, 4), (65, 512, 17))),
)
"""The papers' sizes (v1's published run has d = 768), then those of large verification cases."""
V2 = (
    Shape("static", 48, 144, 512, Mixer.parse(suites.ENCODERS[-1]).coefficients),
    Shape("dynamic", 48, 20, 512, Mixer.parse(suites.DECODERS[-1]).coefficients),
)
"""Sizes of v2's encoder layers and decoder layers."""


@dataclass(frozen=True)
class Launch:
    """A kernel launch: program, grid, tensor arguments, and all constants."""

    name: str
    grid: tuple[int, ...]
    tensors: Sequence[Tensor]
    constants: dict[str, Any]

    @property
    def bytes(self) -> int:
        """Bytes of the tensor arguments, each once."""
        return sum(x.nbytes for x in self.tensors)

    def source(self) -> Any:
        """The program as specialised by its launch: on dtypes, ones, and multiples of 16."""
        from triton.compiler import ASTSource

        program = getattr(launch.programs(interpreted=False), self.name)
        signature: dict[str, str] = {}
        constants: dict[str, Any] = {}
        multiples: dict[tuple[int], list[list[Any]]] = {}
        for index, parameter in enumerate(program.params):
            name = parameter.name
            if index < len(self.tensors):
                signature[name] = TYPES[self.tensors[index].dtype]
                multiples[index,] = [["tt.divisibility", 16]]
                continue
            value = self.constants[name]
            whole = isinstance(value, int)
            if parameter.is_constexpr or (whole and value == 1):
                signature[name], constants[name] = "constexpr", value
            else:
                signature[name] = "i32" if whole else "fp64"
                if whole and value % 16 == 0:
                    multiples[index,] = [["tt.divisibility", 16]]
        return ASTSource(program, signature, constants, multiples)

    def compile(self, architecture: Architecture) -> Any:
        import triton
        from triton.backends.compiler import GPUTarget

        options = {name: self.constants[name] for name in ("num_warps", "num_stages")}
        target = GPUTarget("cuda", architecture.capability, THREADS)
        return triton.compile(self.source(), target=target, options=options)


def launches(shape: Shape, precision: str) -> list[Launch]:
    """All launches of both passes with a mask, traced on fake tensors."""
    launched: list[Launch] = []

    def run(call: Any, name: str, grid: Any, *tensors: Tensor, **constants: Any) -> None:
        launched.append(Launch(name, tuple(grid), tensors, call.constants_of(name) | constants))

    dtype, tf32, is_static = (
        HALVES.get(precision, torch.float32),
        precision == "tf32",
        shape.kind == "static",
    )
    operator: Any = static if is_static else dynamic
    option = list(shape.vectors) if is_static else True  # groups, or causal
    with FakeTensorMode(), mock.patch.object(launch.Launches, "run", run), _no_tables_kept():
        rows = shape.B, shape.L, shape.d
        sizes = [(sum(shape.vectors), shape.d)] * 2 + [rows] * (4 if is_static else 5)
        tensors = [torch.empty(size, dtype=dtype) for size in sizes]
        tensors.append(torch.ones(rows[:2], dtype=torch.bool))
        saving = [True] * (2 if is_static else 1)
        out, *saved = operator.forward(*tensors, option, tf32, *saving)
        operator.backward(out, *tensors, *saved, option, tf32)
    return launched


def _no_tables_kept() -> Any:
    """Bypass the cache of row tiles, which must not hold fake tensors."""
    return mock.patch.object(static, "row_tiles", launch.row_tiles.__wrapped__)


MACS: dict[str, Callable[[int, int, int], int]] = {
    "length_transformation": lambda N, L, d: N * L * d,
    "mixing_weights": lambda N, L, d: 2 * N * L * L,
    "selection": lambda N, L, d: 2 * N * L * d + 2 * L * L * d,
    "weight_gradients": lambda N, L, d: 2 * N * L * d + 4 * N * L * L,
    "bias_gradients": lambda N, L, d: 2 * N * L * d,
    "dynamic_lengths": lambda N, L, d: (L + N) * L * d,
    "dynamic_weights": lambda N, L, d: 2 * N * L**3,
    "dynamic_selection": lambda N, L, d: 2 * (2 * L + N) * L * d,
    "dynamic_mix_gradients": lambda N, L, d: 2 * (2 * L + N) * L * d,
    "dynamic_weight_gradients": lambda N, L, d: 4 * N * L**3,
}
"""Multiply-accumulates per sequence by N or N_E, L and d; other programs have no product."""


def flops(name: str, shape: Shape) -> int:
    """FLOPs of a launch's matrix products."""
    macs = MACS.get(name)
    return 2 * shape.B * macs(sum(shape.vectors), shape.L, shape.d) if macs else 0


@cache
def cuobjdump() -> Path:
    """Path of NVIDIA's cuobjdump, which comes with Triton."""
    from triton.backends.nvidia import __file__ as backend

    return Path(backend).parent / "bin" / "cuobjdump"


def usage(binary: bytes) -> tuple[int, int]:
    """Registers per thread, and bytes of its stack: spilled registers."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary)
        file.flush()
        command = [str(cuobjdump()), "--dump-resource-usage", file.name]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    numbers = re.search(r"REG:(\d+) STACK:(\d+)", said)
    assert numbers is not None, said
    return int(numbers[1]), int(numbers[2])


def compile_and_inspect(launched: Launch, shape: Shape, architecture: Architecture) -> Program:
    """Compile a launch, and read its resource usage."""
    compiled = launched.compile(architecture)
    registers, stack = usage(compiled.asm["cubin"])
    shared, warps = compiled.metadata.shared, launched.constants["num_warps"]
    return Program(
        name=launched.name,
        grid=list(launched.grid),
        registers=registers,
        spilled_bytes=stack,
        shared_bytes=shared,
        occupancy=architecture.occupancy(registers, shared, warps),
        bytes=launched.bytes,
        flops=flops(launched.name, shape),
    )


def make_records(known: Iterable[Record] = ()) -> Iterator[Record]:
    """A record per shape, precision and architecture; ``known`` ones are reused by key."""
    old = {record.key: record for record in known}
    for shape in SHAPES:
        for precision in PRECISIONS:
            for architecture in ARCHITECTURES:
                key = records.key_of(make_records, str(shape), precision, architecture.capability)
                if key in old:
                    yield old[key]
                    continue
                listed = launches(shape, precision)
                programs = [compile_and_inspect(each, shape, architecture) for each in listed]
                yield records.make(
                    Compiled(
                        shape=str(shape),
                        precision=precision,
                        capability=architecture.capability,
                        programs=programs,
                    ),
                    paper="all",
                    table=TABLE,
                    row=f"{shape}, {precision}, sm_{architecture.capability}",
                    values={
                        "registers": max(p.registers for p in programs),
                        "spilled bytes": max(p.spilled_bytes for p in programs),
                        "shared bytes": max(p.shared_bytes for p in programs),
                        "occupancy": min(p.occupancy for p in programs),
                        "launches": len(programs),
                        "bytes": sum(p.bytes for p in programs),
                        "flops": sum(p.flops for p in programs),
                    },
                    status=records.MEASURED,
                    key=key,
                    device=records.Device(kind="description", name=f"sm_{architecture.capability}"),
                )
