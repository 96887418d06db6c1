"""The backward passes of a candidate in PyTorch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from math import nan
from time import monotonic
from typing import Any

from benchmarks.verify import layouts
from benchmarks.verify.cases import Place, chained, get, replaced
from benchmarks.verify.errors import BackwardError
from benchmarks.verify.originals import np, own_builtins
from benchmarks.verify.same import same

own_builtins(globals())

Weighted = list[tuple[Any, Any]]
"""Outputs with their upstream gradients, or these with their numbers."""

BETWEEN, ENTRIES, SECONDS = 64, 2**18, 0.25
"""Maximum number of calls between a call and its backward pass, of entries of all of them, and
their time, after which none is begun.
"""


def parts(result: Any) -> list[Any]:
    """The arrays of a result, which may be several, such as an LSTM's h and c."""
    return [*result] if isinstance(result, (list, tuple)) else [result]


def _tensors(case: Sequence[Any], is_tensor: Callable[[Any], bool]) -> list[Any]:
    values = (list(x.values()) if isinstance(x, Mapping) else [x] for x in case)
    return [x for several in values for x in several if is_tensor(x)]


class Graphs:
    """Calls of a function on a case, and their backward passes."""

    def __init__(
        self,
        framework: Any,
        loss: Callable[..., Any],
        case: Sequence[Any],
        places: Sequence[Place],
        weights: Any,
        read: Callable[..., Any],
        layout: str,
    ) -> None:
        """See ``frameworks.NumPy.gradient``; the ``framework`` is PyTorch."""
        self.framework, self.loss, self.read = framework, loss, read
        self.torch, self.methods = framework.torch, framework.torch.methods
        self.places, self.weights = places, np.asarray(weights)
        layout = layouts.of_arrays(layout)
        self.of_upstream = "plain" if layout in layouts.OF_MODULES else layout
        self.leaves = [get(case, place) for place in places]
        for leaf in self.leaves:
            self.methods.requires_grad_(leaf)
        if layout in (layouts.COMPUTED, layouts.HIDDEN):
            of = zip(places, self.leaves, strict=True)
            some = [pair for pair in of if layout == layouts.COMPUTED or pair[0][1] is None]
            case = replaced(case, {place: self.methods.clone(leaf) for place, leaf in some})
        self.case = case
        self.results: list[Any] = []
        """The outputs, part of no graph: a candidate may see when those that are have ended."""
        self.numbers: list[Any] = []
        self.between: list[Any] = []
        """Those of freed results that differ."""
        self.fed: Place | None = None
        """Where a result is an argument: there no gradient is found."""
        self.upstreams: Weighted = []
        self.used: list[Any] = []
        """Upstream gradients of a pass before, which get other numbers."""

    def gradients(self, uses: int, layout: str, then: Sequence[Any] | None) -> list[Any]:
        """Those of each backward pass, then the list of outputs."""
        grad, zeros_like = self.methods.grad, self.torch.zeros_like
        for leaf in self.leaves if uses > 1 else ():  # as an optimiser leaves it
            grad.__set__(leaf, zeros_like(leaf))
        before: list[Any] = []
        if layout.startswith(layouts.REFILLED):
            before, then = [self._differentiated(then)], None
        if then is not None:
            self._require(then)
        if then is not None and layout.startswith(layouts.CHAINED):
            self.between.append(self._fed(then))
            then = None
        given = self.case
        if layout.startswith(layouts.BESIDE):  # results, which are freed
            tops = [at for at in self.places if at[1] is None]
            self.case = replaced(given, {at: self.methods.clone(get(given, at)) for at in tops})
        if layout in layouts.AGAIN:
            with self.framework.mode("no_grad"):
                result = self.loss(*self.case)
            self.between.append(self.read(result))
            self._poison(self.framework.detached(result))
        outputs = [self._called(self.case) for _ in range(uses)]
        weighted = self._weighted(outputs)
        self.upstreams = [(dy, self._numbers(dy)) for _, dy in weighted]
        with contextlib.ExitStack() as until_passed:
            if then is not None and layout.startswith(layouts.BESIDE):
                product, ones_like = self.methods.mul, self.torch.ones_like
                weighted = [(product(y, dy), ones_like(dy)) for y, dy in weighted]
                del outputs  # their graphs remain
                pairs = zip(self.case, given, strict=True)
                self.case = [one if isinstance(one, Mapping) else leaf for one, leaf in pairs]
                until_passed.enter_context(self._calls_beside(then))
            elif then is not None:
                outputs.append(self._called(then))
            passes = self._passes(weighted, uses)
        self._assert_unchanged([*self.case, *(then or ())])
        if layout in layouts.AGAIN:
            self._poison(chain.from_iterable(self.results))
            self.between.append(self.read(self.loss(*self.case)))
        return [*passes, [*self.numbers, *self.between, *before]]

    def _fed(self, then: Sequence[Any]) -> Any:
        """The result on others, which becomes an argument with its graph."""
        result = self.loss(*then)
        numbers = self.read(result)
        if (found := chained(self.case, result, self.places)) is not None:
            self.fed, part = found
            self.case = replaced(self.case, {self.fed: part})
        return numbers

    def _numbers(self, tensor: Any) -> Any:
        return self.framework.to_numpy(tensor)

    def _called(self, arguments: Sequence[Any]) -> Any:
        result = self.loss(*arguments)
        self.numbers.append(self.read(result))
        self.results.append(self.framework.detached(result))
        if arguments is self.case:
            for one in parts(result):
                self._numbers(one)  # raises if it is not a tensor
            requires, frozen = self.methods.requires_grad.__get__, self._frozen()
            if any(map(requires, frozen)):
                raise ValueError("the call required a gradient of an argument that required none")
            shape = np.asarray(self.numbers[-1]).shape
            if shape != self.weights.shape:
                raise ValueError(f"an output of {shape}, expected {self.weights.shape}")
        return result

    def _frozen(self) -> list[Any]:
        by = [get(self.case, place) for place in self.places]
        given = _tensors(self.case, self.torch.is_tensor)
        return [x for x in given if all(x is not one for one in by)]

    def _require(self, then: Sequence[Any]) -> None:
        for place in self.places:
            with contextlib.suppress(LookupError):  # another model may lack it
                get(then, place).requires_grad_()

    def _freed(self, result: Any) -> None:
        """Read a result that nothing refers to any more, if it is none of those before."""
        numbers = [*map(self._numbers, parts(result))]
        if not any(all(map(same, numbers, parts(one))) for one in self.between):
            self.between.append(self.read(result))

    @contextlib.contextmanager
    def _calls_beside(self, then: Sequence[Any]) -> Iterator[None]:
        """Many calls on other arguments, without gradients, too, whose results are freed.

        A mapping is the case's own, which has the others' entries until the end.
        """
        pairs = [*zip(self.case, then, strict=True)]
        of_mappings = [pair for pair in pairs if isinstance(pair[0], Mapping)]
        before = [dict(mine) for mine, _ in of_mappings]
        for mine, others in of_mappings:
            mine.update(others)
        given = [mine if isinstance(mine, Mapping) else other for mine, other in pairs]
        tensors = _tensors(given, self.torch.is_tensor)
        entries = sum(map(self.methods.numel, tensors))
        many = max(1, min(BETWEEN, ENTRIES // max(entries, 1)))
        end = monotonic() + SECONDS
        for mode in (*layouts.INFERENCE, *[""] * many):
            if monotonic() < end:
                with self.framework.mode(mode):
                    self._freed(self.loss(*given))
        self._called(given)
        yield
        for (mine, _), entry in zip(of_mappings, before, strict=True):
            mine.update(entry)

    def _weighted(self, outputs: Sequence[Any], sign: float = 1.0) -> Weighted:
        """Each output, if it is no constant as of an empty caption, with its upstream gradient:
        a buffer that two backward passes share shows if their gradients differ.
        """
        found: Weighted = []
        requires = self.methods.requires_grad.__get__
        dtype = np.asarray(self.numbers[0]).dtype
        for i, result in enumerate(outputs, 1):
            upstream = np.asarray(sign * i * self.weights, dtype)
            of = upstream if isinstance(result, (list, tuple)) else [upstream]
            for y, dy in zip(parts(result), of, strict=True):
                if not requires(y):
                    continue
                if self.used:
                    self.framework.refill(given := self.used.pop(0), dy)
                else:
                    given = self.framework.from_numpy(dy, self.of_upstream)
                found.append((y, given))
        return found

    def _passes(self, weighted: Weighted, uses: int) -> list[Any]:
        """The gradients of a backward pass, and if there are two of one with the negative of its
        upstream gradients, in the same tensors.

        Between them nothing is called that a candidate may have replaced, but for views.
        """
        # of two passes one is that of ``torch.autograd.grad``
        by = self.leaves if uses > 1 else ()
        found = self._backward(weighted, by, retain_graph=uses > 1)
        passes = [*self._arrays(found)]
        self._assert_upstreams()
        if uses == 1:
            return passes
        self.upstreams = [(dy, -numbers) for dy, numbers in self.upstreams]
        for dy, numbers in self.upstreams:
            self.framework.refill(dy, numbers)
        try:
            second = self._negative(weighted, found)
            self._assert_upstreams()
        except BackwardError as error:  # what it saved may be released: it is called again
            if not isinstance(error.__cause__, RuntimeError):
                raise
            for leaf in self.leaves:
                self.methods.grad.__set__(leaf, None)
            outputs = [self.loss(*self.case) for _ in range(uses)]
            second = self._negative(self._weighted(outputs, -1.0), found)
        return [*passes, *self._arrays(second)]

    def _poison(self, results: Iterable[Any]) -> None:
        given = [*map(self.framework.memory, _tensors(self.case, self.torch.is_tensor))]
        for x in filter(self.torch.is_tensor, results):
            if self.framework.memory(x) not in given:
                self.framework.poison(x, nan)

    def _assert_upstreams(self) -> None:
        if not all(same(self._numbers(dy), numbers) for dy, numbers in self.upstreams):
            raise ValueError("the backward pass changed the upstream gradient in place")

    def _backward(self, weighted: Weighted, by: Sequence[Any], retain_graph: bool) -> list[Any]:
        """The gradients of a backward pass, ``by`` tensors or as it leaves them in the leaves."""
        grad, returned = self.methods.grad, [None] * len(by)
        if weighted:
            outputs, upstreams = zip(*weighted, strict=True)
            try:
                returned = self.torch.backward(outputs, upstreams, retain_graph, by)
            except Exception as error:
                raise BackwardError from error
        found = returned if by else [grad.__get__(x) for x in self.leaves]
        for x in self.leaves:
            grad.__set__(x, None)
        return [*found]

    def _negative(self, weighted: Weighted, others: Sequence[Any]) -> list[Any]:
        """The negative of a pass's gradients, beside ``others``: each leaf's gradient before the
        pass, and its share of another loss.
        """
        grad = self.methods.grad
        shares = [pair for pair in zip(self.leaves, others, strict=True) if pair[1] is not None]
        for leaf, other in shares:
            grad.__set__(leaf, self.methods.copy_(self.torch.zeros_like(leaf), other))
        of_both = [*weighted, *shares] if weighted else []
        found = self._backward(of_both, (), retain_graph=True)
        numbers = ((x if x is None else self._numbers(x)) for x in found)
        return [
            x if x is None else (0 if other is None else 2 * self._numbers(other)) - x
            for x, other in zip(numbers, others, strict=True)
        ]

    def _arrays(self, found: Sequence[Any]) -> Any:
        shape, pairs = self.methods.shape.__get__, zip(self.leaves, found, strict=True)
        return self.read([np.zeros(shape(x)) if dx is None else dx for x, dx in pairs])

    def _assert_unchanged(self, given: Sequence[Any]) -> None:
        """Assert that the passes changed no argument and no output.

        Raises:
            ValueError: they did.
        """
        methods, tensors = self.methods, _tensors(given, self.torch.is_tensor)
        grad, is_leaf = methods.grad.__get__, methods.is_leaf.__get__
        if any(grad(x) is not None for x in tensors if is_leaf(x)):
            raise ValueError("the backward pass set the gradient of an argument that required none")
        hooks = methods._backward_hooks.__get__, methods._post_accumulate_grad_hooks.__get__
        if any(of(x) for of in hooks for x in tensors):
            raise ValueError("the call hooked the gradient of an argument")
        for place, leaf in zip(self.places, self.leaves, strict=True):
            value = get(self.case, place)
            is_other = value is not leaf and place != self.fed
            if is_other and not same(self._numbers(value), self._numbers(leaf)):
                raise ValueError("the backward pass changed an argument in place")
        for now, was in zip(self.results, map(parts, self.numbers), strict=True):
            is_read = all(map(self.torch.is_tensor, now))  # after another case anything may be
            if is_read and not all(map(same, map(self._numbers, now), was)):
                raise ValueError("the backward pass changed an output in place")

    def _differentiated(self, other: Any) -> Any:
        """The result of a call and a backward pass with ``other`` numbers in the case's tensors."""
        tensors, methods = _tensors(self.case, self.torch.is_tensor), self.methods
        values = [*map(self._numbers, tensors)]
        self._refill(tensors, map(self._numbers, _tensors(other, self.torch.is_tensor)))
        returned = self.loss(*self.case)
        result = self.read(returned)
        outputs = [y for y in parts(returned) if methods.requires_grad.__get__(y)]
        weighted = [(y, self.torch.ones_like(y)) for y in outputs]
        self._backward(weighted, (), retain_graph=False)
        self.used = [dy for _, dy in weighted]
        self._refill(tensors, values)
        return result

    def _refill(self, tensors: Iterable[Any], arrays: Iterable[Any]) -> None:
        for tensor, array in zip(tensors, arrays, strict=True):
            self.framework.refill(tensor, array)
