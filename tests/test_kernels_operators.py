"""The kernels as PyTorch operators: compiled, exported, under autocast, counted, refused."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.verify.tolerances import assert_close
from tests.support.parity import flat

pytest.importorskip("triton")

from triton.runtime import interpreter

from torch_impl import kernels
from torch_impl.expansion import dynamic_expansion, static_expansion
from torch_impl.kernels import dynamic, launch, static
from torch_impl.kernels.launch import Launches, Tiles

GROUPS = (1, 3)
KINDS = pytest.mark.parametrize("kind", ["static", "dynamic"])


@pytest.fixture(autouse=True)
def _interpreted() -> Iterator[None]:
    with kernels.interpreted():
        yield


class Operator(nn.Module):
    """Either operator, its learned vectors parameters, all else computed from x (B, L, d)."""

    def __init__(self, kind: str, d: int = 4, implementation: str = "fused") -> None:
        super().__init__()
        self.static, self.implementation = kind == "static", implementation
        self.queries = nn.Parameter(torch.randn(sum(GROUPS), d, dtype=torch.float64))
        self.biases = nn.Parameter(torch.randn(sum(GROUPS), d, dtype=torch.float64))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        tokens = (x, x.flip(-1), x + 1, -x, x.roll(1, -1))
        if self.static:
            args: Any = (self.queries, self.biases, *tokens[:4], GROUPS, mask)
            if self.implementation == "fused":
                return kernels.static_expansion(*args)
            return static_expansion(*args, implementation=self.implementation)
        args = (self.queries, self.biases, *tokens, mask)
        if self.implementation == "fused":
            return kernels.dynamic_expansion(*args)
        return dynamic_expansion(*args, implementation=self.implementation)


def batch(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    return torch.randn(2, 5, 4, dtype=dtype), torch.arange(5) < torch.tensor([[5], [3]])


def forms(kind: str) -> tuple[Operator, Operator]:
    fused, literal = Operator(kind), Operator(kind, implementation="literal")
    literal.load_state_dict(fused.state_dict())
    return fused, literal


def results(module: Any, parameters: nn.Module, x: Tensor, mask: Tensor) -> dict[str, Any]:
    parameters.zero_grad()
    x = x.clone().requires_grad_()
    out = module(x, mask)
    torch.autograd.backward(out.square().sum())
    found = {name: value.grad for name, value in parameters.named_parameters()}
    return {name: v.detach().numpy() for name, v in {**found, "x": x.grad, "out": out}.items()}


@KINDS
def test_compiled_whole_it_is_the_literal_form(kind: str) -> None:
    fused, literal = forms(kind)
    compiled = torch.compile(fused, backend="aot_eager", fullgraph=True)
    x, mask = batch()
    expected = results(literal, literal, x, mask)
    assert_close(flat(results(compiled, fused, x, mask)), flat(expected))


@KINDS
def test_exported_it_is_one_operator(kind: str) -> None:
    fused, literal = forms(kind)
    x, mask = batch()
    program = torch.export.export(fused, (x, mask))
    called = [str(node.target) for node in program.graph.nodes]
    assert called.count(f"captionbench.{kind}_expansion.default") == 1
    with torch.no_grad():
        assert_close(program.module()(x, mask), literal(x, mask))


@KINDS
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_is_the_operator_in_that_dtype(kind: str, dtype: torch.dtype) -> None:
    fused, literal = (form.float() for form in forms(kind))
    x, mask = batch(torch.float32)
    x = x.to(dtype).float()
    for form in (fused, literal):
        form.load_state_dict({k: v.to(dtype) for k, v in form.state_dict().items()})
    with torch.autocast("cpu", dtype):
        out = fused(x, mask)
        # as after a linear layer, of which the literal form takes its dtype
        literally = literal(x.to(dtype), mask)
    torch.autograd.backward(out.float().sum())
    assert out.dtype == literally.dtype == dtype
    low = Operator(kind).to(dtype)
    low.load_state_dict(fused.state_dict())
    assert torch.equal(out, low(x.to(dtype), mask))
    assert all(torch.isfinite(parameter.grad).all() for parameter in fused.parameters())
    assert all(parameter.grad.dtype == torch.float32 for parameter in fused.parameters())


@KINDS
def test_without_gradients_nothing_is_saved(kind: str) -> None:
    fused, _ = forms(kind)
    x, mask = batch()
    out = fused(x, mask)
    fused.requires_grad_(False)
    assert out.requires_grad
    assert torch.equal(fused(x, mask), out)
    assert not fused(x, mask).requires_grad


def arguments(kind: str, B: int, L: int, d: int, groups: tuple[int, ...]) -> tuple[Any, ...]:
    """What a forward takes, but for the options at its end."""
    learned = [torch.randn(sum(groups), d, dtype=torch.float64) for _ in range(2)]
    tokens = [torch.randn(B, L, d, dtype=torch.float64) for _ in range(5)]
    if kind == "static":
        return (*learned, *tokens[:4], None, groups)
    return (*learned, *tokens, None, True)


@KINDS
def test_pytorch_s_own_checks_of_an_operator(kind: str) -> None:
    """Schema, autograd registration, fake implementation, tracing with symbolic sizes."""
    args = arguments(kind, 2, 3, 4, (2, 1))
    tensors = [x.requires_grad_() if isinstance(x, Tensor) else x for x in args]
    module = {"static": static, "dynamic": dynamic}[kind]
    op = getattr(module, f"{kind}_expansion")
    options = (False, True, True) if kind == "static" else (False, True)
    if kind == "static":
        tensors[-1] = list(tensors[-1])
    torch.library.opcheck(op, (*tensors, *options))


class Multiplied:
    """Multiply-accumulates of the programs' products."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.total = 0
        multiply = interpreter.interpreter_builder.create_dot

        def create_dot(a: Any, b: Any, *args: Any) -> Any:
            self.total += a.data.shape[0] * a.data.shape[1] * b.data.shape[1]
            return multiply(a, b, *args)

        monkeypatch.setattr(interpreter.interpreter_builder, "create_dot", create_dot)


