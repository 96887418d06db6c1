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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
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
    return package


@dataclass(frozen=True)
class Tiles:
    """Tile sizes, powers of two, and Triton's launch options.

    Attributes:
        BN: expanded rows.
        BI: tokens, on either side of an L x L matrix.
        BD: channels of d.
        BK: channels of d that a product sums over.
        num_warps, num_stages: Triton's.
    """

    BN: int
    BI: int
    BD: int
    BK: int
    num_warps: int = 8
    num_stages: int = 2


_fixed: ContextVar[Tiles | None] = ContextVar("tiles", default=None)


@contextmanager
def tiles(fixed: Tiles) -> Iterator[None]:
    """Use these tiles, not `choose_tiles`: with small ones, a small test spans several tiles."""
    token = _fixed.set(fixed)
    try:
        yield
    finally:
        _fixed.reset(token)


def choose_tiles(length: int, width: int, dtype: torch.dtype) -> Tiles:
    """The tiles for L tokens of d channels.

    The largest tiles that spill no registers on sm_80 and sm_90 (the compile tests check it),
    smaller for float32, which has no tensor cores; and the token tile that pads least. Not
    ``triton.autotune``, which would time every shape of a ragged batch.
    """
    fixed = _fixed.get()
    if fixed is not None:
        return fixed
    BI = min((32, 16), key=lambda size: -(-length // size) * (size + 8))
    if dtype == torch.float64:  # for comparison with the oracle
        return Tiles(16, 16, 16, 16)
    BN, BD, BK = (32, 32, 32) if dtype == torch.float32 else (64, 128, 64)
    channels = max(16, 1 << (width - 1).bit_length())
    return Tiles(BN, BI, min(BD, channels), min(BK, channels))


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
    """Launches the programs of one call, with its sizes and tiles as their constants.

    Args:
        keys: K, (B, L, d).
        tf32: whether float32 products round their operands to TF32; None follows PyTorch's setting.
        sizes: further constants of the programs.
    """

    def __init__(self, keys: Tensor, tf32: bool | None, **sizes: int | float) -> None:
        from triton import language

        self.B, self.L, self.d = keys.shape
        self.tiles = choose_tiles(self.L, self.d, keys.dtype)
        self.token_blocks = blocks(self.L, self.tiles.BI)
        self.channel_blocks = blocks(self.d, self.tiles.BD)
        self.keys, self.precise = keys, at_least_float32(keys.dtype)
        if tf32 is None:
            tf32 = torch.get_float32_matmul_precision() != "highest"
        self.constants: dict[str, Any] = {
            "B": self.B,
            "L": self.L,
            "D": self.d,
            "scale": 1 / math.sqrt(self.d),
            "epsilon": EPSILON,
            "PRECISION": "tf32" if tf32 and keys.dtype != torch.float64 else "ieee",
            "ACC": getattr(language, str(self.precise).removeprefix("torch.")),
            "BLOCK": FLAT,
            **asdict(self.tiles),
            **sizes,
        }

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
        cpu = self.keys.device.type == "cpu"
        program, known = getattr(programs(cpu), name), self.constants | constants
        options = {key: known[key] for key in ("num_warps", "num_stages")}
        options |= {key: known[key] for key in program.arg_names[len(tensors) :]}
        if cpu:
            # with NumPy 2.4, Triton 3.6's interpreter cannot loop up to a value that it wraps
            from triton import language

            options = {key: language.constexpr(value) for key, value in options.items()}
        with nullcontext() if cpu else torch.cuda.device(self.keys.device):
            program[tuple(grid)](*tensors, **options)

    def gate_gradients(self, dO: Tensor, selectors: Tensor, difference: Tensor) -> list[Tensor]:
        """dB (2, B, L, d) and dS (B, L, d) of the gate; ``difference`` is B_1 - B_2."""
        dB, dS = self.empty(2, *dO.shape), torch.empty_like(selectors)
        grid = (blocks(dO.numel(), FLAT),)
        self.run("gate_gradients", grid, dO, selectors, difference, dB, dS, size=dO.numel())
        return [dB, dS]
