"""Compare rows trained with several seeds, paired by seed."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from benchmarks.records import Record
from benchmarks.statistics import Interval, difference_of_seeds, paired_difference

Rows = Mapping[str, Sequence[Record]]
"""By row, its records, one for each seed."""
Array = npt.NDArray[np.float64]
Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)
PER_IMAGE = {
    **dict.fromkeys(("CIDEr-D", "XE CIDEr-D", "RL CIDEr-D"), "cider_d"),
    "self B4": "self_b4",
    "follows the word": "follows",
}
"""Columns whose records have a number for each image, 0 to 1 or 0 to 10, and their field."""


def grouped(items: Iterable[Item], of: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Group items by ``of``, in their order."""
    found: dict[Key, list[Item]] = {}
    for item in items:
        found.setdefault(of(item), []).append(item)
    return found


def by_row(records: Sequence[Record]) -> dict[str, list[Record]]:
    """The records of each row, in the order of seeds."""
    return grouped(sorted(records, key=lambda r: r.seeds), lambda r: r.what.row)


def shared(*rows: Sequence[Record]) -> list[tuple[Record, ...]]:
    """For each seed that all rows have, in order, the record of each row.

    Records of one seed, of as many images, are paired: they trained on the same data in the same
    order.
    """
    by_seed = [{(tuple(r.seeds), r.n or 0): r for r in runs} for runs in rows]
    seeds = sorted(set.intersection(*map(set, by_seed)))
    return [tuple(of_row[seed] for of_row in by_seed) for seed in seeds]


def numbers(records: Sequence[Record], column: str) -> Array:
    """Numbers by image, (records, images), if all records have as many; else values, (records,)."""
    found = [each for record in records if (each := _per_image(record, column)) is not None]
    if len(found) == len(records) and len({len(each) for each in found}) == 1:
        return np.array(found)
    return np.array([record.values[column] for record in records])


def _per_image(record: Record, column: str) -> Array | None:
    details = record.details.cross_entropy if column == "XE CIDEr-D" else record.details
    if column in getattr(details, "shares", {}):
        return np.array(details.shares[column])
    found = getattr(details, PER_IMAGE.get(column, ""), None)
    return 100 * np.array(found) if found else None


def compare(ours: npt.ArrayLike, baseline: npt.ArrayLike) -> Interval:
    """The difference ``ours - baseline`` of `numbers`, with its interval."""
    judge = paired_difference if np.ndim(ours) == 2 else difference_of_seeds
    return judge(ours, baseline)


def difference(
    ours: Sequence[Record], baseline: Sequence[Record], column: str = "CIDEr-D"
) -> Interval | None:
    """The difference ``ours - baseline`` over their common seeds; None if there are none."""
    pairs = [pair for pair in shared(ours, baseline) if all(column in r.values for r in pair)]
    if not pairs:
        return None
    both = [record for side in zip(*pairs, strict=True) for record in side]
    return compare(*np.split(numbers(both, column), 2))