@pytest.mark.parametrize(("kind", "store_m"), [("static", True), ("static", False), ("dynamic", 1)])
@settings(max_examples=3)
@given(st.data())
def test_flops_are_those_of_the_products(kind: str, store_m: bool, data: st.DataObject) -> None:
    """Counted in the programs and beside them, where tiles fit sizes."""
    L, d = data.draw(st.sampled_from([2, 4])), data.draw(st.sampled_from([2, 4, 8]))
    tiles, B, groups = Tiles(2, L, L, d, d), 2, (2, 4) if kind == "static" else (L,)
    args, module = arguments(kind, B, L, d, groups), {"static": static, "dynamic": dynamic}[kind]
    options = (False, True, store_m) if kind == "static" else (False, True)
    operators = (
        getattr(module, f"{kind}_expansion"),
        getattr(module, f"{kind}_expansion_backward"),
    )
    given_back = torch.randn(B, L, d, dtype=torch.float64)
    with pytest.MonkeyPatch.context() as monkeypatch, launch.tiles(tiles):
        multiplied = Multiplied(monkeypatch)
        _, *saved = module.forward(*args, *options)
        forward, multiplied.total = multiplied.total, 0
        *tensors, last = args
        inputs = (given_back, *tensors, *saved, last, False)
        with FlopCounterMode(display=False) as beside:
            module.backward(*inputs)
        backward = multiplied.total
    # without data: formulas see the shapes alone
    args, inputs = tree_map_only(Tensor, lambda x: x.to("meta"), (args, inputs))
    with launch.tiles(tiles), FlopCounterMode(display=False) as counter:
        operators[0](*args, *options)
        assert counter.get_total_flops() == 2 * forward
        operators[1](*inputs)
    assert counter.get_total_flops() == 2 * (forward + backward) + beside.get_total_flops()


class Allocated(TorchDispatchMode):
    """The largest tensor that any operation returned."""

    largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        sizes = [x.untyped_storage().size() for x in tree_leaves(out) if isinstance(x, Tensor)]
        self.largest = max(self.largest, *sizes, 0)
        return out


