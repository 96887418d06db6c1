"""Convert NumPy arrays to a candidate's framework (NumPy, PyTorch or JAX) and back."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from math import isnan
from typing import Any
from weakref import ref

from benchmarks.errors import InputError
from benchmarks.verify import layouts
from benchmarks.verify.backward import Graphs, parts
from benchmarks.verify.cases import Place
from benchmarks.verify.originals import has_none, is_one, named, np, own_builtins, torch_originals

own_builtins(globals())

SCALARS = tuple({*np.sctypeDict.values()})
"""Types of NumPy's numbers."""

HALVES = frozenset("eE")
"""Characters of the dtypes float16 and bfloat16."""

PARTS = 8
"""Number of parts of an array of which each is an argument in turn."""

NAN, NAN_BFLOAT16 = np.array(np.nan), 0x7FC0


class NotAnArrayError(TypeError):
    """A candidate's result is not an array or a collection of arrays."""


Function = Callable[..., Any]


def _distinct(array: Any) -> tuple[slice, ...]:
    """An index that takes one entry along each axis on which all entries are equal."""

    def index(axis: int) -> slice:
        one = array.shape[axis] > 1 and bool((array == array.take([0], axis)).all())
        return slice(1) if one else slice(None)

    return tuple(map(index, range(array.ndim)))


