"""What an experiment is: the rows of some tables, in forms of different size, a run a seed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import records
from benchmarks.records import Record


@dataclass(frozen=True)
class Place:
    """Where an experiment works.

    Args:
        data: the folder of real data, or None.
        work: a folder for what unfinished runs need to go on.
        device: where PyTorch computes.
        progress: whether to show it on stderr.
        features: the folder of the photographs' features; None if there is none.
    """

    data: Path | None
    work: Path
    device: str = "cpu"
    progress: bool = False
    features: Path | None = None


@dataclass(frozen=True)
class Run:
    """One row with one seed.

    Args:
        row: as the paper's table names it.
        seed: of everything random; a range of those that train side by side.
        key: hash of all that its numbers depend on.
        make: do it: the records that it gives, for every table that it is a row of.
    """

    row: str
    seed: int | range
    key: str
    make: Callable[[], list[Record]]

    @property
    def name(self) -> str:
        """The row and its seeds."""
        if isinstance(self.seed, range):
            return f"{self.row}, seeds {self.seed[0]} to {self.seed[-1]}"
        return f"{self.row}, seed {self.seed}"


def rows_by_seed(
    rows: Iterable[str],
    seeds: Sequence[int],
    make: Callable[[str, int, str], list[Record]],
    *given: Any,
) -> list[Run]:
    """All rows of a seed, then those of the next.

    Args:
        rows: their names.
        seeds: of each.
        make: row, seed, key -> the run's records.
        given: all else that the numbers depend on.
    """
    found = []
    for seed in seeds:
        for row in rows:
            key = records.key_of(make, *given, row, seed)
            found.append(Run(row, seed, key, partial(make, row, seed, key)))
    return found


@dataclass(frozen=True)
class Experiment:
    """Some of a paper's tables.

    Args:
        paper: its name.
        tables: their names; one run may give values in several.
        forms: sizes that it can be run in, the smallest first; records tell them apart by their
            data's names.
        about: each form in a line.
        seeds: how many, unless asked otherwise.
        runs: form, place, seeds -> the runs, in the order to do them in.
    """

    paper: str
    tables: tuple[str, ...]
    forms: tuple[str, ...]
    about: dict[str, str]
    seeds: int
    runs: Callable[[str, Place, Sequence[int]], list[Run]]
