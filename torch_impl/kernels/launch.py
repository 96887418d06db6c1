"""Load the Triton programs, choose their tiles, launch them.

The folder ``programs`` is loaded as two packages: compiled, for CUDA tensors, and interpreted, for
CPU tensors (Triton's interpreter, one program at a time in NumPy). So one process has both,
whatever ``TRITON_INTERPRET`` was when Triton was first imported.
"""

from __future__ import annotations

import functools
import importlib.util
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torch_impl.common.precision import EPSILON, at_least_float32

if TYPE_CHECKING:  # loaded by its path, once for each way to run it
    from torch_impl.kernels import programs as _programs  # noqa: F401

FLAT = 512
"""Block size of element-wise programs."""
GRID = (2**31 - 1, 65535, 65535)
"""The largest grid, by axis, of every CUDA device."""


@functools.cache
def programs(interpreted: bool) -> Any:
    """The package of programs, compiled or interpreted."""
    from triton import knobs

    folder = Path(__file__).parent / "programs"
    name = f"{__package__}.{'interpreted' if interpreted else 'compiled'}_programs"
    spec = importlib.util.spec_from_file_location(
        name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None and spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules[name] = package
    with knobs.runtime.scope():
        knobs.runtime.interpret = interpreted
        spec.loader.exec_module(package)
    if interpreted:
        from triton.runtime.interpreter import interpreter_builder as builder

        # five times as fast; compiled programs do not check for int32 overflow either
        builder.options = replace(builder.options, sanitize_overflow=False)
        _run_from_either_end(builder)
    return package


def _run_from_either_end(builder: Any) -> None:
    """Let the interpreter run about every other grid from its last program.

    A GPU runs programs in any order; what one writes of another's rows must show.
    """
    random, set_grid_dim, set_grid_idx = Random(0), builder.set_grid_dim, builder.set_grid_idx
    backwards = False

    def choose_end(*grid: int) -> None:
        nonlocal backwards
        backwards = random.random() < 0.5
        set_grid_dim(*grid)

    def start_from_it(*program: int) -> None:
        counts = builder.grid_dim
        last = [n - 1 - i for n, i in zip(counts, program, strict=True)]
        set_grid_idx(*(last if backwards else program))

    builder.set_grid_dim, builder.set_grid_idx = choose_end, start_from_it


@dataclass(frozen=True)
class Tiles:
    """Tile sizes, powers of two, and Triton's launch options.

    Attributes:
        BN: expanded rows.
        BI: tokens.
        BJ: tokens on the other side of an L x L matrix.
        BD: channels of d.
        BK: channels of d that a product sums over.
        num_warps, num_stages: Triton's.
    """

    BN: int = 64
    BI: int = 32
    BJ: int = 32
    BD: int = 128
    BK: int = 32
    num_warps: int = 4
    num_stages: int = 3


HALF, TF32, FLOAT32, FLOAT64 = "half", "tf32", "tf32x3", "ieee"
"""How products compute: on 16 bits, on TF32, in float32 by three products on TF32, in float64."""

DYNAMIC = "dynamic"
"""Stands for all programs of dynamic expansion."""

TILES = {
    HALF: {
        "length_transformation": Tiles(BI=64, BK=64),
        "mixing_weights": Tiles(BN=32, BJ=64, num_stages=2),
        "selection": Tiles(BN=32, BJ=16, BD=256, BK=64),
        "weight_gradients": Tiles(BJ=16, BK=64),
        "length_gradients": Tiles(num_stages=2),
        "bias_gradients": Tiles(BI=16),
        DYNAMIC: Tiles(BK=64),
    },
    TF32: {
        "length_transformation": Tiles(BI=64),
        "mixing_weights": Tiles(BN=32, BJ=64, num_stages=2),
        "selection": Tiles(BN=16, BJ=16),
        "weight_gradients": Tiles(BJ=16, num_stages=4),
        "length_gradients": Tiles(BN=16, BI=64, num_stages=2),
        "bias_gradients": Tiles(BN=32, BI=16),
        DYNAMIC: Tiles(BD=32),
    },
    FLOAT32: {
        "length_transformation": Tiles(BI=64),
        "mixing_weights": Tiles(BN=32, BI=64, num_stages=2),
        "selection": Tiles(BN=32, BI=16, BJ=16),
        "weight_gradients": Tiles(BJ=16, BK=16),
        "length_gradients": Tiles(BN=16, BI=64, num_stages=2),
        "bias_gradients": Tiles(BN=32, BI=16, BD=64, num_stages=2),
        DYNAMIC: Tiles(BI=16, BD=32),
    },
}
"""The largest tiles of each program: of those that were timed on an H100 at v2's sizes, the fastest
that spill no registers on sm_80 and sm_90. Not ``triton.autotune``, which would time every shape of
a ragged batch."""

PAD = 24
"""What a tile costs beside its tokens, in tokens, where the tile that pads least is chosen."""


KEPT = 4096
"""The most compiled launches that are kept for the next call of the same sizes."""

_compiled: dict[Any, tuple[Any, tuple[Any, ...]]] = {}

_fixed: ContextVar[Callable[[str], Tiles] | None] = ContextVar("tiles", default=None)


@contextmanager
def tiles(fixed: Tiles, programs: Mapping[str, Tiles] | None = None) -> Iterator[None]:
    """Use these tiles, not `choose_tiles`: with small ones, a small test spans several tiles.

    Args:
        fixed: of programs that are not in ``programs``.
        programs: tiles by the program's name.
    """
    token = _fixed.set(lambda program: (programs or {}).get(program, fixed))
    try:
        yield
    finally:
        _fixed.reset(token)


def choose_tiles(program: str, kind: str, rows: int, length: int, width: int) -> Tiles:
    """The tiles of a program for groups of up to ``rows`` vectors and L tokens of d channels."""
    fixed = _fixed.get()
    return fixed(program) if fixed else _shrunk(program, kind, rows, length, width)


@functools.lru_cache(maxsize=1024)
def _shrunk(program: str, kind: str, rows: int, length: int, width: int) -> Tiles:
    if kind == FLOAT64:  # for comparison with the oracle
        return Tiles(16, 16, 16, 16, 16)
    largest = TILES[kind].get(program) or TILES[kind][DYNAMIC]
    channels = max(16, 1 << (width - 1).bit_length())
    return replace(
        largest,
        BN=min(largest.BN, max(16, 1 << (rows - 1).bit_length())),
        BI=_tokens(length, largest.BI),
        BJ=_tokens(length, largest.BJ),
        BD=min(largest.BD, channels),
        BK=min(largest.BK, channels),
    )


def _tokens(length: int, largest: int) -> int:
    sizes = [size for size in (64, 32, 16) if size <= largest]
    return min(sizes, key=lambda size: blocks(length, size) * (size + PAD))


@functools.lru_cache(maxsize=64)
def row_tiles(groups: tuple[int, ...], rows: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Tiles of at most ``rows`` rows, each within one group.

    Returns:
        (T, 3) int32 (first row, row after the last, group), and the first tile of every group with
        T after them, (G + 1,) int32.
    """
    table: list[tuple[int, int, int]] = []
    first = [0]
    start = 0
    for g, size in enumerate(groups):
        borders = [*range(start, start + size, rows), start + size]
        table += [(low, high, g) for low, high in pairwise(borders)]
        first.append(len(table))
        start += size
    return (
        torch.tensor(table, dtype=torch.int32, device=device),
        torch.tensor(first, dtype=torch.int32, device=device),
    )


def blocks(size: int, block: int) -> int:
    """The number of blocks that cover ``size``."""
    return -(-size // block)


class Launches:
    """Launches the programs of one call, with its sizes and their tiles as constants.

    Args:
        keys: K, (B, L, d).
        tf32: whether float32 products round their operands to TF32; None follows PyTorch's setting.
        rows: the most expansion vectors of a group.
        sizes: further constants of the programs.
    """

    def __init__(self, keys: Tensor, tf32: bool | None, rows: int, **sizes: int | float) -> None:
        from triton import language

        self.B, self.L, self.d = keys.shape
        self.rows, self.keys, self.precise = rows, keys, at_least_float32(keys.dtype)
        if tf32 is None:
            tf32 = torch.get_float32_matmul_precision() != "highest"
        self.kind = {
            torch.float64: FLOAT64,
            torch.float32: TF32 if tf32 else FLOAT32,
        }.get(keys.dtype, HALF)
        self.key = keys.device, keys.dtype, self.kind, *keys.shape, rows, *sizes.values()
        self.constants: dict[str, Any] = {
            "B": self.B,
            "L": self.L,
            "D": self.d,
            "scale": 1 / math.sqrt(self.d),
            "epsilon": EPSILON,
            "PRECISION": "ieee" if self.kind == HALF else self.kind,
            "ACC": getattr(language, str(self.precise).removeprefix("torch.")),
            "BLOCK": FLAT,
            **sizes,
        }

    def tiles(self, program: str) -> Tiles:
        """The tiles of a program."""
        return choose_tiles(program, self.kind, self.rows, self.L, self.d)

    def constants_of(self, program: str) -> dict[str, Any]:
        """The constants of a program."""
        return self.constants | vars(self.tiles(program))

    def token_blocks(self, program: str) -> int:
        """How many tiles of BI tokens a program has."""
        return blocks(self.L, self.tiles(program).BI)

    def channel_blocks(self, program: str) -> int:
        """How many tiles of BD channels a program has."""
        return blocks(self.d, self.tiles(program).BD)

    def empty(self, *shape: int) -> Tensor:
        """An empty tensor of the keys' dtype."""
        return self.keys.new_empty(shape)

    def empty_precise(self, *shape: int) -> Tensor:
        """An empty tensor of the accumulators' dtype."""
        return self.keys.new_empty(shape, dtype=self.precise)

    def run(self, name: str, grid: Sequence[int], *tensors: Tensor, **constants: Any) -> None:
        """Launch a program over the grid, with those of the constants that it has as arguments.

        Raises:
            ValueError: the grid exceeds ``GRID``.
        """
        if any(count > most for count, most in zip(grid, GRID, strict=False)):
            raise ValueError(
                f"{name}: a grid of {tuple(grid)} programs, expected at most {GRID}; "
                "split the batch into smaller ones"
            )
        if self.keys.device.type == "cpu":
            # with NumPy 2.4, Triton 3.6's interpreter cannot loop up to a value that it wraps
            from triton import language

            program, options = self._program(name, tensors, constants, interpreted=True)
            options = {key: language.constexpr(value) for key, value in options.items()}
            program[tuple(grid)](*tensors, **options)
        elif self.keys.get_device() == torch.cuda.current_device():
            self._run(name, grid, tensors, constants)
        else:
            with torch.cuda.device(self.keys.device):
                self._run(name, grid, tensors, constants)

    def _program(
        self, name: str, tensors: Sequence[Tensor], constants: dict[str, Any], interpreted: bool
    ) -> tuple[Any, dict[str, Any]]:
        """A program, its arguments after the tensors, and Triton's options."""
        program, known = getattr(programs(interpreted), name), self.constants_of(name) | constants
        wanted = (*program.arg_names[len(tensors) :], "num_warps", "num_stages")
        return program, {key: known[key] for key in wanted}

    def _run(
        self, name: str, grid: Sequence[int], tensors: Sequence[Tensor], constants: dict[str, Any]
    ) -> None:
        """Launch a program on the current device.

        What Triton compiles depends on the key alone and on whether addresses are multiples of 16:
        to launch what was compiled takes a fraction of the time in which Triton finds that out.
        """
        key = name, self.key, self.tiles(name), *constants.values()
        known = _compiled.get(key)
        if known is not None and not any(x.data_ptr() % 16 for x in tensors):
            kernel, values = known
            kernel[(*grid, 1, 1)](*tensors, *values)
            return
        program, options = self._program(name, tensors, constants, interpreted=False)
        kernel = program[tuple(grid)](*tensors, **options)
        if not any(x.data_ptr() % 16 for x in tensors):
            if len(_compiled) >= KEPT:
                _compiled.clear()
            values = tuple(options.values())[: len(program.arg_names) - len(tensors)]
            _compiled[key] = kernel, values

    def gate_gradients(self, dO: Tensor, selectors: Tensor, difference: Tensor) -> list[Tensor]:
        """dB (2, B, L, d) and dS (B, L, d) of the gate; ``difference`` is B_1 - B_2."""
        dB, dS = self.empty(2, *dO.shape), torch.empty_like(selectors)
        grid = (blocks(dO.numel(), FLAT),)
        self.run("gate_gradients", grid, dO, selectors, difference, dB, dS, size=dO.numel())
        return [dB, dS]
