"""The read-only LSTM's losses: its captioner with the unit, in both readings, and without.

All three are the paper's model: no biases, no tanh after the memory cell, equal sizes of image and
word vectors. Trained as the paper says, by stochastic gradient descent with clipped gradients; it
prints neither rate nor threshold nor batch: threshold 5, batch 32 and halving every 8 epochs (in
the smaller forms every one) are those of Show and Tell's released training. At its rate of 2 the
unit that reads the image diverges on the scenes, and a smaller one for all is worse for the plain
LSTM: each row has the rate, of those its form tries, whose validation loss is least with the first
seed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial

from benchmarks import records
from benchmarks.data import CaptionData
from benchmarks.data.vocabulary import END_ID, PAD_ID, START_ID
from benchmarks.kinds import Losses, ReadOnly, as_kind
from benchmarks.papers.experiment import (
    Experiment,
    Place,
    Run,
    rows_by_seed,
)
from benchmarks.papers.stages import (
    flickr8k,
    flickr8k_reduced,
    generated,
    in_stages,
    mean_loss,
    one_rate,
    with_beams,
)
from benchmarks.records import Record
from benchmarks.scoring import java
from benchmarks.scoring.evaluate import evaluate
from benchmarks.training.fit import Result
from benchmarks.training.presets import Settings
from torch_impl.models import RecurrentConfiguration
from torch_impl.training.optimisation import Optimisation

PAPER = "lstm_readonly"
BEAM = 3
ROWS: dict[str, str | None] = {
    "LSTM": None,
    "LSTM + read-only unit": "image",
    "LSTM + read-only unit, previous input": "previous_input",
}
"""Each row's reading of eq. 17; the last is the formula as printed."""
RATES = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Tried by each row, around Show and Tell's 2; on the scenes only the middle ones."""


@dataclass(frozen=True)
class Form:
    """What is captioned, by how large a model, its training but for the rate, and those tried."""

    load: Callable[[Place], CaptionData]
    status: str
    size: int
    settings: Settings
    rates: tuple[float, ...] = RATES


def _recipe(epochs: int, batch_size: int, halved_every: int = 8) -> Optimisation:
    plain = one_rate(RATES[0], epochs, batch_size)
    return replace(plain, anneal=0.5, anneal_every=halved_every, algorithm="sgd", clip=5.0)


FORMS = {
    "scenes": Form(
        generated,
        "embedded",
        128,
        Settings(_recipe(3, 32, halved_every=1), captions_per_image=5),
        RATES[1:-1],
    ),
    "reduced": Form(
        flickr8k_reduced,
        "other data",
        64,
        Settings(
            _recipe(3, 32, halved_every=1),
            captions_per_image=5,
            validation_images=250,
        ),
    ),
    "flickr8k": Form(flickr8k, "other data", 512, Settings(_recipe(30, 32), validation_images=500)),
}


def configuration(data: CaptionData, size: int, row: str) -> RecurrentConfiguration:
    """The captioner of a row for ``data``."""
    return RecurrentConfiguration(
        len(data.vocabulary),
        data.splits["train"].features.d_feature,
        d_embedding=size,
        hidden_size=size,
        read_only=ROWS[row],
        bias=False,
        squash=False,
        start_id=START_ID,
        end_id=END_ID,
        pad_id=PAD_ID,
    )


def train(
    form: Form, data: CaptionData, row: str, seed: int, rate: float, place: Place
) -> tuple[Result, Settings]:
    """A row trained at a rate, or had from the folder of work, and how."""
    settings = replace(form.settings, recipe=replace(form.settings.recipe, lr=rate))
    (result,) = in_stages(data, configuration(data, form.size, row), [settings], seed, place)
    return result, settings


def _run(form: Form, place: Place, chosen_with: int, row: str, seed: int, key: str) -> list[Record]:
    began = time.perf_counter()
    data = form.load(place)
    by_rate = {
        rate: mean_loss(train(form, data, row, chosen_with, rate, place)[0].model, data, "val")
        for rate in form.rates
    }
    rate = min(by_rate, key=by_rate.__getitem__)
    result, settings = train(form, data, row, seed, rate, place)
    scored = evaluate(
        ReadOnly,
        result.model,
        data.vocabulary,
        data,
        row=row,
        status=form.status,
        key=key,
        seed=seed,
        paper=PAPER,
        table="scores",
        beam_size=BEAM,
        tokeniser="words",
        details={
            "configuration": configuration(data, form.size, row).to_dict(),
            "stages": [asdict(settings)],
            "validation_losses": {f"{rate:g}": loss for rate, loss in by_rate.items()},
            "losses": [
                {"step": entry["step"], "loss": entry["loss"]}
                for entry in result.history
                if entry["kind"] == "steps"
            ],
        },
    )
    scored = with_beams(scored, result.model, data, beam_size=BEAM)
    losses = {
        f"{name} loss": mean_loss(result.model, data, split)
        for name, split in (("training", "train"), ("evaluation", "test"))
    }
    details = as_kind(Losses, scored.details)
    lost = records.replace(scored, table="losses", values=losses, details=details)
    wall_s = time.perf_counter() - began
    return [records.replace(record, wall_s=wall_s) for record in (lost, scored)]


def _runs(form: str, place: Place, seeds: Sequence[int]) -> list[Run]:
    """All rows of a seed, then those of the next."""
    chosen = FORMS[form]
    given = form, chosen.size, chosen.settings, chosen.rates, seeds[0], java.available()
    return rows_by_seed(ROWS, seeds, partial(_run, chosen, place, seeds[0]), PAPER, given)


EXPERIMENT = Experiment(
    PAPER,
    ("losses",),
    tuple(FORMS),
    {
        "scenes": "2,000 generated scenes, 128 units, 3 epochs: minutes on a CPU",
        "reduced": "Flickr8k (with --features), 64 units, 3 epochs: on a CPU",
        "flickr8k": "Flickr8k, 512 units, 30 epochs: for a GPU",
    },
    3,
    _runs,
)
