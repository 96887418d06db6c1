"""Run the oracle with every operation's result rounded to a precision, or perturbed.

NumPy converts bfloat16 to float32 at the first matrix product, and sums bfloat16 numbers one by
one; hardware and PyTorch accumulate in float32 and round once. So the literal form in 16 bits is
the oracle on ``literal`` arrays; in float32 it is the oracle on float32 arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.verify.cases import Array, Case, mapped, numpy_dtype

EMPTY = 1e-6
"""Denominators below it are empty sums, of which only Psi's epsilon is left."""


class HookedArray(np.ndarray[Any, np.dtype[np.float64]]):
    """A float64 array; results of operations are mapped by ``after_op``.

    Its arguments: the result, and of a ufunc also this, its inputs and its ``axis``.
    """

    after_op: Callable[..., Any]

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: Any, *inputs: Any, out: tuple[Any, ...] = (), **kwargs: Any
    ) -> Any:
        plain = [x.view(np.ndarray) if isinstance(x, HookedArray) else x for x in inputs]
        result = getattr(ufunc, method)(*plain, **kwargs)
        result = self._hooked(result, ufunc, *plain, axis=kwargs.get("axis"))
        if not out:
            return result
        out[0][...] = result
        return out[0]

    def __array_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: Any, kwargs: Any
    ) -> Any:
        result = super().__array_function__(func, types, args, kwargs)
        if isinstance(result, list):
            return [self._hooked(x) for x in result]
        return self._hooked(result) if isinstance(result, np.ndarray) else result

    def _hooked(self, x: Any, *operation: Any, **kwargs: Any) -> Any:
        x = np.asarray(x)
        if x.dtype.kind != "f":
            return x
        return _viewed(self.after_op(x, *operation, **kwargs), type(self))


def _hooking(after_op: Callable[..., Any]) -> type[HookedArray]:
    return type("Hooked", (HookedArray,), {"after_op": staticmethod(after_op)})


def _viewed(x: npt.ArrayLike, hooked: type[HookedArray]) -> HookedArray:
    return np.asarray(x, dtype=np.float64).view(hooked)


def literal(x: npt.ArrayLike, precision: str) -> Any:
    """``x`` as an array on which the oracle computes in ``precision``."""
    with np.errstate(all="ignore"):
        low = np.asarray(x, dtype=numpy_dtype(precision))
    return low if precision == "float32" else _viewed(low, _rounding(precision))


@cache
def _rounding(precision: str) -> type[HookedArray]:
    dtype = numpy_dtype(precision)
    return _hooking(lambda x, *_, **__: x.astype(dtype))


def perturbed(
    oracle: Callable[..., Any], case: Case, unit: float, seed: int, of_terms: bool = False
) -> tuple[Any, list[bytes]]:
    """The oracle's result with random relative errors up to ``unit`` of all inputs and operations.

    That of a tanh is absolute: computed by exponentials, it has the rounding error of 1. So is that
    of a small sigmoid: computed by a tanh, it has half of it. With ``of_terms`` that of a sum is up
    to sqrt(p / 12) units if larger, where p counts the pairs of its terms that are nearly equal,
    each term with itself included (n of n distinct terms). That is the variance of n additions one
    after the other, each off by up to half a unit of the sum, where nearly equal terms have the
    same rounding error. Also returns which denominators are empty sums.
    """
    random, empty, pairs = np.random.default_rng(seed), [], _Pairs(unit)

    def off(x: Array, ufunc: Any = None, *inputs: Any, axis: Any = None) -> Any:
        if ufunc is np.divide:
            empty.append((np.abs(inputs[1]) < EMPTY).tobytes())
        if ufunc is np.tanh:
            return x + random.uniform(-unit, unit, x.shape)
        if ufunc is np.divide and np.isscalar(inputs[0]):  # 1 / (1 + exp(-x))
            return x + np.maximum(x, 0.5) * random.uniform(-unit, unit, x.shape)
        of_sums = pairs.of_sums(x, ufunc, *inputs, axis=axis) if of_terms else 1.0
        most = unit * np.sqrt(np.maximum(of_sums / 12, 1.0))
        return x * random.uniform(1 - most, 1 + most, x.shape)

    hooked = _hooking(off)
    with np.errstate(all="ignore"):
        return oracle(
            *mapped(case, lambda array: pairs.of_case(_viewed(off(array), hooked)))
        ), empty


class _Pairs:
    """Pairs of nearly equal terms, see ``_pairs``; of the case's own arrays counted once."""

    def __init__(self, unit: float) -> None:
        self.unit, self._own = unit, set[int]()
        self._known: dict[tuple[Any, ...], Array] = {}

    def of_case(self, array: HookedArray) -> HookedArray:
        """Register an array of the case, whose memory is not freed while the oracle runs."""
        self._own.add(id(_root(array)))
        return array

    def of(self, terms: Array) -> Array:
        """``_pairs`` of an array, such as the weights of every step."""
        if id(_root(terms)) not in self._own:
            return _pairs(terms, self.unit)
        key = terms.ctypes.data, terms.shape, terms.strides
        if key not in self._known:
            self._known[key] = _pairs(terms, self.unit)
        return self._known[key]

    def of_sums(self, x: Array, ufunc: Any = None, *inputs: Any, axis: int | None = None) -> Any:
        """Those of the terms of each sum in ``x``, the result of a sum or of a matrix product.

        Of a product at most: two terms are equal where both factors are, or by chance.
        """
        if ufunc is np.matmul:
            left, right = inputs
            of_rows, of_columns = self.of(left), self.of(right.mT if right.ndim > 1 else right)
            if left.ndim > 1 and right.ndim > 1:
                of_rows, of_columns = of_rows[..., None], of_columns[..., None, :]
            return np.minimum(of_rows, of_columns)
        if ufunc is np.add and len(inputs) == 1:
            terms = inputs[0].ravel() if axis is None else np.moveaxis(inputs[0], axis, -1)
            return self.of(terms).reshape(x.shape)
        return 1.0


def _root(array: Array) -> Array:
    """The array whose memory it is a view of."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _pairs(terms: Array, unit: float) -> Array:
    """The number of pairs of nearly equal terms along the last axis: from n to n^2 of n terms.

    Nearly equal terms differ by less than about the last place of the sum of magnitudes. A zero is
    equal to itself alone, since adding it is exact.
    """
    n = terms.shape[-1]
    if n * n <= 12:  # one unit is more
        return np.full(terms.shape[:-1], float(n))
    places = np.round(terms / (unit * np.abs(terms).sum(-1, keepdims=True)))
    places[terms == 0] = np.nan
    places.sort(-1)
    new = np.ones(terms.shape, dtype=bool)
    np.not_equal(places[..., 1:], places[..., :-1], out=new[..., 1:])
    group = new.ravel().cumsum() - 1
    return np.bincount(group)[group].reshape(terms.shape).sum(-1, dtype=np.float64)
