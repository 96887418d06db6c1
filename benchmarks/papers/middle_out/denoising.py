"""Middle-Out Table 1: errors of de-noising regressors on eq. 8's data, trained as printed.

Every seed has its own sequences, initial weights and order; all seeds of a model train as one
batched computation. The folder of a form and a number of seeds has ``config.json`` and a checkpoint
for each model, so that an interrupted run is resumed and rows that compare models share them.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from benchmarks import kinds, records
from benchmarks.errors import InputError
from benchmarks.files import (
    locked,
    read_json,
    sha256,
    write_atomically,
)
from benchmarks.papers.experiment import Experiment, Form, Place, RowRun
from benchmarks.records import Record
from benchmarks.statistics import Estimate, geometric_mean
from benchmarks.training import work_file
from torch_impl.models.denoising import (
    Denoiser,
    Sequences,
    draw_sequences,
    mse,
    orders,
    symmetric_mse,
)

PAPER, TABLE = "middle_out", "1"

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "seq2seq": (
        "Sequence-to-Sequence with Attention",
        {"middle_out": False, "self_attention": "none"},
    ),
    "middle-out-dual": (
        "Middle-Out with Self-Attention",
        {"middle_out": True, "self_attention": "dual"},
    ),
    "middle-out": (
        "Middle-Out without Self-Attention",
        {"middle_out": True, "self_attention": "none"},
    ),
    "seq2seq-dual": (
        "Sequence-to-Sequence with Self-Attention",
        {"middle_out": False, "self_attention": "dual"},
    ),
}
"""The row and the regressor's options, for both readings of section 4.1 and both decoders."""

RATIOS: dict[str, tuple[str, str]] = {
    "Times smaller": ("seq2seq", "middle-out-dual"),
    "Times smaller, neither with Self-Attention": ("seq2seq", "middle-out"),
    "Times smaller, both with Self-Attention": ("seq2seq-dual", "middle-out-dual"),
}
"""Rows of ratios: the first model's error over the second's."""

MODELS_OF: dict[str, tuple[str, ...]] = {
    **{row: (model,) for model, (row, _) in MODELS.items()},
    **RATIOS,
}
"""The models that each row needs."""


@dataclass(frozen=True)
class Settings:
    """The training of section 4.1; the defaults are as printed.

    Raises:
        InputError: a number is out of range.
    """

    steps: int = 20_000
    batch_size: int = 32
    learning_rate: float = 1e-4
    hidden_size: int = 100
    training_sequences: int = 1000
    test_sequences: int = 100

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not value > 0 or value == float("inf"):
                raise InputError(f"{name} is {value}, expected more than 0")
        if self.hidden_size % 2:
            raise InputError(f"hidden_size is {self.hidden_size}, expected even: half a direction")


