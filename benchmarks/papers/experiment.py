"""The one form of an experiment: rows of some tables, in forms of different size, a run a seed.

An `Experiment` says what is trained for a row (`training`) and what is measured of it (`measure`);
a `Form` is a size that it is run in: its data, and the training that the rows vary. A `RowRun` is
one row with its seeds. Its key, by which records and work are found again, is a hash of the code
that it reaches, its training, its seeds, the content of its data, and of what can score here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from benchmarks import records
from benchmarks.records import Record
from benchmarks.scoring import java
from benchmarks.training.configuration import TrainingConfig

TRIAL_SEED = 1000
"""The seed of trials: no row is reported with it."""
PICTURES = (
    *("torch_impl.checkpoints.released", "torch_impl.layers.swin", "torch_impl.models.vision"),
    *("torch_impl.models.end_to_end", "benchmarks.data.pictures", "benchmarks.data.photographs"),
    *("benchmarks.data.pixels", "benchmarks.scoring.onnx_captioner"),
)
"""Modules that no training on features runs."""
FAMILIES = {
    "": (
        *("torch_impl.expansion.factored", "torch_impl.expansion.layers"),
        *("torch_impl.expansion.literal", "torch_impl.expansion.stream", "torch_impl.kernels"),
        *("torch_impl.layers", "torch_impl.models.captioner"),
    ),
    "recurrent": (
        *("torch_impl.recurrent.attentive", "torch_impl.recurrent.attentive_loop"),
        "torch_impl.recurrent.auto_reconstructor",
    ),
    "middle_out": ("torch_impl.decoding.middle_out", "torch_impl.models.middle_out"),
}
"""Modules that are run for captioners of one family alone."""


@dataclass(frozen=True)
class Place:
    """Where an experiment works.

    Args:
        data: the folder of real data, or None.
        work: a folder for what unfinished runs need to continue.
        features: the folder of the photographs' features; None if there is none.
    """

    data: Path | None
    work: Path
    device: str = "cpu"
    progress: bool = False
    features: Path | None = None


@dataclass(frozen=True)
class Form:
    """A size that an experiment is run in.

    Args:
        about: it in a line.
        load: place -> the data.
        training: what the rows vary: a `TrainingConfig`, or the experiment's own.
        status: of its records.
        sizes: in a word, for the data's name in records: forms are not mixed.
        tokeniser: of the scores.
        grid: fields of the stages that every row tries; the best on validation it is trained by.
        trial_seed: of what is tried.
        trial: fields of the first stage that trials alone have, fewer epochs say.
    """

    about: str
    load: Callable[[Place], Any]
    training: Any = None
    status: str = "other data"
    sizes: str = ""
    tokeniser: str = "words"
    grid: tuple[Mapping[str, Any], ...] = ()
    trial_seed: int = TRIAL_SEED
    trial: Mapping[str, Any] = field(default_factory=dict)


@lru_cache(maxsize=4)
def _loaded(load: Callable[[Place], Any], place: Place) -> Any:
    return load(place)


@dataclass(frozen=True)
class RowRun:
    """One row of a form, with its seeds.

    Args:
        places: (paper, table) of every table that it is a row of.
        row: as the tables name it.
        seeds: of everything random; several of what trains side by side, or is an ensemble.
        name: of the form.
        measure: the run -> its records, for every table that it is a row of.
        key: a hash of all that its numbers depend on.
        trial: what of the form's grid it tries; None of a row that is reported.
    """

    places: tuple[tuple[str, str], ...]
    row: str
    seeds: tuple[int, ...]
    name: str
    form: Form
    training: Any
    place: Place
    measure: Callable[[RowRun], list[Record[Any]]]
    key: str = field(default="", compare=False)
    trial: str | None = None

    @property
    def paper(self) -> str:
        return self.places[0][0]

    @property
    def tables(self) -> tuple[str, ...]:
        return tuple(table for _, table in self.places)

    @property
    def seed(self) -> int:
        return self.seeds[0]

    @property
    def title(self) -> str:
        first, last = self.seeds[0], self.seeds[-1]
        seeds = f"seed {first}" if first == last else f"seeds {first} to {last}"
        return ", ".join(filter(None, [self.row, self.trial, seeds]))

    @cached_property
    def data(self) -> Any:
        return _loaded(self.form.load, self.place)

    def named(self, data: Any) -> Any:
        """``data`` as records name it."""
        return replace(data, name=f"{data.name}, {self.form.sizes}") if self.form.sizes else data

    def make(self) -> list[Record[Any]]:
        began = time.perf_counter()
        measured = self.measure(self)
        wall_s = time.perf_counter() - began
        return [records.replace(record, wall_s=wall_s) for record in measured]


def by_seed(rows: Iterable[str], seeds: Sequence[int]) -> list[tuple[str, tuple[int, ...]]]:
    """All rows of a seed, then those of the next."""
    named = list(rows)
    return [(row, (seed,)) for seed in seeds for row in named]


@dataclass(frozen=True)
class Experiment:
    """Some of a paper's tables.

    Args:
        tables: their names; one run may give values in several.
        rows: in the order of what they settle: what others are compared with comes first.
        forms: by name, the smallest first.
        training: form, row -> the row's training.
        measure: a run -> its records.
        seeds: how many, unless asked otherwise.
        seeding: rows, seeds -> a row and its seeds for every run, in their order.
        scored: whether its numbers depend on the scorers that are installed.
        places: row -> (paper, table) of every table that it is a row of; all ``tables`` if None.
        trial: a run of a grid's point -> its records; of experiments whose forms have grids.
        later: whether it waits for the experiments of other tables, on whose models it builds.
    """

    paper: str
    tables: tuple[str, ...]
    rows: tuple[str, ...]
    forms: Mapping[str, Form]
    training: Callable[[Form, str], Any]
    measure: Callable[[RowRun], list[Record[Any]]]
    seeds: int = 3
    seeding: Callable[[Iterable[str], Sequence[int]], list[tuple[str, tuple[int, ...]]]] = by_seed
    scored: bool = True
    places: Callable[[str], tuple[tuple[str, str], ...]] | None = None
    trial: Callable[[RowRun], list[Record[Any]]] | None = None
    later: bool = False

    def runs(self, name: str, place: Place, seeds: Sequence[int]) -> list[RowRun]:
        """The runs of a form, those that are tried before those that are reported.

        Raises:
            InputError: the form's data is not available.
        """
        form = self.forms[name]
        reported = [
            self._run(name, place, row, row_seeds, self.training(form, row), self.measure)
            for row, row_seeds in self.seeding(self.rows, seeds)
        ]
        if self.trial is None:
            return reported
        tried = [
            self._run(name, place, row, (form.trial_seed,), tried, self.trial, label(change))
            for row in self.rows
            for change, _, tried in trials(form, self.training(form, row))
        ]
        return [*tried, *reported]

    def _run(
        self,
        name: str,
        place: Place,
        row: str,
        seeds: tuple[int, ...],
        training: Any,
        measure: Callable[[RowRun], list[Record[Any]]],
        trial: str | None = None,
    ) -> RowRun:
        form = self.forms[name]
        here = tuple((self.paper, table) for table in self.tables)
        places = self.places(row) if self.places else here
        run = RowRun(places, row, seeds, name, form, training, place, measure, trial=trial)
        key = records.key_of(
            [measure, form.load],
            *(places, row, seeds, trial, training),
            *(form.status, form.sizes, form.tokeniser, () if trial else (form.grid, form.trial)),
            form.trial_seed,
            getattr(run.data, "fingerprint", ""),
            java.available() if self.scored else (),
            without=not_run(training, place.device),
        )
        return replace(run, key=key)


def not_run(training: Any, device: str) -> tuple[str, ...]:
    """Modules that a training of one family imports and does not run, whatever its data."""
    if not isinstance(training, TrainingConfig):
        return ()
    own = training.model.get("family", "")
    others = [name for family, names in FAMILIES.items() if family != own for name in names]
    return *PICTURES, *others, *(("torch_impl.kernels",) if device == "cpu" else ())


def trials(
    form: Form, config: TrainingConfig
) -> list[tuple[Mapping[str, Any], TrainingConfig, TrainingConfig]]:
    """Each point of the form's grid, a row's training with it in the first stage, and its trial."""
    if not form.grid:
        return []
    (name, first), *_ = config.stages.items()

    def having(**fields: Any) -> TrainingConfig:
        return replace(config, stages={**config.stages, name: first.but(**fields)})

    return [(each, having(**each), having(**each, **form.trial)) for each in form.grid]


def label(change: Mapping[str, Any]) -> str:
    """A grid's point in words."""
    return ", ".join(f"{name} {value:g}" for name, value in change.items())
