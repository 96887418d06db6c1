"""Functions of Python, NumPy and PyTorch as they are before a candidate is imported.

A candidate can replace those of the modules. Methods of tensors are PyTorch's own, of a type whose
attributes cannot be set, unlike ``torch.Tensor``'s; but many call operators, which it can replace.
"""

from __future__ import annotations

import builtins
import ctypes
from collections.abc import Mapping, Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy


def own_builtins(module: dict[str, Any]) -> None:
    """Give the functions that a module defines from now on a copy of Python's builtins."""
    module["__builtins__"] = {**vars(builtins)}


own_builtins(globals())

np: Any = SimpleNamespace(**vars(numpy))

READING = (
    *("detach", "to.dtype", "to.dtype_layout", "_to_copy", "copy_", "empty_strided"),
    *("clone", "resolve_conj", "resolve_neg"),
)
"""PyTorch's operators by which tensors of other devices than the CPU are read."""

WRITABLE = 0x200
"""PyBUF_WRITE of Python's C interface."""


def is_one(kind: type, types: Sequence[type]) -> bool:
    """Whether a type is one of these itself; its own ``==`` or hash could compute."""
    return any(kind is one for one in types)


def named(kind: type) -> str:
    """The name of a type with its article."""
    name = kind.__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


module_of = type.__dict__["__module__"].__get__
"""The module of a type, which a metaclass of its own may define otherwise."""


def has_none(names: Mapping[str, Any], of: frozenset[str]) -> bool:
    """Whether names of a candidate's are all plain, and none of these; others could compute."""
    return all(type(name) is str for name in names) and of.isdisjoint(names)


def are_numbers(values: Sequence[Any]) -> bool:
    """Whether all values are Python's numbers."""
    return all(type(x) is int or type(x) is float or type(x) is bool for x in values)


@cache
def torch_originals() -> Any:
    """``torch``'s functions when first called, and:

    ``methods`` of tensors, ``is_tensor``, ``data_ptr`` of storages, ``Parameter``, ``synchronize``
    of CUDA, ``set_deterministic``, ``backward``, which ``torch.autograd.backward`` and, ``by``
    tensors, ``grad`` call; ``modes``, the number of modes that are on and see calls of functions or
    operators; ``without_functions``, the context in which none does; ``attributes`` of all tensors,
    and those ``own_of`` one; ``in_memory``, ``increment_version`` and ``are_operators_replaced``;
    ``is_unusual``, whether operators take a tensor for another than numbers in memory, where they
    are, or ``like`` one.
    """
    import torch  # lazily
    from torch.utils._device import DeviceContext  # of ``torch.set_default_device``

    storages: Any = torch._C.StorageBase
    run_backward = torch.autograd.Variable._execution_engine.run_backward

    def backward(outputs: Any, upstream: Any, retain_graph: bool, by: Any = ()) -> Any:
        how = {"allow_unreachable": True, "accumulate_grad": not by}
        of = tuple(outputs), tuple(upstream), retain_graph, False, tuple(by)
        return run_backward(*of, **how)

    count, at = torch._C._len_torch_function_stack, torch._C._get_function_stack_at
    count_of_operators = torch._C._len_torch_dispatch_stack

    def modes() -> int:
        if not (number := count()):
            return count_of_operators()
        functions = map(at, range(number))
        return count_of_operators() + sum(type(mode) is not DeviceContext for mode in functions)

    keys, bits = torch._C._dispatch_keys, torch._C.DispatchKeySet.raw_repr

    def keys_of(tensor: Any) -> int:
        """The bits of the dispatch keys by which operators tell what a tensor is."""
        return int(bits(keys(tensor)))

    empty, zeros = torch.empty(0), torch._efficientzerotensor(0)
    plain = keys_of(empty) | keys_of(torch._neg_view(empty)) | keys_of(zeros)
    is_zeros = keys_of(zeros) & ~keys_of(empty)  # whatever its memory holds

    methods: Any = torch._C.TensorBase
    tensors = torch.Tensor
    # not that of ``ctypes.pythonapi``, which is everybody's
    kind = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int)
    view = kind(("PyMemoryView_FromMemory", ctypes.pythonapi))
    shape_of, dtype_of = methods.shape.__get__, methods.dtype.__get__
    whole = "int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8", "bool"
    names = "float64", "float32", "float16", *whole
    dtypes = {getattr(torch, name): np.dtype(name) for name in names}
    dtypes[torch.bfloat16] = np.dtype("uint16")

    def in_memory(tensor: Any) -> Any:
        """A CPU tensor's memory as a NumPy array, of bfloat16 as integers, by no operator.

        That of a negated view is not negated. None of another device's, or of a type that NumPy
        lacks.
        """
        dtype, shape = dtypes.get(dtype_of(tensor)), shape_of(tensor)
        if dtype is None or not methods.is_cpu.__get__(tensor):
            return None
        at = methods.data_ptr(tensor)
        if not at or 0 in shape or keys_of(tensor) & is_zeros:
            return np.zeros(shape, dtype)
        strides = [stride * dtype.itemsize for stride in methods.stride(tensor)]
        size = dtype.itemsize + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
        return np.ndarray(shape, dtype, view(at, size, WRITABLE), strides=strides)

    dump = torch._C._dispatch_dump

    def operators() -> list[str]:
        return [dump(f"aten::{name}") for name in READING]

    before = operators()

    return SimpleNamespace(
        **{name: one for name, one in vars(torch).items() if name != "is_tensor"},
        methods=methods,
        is_tensor=lambda value: isinstance(value, tensors),
        data_ptr=storages.data_ptr,
        Parameter=torch.nn.Parameter,
        synchronize=torch.cuda.synchronize,
        is_deterministic=torch._C._get_deterministic_algorithms,
        is_deterministic_warn_only=torch._C._get_deterministic_algorithms_warn_only,
        set_deterministic=torch._C._set_deterministic_algorithms,
        backward=backward,
        modes=modes,
        without_functions=torch._C.DisableTorchFunction,
        attributes=frozenset(dir(torch.Tensor)),
        own_of=vars(torch.Tensor)["__dict__"].__get__,
        in_memory=in_memory,
        increment_version=torch._C._increment_version,
        is_unusual=lambda tensor, like: bool(keys_of(tensor) & ~(plain | keys_of(like))),
        are_operators_replaced=lambda: operators() != before,
    )
