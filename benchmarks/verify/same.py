"""Whether an argument is what it was before a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import is_
from typing import Any

from benchmarks.verify.cases import MODELS, objects
from benchmarks.verify.errors import CandidateError
from benchmarks.verify.originals import np, own_builtins

own_builtins(globals())


def same(now: Any, before: Any) -> bool:
    """Whether ``now`` is what ``before`` was: NaN is equal to NaN."""
    if now is before:
        return True
    if isinstance(before, Mapping):
        keys = isinstance(now, Mapping) and list(now) == [str(key) for key in before]
        return keys and all(same(now[str(key)], value) for key, value in before.items())
    if isinstance(before, np.ndarray):
        wide = np.float64 if before.dtype.kind in "fV" else before.dtype
        now = np.asarray(now)
        if now.shape != before.shape:
            return False
        if now.dtype == before.dtype and now.tobytes() == before.tobytes():
            return True
        now, before = now.astype(wide), before.astype(wide)
        return bool(((now == before) | ((now != now) & (before != before))).all())
    if isinstance(before, MODELS):
        return same(getattr(now, "table", None), before.table)
    return not isinstance(before, (list, tuple)) or _is_same_list(now, before)


def _is_same_list(now: Any, before: Any) -> bool:
    """Whether lists, of lists, texts or numbers, are equal by Python's own comparison."""
    if type(now) is not type(before):
        return False
    if isinstance(before, (list, tuple)):
        return len(now) == len(before) and all(map(_is_same_list, now, before))
    return bool(now == before)


def assert_unchanged(after: Sequence[Any], before: Sequence[Any], keyword: str) -> None:
    """Raise CandidateError if an argument was changed; the last was passed by ``keyword``."""
    for where, (now, was) in enumerate(zip(after, before, strict=True), 1):
        if not same(now, was):
            which = str(keyword if keyword and where == len(before) else where)
            if isinstance(was, Mapping) and isinstance(now, Mapping):
                changed = [key for key in was if not same(now.get(str(key)), was[key])]
                which += "".join(f", {key!r}," for key in changed[:1])
            raise CandidateError(f"changed its argument {which} in place", "in place")


def assert_same_objects(
    given: Sequence[Any], before: Sequence[Sequence[Any]], keyword: str
) -> None:
    """Raise CandidateError if an argument is made up of others than ``before``, though equal."""
    for where, (value, parts) in enumerate(zip(given, before, strict=True), 1):
        now = objects(value)
        if len(now) != len(parts) or not all(map(is_, now, parts)):
            which = keyword if keyword and where == len(before) else where
            raise CandidateError(f"replaced a part of its argument {which} in place", "in place")
