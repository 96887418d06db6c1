"""Arrays in the candidate's framework: NumPy, PyTorch or JAX; and back, as NumPy arrays.

``layout`` is how arrays lie in memory: "plain" (contiguous), "strided" (every second entry of a
larger array) or "broadcast" (one row, repeated with a stride of zero, where all rows are equal).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.errors import InputError
from benchmarks.verify.cases import Place, get, replaced


class NotAnArrayError(TypeError):
    """What a candidate gave is no array, nor made of arrays."""


Function = Callable[..., Any]


def _one_row(array: Any) -> tuple[slice, ...] | None:
    """The first row of an array, or of a batch of one, all of whose rows are equal; else None."""
    for axis in range(array.ndim - 1):
        if array.shape[axis] > 1:
            row = (*[slice(None)] * axis, slice(0, 1))
            return row if bool((array == array[row]).all()) else None
    return None


class NumPy:
    """Arrays of NumPy, and what differs in another framework."""

    name = "numpy"

    def give(self, array: Any, layout: str = "plain", copy: bool = True) -> Any:
        """A NumPy array in this framework, 16-bit ones included; no copy unless one is needed."""
        if layout == "broadcast":
            return np.broadcast_to(array[_one_row(array)].copy(), array.shape)
        if layout == "strided" and array.ndim:
            given = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)[..., ::2]
            given[...] = array
            return given
        return np.array(array) if copy else array

    def take(self, value: Any) -> Any:
        """A copy of the framework's own array as a NumPy array, 16-bit ones in float32."""
        if type(value) not in (np.ndarray, np.memmap) and not isinstance(value, np.generic):
            raise NotAnArrayError(f"a {type(value).__name__}, which is a kind of array of its own")
        array = np.array(value)
        if array.dtype.kind in "V" or array.dtype == np.float16:  # bfloat16 is an extension
            array = array.astype(np.float32)
        if array.dtype.kind not in "biuf":
            raise NotAnArrayError(f"an array of {array.dtype}")
        return array

    def refill(self, given: Any, array: Any) -> None:
        """Write ``array`` into what was given."""
        given[...] = array

    def gradient(
        self, loss: Function, case: Sequence[Any], places: Sequence[Place], weights: Any, uses: int
    ) -> list[Any]:
        """Derivatives of the sum of ``weights * output``, ``uses`` times, at each place."""
        raise NotImplementedError


class Torch(NumPy):
    """Tensors of PyTorch on one device."""

    name = "torch"

    def __init__(self, device: str = "cpu") -> None:
        import torch  # once it is needed

        self.torch, self.device = torch, device
        try:
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError) as error:
            reason = str(error).partition("\n")[0]
            raise InputError(f"device {device!r}: PyTorch cannot use it: {reason}") from error

    def give(self, array: Any, layout: str = "plain", copy: bool = True) -> Any:
        torch = self.torch
        array = super().give(array, copy=copy)
        if array.dtype.kind == "V":  # bfloat16: PyTorch has no conversion from the extension type
            tensor = torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        else:
            tensor = torch.from_numpy(array)
        if layout == "broadcast":
            return tensor[_one_row(array)].clone().to(self.device).expand(tensor.shape)
        if layout == "strided" and tensor.ndim:
            return torch.stack([tensor, tensor], -1).to(self.device).flatten(-2)[..., ::2]
        return tensor.to(self.device)

    def take(self, value: Any) -> Any:
        torch = self.torch
        if type(value) not in (torch.Tensor, torch.nn.Parameter):
            own = ", which is a kind of tensor of its own" if torch.is_tensor(value) else ""
            raise NotAnArrayError(f"a {type(value).__name__}{own}")
        if value.layout != torch.strided:
            raise NotAnArrayError(f"a tensor with the layout {value.layout}")
        if value.is_cuda:  # all work on the device is done, other streams' too
            torch.cuda.synchronize(value.device)
        value = value.detach().cpu().resolve_conj().resolve_neg()
        if value.dtype in (torch.bfloat16, torch.float16):
            value = value.float()
        return super().take(value.numpy())

    def refill(self, given: Any, array: Any) -> None:
        given.data.copy_(self.give(array))  # for every view of it

    def gradient(
        self, loss: Function, case: Sequence[Any], places: Sequence[Place], weights: Any, uses: int
    ) -> list[Any]:
        for place in places:
            get(case, place).requires_grad_()
        total = 0.0
        for _ in range(uses):
            output = loss(*case)
            self.take(output)  # says what is wrong with it
            total = total + (output * self.give(weights).to(output)).sum()
        if getattr(total, "requires_grad", False):  # not of a constant: of no words, say
            total.backward()  # type: ignore[attr-defined]
        found = [(get(case, place), get(case, place).grad) for place in places]
        return [np.zeros(x.shape) if dx is None else self.take(dx) for x, dx in found]


