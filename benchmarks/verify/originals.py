"""NumPy's and PyTorch's functions as they are before a candidate is imported.

A candidate can replace those of the modules. Methods of tensors are PyTorch's own, of a type that
cannot be changed, unlike ``torch.Tensor``.
"""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy

np: Any = SimpleNamespace(**vars(numpy))


@cache
def torch_originals() -> Any:
    """``torch``'s functions when first called, and:

    ``methods`` of tensors, ``data_ptr`` of storages, ``Parameter``, ``synchronize`` of CUDA,
    ``backward``, which ``torch.autograd.backward`` calls, and ``modes``, the number of modes that
    are on and see calls of functions or operators.
    """
    import torch  # lazily
    from torch.utils._device import DeviceContext  # of ``torch.set_default_device``

    storages: Any = torch._C.StorageBase
    run_backward = torch.autograd.Variable._execution_engine.run_backward

    def backward(outputs: Any, upstream: Any, retain_graph: bool) -> None:
        everything = {"allow_unreachable": True, "accumulate_grad": True}
        run_backward(tuple(outputs), tuple(upstream), retain_graph, False, (), **everything)

    count, at = torch._C._len_torch_function_stack, torch._C._get_function_stack_at
    count_of_operators = torch._C._len_torch_dispatch_stack

    def modes() -> int:
        if not (number := count()):
            return count_of_operators()
        functions = map(at, range(number))
        return count_of_operators() + sum(type(mode) is not DeviceContext for mode in functions)

    return SimpleNamespace(
        **vars(torch),
        methods=torch._C.TensorBase,
        data_ptr=storages.data_ptr,
        Parameter=torch.nn.Parameter,
        synchronize=torch.cuda.synchronize,
        backward=backward,
        modes=modes,
    )