@KINDS
def test_nothing_as_large_as_the_expanded_values_is_written(kind: str) -> None:
    B, L, d, groups = (10, 8, 12, (20, 9)) if kind == "static" else (2, 8, 12, (2, 4))
    args, module = arguments(kind, B, L, d, groups), {"static": static, "dynamic": dynamic}[kind]
    rows = sum(groups) * (1 if kind == "static" else L)
    options = (False, True, True) if kind == "static" else (False, True)
    with Allocated() as allocated:
        out, *saved = module.forward(*args, *options)
        *tensors, last = args
        module.backward(out, *tensors, *saved, last, False)
    assert allocated.largest < B * rows * d * out.element_size()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"K": torch.zeros(2, 3, 4, dtype=torch.int64)}, "dtype is float32, int64, expected one"),
        ({"mask": torch.ones(2, 3)}, "mask is torch.float32"),
        ({"mask": torch.ones(3, dtype=torch.bool)}, r"mask is .* expected booleans \(2, 3\)"),
        ({"E_B": torch.zeros(2, 4)}, r"has shape \(2, 4\), expected \(3, 4\)"),
        ({"K": torch.zeros(2, 2, 4)}, r"has shape \(2, 2, 4\), expected \(2, 3, 4\)"),
        ({"S": torch.zeros(3, 4)}, r"expected \(N, d\) and \(B, L, d\)"),
        ({"K": torch.zeros(2, 3, 4, device="meta")}, "several devices, cpu, meta"),
    ],
)
def test_what_has_no_kernel_is_named(change: dict[str, Tensor], message: str) -> None:
    names = ("E_Q", "E_B", "K", "V_1", "V_2", "S")
    a = {name: torch.zeros(2, 3, 4) for name in names}
    a |= {"E_Q": torch.zeros(3, 4), "E_B": torch.zeros(3, 4)}
    mask = change.pop("mask", None)
    a |= change
    with pytest.raises(ValueError, match=f"no kernel for this call: .*{message}"):
        kernels.static_expansion(*a.values(), (1, 2), mask)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((0, 3, 4), "0 sequences, expected 1 to"),
        ((1, 1025, 4), "1025 tokens, expected 1 to 1024"),
        ((1, 1, 4097), "4097 channels, expected 1 to 4096"),
    ],
)
def test_sizes_beyond_the_kernels_are_named(shape: tuple[int, ...], message: str) -> None:
    x, vectors = torch.zeros(shape), torch.zeros(2, shape[-1])
    assert message in str(kernels.unsupported(vectors, vectors, x, x, x, x, x))


@pytest.mark.parametrize("groups", [(), (1, 1), (4, -1), (2, 2)])
def test_groups_that_do_not_make_up_the_vectors_are_refused(groups: tuple[int, ...]) -> None:
    x, vectors = torch.zeros(1, 2, 4), torch.zeros(3, 4)
    with pytest.raises(ValueError, match=r"groups .* must be positive, of sum 3"):
        kernels.static_expansion(vectors, vectors, x, x, x, x, groups)


def test_the_cpu_is_for_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    x, vectors = torch.zeros(1, 2, 3), torch.zeros(2, 3)
    args = (vectors, vectors, x, x, x, x)
    assert kernels.unsupported(*args) is None
    monkeypatch.setattr(kernels.support, "_interpreting", False)
    assert "only Triton's interpreter" in str(kernels.unsupported(*args))


