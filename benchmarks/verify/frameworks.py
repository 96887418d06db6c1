"""Arrays in the candidate's framework: NumPy, PyTorch or JAX; and back, as NumPy arrays.

``layout`` is how arrays lie in memory: "plain" (contiguous), "strided" (every second entry of a
larger array) or "broadcast" (one row, repeated with a stride of zero, where all rows are equal).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from benchmarks.verify.cases import Place, get


class NotAnArrayError(TypeError):
    """What a candidate gave is no array, nor made of arrays."""


Function = Callable[..., Any]
Gradients = list[Any]


class Framework(Protocol):
    """What differs between frameworks."""

    name: str

    def give(self, array: Any, layout: str = "plain") -> Any:
        """A copy of a NumPy array in this framework, 16-bit ones included."""

    def take(self, value: Any) -> Any:
        """The framework's own array as a NumPy array, 16-bit ones in float32."""

    def refill(self, given: Any, array: Any) -> None:
        """Write ``array`` into what was given."""

    def gradient(
        self, loss: Function, case: Sequence[Any], places: Sequence[Place], weights: Any, uses: int
    ) -> Gradients:
        """Derivatives of the sum of ``weights * output``, ``uses`` times, at each place."""

    def state(self) -> dict[str, Any]:
        """Global settings that a call must leave alone."""


def _fill(array: Any, given: Any, layout: str) -> Any:
    """``array`` written into ``given``, which is twice as wide where strided."""
    if layout == "strided" and array.ndim:
        given = given[..., ::2]
    given[...] = array
    return given


def _one_row(array: Any) -> tuple[slice, ...] | None:
    """The first row of an array, or of a batch of one, all of whose rows are equal; else None."""
    for axis in range(array.ndim - 1):
        if array.shape[axis] > 1:
            row = (*[slice(None)] * axis, slice(0, 1))
            return row if bool((array == array[row]).all()) else None
    return None


def _room(array: Any, layout: str) -> tuple[int, ...]:
    shape: tuple[int, ...] = array.shape
    return (*shape[:-1], 2 * shape[-1]) if layout == "strided" and array.ndim else shape


class NumPy:
    """Arrays of NumPy."""

    name = "numpy"

    def give(self, array: Any, layout: str = "plain") -> Any:
        """A copy."""
        if layout == "broadcast":
            return np.broadcast_to(array[_one_row(array)].copy(), array.shape)
        return _fill(array, np.zeros(_room(array, layout), array.dtype), layout)

    def take(self, value: Any) -> Any:
        """A copy."""
        if type(value) not in (np.ndarray, np.memmap) and not isinstance(value, np.generic):
            raise NotAnArrayError(f"a {type(value).__name__}, which is a kind of array of its own")
        array = np.array(value)
        if array.dtype.kind in "V" or array.dtype == np.float16:  # bfloat16 is an extension
            array = array.astype(np.float32)
        if array.dtype.kind not in "biuf":
            raise NotAnArrayError(f"an array of {array.dtype}")
        return array

    def refill(self, given: Any, array: Any) -> None:
        """In place."""
        given[...] = array

    def gradient(
        self, loss: Function, case: Sequence[Any], places: Sequence[Place], weights: Any, uses: int
    ) -> Gradients:
        """NumPy has none."""
        raise NotImplementedError

    def state(self) -> dict[str, Any]:
        """None: how it treats errors is set around each call."""
        return {}