class NumPy:
    """NumPy arrays; subclasses implement other frameworks."""

    name = "numpy"
    types: tuple[type, ...] = (np.ndarray,)

    def from_numpy(self, array: Any, layout: str = "plain", copy: bool = True) -> Any:
        """Convert a NumPy array, also a 16-bit one; without ``copy`` only if needed."""
        layout = layout.partition(" ")[0]
        if layout == layouts.OWN:
            return array.copy()
        if layout == "broadcast" and array.ndim:
            one = array[_distinct(array)].copy()
            sizes = zip(one.shape, array.shape, one.strides, strict=True)
            strides = [0 if size < whole else stride for size, whole, stride in sizes]
            return np.ndarray(array.shape, array.dtype, one, strides=strides)
        if layout == layouts.ROWS and array.ndim > 2:
            ones = array.copy()
            ones[...] = 1
            return np.concatenate([array, ones], -2)[..., : array.shape[-2], :]
        if layout == layouts.SLICES:
            given = np.zeros((PARTS, *array.shape), array.dtype)
            given[...] = array
            return given[:1].reshape(array.shape)
        if layout in layouts.VIEWS and array.ndim:
            if layout == "transposed":
                return array.T.copy().T
            *rows, d = array.shape
            given = np.zeros((*rows, 2 * d), array.dtype)
            given[...] = 1
            if layout == "offset":
                given = given.ravel()[1 : array.size + 1].reshape(array.shape)
            else:
                given = given[..., ::2] if layout == "strided" else given[..., d:]
            given[...] = array
            return given
        return np.array(array) if copy else array.view()

    def is_view(self, value: Any, array: Any) -> bool:
        """Whether an array, converted without a copy, still has all of a NumPy array's memory."""
        if type(value) is not np.ndarray or value.dtype != array.dtype:
            return False
        return bool(value.__array_interface__ == array.__array_interface__)

    def accumulate(self, parameters: Iterable[Any]) -> None:
        """Give parameters a gradient, of zeros."""

    def is_plain(self, value: Any) -> bool:
        """Whether an argument is part of no graph: it has no gradient, but what it was given, nor
        requires one, unless it is a parameter.
        """
        return True

    def to_numpy(self, value: Any) -> Any:
        """Convert the framework's array to a new NumPy array; 16-bit floats become float32."""
        if not is_one(type(value), (np.ndarray, *SCALARS)):
            raise NotAnArrayError(f"{named(type(value))}, which is a kind of array of its own")
        array = np.array(value)
        if array.dtype.char in HALVES:
            array = array.astype(np.float32)
        if array.dtype.kind not in "biuf":
            raise NotAnArrayError(f"an array of {array.dtype}")
        return array

    def in_place(self, value: Any) -> Any:
        """``to_numpy``, or where that takes less time its own memory, of bfloat16 as integers."""
        return self.to_numpy(value)

    def refill(self, given: Any, array: Any, is_seen: bool = True) -> None:
        """Write ``array`` into a converted array, if ``is_seen`` with another version."""
        given[...] = array

    def another(self, given: Any) -> Any:
        """Another array in the memory of a converted one."""
        return given.view()

    def view(self, result: Any) -> Any:
        """An array of a result as another one in its memory, part of no graph."""
        return result.view()

    def next_part(self, given: Any) -> Any:
        """The next part of the array that a converted one is part of; then the first."""
        at = given.__array_interface__["data"][0] - given.base.__array_interface__["data"][0]
        part = (at // max(given.nbytes, 1) + 1) % PARTS
        return given.base[part : part + 1].reshape(given.shape)

    def rows(self, result: Any) -> list[Any]:
        """The first rows of an array of a result."""
        return [*result[:PARTS]] if result.ndim > 1 else []

    def fits(self, part: Any, given: Any) -> bool:
        """Whether part of a result can be given in the place of a converted array."""
        is_alike = type(part) is type(given) and part.dtype == given.dtype
        flags = part.flags
        return bool(
            is_alike and part.shape == given.shape and flags.writeable and flags.c_contiguous
        )

    def poison(self, given: Any, factor: float) -> None:
        """Write other numbers into a converted array, or NaN if ``factor`` is: into integers, which
        have no NaN, what it becomes there.
        """
        if given.dtype.kind == "f" and not isnan(factor):
            np.multiply(given, -factor, out=given)  # in place: there may be millions
            np.add(given, 1, out=given)
        else:
            given[...] = NAN

    def gradient(
        self,
        loss: Function,
        case: Sequence[Any],
        places: Sequence[Place],
        weights: Any,
        read: Function,
        uses: int = 1,
        layout: str = "plain",
        then: Sequence[Any] | None = None,
    ) -> list[Any]:
        """Gradients of the sum of ``weights * output`` over ``uses`` calls, for each place.

        The outputs follow them. ``layout`` is that of the upstream gradient; ``then`` are the
        arguments of a call before the backward pass, or, ``REFILLED``, of equal shapes, before all
        else. Results are ``read`` as soon as they are returned, each output, then the gradients of
        each backward pass.
        """
        raise NotImplementedError

    def detached(self, result: Any) -> Any:
        """The arrays of a result, or of gradients, in their memory, part of no graph."""
        return [x for x in parts(result) if x is not None]

    def mode(self, layout: str) -> AbstractContextManager[Any]:
        """The context of a call."""
        return contextlib.nullcontext()

    def several_threads(self) -> AbstractContextManager[Any]:
        """The context of a call for which the framework has more than one thread."""
        return contextlib.nullcontext()

    def memory(self, array: Any) -> tuple[int, int]:
        """Where an array's memory begins and ends; of what is in another framework nowhere."""
        if not isinstance(array, np.ndarray) or not array.size:
            return 0, 0
        steps = [(n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)]
        at = array.__array_interface__["data"][0]
        end = at + sum(step for step in steps if step > 0) + array.itemsize
        return at + sum(step for step in steps if step < 0), end


class Torch(NumPy):
    """PyTorch tensors on one device."""

    name = "torch"

    def __init__(self, device: str = "cpu") -> None:
        self.torch, self.device = torch_originals(), device
        self.types = self.torch.Tensor, self.torch.Parameter
        self._dtypes: dict[Any, Any] = {}
        self._given: dict[int, tuple[Any, Any]] = {}  # parameters, by identity, with gradients
        if device.startswith("cuda"):  # float32 is float32, in cuDNN too
            self.torch.backends.cudnn.allow_tf32 = False
        try:
            self._plain = self.torch.empty(0, device=device)
        except (RuntimeError, AssertionError) as error:
            reason = str(error).partition("\n")[0]
            raise InputError(f"device {device!r}: PyTorch cannot use it: {reason}") from error

    def from_numpy(self, array: Any, layout: str = "plain", copy: bool = True) -> Any:
        torch, methods, layout = self.torch, self.torch.methods, layout.partition(" ")[0]
        is_view = layout in (*layouts.VIEWS, layouts.ROWS, layouts.SLICES, "broadcast")
        array = super().from_numpy(array, layout if is_view else "plain", copy or is_view)
        whole = array  # of which it is a view
        while is_view and type(whole.base) is np.ndarray:
            whole = whole.base
        if array.dtype.kind == "V":  # bfloat16: PyTorch has no conversion from the extension type
            tensor = methods.view(torch.from_numpy(whole.view(np.int16)), torch.bfloat16)
        else:
            tensor = torch.from_numpy(whole)
        if self.device != "cpu":
            tensor = methods.to(tensor, self.device)
        if whole is not array:
            at, start = (x.__array_interface__["data"][0] for x in (array, whole))
            strides = tuple(stride // array.itemsize for stride in array.strides)
            tensor = methods.as_strided(
                tensor, array.shape, strides, (at - start) // array.itemsize
            )
            if methods.stride(tensor) != strides:
                raise InputError("candidate: expected PyTorch's as_strided, which it has replaced")
        if layout == layouts.OWN:
            return methods.clone(tensor)
        if layout == layouts.INFERRED:
            with torch.inference_mode():
                return methods.clone(tensor)
        if layout == layouts.REQUIRING and methods.is_floating_point(tensor):
            return methods._make_subclass(torch.Parameter, tensor, True)
        return tensor

    def is_view(self, value: Any, array: Any) -> bool:
        if type(value) is not self.torch.Tensor or not array.flags.c_contiguous:
            return False
        methods, dtype = self.torch.methods, array.dtype
        if dtype not in self._dtypes:
            self._dtypes[dtype] = methods.dtype.__get__(self.from_numpy(array))
        return bool(
            methods.data_ptr(value) == array.__array_interface__["data"][0]
            and methods.shape.__get__(value) == array.shape
            and methods.is_contiguous(value)
            and methods.dtype.__get__(value) == self._dtypes[dtype]
        )

    def to_numpy(self, value: Any) -> Any:
        torch = self.torch
        if not is_one(type(value), self.types):
            own = ", which is a kind of tensor of its own" if torch.is_tensor(value) else ""
            raise NotAnArrayError(f"{named(type(value))}{own}")
        own = torch.own_of(value)
        if not has_none(own, torch.attributes) or any(name.startswith("__") for name in own):
            raise NotAnArrayError("a tensor with methods of its own")
        with torch.without_functions():
            return self._read(value)

    def _read(self, value: Any) -> Any:
        torch, methods = self.torch, self.torch.methods
        if torch.modes():
            raise NotAnArrayError("a tensor while a TorchFunctionMode or TorchDispatchMode is on")
        if (layout := methods.layout.__get__(value)) != torch.strided:
            raise NotAnArrayError(f"a tensor with the layout {layout}")
        if torch.is_unusual(value, self._plain):  # as transforms and modes have them
            raise NotAnArrayError("a tensor that PyTorch's operators do not take for its numbers")
        if (array := torch.in_memory(value)) is not None:
            if methods.dtype.__get__(value) == torch.bfloat16:
                array = (array.astype(np.uint32) << 16).view(np.float32)
            return super().to_numpy(np.negative(array) if methods.is_neg(value) else array)
        if methods.is_cpu.__get__(value):
            raise NotAnArrayError(f"a tensor of {methods.dtype.__get__(value)}")
        if torch.are_operators_replaced():
            raise NotAnArrayError("a tensor while one of PyTorch's own operators is replaced")
        if methods.is_cuda.__get__(value):  # wait for all streams
            torch.synchronize(methods.device.__get__(value))
        is_low = methods.dtype.__get__(value) in (torch.bfloat16, torch.float16)
        low = [methods.float] if is_low else []
        for step in (methods.detach, methods.cpu, methods.resolve_conj, methods.resolve_neg, *low):
            value = step(value)
        return super().to_numpy(methods.numpy(value))

    def accumulate(self, parameters: Iterable[Any]) -> None:
        self._given = {at: one for at, one in self._given.items() if one[0]() is not None}
        for parameter in parameters:
            zeros = self.torch.zeros_like(parameter)
            self.torch.methods.grad.__set__(parameter, zeros)
            self._given[id(parameter)] = ref(parameter), zeros

    def is_plain(self, value: Any) -> bool:
        if not self.torch.is_tensor(value):
            return True
        methods = self.torch.methods
        needs, grad, hooks = methods.requires_grad, methods.grad, methods._backward_hooks
        if needs.__get__(value) != (type(value) is self.torch.Parameter):
            return False
        if hooks.__get__(value) is not None:
            return False
        of_it, zeros = self._given.get(id(value), (lambda: None, None))
        if (found := grad.__get__(value)) is None:
            return True
        memory = self.torch.in_memory(found)
        return of_it() is value and found is zeros and (memory is None or not memory.any())

    def in_place(self, value: Any) -> Any:
        array = self.torch.in_memory(value) if is_one(type(value), self.types) else None
        return self.to_numpy(value) if array is None else array

    def refill(self, given: Any, array: Any, is_seen: bool = True) -> None:
        methods, memory = self.torch.methods, self.torch.in_memory(given)
        if memory is None:
            given = given if is_seen else methods.data.__get__(given)
            with self.torch.inference_mode():  # of tensors that are made in it, too
                methods.copy_(given, self.from_numpy(array))
            return
        # by no operator, which a candidate may have replaced
        numbers = array.view(memory.dtype) if array.dtype.kind == "V" else array
        if (memory == numbers).all():  # nor does its version change
            return
        memory[...] = numbers
        if is_seen and not methods.is_inference(given):  # as optimisers do
            self.torch.increment_version([given])

    def another(self, given: Any) -> Any:
        tensor = self.torch.methods.data.__get__(given)  # of another version
        is_parameter = type(given) is self.torch.Parameter
        make = self.torch.methods._make_subclass
        return make(self.torch.Parameter, tensor, True) if is_parameter else tensor

    def view(self, result: Any) -> Any:
        return self.torch.methods.detach(result)

    def next_part(self, given: Any) -> Any:
        methods, shape = self.torch.methods, self.torch.methods.shape.__get__(given)
        entries = methods.numel(given)
        start = (methods.storage_offset(given) + entries) % max(PARTS * entries, 1)
        return methods.as_strided(given, shape, methods.stride(given), start)

    def rows(self, result: Any) -> list[Any]:
        methods = self.torch.methods
        return [*methods.unbind(result)][:PARTS] if methods.dim(result) > 1 else []

    def fits(self, part: Any, given: Any) -> bool:
        if type(part) is not self.torch.Tensor or type(given) is not self.torch.Tensor:
            return False
        methods = self.torch.methods
        if not self.is_plain(part) or not methods.is_contiguous(part):
            return False
        of = methods.shape.__get__, methods.dtype.__get__, methods.device.__get__
        return all(one(part) == one(given) for one in of)

    def poison(self, given: Any, factor: float) -> None:
        methods, memory = self.torch.methods, self.torch.in_memory(given)
        if memory is None:
            methods.fill_(methods.data.__get__(given), float("nan"))
        elif methods.dtype.__get__(given) == self.torch.bfloat16:
            memory[...] = NAN_BFLOAT16
        else:
            super().poison(memory, factor)

    def gradient(
        self,
        loss: Function,
        case: Sequence[Any],
        places: Sequence[Place],
        weights: Any,
        read: Function,
        uses: int = 1,
        layout: str = "plain",
        then: Sequence[Any] | None = None,
    ) -> list[Any]:
        graphs = Graphs(self, loss, case, places, weights, read, layout)
        return graphs.gradients(uses, layout, then)

    def detached(self, result: Any) -> Any:
        is_tensor, detach = self.torch.is_tensor, self.torch.methods.detach
        return [detach(x) if is_tensor(x) else x for x in super().detached(result)]

    @contextlib.contextmanager
    def mode(self, layout: str) -> Iterator[None]:
        name, torch = layout.rpartition(" ")[2], self.torch
        mode: Any = getattr(torch, name) if name in layouts.INFERENCE else contextlib.nullcontext
        before = torch.is_deterministic(), torch.is_deterministic_warn_only()
        # in which new memory is filled with NaN; not always, so that a call that sets it is seen
        torch.set_deterministic(name != "inference_mode", warn_only=True)
        try:
            with mode():
                yield
        finally:
            torch.set_deterministic(before[0], warn_only=before[1])

    @contextlib.contextmanager
    def several_threads(self) -> Iterator[None]:
        threads = self.torch.get_num_threads()
        self.torch.set_num_threads(max(threads, 2))
        try:
            yield
        finally:
            self.torch.set_num_threads(threads)

    def memory(self, array: Any) -> tuple[int, int]:
        if not self.torch.is_tensor(array):
            return super().memory(array)
        at = self.torch.data_ptr(self.torch.methods.untyped_storage(array))
        return at, at + bool(at)  # in one storage is in the same memory