class Training:
    """One model with S seeds: its data, weights, optimiser and order, all from the seeds."""

    def __init__(
        self, model: str, seeds: Sequence[int], settings: Settings, device: str = "cpu"
    ) -> None:
        """Initialise; a seed's numbers do not depend on the other seeds.

        Args:
            device: of the training; data and weights are generated on the CPU.
        """
        self.seeds, self.settings = tuple(seeds), settings
        self.model = Denoiser(seeds, hidden_size=settings.hidden_size, **MODELS[model][1])
        self.model.to(device)
        # distinct from the weights' generators, whose seeds are below 2^32
        generators = [torch.Generator().manual_seed(2**32 + seed) for seed in seeds]
        self.data, self.test = (
            _on(Sequences.stack([draw_sequences(count, one) for one in generators]), device)
            for count in (settings.training_sequences, settings.test_sequences)
        )
        counts = settings.training_sequences, settings.steps, settings.batch_size
        self.order = torch.stack([orders(*counts, one) for one in generators], 1).to(device)
        parameters = self.model.parameters()
        self.optimizer = torch.optim.Adam(parameters, lr=settings.learning_rate, fused=True)
        self.done = 0
        self.seconds = 0.0
        self.history: list[dict[str, Any]] = []

    def step(self) -> torch.Tensor:
        """One optimiser step of every seed; returns the losses (S,).

        A seed's loss is the mean of its sequences' MSE; the seeds' gradients are independent.
        """
        chosen = self.order[self.done]
        batch = self.data[torch.arange(len(self.seeds)).unsqueeze(1), chosen]
        y_hat = self.model(batch.x, batch.lengths, batch.y)
        losses = mse(y_hat, batch.y, batch.lengths).mean(1)
        self.optimizer.zero_grad()
        losses.sum().backward()
        self.optimizer.step()
        self.done += 1
        return losses.detach()

    def evaluate(self) -> dict[str, list[float]]:
        """The errors on the test sequences for each seed, with autoregressive outputs."""
        y_hat, test = self.model.generate(self.test.x, self.test.lengths), self.test
        return {
            "MSE": mse(y_hat, test.y, test.lengths).mean(1).tolist(),
            "symmetric MSE": symmetric_mse(y_hat, test.lengths).mean(1).tolist(),
        }

    def example(self) -> dict[str, list[float]]:
        """The first seed's first test sequence: ``x``, ``y`` and the model's ``y_hat``."""
        y_hat, test = self.model.generate(self.test.x, self.test.lengths), self.test
        length = int(test.lengths[0, 0])
        arrays = {"x": test.x, "y": test.y, "y_hat": y_hat}
        return {name: array[0, 0, :length].tolist() for name, array in arrays.items()}

    def fingerprint(self) -> str:
        arrays = (a for data in (self.data, self.test) for a in (data.x, data.y, data.lengths))
        return sha256(b"".join(a.cpu().numpy().tobytes() for a in arrays))[:16]

    def save(self, path: Path) -> None:
        """Save a checkpoint, atomically."""
        values = {"done": self.done, "seconds": self.seconds, "history": self.history}
        work_file.save(path, {"model": self.model}, self.optimizer, values)

    def load(self, path: Path) -> None:
        """Load a checkpoint of `save`.

        Raises:
            InputError: the file is damaged, or of another training.
        """
        values = work_file.load(path, {"model": self.model}, self.optimizer)
        self.done, self.seconds = int(values["done"]), float(values["seconds"])
        self.history = list(values["history"])


def _on(data: Sequences, device: str) -> Sequences:
    """Convert to float32 and move to the device."""
    return Sequences(data.x.float().to(device), data.y.float().to(device), data.lengths.to(device))


def train(
    training: Training,
    path: Path,
    *,
    evaluate_every: int = 1000,
    checkpoint_seconds: float = 60,
    progress: bool = False,
    name: str = "",
) -> None:
    """Run the remaining steps of ``training``, with checkpoints at ``path``.

    Raises:
        InputError: the folder cannot be written, or a loss is not finite.
    """
    steps = training.settings.steps
    interval = 0.5 if sys.stderr.isatty() else 20
    bar = tqdm(
        total=steps,
        initial=training.done,
        desc=name,
        unit="step",
        mininterval=interval,
        disable=not progress,
    )
    began = saved = time.perf_counter() - training.seconds
    with bar:
        while training.done < steps:
            losses = training.step()
            bar.update()
            last = training.done == steps
            if last or training.done % evaluate_every == 0:
                if not bool(losses.isfinite().all()):
                    raise InputError(f"step {training.done}: the loss is {losses.tolist()}")
                entry = {"step": training.done, "loss": losses.tolist()} | training.evaluate()
                training.history.append(entry)
            now = time.perf_counter()
            if last or now - saved >= checkpoint_seconds:
                training.seconds, saved = now - began, now
                training.save(path)


def _drawn(_: Place) -> None:
    """No data: `Training` generates them from its seeds."""


FORMS = {
    "quick": Form(
        "eq. 8's data, 500 steps of 20,000: to try it",
        _drawn,
        Settings(steps=500),
        status="embedded",
    ),
    "full": Form(
        "as printed, 20,000 steps, all seeds side by side: an hour with --processes 2",
        _drawn,
        Settings(),
        status="same data",
    ),
}
EVALUATIONS = 20
"""Number of evaluations during a training."""


