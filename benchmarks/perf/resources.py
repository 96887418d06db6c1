"""Resource counts of a call: FLOPs, operators, saved activations, peak memory.

They are counted, not sampled: a second call gives the same.
"""

from __future__ import annotations

import gc
import math
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

from benchmarks.perf.cases.case import Work

Shape = tuple[int, ...]


def _attention(query: Shape, key: Shape, value: Shape, *_: Any, **__: Any) -> int:
    return int(sdpa_flop_count(query, key, value))


def _attention_backward(upstream: Shape, *shapes: Any, **_: Any) -> int:
    return int(sdpa_backward_flop_count(upstream, *shapes[:3]))


def _lstm(rows: Shape, weight_x: Shape, weight_h: Shape, *_: Any, **__: Any) -> int:
    return 2 * math.prod(rows[:-1]) * weight_x[0] * (weight_x[1] + weight_h[1])


def _lstm_backward(*shapes: Any, **_: Any) -> int:
    return 2 * _lstm(*shapes[:3])


def _packed(formula: Callable[..., int]) -> Callable[..., int]:
    """The formula for an operator that takes all weights as one list."""
    return lambda rows, weights, *_, **__: formula(rows, *weights[:2])


def _product(rows: Shape, *_: Any, out_shape: Shape, **__: Any) -> int:
    return 2 * math.prod(rows) * out_shape[-1]


def _vector_product(matrix: Shape, *_: Any, **__: Any) -> int:
    return 2 * math.prod(matrix)


_aten = torch.ops.aten
FORMULAS = {
    _aten.mv: _vector_product,
    _aten.dot: _vector_product,
    _aten.addmv: lambda _, *shapes, **__: _vector_product(*shapes),
    _aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    _aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
    _aten.mkldnn_rnn_layer: _lstm,
    _aten.mkldnn_rnn_layer_backward: _lstm_backward,
    torch.ops.quantized.linear_dynamic_fp16: _product,
    _aten._int_mm: _product,
    _aten._cudnn_rnn: _packed(_lstm),
    _aten._cudnn_rnn_backward: _packed(_lstm_backward),
}
"""FLOP formulas that PyTorch's counter lacks: products with a vector, CPU attention, library LSTMs,
rounded weights."""


def count(work: Work, device: torch.device) -> dict[str, int]:
    """Count the resources of one call.

    Returns:
        "flops": of matrix products, 2 per multiply-accumulate. "operators": dispatched by PyTorch,
        views included. "saved bytes", if the call trains: the activations saved for backward, each
        storage once and whole, without parameters and inputs. "peak bytes", if any operator was
        dispatched: see `peak`.
    """
    storages, saved = _Storages(), _Saved(work.given)
    flops = FlopCounterMode(display=False, custom_mapping=FORMULAS)
    with saved.by_functions(), saved, storages, flops:
        work.call()
    taken = {"flops": flops.get_total_flops(), "operators": storages.operators}
    if work.trains:
        taken["saved bytes"] = saved.bytes
    if storages.operators:
        taken["peak bytes"] = peak(work.call, device) if device.type == "cuda" else storages.peak
    return taken


def peak(function: Callable[[], Any], device: torch.device) -> int:
    """Peak memory of one call in bytes, beyond what was allocated before it.

    On CUDA it is the allocator's; elsewhere it is of the storages that operators return, without
    the temporary memory within a kernel.
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        function()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    with _Storages() as storages:
        function()
    return storages.peak


class _Saved(torch.autograd.graph.saved_tensors_hooks):
    """Adds up the bytes of the storages that autograd saves.

    The hooks see ``save_for_backward``; `by_functions` adds what else an ``autograd.Function``
    stores on its ``ctx``, the node of the graph.
    """

    def __init__(self, given: Iterable[Tensor]) -> None:
        super().__init__(self._add, lambda tensor: tensor)
        self.given = {tensor.untyped_storage().data_ptr() for tensor in given}
        self.live: set[int] = set()
        self.bytes = 0

    def _add(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self.given and storage._cdata not in self.live:
            self.bytes += storage.nbytes()
            self.live.add(storage._cdata)
            weakref.finalize(
                storage, self.live.discard, storage._cdata
            )  # its address may be reused
        return tensor

    @contextmanager
    def by_functions(self) -> Iterator[None]:
        apply = vars(torch.autograd.Function)["apply"].__func__

        def adding(cls: Any, *args: Any, **kwargs: Any) -> Any:
            result = apply(cls, *args, **kwargs)
            for output in tree_leaves(result):
                node = getattr(output, "grad_fn", None)
                for tensor in _reachable(getattr(node, "__dict__", None)):
                    self._add(tensor)
            return result

        with mock.patch.object(torch.autograd.Function, "apply", classmethod(adding)):
            yield


def _reachable(value: object) -> Iterator[Tensor]:
    """The tensors among a value's items and attributes, and theirs, at any depth."""
    pending, seen = [value], set()
    while pending:
        value = pending.pop()
        if isinstance(value, Tensor):
            yield value
        elif id(value) not in seen and not isinstance(value, type | ModuleType):
            seen.add(id(value))
            # of a function only the closure: its globals are the module's
            inside = value.__closure__ or () if isinstance(value, FunctionType) else (value,)
            pending += gc.get_referents(*inside)


class _Storages(TorchDispatchMode):
    """Tracks every storage that an operator returns, until it is freed."""

    def __init__(self) -> None:
        super().__init__()
        self.live: dict[int, int] = {}
        self.now = self.peak = self.operators = 0

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        known = {storage._cdata for storage in _storages((args, kwargs))}
        self.operators += 1
        result = operation(*args, **(kwargs or {}))
        for storage in _storages(result):
            if storage._cdata not in known and storage._cdata not in self.live:
                self.live[storage._cdata] = storage.nbytes()
                self.now += storage.nbytes()
                self.peak = max(self.peak, self.now)
                weakref.finalize(storage, self._freed, storage._cdata)
        return result

    def _freed(self, storage: int) -> None:
        self.now -= self.live.pop(storage)


def _storages(values: Any) -> list[torch.UntypedStorage]:
    tensors = (x for x in tree_leaves(values) if isinstance(x, Tensor))
    return [x.untyped_storage() for x in tensors if not x.is_meta]  # which has no memory
