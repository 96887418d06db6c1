"""The read-only LSTM's losses: its captioner with the unit, in both readings, and without.

All three are the paper's model: no biases, no tanh after the memory cell, equal sizes of image and
word vectors. Trained as the paper says, by stochastic gradient descent with clipped gradients; it
prints neither rate nor threshold nor batch: those of Show and Tell's released training are taken
(halved every 8 epochs, in the reduced form every one; threshold 5, batch 32), but for its rate of
2, at which the unit that reads the image diverges on the scenes. All three have 0.5.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial

from benchmarks import records
from benchmarks.datasets import CaptionData
from benchmarks.datasets.vocabulary import END_ID, PAD_ID, START_ID
from benchmarks.experiments.arnet import flickr8k, flickr8k_reduced, generated, recipe
from benchmarks.experiments.captions import in_stages, mean_loss, with_beams
from benchmarks.experiments.experiment import Experiment, Place, Run
from benchmarks.records import Record
from benchmarks.scores import java
from benchmarks.scores.evaluate import evaluate
from benchmarks.training.presets import Settings
from torch_impl.models import RecurrentConfiguration
from torch_impl.optimization import Recipe

PAPER = "lstm_readonly"
BEAM = 3
ROWS: dict[str, str | None] = {
    "LSTM": None,
    "LSTM + read-only unit": "image",
    "LSTM + read-only unit, previous input": "previous_input",
}
"""Each row's reading of eq. 17; the last is the formula as printed."""


@dataclass(frozen=True)
class Form:
    """What is captioned, by how large a model, and its training."""

    load: Callable[[Place], CaptionData]
    status: str
    size: int
    settings: Settings


def _recipe(epochs: int, batch_size: int, lr: float = 0.5, halved_every: int = 8) -> Recipe:
    plain = recipe(lr, epochs, batch_size)
    return replace(plain, anneal=0.5, anneal_every=halved_every, algorithm="sgd", clip=5.0)


FORMS = {
    "scenes": Form(
        generated,
        "embedded",
        128,
        Settings(_recipe(6, 32), captions_per_image=5),
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


def _run(form: Form, place: Place, row: str, seed: int, key: str) -> list[Record]:
    began = time.perf_counter()
    data = form.load(place)
    model = configuration(data, form.size, row)
    (result,) = in_stages(data, model, [form.settings], seed, place)
    scored = evaluate(
        "training",
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
            "configuration": model.to_dict(),
            "stages": [asdict(form.settings)],
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
    lost = {**scored, "what": scored["what"] | {"table": "losses"}, "values": losses}
    wall_s = time.perf_counter() - began
    return [{**record, "wall_s": wall_s} for record in (lost, scored)]


def _runs(form: str, place: Place, seeds: Sequence[int]) -> list[Run]:
    """All rows of a seed, then those of the next."""
    chosen = FORMS[form]
    given = form, chosen.size, chosen.settings, java.available()
    found = []
    for seed in seeds:
        for row in ROWS:
            key = records.key_of(PAPER, row, given, seed)
            found.append(Run(row, seed, key, partial(_run, chosen, place, row, seed, key)))
    return found


EXPERIMENT = Experiment(
    PAPER,
    ("losses",),
    tuple(FORMS),
    {
        "scenes": "2,000 generated scenes, 128 units, 6 epochs: minutes on a CPU",
        "reduced": "Flickr8k (features in the folder of work), 64 units, 3 epochs: on a CPU",
        "flickr8k": "Flickr8k, 512 units, 30 epochs: for a GPU",
    },
    3,
    _runs,
)
