"""Which calls the kernels support, and in which dtype they run."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

MAX_LENGTH, MAX_VECTORS, MAX_BATCH = 1024, 4096, 65535
"""The largest sizes tested; CUDA limits a grid's third axis to the last."""

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)

_has_triton = importlib.util.find_spec("triton") is not None
_interpreting = os.environ.get("TRITON_INTERPRET", "0") == "1"


@contextmanager
def interpreted() -> Iterator[None]:
    """Run kernels on CPU tensors in Triton's interpreter: to test them, not for speed.

    ``TRITON_INTERPRET=1`` in the environment does so for the whole process.
    """
    global _interpreting
    before, _interpreting = _interpreting, True
    try:
        yield
    finally:
        _interpreting = before


def product_dtype(x: Tensor) -> torch.dtype:
    """x's dtype, or autocast's where it is active."""
    device = x.device.type
    if torch.is_autocast_enabled(device) and x.dtype != torch.float64:
        return torch.get_autocast_dtype(device)
    return x.dtype


def unsupported(*tensors: Tensor, mask: Tensor | None = None) -> str | None:
    """Why a call cannot run as kernels, or None if it can; does not synchronise with the device.

    Args:
        tensors: the floating-point arguments of ``static_expansion`` or ``dynamic_expansion`` in
            their order: two (N, d), then (B, L, d).
        mask: (B, L) booleans.
    """
    first, last = tensors[0], tensors[-1]
    if not _has_triton:
        return "Triton is not installed"
    kinds = {x.device for x in tensors} | ({mask.device} if mask is not None else set())
    if len(kinds) > 1:
        return f"arguments lie on several devices, {', '.join(sorted(map(str, kinds)))}"
    if last.device.type == "cpu" and not _interpreting:
        return "the device is cpu, which only Triton's interpreter runs on (TRITON_INTERPRET=1)"
    if last.device.type not in ("cpu", "cuda") or (last.is_cuda and torch.version.cuda is None):
        return f"the device is {last.device.type}, expected cuda of NVIDIA"
    dtypes = {product_dtype(x) for x in tensors}
    if len(dtypes) > 1 or not dtypes <= set(DTYPES):
        names, known = (
            ", ".join(str(dtype).removeprefix("torch.") for dtype in some)
            for some in (sorted(dtypes, key=str), DTYPES)
        )
        return f"the dtype is {names}, expected one of {known}"
    if last.dim() != 3 or first.dim() != 2:
        return f"shapes {_shape(first)} and {_shape(last)}, expected (N, d) and (B, L, d)"
    (B, L, d), N = last.shape, first.shape[0]
    for x, expected in zip(tensors, [(N, d)] * 2 + [(B, L, d)] * (len(tensors) - 2), strict=True):
        if x.shape != expected:
            return f"an argument has shape {_shape(x)}, expected {expected}"
    if mask is not None and (mask.dtype != torch.bool or mask.shape != (B, L)):
        return f"the mask is {mask.dtype} of shape {_shape(mask)}, expected booleans {(B, L)}"
    for name, size, largest in (
        ("sequences", B, MAX_BATCH),
        ("tokens", L, MAX_LENGTH),
        ("expansion vectors", N, MAX_VECTORS),
        ("channels", d, MAX_VECTORS),
    ):
        if not 1 <= size <= largest:
            return f"{size} {name}, expected 1 to {largest}"
    return None


def watched(*tensors: Tensor) -> bool:
    """Whether something needs to see operators: a compiler, a mode, a transform, a subclass.

    Without, kernels are called directly: PyTorch's way through a custom operator takes the host as
    long as several launches.
    """
    return (
        torch.compiler.is_compiling()
        or torch._C._len_torch_dispatch_stack() > 0
        or torch._C._are_functorch_transforms_active()
        or any(type(x) not in (Tensor, torch.nn.Parameter) for x in tensors)
    )


def direct(
    forward: Callable[..., tuple[Tensor, ...]],
    setup_context: Callable[..., None],
    backward: Callable[..., tuple[Any, ...]],
) -> Callable[..., tuple[Tensor, ...]]:
    """A custom operator's passes without the operator, for calls that are not `watched`."""

    class Direct(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, ...]:
            output = forward(*inputs)
            setup_context(ctx, inputs, output)
            return output

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
            return backward(ctx, *grads)

    apply: Callable[..., tuple[Tensor, ...]] = Direct.apply
    return apply


def _shape(x: Tensor) -> tuple[int, ...]:
    return tuple(x.shape)


def prepared(tensors: tuple[Tensor, ...]) -> list[Tensor]:
    """The arguments in `product_dtype`, contiguous."""
    return [x.to(product_dtype(x)).contiguous() for x in tensors]


def needs_backward(tensors: tuple[Tensor, ...]) -> bool:
    """Whether a backward pass may follow."""
    return torch.is_grad_enabled() and any(x.requires_grad for x in tensors)
