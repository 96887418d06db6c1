"""The read-only LSTM's losses: its captioner without the unit, and with both readings of it.

All three are the paper's model: no biases, no tanh after the memory cell, equal sizes of image and
word vectors. They are trained by SGD with clipped gradients, as in the paper, which prints neither
learning rate nor threshold nor batch size. Threshold 5, batch 32 and halving every 8 epochs (in the
smaller forms every epoch) are those of Show and Tell's released training. At its learning rate of 2
the unit that reads the image diverges on the scenes, and a smaller one is worse for the plain LSTM.
So each row has the learning rate of its form's grid with the least validation loss; in the
converged form of two trials' worse, as with the unit one seed in two diverged at a rate that was
the best with another.
"""

from __future__ import annotations

import math
from dataclasses import replace

from benchmarks import records
from benchmarks.data import CaptionData
from benchmarks.kinds import Losses, ReadOnly, as_kind
from benchmarks.papers.caption_experiments import (
    chosen,
    described,
    flickr8k,
    generated,
    in_stages,
    mean_loss,
    one_rate,
    with_beams,
)
from benchmarks.papers.experiment import TRIAL_SEEDS, Experiment, Form, RowRun
from benchmarks.records import Record
from benchmarks.scoring.evaluate import evaluate
from benchmarks.training.configuration import Stage, TrainingConfig
from benchmarks.training.fit import Result
from torch_impl.models import BaseCaptioner

PAPER = "lstm_readonly"
BEAM = 3
ROWS: dict[str, str | None] = {
    "LSTM": None,
    "LSTM + read-only unit": "image",
    "LSTM + read-only unit, previous input": "previous_input",
}
"""Each row's input of the read-only unit (eq. 17); the last is as printed."""
RATES = tuple({"lr": rate} for rate in (0.25, 0.5, 1.0, 2.0, 4.0))
"""The grid, around Show and Tell's 2; on the scenes only its middle values."""


def _training(size: int, epochs: int, halved_every: int = 8, **stage: int) -> TrainingConfig:
    """The paper's captioner of ``size`` units, trained by SGD with a halving learning rate."""
    plain = one_rate(1.0, epochs, batch_size=32)
    descent = replace(plain, anneal=0.5, anneal_every=halved_every, algorithm="sgd", clip=5.0)
    return TrainingConfig.of(
        Stage(descent).but(**stage),
        family="recurrent",
        d_embedding=size,
        hidden_size=size,
        bias=False,
        squash=False,
    )


FORMS = {
    "scenes": Form(
        "2,000 generated scenes, 128 units, 3 epochs: minutes on a CPU",
        generated,
        _training(128, 3, halved_every=1, captions_per_image=5),
        status="embedded",
        grid=RATES[1:-1],
        trial_seeds=(0,),
    ),
    "reduced": Form(
        "Flickr8k (with --features), 64 units, 3 epochs: on a CPU",
        flickr8k,
        _training(64, 3, halved_every=1, captions_per_image=5, validation_images=250),
        sizes="reduced sizes",
        grid=RATES,
        trial_seeds=(0,),
    ),
    "converged": Form(
        "Flickr8k (with --features), 128 units, until validation has not improved for 3 epochs; "
        "the rate by row, by the worse of two trials of 2 epochs",
        flickr8k,
        _training(
            *(128, 24),
            halved_every=3,
            captions_per_image=5,
            validation_images=500,
            patience=3,
        ),
        sizes="converged",
        grid=RATES,
        trial_seeds=TRIAL_SEEDS,
        trial={"epochs": 2},
    ),
    "flickr8k": Form(
        "Flickr8k, 512 units, 30 epochs: for a GPU",
        flickr8k,
        _training(512, 30, validation_images=500),
        grid=RATES,
        trial_seeds=(0,),
    ),
}


def training(form: Form, row: str) -> TrainingConfig:
    """A row's training, apart from the learning rate."""
    return form.training.but(read_only=ROWS[row])


def _less_loss(model: BaseCaptioner, data: CaptionData, _: Result) -> float:
    return -mean_loss(model, data, "val")


def _measure(run: RowRun) -> list[Record[ReadOnly] | Record[Losses]]:
    data = run.data
    best, scores = chosen(run, data, score=_less_loss)
    (result,) = in_stages(data, best, run.seed, run.place)
    scored = evaluate(
        ReadOnly,
        result.model,
        data.vocabulary,
        run.named(data),
        row=run.row,
        status=run.form.status,
        key=run.key,
        seed=run.seed,
        paper=PAPER,
        table="scores",
        beam_size=BEAM,
        tokeniser=run.form.tokeniser,
        details={
            "form": run.name,
            **described(best, [result]),
            "validation_losses": {k.removeprefix("lr "): -v for k, v in scores.items()},
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
        for name, split in (("training", "train"), ("validation", "val"), ("evaluation", "test"))
    }
    losses["evaluation perplexity"] = math.exp(losses["evaluation loss"])
    lost = records.replace(
        scored, table="losses", values=losses, details=as_kind(Losses, scored.details)
    )
    return [lost, scored]


EXPERIMENT = Experiment(PAPER, ("losses",), tuple(ROWS), FORMS, training, _measure)
