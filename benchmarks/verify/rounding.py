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
    """A float64 array; results of operations are mapped by ``after_op(result, ufunc, *inputs)``."""

    after_op: Callable[..., Any]

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: Any, *inputs: Any, out: tuple[Any, ...] = (), **kwargs: Any
    ) -> Any:
        plain = [x.view(np.ndarray) if isinstance(x, HookedArray) else x for x in inputs]
        result = self._hooked(getattr(ufunc, method)(*plain, **kwargs), ufunc, *plain)
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

    def _hooked(self, x: Any, *operation: Any) -> Any:
        x = np.asarray(x)
        return _viewed(self.after_op(x, *operation), type(self)) if x.dtype.kind == "f" else x


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
    return _hooking(lambda x, *_: x.astype(dtype))


def perturbed(
    oracle: Callable[..., Any], case: Case, unit: float, seed: int, of_terms: bool = False
) -> tuple[Any, list[bytes]]:
    """The oracle's result with random relative errors up to ``unit`` of all inputs and operations.

    That of a tanh is absolute: computed by exponentials, it has the rounding error of 1. With
    ``of_terms`` that of a sum of n > 12 terms is up to sqrt(n / 12) units: it has the variance of n
    additions one after the other, each off by up to half a unit of the sum so far. Also returns
    which denominators are empty sums.
    """
    random, empty = np.random.default_rng(seed), []

    def off(x: Array, ufunc: Any = None, *inputs: Any) -> Any:
        if ufunc is np.divide:
            empty.append((np.abs(inputs[1]) < EMPTY).tobytes())
        if ufunc is np.tanh:
            return x + random.uniform(-unit, unit, x.shape)
        most = unit * (max(_terms(x, ufunc, *inputs) / 12, 1.0) ** 0.5 if of_terms else 1.0)
        return x * random.uniform(1 - most, 1 + most, x.shape)

    hooked = _hooking(off)
    with np.errstate(all="ignore"):
        return oracle(*mapped(case, lambda array: _viewed(off(array), hooked))), empty


def _terms(x: Array, ufunc: Any = None, *inputs: Any) -> int:
    """The number of terms of each sum in ``x``, the result of a sum or of a matrix product."""
    if ufunc is np.matmul:
        return int(inputs[0].shape[-1])
    is_sum = ufunc is np.add and len(inputs) == 1
    return inputs[0].size // max(x.size, 1) if is_sum else 1
