"""Convert NumPy arrays to a candidate's framework (NumPy, PyTorch or JAX) and back."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import chain
from math import isnan
from typing import Any

from benchmarks.errors import InputError
from benchmarks.verify import layouts
from benchmarks.verify.cases import Place, get, replaced
from benchmarks.verify.originals import has_none, is_one, named, np, own_builtins, torch_originals
from benchmarks.verify.same import same

own_builtins(globals())

SCALARS = tuple({*np.sctypeDict.values()})
"""Types of NumPy's numbers."""

HALVES = frozenset("eE")
"""Characters of the dtypes float16 and bfloat16."""

NAN, NAN_BFLOAT16 = np.array(np.nan), 0x7FC0


class BackwardError(Exception):
    """A backward pass raised the exception that is the cause of this one."""


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

    def is_plain(self, value: Any) -> bool:
        """Whether an argument is part of no graph: it has no gradient, nor requires one, unless it
        is a parameter.
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

    def refill(self, given: Any, array: Any) -> None:
        """Write ``array`` into a converted array."""
        given[...] = array

    def another(self, given: Any) -> Any:
        """Another array in the memory of a converted one."""
        return given.view()

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
        return [x for x in _parts(result) if x is not None]

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


def _tensors(case: Sequence[Any], is_tensor: Callable[[Any], bool]) -> list[Any]:
    values = (list(x.values()) if isinstance(x, Mapping) else [x] for x in case)
    return [x for several in values for x in several if is_tensor(x)]


def _parts(result: Any) -> list[Any]:
    """The arrays of a result, which may be several, such as an LSTM's h and c."""
    return [*result] if isinstance(result, (list, tuple)) else [result]


