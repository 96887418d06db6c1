"""NumPy in a lower precision: every operation rounds its result once to the precision.

NumPy itself leaves bfloat16 for float32 at the first matrix product, and sums bfloat16 numbers one
by one; hardware and PyTorch accumulate in float32 and round once. So the literal form in 16 bits
is the oracle on ``Rounded`` arrays; in float32 it is the oracle on float32 arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt


class Rounded(np.ndarray[Any, np.dtype[np.float64]]):
    """A float64 array whose values are of ``precision``, and so are all results made from it."""

    precision: npt.DTypeLike = np.float64

    def __array_finalize__(self, source: object) -> None:
        self.precision = getattr(source, "precision", np.float64)

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: Any, *inputs: Any, out: tuple[Any, ...] = (), **kwargs: Any
    ) -> Any:
        plain = [np.asarray(x) if isinstance(x, Rounded) else x for x in inputs]
        with np.errstate(all="ignore"):
            result = rounded(getattr(ufunc, method)(*plain, **kwargs), self.precision)
        if not out:
            return result
        out[0][...] = result
        return out[0]

    def __array_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: Any, kwargs: Any
    ) -> Any:
        result = super().__array_function__(func, types, args, kwargs)
        if isinstance(result, list):
            return [rounded(x, self.precision) for x in result]
        return rounded(result, self.precision) if isinstance(result, np.ndarray) else result


def rounded(x: Any, precision: npt.DTypeLike) -> Any:
    """``x`` rounded to ``precision``, as an array that keeps doing so; booleans stay."""
    x = np.asarray(x)
    if x.dtype == np.bool_:
        return x
    with np.errstate(all="ignore"):
        result = x.astype(precision).astype(np.float64).view(Rounded)
    result.precision = precision
    return result


PRECISIONS: dict[str, Any] = {
    "float32": np.float32,
    "bfloat16": ml_dtypes.bfloat16,
    "float16": np.float16,
}


def literal(x: npt.ArrayLike, precision: str) -> Any:
    """``x`` as the oracle takes it to be evaluated literally in ``precision``."""
    if precision == "float32":
        return np.asarray(x, dtype=np.float32)
    return rounded(x, PRECISIONS[precision])


_finfo: Any = ml_dtypes.finfo  # untyped there


def unit(precision: str) -> float:
    """Machine epsilon: the gap between 1 and the next number."""
    return float(_finfo(PRECISIONS[precision]).eps)


def psi_epsilon(precision: str, epsilon: float) -> float:
    """Psi's epsilon, or the smallest number above zero where ``epsilon`` would be rounded to 0."""
    return max(epsilon, float(_finfo(PRECISIONS[precision]).smallest_subnormal))