@pytest.mark.parametrize("programs", [1, 4, 6, 512])
@KINDS
def test_a_large_batch_is_summed_in_parts(
    kind: str, programs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of which there are no more than fill a device with so many programs."""
    monkeypatch.setattr(static, "PROGRAMS", programs)
    fused, literal = forms(kind)
    x = torch.randn(11, 2, 4, dtype=torch.float64)
    mask = torch.ones(11, 2, dtype=torch.bool)
    expected = results(literal, literal, x, mask)
    assert_close(flat(results(fused, fused, x, mask)), flat(expected))


@settings(max_examples=4)
@given(st.integers(1, 1000))
def test_gradients_of_float16_are_finite_where_that_of_m_is_beyond_its_range(seed: int) -> None:
    """Small products of queries and keys have large inverse denominators."""
    random = torch.Generator().manual_seed(seed)
    E_Q, E_B = torch.randn(2, 3, 4, generator=random)
    K, *others = torch.randn(4, 2, 3, 4, generator=random)
    rounded = [x.half() for x in (2**-9 * E_Q, E_B, 2**-9 * K, *others)]

    leaves = [x.requires_grad_() for x in rounded]
    kernels.static_expansion(*leaves, (2, 1)).mean().backward()
    for leaf in leaves:
        assert leaf.grad is not None and leaf.grad.isfinite().all()


@pytest.mark.parametrize(("L", "groups"), [(1024, (2, 1)), (2, (4095, 1)), (2, (1,) * 17)])
def test_the_largest_sizes(L: int, groups: tuple[int, ...]) -> None:
    """With the largest tiles that the interpreter runs in seconds."""
    *args, mask, _ = arguments("static", 1, L, 2, groups)
    with launch.tiles(Tiles(512, 256, 256, 2, 2)):
        out = kernels.static_expansion(*args, groups, mask)
    assert_close(out, static_expansion(*args, groups, mask, implementation="literal"))


@pytest.mark.parametrize(("setting", "expected"), [("highest", "tf32x3"), ("high", "tf32")])
def test_products_of_float32_round_as_pytorch_s_do_unless_told(setting: str, expected: str) -> None:
    before, keys = torch.get_float32_matmul_precision(), torch.zeros(1, 2, 16)
    torch.set_float32_matmul_precision(setting)
    try:
        assert Launches(keys, None, 1).constants["PRECISION"] == expected
        assert Launches(keys, True, 1).constants["PRECISION"] == "tf32"
        assert Launches(keys, False, 1).constants["PRECISION"] == "tf32x3"
    finally:
        torch.set_float32_matmul_precision(before)


class Program:
    """Stands in for a compiled program: keeps what Triton was asked for, and what was launched."""

    arg_names = ("X", "size", "BLOCK")

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.launched: list[Any] = []

    def __getitem__(self, grid: Any) -> Any:
        def ask(*tensors: Tensor, **options: Any) -> Kernel:
            self.asked.append((grid, tensors, options))
            return Kernel(self)

        return ask


class Kernel:
    def __init__(self, program: Program) -> None:
        self.program = program

    def __getitem__(self, grid: Any) -> Any:
        return lambda *arguments: self.program.launched.append((grid, arguments))


def test_what_is_compiled_is_launched_again_where_it_fits(monkeypatch):
    """Triton compiles for sizes, dtypes and aligned addresses: it is asked again for others."""
    program, x = Program(), torch.zeros(32)
    monkeypatch.setattr(launch, "programs", lambda interpreted: SimpleNamespace(flat=program))
    monkeypatch.setattr(launch, "_compiled", {})

    def run(x: Tensor, size: int = 4, shape: Any = (1, 2, 16), **of: Any) -> None:
        keys = torch.zeros(shape, dtype=of.pop("dtype", torch.float32))
        Launches(keys, **{"tf32": None, "rows": 1, "N": 3, **of})._run(
            "flat", (3,), (x,), {"size": size}
        )

    of_keys = ({"dtype": torch.bfloat16}, {"dtype": torch.float16}, {"shape": (2, 2, 16)})
    of_launches = ({"tf32": True}, {"rows": 40}, {"N": 5}, {"size": 5})
    others = tuple(partial(run, x, **changed) for changed in (*of_keys, *of_launches))
    others += (partial(run, x[1:]),)
    for asked, other in enumerate((partial(run, x), *others), 1):
        other()
        assert len(program.asked) == asked
    assert not program.launched
    run(x[4:])
    run(x[1:])  # another address for which nothing is kept
    assert len(program.asked) == len(others) + 2
    *_, options = program.asked[0]
    (grid, (first, *values)) = program.launched.pop()
    assert not program.launched
    assert (grid, first.data_ptr()) == ((3, 1, 1), x[4:].data_ptr())
    assert values == [options["size"], options["BLOCK"]] == [4, launch.FLAT]
    assert {"num_warps", "num_stages"} < options.keys()


@KINDS
@pytest.mark.parametrize("tf32", [True, False])
@pytest.mark.parametrize("watched", [True, False])
def test_the_precision_asked_for_is_that_of_every_launch(kind, tf32, watched, monkeypatch):
    """Of both passes, whatever PyTorch's setting is."""
    *args, last = arguments(kind, 1, 2, 4, (3,))
    leaves = [x.float().requires_grad_() if isinstance(x, Tensor) else x for x in args]
    module = {"static": static, "dynamic": dynamic}[kind]
    options = [list(last), tf32, True, True] if kind == "static" else [last, tf32, True]
    launched = []

    def run(call: Launches, name: str, *_: Any, **__: Any) -> None:
        launched.append((name, call.constants["PRECISION"]))

    monkeypatch.setattr(Launches, "run", run)
    operator = getattr(module, f"{kind}_expansion") if watched else module.direct_expansion
    operator(*leaves, *options)[0].sum().backward()
    assert {"gate_gradients"} < {name for name, _ in launched}
    assert {precision for _, precision in launched} == {"tf32" if tf32 else "tf32x3"}