class Jax(NumPy):
    """Arrays of JAX, which have no strides and do not change, in 64 bits where given so."""

    name = "jax"

    def __init__(self) -> None:
        import jax  # once it is needed

        jax.config.update("jax_enable_x64", True)
        self.jax: Any = jax

    def give(self, array: Any, layout: str = "plain", copy: bool = True) -> Any:
        return self.jax.numpy.array(array)

    def take(self, value: Any) -> Any:
        return super().take(np.asarray(value))

    def refill(self, given: Any, array: Any) -> None:
        raise NotImplementedError

    def gradient(
        self, loss: Function, case: Sequence[Any], places: Sequence[Place], weights: Any, uses: int
    ) -> list[Any]:
        def total(arrays: Sequence[Any]) -> Any:
            moved = replaced(case, dict(zip(places, arrays, strict=True)))
            return sum((loss(*moved) * weights).sum() for _ in range(uses))

        gradient, at = self.jax.grad(total), [get(case, place) for place in places]
        try:  # one program takes a fifth of the time that compiling each operation alone does
            found = self.jax.jit(gradient)(at)
        except Exception:  # of a function that branches on values, say
            found = gradient(at)
        return [self.take(gradient) for gradient in found]


FRAMEWORKS: dict[str, Callable[[str], NumPy]] = {
    "numpy": lambda device: NumPy(),
    "torch": Torch,
    "jax": lambda device: Jax(),
}
"""By name, for a device."""


def give(framework: NumPy, value: Any, layout: str = "plain", copy: bool = True) -> Any:
    """``value`` with every array in it in the framework; mappings and lists are new ones."""
    if isinstance(value, np.ndarray):
        plain = layout == "broadcast" and _one_row(value) is None
        return framework.give(value, "plain" if plain else layout, copy)
    if isinstance(value, Mapping):
        return {key: give(framework, item, layout, copy) for key, item in value.items()}
    if isinstance(value, list):
        return [give(framework, item, layout, copy) for item in value]
    return value


def framework_of(value: Any) -> str:
    """The name of the framework that an array is of, or nothing."""
    name = type(value).__module__.partition(".")[0].removesuffix("lib")
    return name if name in FRAMEWORKS else ""


def take(framework: NumPy, value: Any) -> Any:
    """A result as data: every array in it as a NumPy array, whatever framework it is of.

    Raises:
        NotAnArrayError: something in it is no array, number, text or collection of these.
    """
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) in (list, tuple):
        return type(value)(take(framework, item) for item in value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return tuple(take(framework, item) for item in value)
    if isinstance(value, Mapping):
        return {key: take(framework, item) for key, item in value.items()}
    if isinstance(value, (np.ndarray, np.generic)):
        return NumPy().take(value)
    if framework.name == "numpy" and framework_of(value):
        framework = FRAMEWORKS[framework_of(value)]("cpu")
    if framework.name != "numpy" and hasattr(value, "__dlpack__"):
        return framework.take(value)
    with contextlib.suppress(Exception):
        if hasattr(value, "__dlpack__"):
            return NumPy().take(np.from_dlpack(value))
        if hasattr(value, "__array__"):
            return NumPy().take(np.asarray(value))
    raise NotAnArrayError(f"a {type(value).__name__}")