class Torch:
    """Tensors of PyTorch on one device."""

    name = "torch"

    def __init__(self, device: str = "cpu") -> None:
        """PyTorch is imported here, once it is needed."""
        import torch

        self.torch, self.device = torch, device

    def give(self, array: Any, layout: str = "plain") -> Any:
        """A tensor of its own."""
        torch = self.torch
        if array.dtype.name == "bfloat16":  # PyTorch has no conversion from the extension type
            tensor = torch.from_numpy(array.astype(np.float32)).to(torch.bfloat16)
        else:
            tensor = torch.from_numpy(np.array(array))
        if layout == "plain":
            return tensor.to(self.device)
        if layout == "broadcast":
            return tensor[_one_row(array)].clone().to(self.device).expand(tensor.shape)
        return _fill(tensor, torch.zeros(_room(array, layout), dtype=tensor.dtype), layout).to(
            self.device
        )

    def take(self, value: Any) -> Any:
        """A copy on the host, after all work on the device is done."""
        torch = self.torch
        if type(value) not in (torch.Tensor, torch.nn.Parameter):
            raise NotAnArrayError(f"a {type(value).__name__}, which is a kind of tensor of its own")
        if value.layout != torch.strided:
            raise NotAnArrayError(f"a tensor with the layout {value.layout}")
        if value.is_cuda:
            torch.cuda.synchronize(value.device)
        value = value.detach().cpu().resolve_conj().resolve_neg()
        if value.dtype in (torch.bfloat16, torch.float16):
            value = value.float()
        return NumPy().take(value.numpy())

    def refill(self, given: Any, array: Any) -> None:
        """In place, for every view of it."""
        given.data.copy_(self.give(array))

    def gradient(
        self, loss: Function, case: Sequence[Any], places: Sequence[Place], weights: Any, uses: int
    ) -> Gradients:
        """By autograd."""
        for place in places:
            get(case, place).requires_grad_()
        total = 0.0
        for _ in range(uses):
            output = loss(*case)
            self.take(output)  # says what is wrong with it
            total = total + (output * self.give(weights).to(output)).sum()
        total.backward()  # type: ignore[attr-defined]
        found = [(get(case, place), get(case, place).grad) for place in places]
        return [np.zeros(x.shape) if dx is None else self.take(dx) for x, dx in found]

    def state(self) -> dict[str, Any]:
        """The default dtype, gradient mode and the number of threads."""
        torch = self.torch
        return {
            "torch.get_default_dtype()": str(torch.get_default_dtype()),
            "torch.is_grad_enabled()": torch.is_grad_enabled(),
            "torch.get_num_threads()": torch.get_num_threads(),
        }


class Jax:
    """Arrays of JAX, in 64 bits where they are given so."""

    name = "jax"

    def __init__(self) -> None:
        """JAX is imported here, once it is needed."""
        import jax

        jax.config.update("jax_enable_x64", True)
        self.jax: Any = jax

    def give(self, array: Any, layout: str = "plain") -> Any:
        """A copy; JAX has no strides."""
        return self.jax.numpy.array(array)

    def take(self, value: Any) -> Any:
        """A copy, once it is computed."""
        return NumPy().take(np.asarray(value))

    def refill(self, given: Any, array: Any) -> None:
        """JAX's arrays do not change."""
        raise NotImplementedError

    def gradient(
        self, loss: Function, case: Sequence[Any], places: Sequence[Place], weights: Any, uses: int
    ) -> Gradients:
        """By ``jax.grad``."""
        from benchmarks.verify.cases import replaced

        def total(arrays: Sequence[Any]) -> Any:
            moved: Sequence[Any] = case
            for place, array in zip(places, arrays, strict=True):
                moved = replaced(moved, place, array)
            return sum((loss(*moved) * weights).sum() for _ in range(uses))

        found = self.jax.grad(total)([get(case, place) for place in places])
        return [self.take(gradient) for gradient in found]

    def state(self) -> dict[str, Any]:
        """Whether 64 bits are on."""
        return {"jax_enable_x64": self.jax.config.jax_enable_x64}


FRAMEWORKS: dict[str, Callable[[str], Framework]] = {
    "numpy": lambda device: NumPy(),
    "torch": Torch,
    "jax": lambda device: Jax(),
}
"""By name, for a device."""


def give(framework: Framework, value: Any, layout: str = "plain") -> Any:
    """``value`` with every array in it in the framework: copies, mappings too."""
    if isinstance(value, np.ndarray):
        plain = layout == "broadcast" and _one_row(value) is None
        return framework.give(value, "plain" if plain else layout)
    if isinstance(value, Mapping):
        return {key: give(framework, item, layout) for key, item in value.items()}
    return value


def take(framework: Framework, value: Any) -> Any:
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
    if framework.name == "numpy":
        name = type(value).__module__.partition(".")[0].removesuffix("lib")
        framework = FRAMEWORKS[name]("cpu") if name in FRAMEWORKS else framework
    if framework.name != "numpy" and hasattr(value, "__dlpack__"):
        return framework.take(value)
    with contextlib.suppress(Exception):
        if hasattr(value, "__dlpack__"):
            return NumPy().take(np.from_dlpack(value))
        if hasattr(value, "__array__"):
            return NumPy().take(np.asarray(value))
    raise NotAnArrayError(f"a {type(value).__name__}")
