"""An operator's oracle as its tests call it: what they need again of a case is computed once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from operator import is_
from typing import Any

from benchmarks import collector
from benchmarks.verify.cases import Case, rounded

RESULTS = 4
"""Number of the first calls whose results are cached."""

LATEST = 64
"""Maximum number of other values that are cached."""


class OracleError(Exception):
    """The oracle raised: a bug of this project, not of the candidate."""


class Oracle:
    """An operator's oracle, with a cache of the results of its first calls.

    Attributes:
        of: the oracle itself, by which ``tolerances`` keeps what does not change between attempts.
    """

    def __init__(self, name: str, of: Callable[..., Any]) -> None:
        """``name`` is the operator's, for messages."""
        self.name, self.of = name, of
        self._results: list[tuple[Sequence[Any], Any]] = []
        self._values = deque[tuple[Hashable, Sequence[Any], Any]](maxlen=LATEST)

    def __call__(self, *arguments: Any) -> Any:
        for of, result in self._results:
            if _are_same(of, arguments):
                return result
        try:
            with collector.paused():  # a search makes a million hypotheses, in no cycle
                result = self.of(*arguments)
        except Exception as error:
            raise OracleError(f"{self.name}'s oracle raised {error!r}") from error
        if len(self._results) < RESULTS:
            self._results.append((arguments, result))
        return result

    def once(self, what: Hashable, of: Sequence[Any], compute: Callable[[], Any]) -> Any:
        """``compute()``, or what it gave before for ``what`` of the same objects."""
        for key, objects, value in self._values:
            if key == what and _are_same(objects, of):
                return value
        value = compute()
        self._values.append((what, tuple(of), value))
        return value


def _are_same(one: Sequence[Any], other: Sequence[Any]) -> bool:
    return len(one) == len(other) and all(map(is_, one, other))


def once(
    oracle: Callable[..., Any], what: Hashable, of: Sequence[Any], compute: Callable[[], Any]
) -> Any:
    """``Oracle.once``; a function that is no ``Oracle`` has no cache."""
    return oracle.once(what, of, compute) if isinstance(oracle, Oracle) else compute()


def in_dtype(oracle: Callable[..., Any], case: Case, dtype: str) -> Case:
    """``rounded``, once."""
    found: Case = once(oracle, dtype, case, lambda: rounded(case, dtype))
    return found


def in_float64(oracle: Callable[..., Any], case: Case) -> Case:
    """The case in float64, in which the oracle computes."""
    return in_dtype(oracle, case, "float64")