def trained(name: str, seeds: range, settings: Settings, place: Place) -> Training:
    """A fully trained model, resumed from its checkpoint in the work folder if there is one.

    Raises:
        InputError: the folder holds another run or a damaged one, or cannot be written; a loss is
            not finite.
    """
    training = Training(name, seeds, settings, place.device)
    folder = place.work / f"denoising-{settings.steps}-steps-{len(seeds)}-seeds"
    path = folder / f"{name}.safetensors"
    with locked(folder):
        prepare(folder, {"settings": asdict(settings), "seeds": len(seeds)})
    with locked(path):
        if path.exists():
            training.load(path)
        every = max(1, settings.steps // EVALUATIONS)
        train(training, path, evaluate_every=every, progress=place.progress, name=name)
    return training


def prepare(folder: Path, config: Mapping[str, Any]) -> None:
    """Create a run's folder, or check that it holds this run.

    Raises:
        InputError: it holds another run, or cannot be written.
    """
    path = folder / "config.json"
    if not path.exists():
        with write_atomically(path) as file:
            json.dump(config, file, indent=1)
        return
    old = read_json(path, "the configuration of a de-noising run")
    if old != config:
        names = config.keys() if isinstance(old, dict) else ()
        differing = ", ".join(name for name in names if old.get(name) != config[name])
        raise InputError(f"{path}: another configuration: {differing or 'not one of ours'}")


def record(row: str, trainings: Sequence[Training], key: str) -> Record:
    """The record of a row: geometric means over seeds of one model's errors, or of two's ratios."""
    each = [training.evaluate() for training in trainings]
    first, last, training = each[0], each[-1], trainings[-1]
    if len(trainings) == 1:
        means = {column: geometric_mean(found) for column, found in last.items()}
        details: kinds.Denoising | kinds.DenoisingRatio = kinds.Denoising(
            settings=asdict(training.settings),
            interval=_ends(means),
            per_seed=last,
            history=training.history,
            example=kinds.Sequences(**training.example()),
        )
    else:
        means = {column: geometric_mean(first[column], last[column]) for column in first}
        first_model, last_model = (MODELS[model][0] for model in MODELS_OF[row])
        details = kinds.DenoisingRatio(
            settings=asdict(training.settings),
            interval=_ends(means),
            of=first_model,
            over=last_model,
        )
    settings, seeds = training.settings, list(training.seeds)
    shorter = "" if settings == Settings() else f" {settings.steps:,} steps,"
    return records.make(
        details,
        paper=PAPER,
        table=TABLE,
        row=row,
        values={column: mean.value for column, mean in means.items()},
        status="same data" if settings == Settings() else "embedded",
        key=key,
        n=settings.test_sequences,
        seeds=seeds,
        data=records.Data(
            name=f"equation 8,{shorter} {len(seeds)} seeds",
            fingerprint=training.fingerprint(),
            split="test",
        ),
        wall_s=sum(training.seconds for training in trainings),
    )


def _ends(means: Mapping[str, Estimate]) -> dict[str, tuple[float, float]]:
    """The finite intervals: those of more than one seed."""
    ends = {column: (mean.low, mean.high) for column, mean in means.items()}
    return {column: pair for column, pair in ends.items() if math.isfinite(pair[1])}


def training(form: Form, row: str) -> Settings:
    """A row's training, the same for all rows."""
    settings: Settings = form.training
    return settings


def _measure(run: RowRun) -> list[Record]:
    seeds = range(run.seeds[0], run.seeds[-1] + 1)
    trainings = [trained(name, seeds, run.training, run.place) for name in MODELS_OF[run.row]]
    return [record(run.row, trainings, run.key)]


def _together(rows: Iterable[str], seeds: Sequence[int]) -> list[tuple[str, tuple[int, ...]]]:
    """One run for each row, with all seeds."""
    return [(row, tuple(range(seeds[0], seeds[-1] + 1))) for row in rows]


_ROWS = {row: options["self_attention"] == "none" for row, options in MODELS.values()}
EXPERIMENT = Experiment(
    PAPER,
    (TABLE,),
    # self-attention takes longer and comes first, to balance two processes; ratios come after the
    # models that they compare
    (*sorted(_ROWS, key=_ROWS.__getitem__), *RATIOS),
    FORMS,
    training,
    _measure,
    seeds=5,
    seeding=_together,
    scored=False,
)
