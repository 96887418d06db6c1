"""The oracle computed otherwise: every operation's result rounded to a precision, or perturbed.

NumPy itself leaves bfloat16 for float32 at the first matrix product, and sums bfloat16 numbers one
by one; hardware and PyTorch accumulate in float32 and round once. So the literal form in 16 bits
is the oracle on ``literal`` arrays; in float32 it is the oracle on float32 arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.verify.cases import Array, Case, mapped, numpy_dtype

EMPTY = 1e-6
"""A denominator below it is a sum of nothing: what is left is Psi's epsilon."""


class HookedArray(np.ndarray[Any, np.dtype[np.float64]]):
    """A float64 array; each result of it is replaced by ``after_op(result, ufunc, *inputs)``."""

    after_op: Callable[..., Any]

    def __array_finalize__(self, source: object) -> None:
        self.after_op = getattr(source, "after_op", lambda x, *_: x)

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: Any, *inputs: Any, out: tuple[Any, ...] = (), **kwargs: Any
    ) -> Any:
        plain = [np.asarray(x) if isinstance(x, HookedArray) else x for x in inputs]
        with np.errstate(all="ignore"):
            result = getattr(ufunc, method)(*plain, **kwargs)
        result = self._hooked(result, ufunc, *plain)
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
        return hooked(self.after_op(x, *operation), self.after_op) if x.dtype.kind == "f" else x


def hooked(x: npt.ArrayLike, after_op: Callable[..., Any]) -> HookedArray:
    """``x`` as such an array."""
    array = np.asarray(x, dtype=np.float64).view(HookedArray)
    array.after_op = after_op
    return array


def literal(x: npt.ArrayLike, precision: str) -> Any:
    """``x`` as the oracle takes it to be evaluated literally in ``precision``."""
    dtype = numpy_dtype(precision)
    if precision == "float32":
        return np.asarray(x, dtype=dtype)

    def rounded(x: Any, *_: Any) -> Any:
        with np.errstate(all="ignore"):
            return x.astype(dtype)

    return hooked(rounded(np.asarray(x)), rounded)


def perturbed(
    oracle: Callable[..., Any], case: Case, unit: float, seed: int
) -> tuple[Any, list[bytes]]:
    """The oracle's result where every input and every operation's is off by up to ``unit``.

    ``unit`` is relative to each entry. Beside the result, which of the denominators are empty sums.
    """
    random, empty = np.random.default_rng(seed), []

    def off(x: Array, ufunc: Any = None, *inputs: Any) -> Any:
        if ufunc is np.divide:
            empty.append((np.abs(inputs[1]) < EMPTY).tobytes())
        return x * (1 + unit * (2 * random.random(x.shape) - 1))

    return oracle(*mapped(case, lambda array: hooked(off(array), off))), empty
