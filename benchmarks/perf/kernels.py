"""Which kernels a call dispatches, each with its FLOPs and bytes, without computing anything.

The call runs on PyTorch's fake tensors, which have shapes and no numbers, so a training step of any
size takes a second and no memory. Where the call asks a tensor what it holds, a number is 1, and a
truth is what it would be if every number were equal to no other and neither less nor greater: so no
caption ends early, and no check fails.

* A kernel is an operation below autograd that computes: views, allocations and questions about a
  tensor are none. A fused list of tensors (``_foreach``) and an operation of Triton programs count
  as one, which is the fewest that they can be.
* FLOPs are those of `torch.utils.flop_counter`: products of matrices, two a multiply-accumulate.
  All else is bound by its bytes.
* Bytes are those of every tensor read and written, an expanded one once; of a table that is looked
  up in, what is taken. Nothing is assumed to stay in a cache between two kernels.
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
"""What writes its first argument without reading it."""
_ATTENTION = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: (
        torch.ops.aten._scaled_dot_product_flash_attention
    ),
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: (
        torch.ops.aten._scaled_dot_product_flash_attention_backward
    ),
}
"""A CPU's kernel of attention has no formula of its own, but multiplies what a GPU's does."""
_SCALAR = torch.ops.aten._local_scalar_dense.default
_NONZERO = torch.ops.aten.nonzero.default
_CPU = torch.device("cpu")


@dataclass(frozen=True)
class Kernel:
    """One launch."""

    name: str  # the operation's
    flops: float  # of products
    bytes: float  # read and written
    precision: str = "float32"  # a dtype, that of what is read


def dispatched(
    case: Case, implementation: str, *, cuda: bool, warm_up: bool = True
) -> list[Kernel]:
    """The kernels of one call of a case's implementation.

    With ``cuda`` as on a GPU, else as on a CPU, where some forms split a batch to stay in caches;
    with ``warm_up`` of a second call, where a first one makes what stays.

    Raises:
        ValueError: the implementation is unavailable, or what it launches depends on the data.
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
    """Lists the kernels of all operations within."""

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
    """Where ``x`` is not zero, (n, dimensions): everywhere or nowhere."""
    n = x.numel() if _answer(x) else 0
    return x.new_empty((n, x.dim()), dtype=torch.long)


def _by_places(name: str, args: Any) -> Any:
    """An indexing operation's arguments with places in place of masks."""
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
    """What all entries of an operation's result are, by what all entries of its arguments are."""
    given = [_known(x) for x in _tensors((args, kwargs)) if x.dtype == torch.bool]
    if name in ("ne", "ones", "ones_like", "new_ones"):
        return True
    if name in ("bitwise_not", "logical_not"):
        return not given[0]
    if name in ("bitwise_and", "logical_and"):
        return all(given)
    return any(given)  # comparisons have none


@contextmanager
def _without_numbers(cuda: bool) -> Iterator[None]:
    """Tensors within have shapes only, and everything is on the one device already."""

    def to_list(x: Tensor) -> Any:
        # of truths, those that say which hypotheses are kept
        return np.full(x.shape, x.dtype == torch.bool or _answer(x)).tolist()

    with ExitStack() as stack:
        for context in (
            # PyTorch cannot always exchange a module's fake parameters, and none has to move
            mock.patch.object(nn.Module, "to", lambda module, *_, **__: module),
            mock.patch.object(FakeTensor, "tolist", to_list),
            # RAdam updates nothing in its first steps, whose number is no function of the shapes
            mock.patch.object(optimisation, "rectification", lambda *_: 1.0),
            FakeTensorMode(),
        ):
            stack.enter_context(context)
        if cuda:
            # compiled code keeps a batch whole and draws dropout as a GPU does
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
    """Bytes that are there: of a dimension without a stride one entry."""
    pairs = zip(x.shape, x.stride(), strict=True)
    return math.prod(size for size, stride in pairs if stride) * x.element_size()
