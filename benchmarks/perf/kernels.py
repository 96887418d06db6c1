"""The kernels that a call dispatches, with their FLOPs and bytes, without computing anything.

The call runs on PyTorch's fake tensors, which have shapes but no data, so a training step of any
size takes a second and no memory. Where the call reads a tensor's value, a number is 1 and all
comparisons are false, except ``ne``: no caption ends early, and no check fails.

* A kernel is an operator below autograd that computes: not a view, an allocation or a query. A
  ``_foreach`` operator and an operator of Triton kernels count as one, which is the minimum.
* FLOPs are those of `torch.utils.flop_counter`: matrix products, 2 per multiply-accumulate.
  Everything else is memory-bound.
* Bytes are those of every tensor read and written: an expanded tensor once, of a lookup table the
  rows read. Nothing is assumed to stay in a cache between two kernels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from benchmarks.perf.cases.case import COMPILED, Case
from torch_impl.kernels import support
from torch_impl.training import optimisation

ALLOCATIONS = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")
LOOK_UPS = ("embedding", "gather", "index", "index_select")
OVERWRITTEN = ("copy_", "fill_", "zero_", "random_", "uniform_")
"""Operators that write their first argument without reading it."""
_ATTENTION = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: (
        torch.ops.aten._scaled_dot_product_flash_attention
    ),
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: (
        torch.ops.aten._scaled_dot_product_flash_attention_backward
    ),
}
"""CPU attention has no FLOP formula of its own; its products are those of a GPU's."""
_SCALAR = torch.ops.aten._local_scalar_dense.default
_NONZERO = torch.ops.aten.nonzero.default
_CPU = torch.device("cpu")


@dataclass(frozen=True)
class Kernel:
    """One kernel launch."""

    name: str  # of the operator
    flops: float  # of matrix products
    bytes: float  # read and written
    precision: str = "float32"  # dtype of the first input


def dispatched(
    case: Case, implementation: str, *, cuda: bool, warm_up: bool = True
) -> list[Kernel]:
    """The kernels of one call of a case's implementation.

    ``cuda`` traces it as on a GPU, otherwise as on a CPU, where some forms split a batch to fit
    caches. ``warm_up`` traces a second call, after the first has created persistent state.

    Raises:
        ValueError: the implementation is unavailable, or its launches depend on the data.
    """
    if implementation.endswith(COMPILED):
        raise ValueError("what compiled code launches is known only where it was compiled")
    with _Dispatched() as log, _without_numbers(cuda):
        try:
            work = case.work(implementation, _CPU)
            if warm_up:
                work.call()
            log.kernels.clear()
            work.call()
        except (DataDependentOutputException, DynamicOutputShapeException) as error:
            raise ValueError("what it launches depends on the data") from error
    if not log.kernels:
        raise ValueError("it launches no operation of PyTorch")
    return log.kernels


class _Dispatched(TorchDispatchMode):
    """Records the kernels of all operators within the block."""

    def __init__(self) -> None:
        super().__init__()
        self.kernels: list[Kernel] = []

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if operation is _SCALAR:
            (x,) = args
            self.kernels.append(Kernel(_SCALAR._opname, 0, 2 * x.element_size()))
            return _answer(x)
        if operation is _NONZERO:
            result = _places(*args)
        else:
            result = operation(*_by_places(operation._opname, args), **kwargs)
        if isinstance(result, Tensor) and result.dtype == torch.bool:
            result.truth = _truth(operation._opname, args, kwargs)  # type: ignore[attr-defined]
        if _computes(operation, args, kwargs, result):
            self.kernels.append(self._kernel(operation, args, kwargs, result))
        return result

    def _kernel(self, operation: Any, args: Any, kwargs: Any, result: Any) -> Kernel:
        packet = operation._overloadpacket
        formula = flop_registry.get(_ATTENTION.get(packet, packet))
        flops = formula(*args, **kwargs, out_val=result) if formula else 0
        dtype = next((x.dtype for x in _tensors((args, kwargs))), torch.float32)
        moved = _moved(operation, args, kwargs, result)
        return Kernel(operation._opname, flops, moved, str(dtype).removeprefix("torch."))