class Torch(NumPy):
    """PyTorch tensors on one device."""

    name = "torch"

    def __init__(self, device: str = "cpu") -> None:
        self.torch, self.device = torch_originals(), device
        self.types = self.torch.Tensor, self.torch.Parameter
        self._dtypes: dict[Any, Any] = {}
        if device.startswith("cuda"):  # float32 is float32, in cuDNN too
            self.torch.backends.cudnn.allow_tf32 = False
        try:
            self._plain = self.torch.empty(0, device=device)
        except (RuntimeError, AssertionError) as error:
            reason = str(error).partition("\n")[0]
            raise InputError(f"device {device!r}: PyTorch cannot use it: {reason}") from error

    def from_numpy(self, array: Any, layout: str = "plain", copy: bool = True) -> Any:
        torch, methods, layout = self.torch, self.torch.methods, layout.partition(" ")[0]
        is_view = layout in (*layouts.VIEWS, layouts.ROWS, "broadcast")
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

    def is_plain(self, value: Any) -> bool:
        if not self.torch.is_tensor(value):
            return True
        methods = self.torch.methods
        needs, grad, hooks = methods.requires_grad, methods.grad, methods._backward_hooks
        if needs.__get__(value) != (type(value) is self.torch.Parameter):
            return False
        return grad.__get__(value) is hooks.__get__(value) is None

    def in_place(self, value: Any) -> Any:
        array = self.torch.in_memory(value) if is_one(type(value), self.types) else None
        return self.to_numpy(value) if array is None else array

    def refill(self, given: Any, array: Any) -> None:
        methods, memory = self.torch.methods, self.torch.in_memory(given)
        if memory is None:
            with self.torch.inference_mode():  # of tensors that are made in it, too
                methods.copy_(given, self.from_numpy(array))
            return
        # by no operator, which a candidate may have replaced
        numbers = array.view(memory.dtype) if array.dtype.kind == "V" else array
        if (memory == numbers).all():  # nor does its version change
            return
        memory[...] = numbers
        if not methods.is_inference(given):  # as optimisers do, whose updates it shows
            self.torch.increment_version([given])

    def another(self, given: Any) -> Any:
        tensor = self.torch.methods.data.__get__(given)  # of another version
        is_parameter = type(given) is self.torch.Parameter
        make = self.torch.methods._make_subclass
        return make(self.torch.Parameter, tensor, True) if is_parameter else tensor

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
        refills, layout = layout.startswith(layouts.REFILLED), layouts.unfilled(layout)
        of_upstream = "plain" if layout in layouts.OF_MODULES else layout
        leaves, methods = [get(case, place) for place in places], self.torch.methods
        requires, shape = methods.requires_grad.__get__, methods.shape.__get__
        for leaf in leaves:
            methods.requires_grad_(leaf)
        if layout in (layouts.COMPUTED, layouts.HIDDEN):
            of = zip(places, leaves, strict=True)
            some = [pair for pair in of if layout == layouts.COMPUTED or pair[0][1] is None]
            case = replaced(case, {place: methods.clone(leaf) for place, leaf in some})
        before, grad = [], methods.grad
        for leaf in leaves if uses > 1 else ():  # as an optimiser leaves it
            grad.__set__(leaf, self.torch.zeros_like(leaf))
        if refills:
            before, then = [self._differentiated(loss, case, then, leaves, read)], None
        results, numbers = [], []

        def call(arguments: Sequence[Any]) -> None:
            result = loss(*arguments)
            numbers.append(read(result))
            results.append(result)

        for _ in range(uses):
            call(case)
        for one in chain.from_iterable(map(_parts, results)):
            self.to_numpy(one)  # raises if it is not a tensor
        output = np.asarray(numbers[0])
        frozen = _tensors(case, self.torch.is_tensor)
        if any(requires(x) and all(x is not get(case, p) for p in places) for x in frozen):
            raise ValueError("the call required a gradient of an argument that required none")
        if output.shape != np.shape(weights):
            raise ValueError(f"an output of {output.shape}, expected {np.shape(weights)}")
        if then is not None:
            for place in places:
                with contextlib.suppress(LookupError):  # another model may lack it
                    get(then, place).requires_grad_()
            call(then)

        def weigh(results: Sequence[Any]) -> list[tuple[Any, Any]]:
            """Each output, if it is no constant as of an empty caption, with its upstream gradient:
            a buffer that two backward passes share shows if their gradients differ.
            """
            found = []
            for i, result in enumerate(results, 1):
                upstream = np.asarray(i * np.asarray(weights), output.dtype)
                of = upstream if isinstance(result, (list, tuple)) else [upstream]
                pairs = zip(_parts(result), of, strict=True)
                found += [(y, self.from_numpy(dy, of_upstream)) for y, dy in pairs if requires(y)]
            return found

        # between its two passes nothing is called that a candidate may have replaced, but for views
        weighted = weigh(results[:uses])
        upstreams = [dy for _, dy in weighted]
        as_given = [self.to_numpy(dy) for dy in upstreams]

        def backward(by: Sequence[Any] = (), others: Sequence[Any] = ()) -> list[Any]:
            """``others`` are each leaf's gradient before, and its share of another loss."""
            returned: Any = [None] * len(by)
            shares = [pair for pair in zip(leaves, others, strict=False) if pair[1] is not None]
            for leaf, other in shares:
                grad.__set__(leaf, methods.copy_(self.torch.zeros_like(leaf), other))
            if weighted:
                try:
                    of = zip(*weighted, *shares, strict=True)
                    returned = self.torch.backward(*of, retain_graph=uses > 1, by=by)
                except Exception as error:
                    raise BackwardError from error
            found = returned if by else [grad.__get__(x) for x in leaves]
            for x in leaves:
                grad.__set__(x, None)
            if others:
                found = [
                    x if other is None else self.to_numpy(x) - 2 * self.to_numpy(other)
                    for x, other in zip(found, others, strict=True)
                ]
            return [*found]

        def arrays(found: Sequence[Any]) -> Any:
            pairs = zip(leaves, found, strict=True)
            return read([np.zeros(shape(x)) if dx is None else dx for x, dx in pairs])

        # of two passes one is that of ``torch.autograd.grad``
        found = backward(leaves if uses > 1 else ())
        passes = [*arrays(found)]
        if uses > 1:
            try:
                second = backward(others=found)
            except BackwardError as error:  # what it saved may be released: it is called again
                if not isinstance(error.__cause__, RuntimeError):
                    raise
                for leaf in leaves:
                    grad.__set__(leaf, None)
                weighted = weigh([loss(*case) for _ in range(uses)])
                second = backward(others=found)
            passes += arrays(second)
        given = [*_tensors(case, self.torch.is_tensor), *_tensors(then or (), self.torch.is_tensor)]
        if any(grad.__get__(x) is not None for x in given if methods.is_leaf.__get__(x)):
            raise ValueError("the backward pass set the gradient of an argument that required none")
        hooks = methods._backward_hooks.__get__, methods._post_accumulate_grad_hooks.__get__
        if any(of(x) for of in hooks for x in given):
            raise ValueError("the call hooked the gradient of an argument")
        if not all(map(same, map(self.to_numpy, upstreams), as_given)):
            raise ValueError("the backward pass changed the upstream gradient in place")
        for place, leaf in zip(places, leaves, strict=True):
            value = get(case, place)
            if value is not leaf and not same(self.to_numpy(value), self.to_numpy(leaf)):
                raise ValueError("the backward pass changed an argument in place")
        for now, was in zip(map(_parts, results), map(_parts, numbers), strict=True):
            is_read = all(map(self.torch.is_tensor, now))  # after another case anything may be
            if is_read and not all(map(same, map(self.to_numpy, now), was)):
                raise ValueError("the backward pass changed an output in place")
        return [*passes, [*numbers, *before]]

    def _differentiated(
        self,
        loss: Function,
        case: Sequence[Any],
        other: Any,
        leaves: Sequence[Any],
        read: Function,
    ) -> Any:
        """The result of a call and a backward pass with ``other`` numbers in the case's tensors."""
        tensors, methods = _tensors(case, self.torch.is_tensor), self.torch.methods
        values = [methods.clone(methods.detach(tensor)) for tensor in tensors]
        self._write(tensors, _tensors(other, self.torch.is_tensor))
        returned = loss(*case)
        result = read(returned)
        outputs = [y for y in _parts(returned) if methods.requires_grad.__get__(y)]
        if outputs:
            ones = map(self.torch.ones_like, outputs)
            try:
                self.torch.backward(outputs, ones, retain_graph=False)
            except Exception as error:
                raise BackwardError from error
        for leaf in leaves:
            methods.grad.__set__(leaf, None)
        self._write(tensors, values)
        return result

    def _write(self, tensors: Sequence[Any], values: Sequence[Any]) -> None:
        """Write values into tensors as an optimiser does."""
        with self.torch.no_grad():
            for tensor, value in zip(tensors, values, strict=True):
                self.torch.methods.copy_(tensor, value)

    def detached(self, result: Any) -> Any:
        is_tensor, detach = self.torch.is_tensor, self.torch.methods.detach
        return [detach(x) if is_tensor(x) else x for x in super().detached(result)]

    def mode(self, layout: str) -> AbstractContextManager[Any]:
        name = layout.rpartition(" ")[2]
        mode: Any = (
            getattr(self.torch, name) if name in layouts.INFERENCE else contextlib.nullcontext
        )
        return mode()

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
