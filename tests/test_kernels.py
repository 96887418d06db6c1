"""The Triton kernels against the oracle: on Triton's interpreter, and on a GPU where one is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from benchmarks.verify import strategies
from benchmarks.verify.cases import numpy_dtype
from benchmarks.verify.strategies import DynamicCase, OperatorCase, StaticCase
from benchmarks.verify.tolerances import UNITS, assert_close, error, literal_bound, scale
from tests.support.covers import covers
from tests.support.expansion import LEARNED, batched
from tests.support.parity import Array, flat, numpy, tensor

pytest.importorskip("triton")

from torch_impl import kernels
from torch_impl.kernels import launch
from torch_impl.kernels.launch import Tiles

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]

FINE, COARSE = Tiles(*[2] * 5), Tiles(*[16] * 5)

STATIC_PROGRAMS = sorted(launch.TILES[launch.HALF].keys() - {launch.DYNAMIC})

PRECISIONS = [("float32", True), ("bfloat16", False)]
REAL_SIZES = [
    *((100, 130, (80, 9), None, *precision) for precision in PRECISIONS),
    *((35, 130, (3,), True, *precision) for precision in PRECISIONS),
    (17, 16, (32, 64, 128), None, "float32", False),
    (40, 16, (2,), False, "float32", False),
]
"""L, d, vectors of each group, whether a dynamic expansion is causal, precision and TF32: more than
one tile of all."""


@pytest.fixture(autouse=True, scope="module")
def _interpreted() -> Iterator[None]:
    with kernels.interpreted():
        yield


def operator(case: OperatorCase, a: dict[str, Tensor], **options: Any) -> Tensor:
    mask, tokens = torch.from_numpy(case.mask).to(a["K"].device), ("K", "V_1", "V_2", "S")
    if isinstance(case, StaticCase):
        arrays = [a[name] for name in (*LEARNED, *tokens)]
        return kernels.static_expansion(*arrays, case.groups, mask, **options)
    assert isinstance(case, DynamicCase)
    arrays = [a[name] for name in (*LEARNED, "C", *tokens)]
    return kernels.dynamic_expansion(*arrays, mask, causal=case.causal, **options)


def run(
    case: OperatorCase, dtype: torch.dtype = torch.float64, device: str = "cpu", **options: Any
) -> tuple[Array, dict[str, Array]]:
    """The kernels' output and gradients, by the oracle's names."""
    leaves = {name: tensor(x, dtype, grad=name != "dO") for name, x in case.arrays.items()}
    arrays = {name: x.to(device) for name, x in leaves.items()}
    out = operator(case, arrays, **options)
    torch.autograd.backward(out, arrays["dO"])
    return numpy(out.cpu()), {name: numpy(x.grad) for name, x in leaves.items() if name != "dO"}


@pytest.mark.parametrize("program", STATIC_PROGRAMS)
@covers(expansionnet_v1=[3, 4, 5, 6, 7, 8, 9], expansionnet_v2=[2, 3, 4, 5, 6, 7, 8, 9])
@settings(max_examples=4)
@given(case=strategies.static_cases(), store_m=st.booleans())
def test_every_program_has_tiles_of_its_own(case: StaticCase, store_m: bool, program: str) -> None:
    """One's are fine and all others' coarse: another's grid or table is too small for it."""
    with launch.tiles(COARSE, {program: FINE}):
        actual, dX = run(case, store_m=store_m)
    out, dX_oracle = batched(case)
    assert_close(actual, out)
    assert_close(flat(dX), flat(dX_oracle), "gradients")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("L", "d", "vectors", "causal", "precision", "tf32"), REAL_SIZES)
@covers(expansionnet_v1=[3, 4, 5, 6, 7, 8, 9], expansionnet_v2=[1, 2, 3, 4, 5, 6, 7, 8, 9])
def test_sizes_beyond_the_tiles_of_the_default_choice(
    L: int,
    d: int,
    vectors: tuple[int, ...],
    causal: bool | None,
    precision: str,
    tf32: bool,
    device: str,
) -> None:
    """Interpreted, products on TF32 are those of float32."""
    mask, normal = np.arange(L) < np.array([[L], [L // 3]]), np.random.default_rng(0).normal
    tokens = {name: normal(size=(*mask.shape, d)) for name in ("K", "V_1", "V_2", "S", "C", "dO")}
    tokens["dO"] *= mask[..., None]
    learned = {name: normal(size=(sum(vectors), d)) for name in LEARNED}
    case: OperatorCase
    if causal is None:
        del tokens["C"]
        case = StaticCase(**learned, **tokens, mask=mask, groups=vectors)
    else:
        case = DynamicCase(**learned, **tokens, mask=mask, causal=causal)
    case = case.astype(numpy_dtype(precision)).astype(np.float64)
    actual, dX = run(case, getattr(torch, precision), device, tf32=tf32)
    (out, dX_exact), (literally, dX_literally) = batched(case), batched(case, precision)
    forms = {"output": (actual, literally, out)}
    forms |= {name: (dX[name], dX_literally[name], dX_exact[name]) for name in dX}
    for name, (found, literal, exact) in forms.items():
        bound = literal_bound(error(literal, exact), UNITS[precision] * scale(exact))
        assert error(found, exact) <= bound, name


def test_an_interpreted_grid_runs_from_either_end() -> None:
    """So that the rows of another program that one overwrites show; on a GPU it is a race."""
    from triton.runtime.interpreter import interpreter_builder as builder

    launch.programs(interpreted=True)
    first = set()
    for _ in range(20):
        builder.set_grid_dim(2, 3, 1)
        builder.set_grid_idx(0, 0, 0)
        first.add(builder.grid_idx)
    assert first == {(0, 0, 0), (1, 2, 0)}