def _places(x: Tensor) -> Tensor:
    """Indices of the nonzero entries of ``x``, (n, dimensions): of all entries or of none."""
    n = x.numel() if _answer(x) else 0
    return x.new_empty((n, x.dim()), dtype=torch.long)


def _by_places(name: str, args: Any) -> Any:
    """An indexing operator's arguments, with indices in place of boolean masks."""
    if not name.startswith(("index", "_index")) or not isinstance(args[1], list):
        return args
    indices: list[Tensor | None] = []
    for x in args[1]:
        is_mask = x is not None and x.dtype == torch.bool
        indices += _places(x).unbind(1) if is_mask else [x]
    return (args[0], indices, *args[2:])


def _answer(x: Tensor) -> float | int | bool:
    if x.dtype == torch.bool:
        return _known(x)
    return 1.0 if x.dtype.is_floating_point else 1


def _known(x: Tensor) -> bool:
    return bool(getattr(x, "truth", False))


def _truth(name: str, args: Any, kwargs: Any) -> bool:
    """The value of all entries of a boolean result, given those of the arguments."""
    given = [_known(x) for x in _tensors((args, kwargs)) if x.dtype == torch.bool]
    if name in ("ne", "ones", "ones_like", "new_ones"):
        return True
    if name in ("bitwise_not", "logical_not"):
        return not given[0]
    if name in ("bitwise_and", "logical_and"):
        return all(given)
    return any(given)  # False for comparisons of numbers


@contextmanager
def _without_numbers(cuda: bool) -> Iterator[None]:
    """Tensors within the block are fake, and all on one device."""

    def to_list(x: Tensor) -> Any:
        # booleans are true: they say which hypotheses are kept
        return np.full(x.shape, x.dtype == torch.bool or _answer(x)).tolist()

    with ExitStack() as stack:
        for context in (
            # PyTorch cannot always swap a module's fake parameters, and none has to move
            mock.patch.object(nn.Module, "to", lambda module, *_, **__: module),
            mock.patch.object(FakeTensor, "tolist", to_list),
            # RAdam's first steps update nothing: trace one that does
            mock.patch.object(optimisation, "rectification", lambda *_: 1.0),
            FakeTensorMode(),
        ):
            stack.enter_context(context)
        if cuda:
            # code under torch.compile does not split a batch, and draws dropout as on a GPU
            stack.enter_context(mock.patch.object(torch.compiler, "is_compiling", lambda: True))
            stack.enter_context(support.interpreted())
        yield


def _tensors(values: Any) -> list[Tensor]:
    return [x for x in tree_leaves(values) if isinstance(x, Tensor)]


def _computes(operation: Any, args: Any, kwargs: Any, result: Any) -> bool:
    if operation._schema.is_mutable:
        return True
    known = {x.untyped_storage()._cdata for x in _tensors((args, kwargs))}
    new = [x for x in _tensors(result) if x.untyped_storage()._cdata not in known]
    return bool(new) and operation._opname not in ALLOCATIONS


def _moved(operation: Any, args: Any, kwargs: Any, result: Any) -> int:
    name, read = operation._opname, _tensors((args, kwargs))
    written = {id(x): x for x in _tensors(result)}
    for given, argument in zip(args, operation._schema.arguments, strict=False):
        if argument.alias_info is not None and argument.alias_info.is_write:
            written |= {id(x): x for x in _tensors(given)}
    if "out" in kwargs:
        read = [x for x in read if x is not kwargs["out"]]
    if name in OVERWRITTEN:
        read = read[1:]
    total = sum(map(_size, written.values()))
    if name in LOOK_UPS:
        return 2 * total + sum(map(_size, read[1:]))
    return total + sum(map(_size, read))


def _size(x: Tensor) -> int:
    """Bytes in memory: a dimension of stride 0 counts as one entry."""
    pairs = zip(x.shape, x.stride(), strict=True)
    return math.prod(size for size, stride in pairs if stride) * x.element_size()
