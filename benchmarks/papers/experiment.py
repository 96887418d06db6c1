"""Experiments: the rows of some tables, in forms of different sizes, with a run for each seed.

An `Experiment` defines how a row is trained (`training`) and measured (`measure`). A `Form` is a
size of it: the data, and the training that the rows vary. A `RowRun` is one row with its seeds. Its
key, by which records and unfinished work are found, is a hash of the code that it reaches, its
training, its seeds, the content of its data, and the available scorers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from benchmarks import records
from benchmarks.records import Record
from benchmarks.scoring import java
from benchmarks.training.configuration import TrainingConfig

TRIAL_SEEDS = 1000, 1001
"""The seeds of trials, which no reported row uses; the second where training may diverge."""
PICTURES = (
    *("torch_impl.checkpoints.released", "torch_impl.layers.swin", "torch_impl.models.vision"),
    *("torch_impl.models.end_to_end", "benchmarks.data.pictures", "benchmarks.data.photographs"),
    *("benchmarks.data.pixels", "benchmarks.scoring.onnx_captioner"),
)
"""Modules that training on features does not run."""
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
"""Modules that only captioners of one family run."""


@dataclass(frozen=True)
class Place:
    """The folders and the device of an experiment.

    Args:
        data: the data folder, or None.
        work: the folder for checkpoints of unfinished runs.
        features: the folder of the photographs' features, or None.
    """

    data: Path | None
    work: Path
    device: str = "cpu"
    progress: bool = False
    features: Path | None = None


@dataclass(frozen=True)
class Form:
    """A size of an experiment.

    Args:
        about: a description in one line.
        load: place -> the data.
        training: that the rows vary: a `TrainingConfig`, or the experiment's own type.
        status: of its records.
        sizes: added to the data's name in records, so that forms are not mixed.
        tokeniser: of the scores.
        grid: hyperparameters that every row tries; it trains with the best on validation.
        trial_seeds: the seeds of trials; of several, a grid point counts by its worst.
        trial: settings of the first stage in trials only, such as fewer epochs.
    """

    about: str
    load: Callable[[Place], Any]
    training: Any = None
    status: str = "other data"
    sizes: str = ""
    tokeniser: str = "words"
    grid: tuple[Mapping[str, Any], ...] = ()
    trial_seeds: tuple[int, ...] = TRIAL_SEEDS[:1]
    trial: Mapping[str, Any] = field(default_factory=dict)


@lru_cache(maxsize=4)
def _loaded(load: Callable[[Place], Any], place: Place) -> Any:
    return load(place)


@dataclass(frozen=True)
class RowRun:
    """One row of a form, with its seeds.

    Args:
        places: (paper, table) of every table with this row.
        row: its name in the tables.
        seeds: of all random choices; several for an ensemble or models trained together.
        name: of the form.
        measure: the run -> its records, for all ``places``.
        key: a hash of everything that its numbers depend on.
        trial: the grid point of a trial; None for a reported row.
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
        """``data`` with its name in records."""
        return replace(data, name=f"{data.name}, {self.form.sizes}") if self.form.sizes else data

    def make(self) -> list[Record[Any]]:
        began = time.perf_counter()
        measured = self.measure(self)
        wall_s = time.perf_counter() - began
        return [records.replace(record, wall_s=wall_s) for record in measured]


def by_seed(rows: Iterable[str], seeds: Sequence[int]) -> list[tuple[str, tuple[int, ...]]]:
    """All rows with the first seed, then with the next, and so on."""
    named = list(rows)
    return [(row, (seed,)) for seed in seeds for row in named]


@dataclass(frozen=True)
class Experiment:
    """One or more tables of a paper that are trained together.

    Args:
        tables: their names; one run may give values in several.
        rows: by importance, baselines first.
        forms: by name, the smallest first.
        training: (form, row) -> the row's training.
        measure: run -> its records.
        seeds: the default number of seeds.
        seeding: (rows, seeds) -> row and seeds of every run, in order.
        scored: whether its numbers depend on the installed scorers.
        places: row -> (paper, table) of every table with this row; None: all ``tables``.
        trial: run of a grid point -> its records, for forms with grids.
        later: whether it builds on models of other experiments and runs after them.
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
        """The runs of a form: trials first, then reported rows.

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
            self._run(name, place, row, (seed,), tried, self.trial, label(change))
            for row in self.rows
            for change, _, tried in trials(form, self.training(form, row))
            for seed in form.trial_seeds
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
            form.trial_seeds,
            getattr(run.data, "fingerprint", ""),
            java.available() if self.scored else (),
            without=not_run(training, place.device),
        )
        return replace(run, key=key)


def not_run(training: Any, device: str) -> tuple[str, ...]:
    """Modules that a training, of one family or of several, imports but never runs."""
    parts = vars(training).values() if is_dataclass(training) else ()
    configs = [each for each in (training, *parts) if isinstance(each, TrainingConfig)]
    if not configs:
        return ()
    own = {config.model.get("family", "") for config in configs}
    others = [name for family, names in FAMILIES.items() if family not in own for name in names]
    return *PICTURES, *others, *(("torch_impl.kernels",) if device == "cpu" else ())


def trials(
    form: Form, config: TrainingConfig
) -> list[tuple[Mapping[str, Any], TrainingConfig, TrainingConfig]]:
    """For each grid point: the point, the row's training with it, and the trial's training."""
    if not form.grid:
        return []
    (name, first), *_ = config.stages.items()

    def having(**fields: Any) -> TrainingConfig:
        return replace(config, stages={**config.stages, name: first.but(**fields)})

    return [(each, having(**each), having(**each, **form.trial)) for each in form.grid]


def label(change: Mapping[str, Any]) -> str:
    """A grid point as text: "lr 0.001, dropout 0.1"."""
    return ", ".join(f"{name} {value:g}" for name, value in change.items())
