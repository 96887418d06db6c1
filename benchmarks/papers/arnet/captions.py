"""ARNet Tables 1 to 4: captions of images and of code; discrepancy of training and inference.

Each row is trained in the two stages of section 4.2. Zoneout and scheduled sampling are in both
stages; ARNet is in the second only, which continues the plain model's first. All second stages are
otherwise equal, so that a row differs from its baseline in one thing. The paper does not print the
rates of zoneout and scheduled sampling, nor lambda for code. Zoneout's are those of Krueger et al.
(2017) for words, sampling's those of Middle-Out (section 4.2), lambda that of images.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from benchmarks import records
from benchmarks.data import CaptionData, code
from benchmarks.kinds import Captions, Discrepancy
from benchmarks.papers.caption_experiments import (
    chosen,
    described,
    flickr8k,
    folder_of,
    generated,
    in_stages,
    one_rate,
    rounded,
    tried,
)
from benchmarks.papers.experiment import TRIAL_SEEDS, Experiment, Form, Place, RowRun
from benchmarks.records import Record
from benchmarks.scoring import discrepancy
from benchmarks.scoring.evaluate import evaluate
from benchmarks.training.configuration import Stage, TrainingConfig
from torch_impl.models import BaseCaptioner

PAPER = "arnet"
LAMBDA = 0.01
BEAM = 3
BASELINES = ("Encoder-Decoder", "Attentive Encoder-Decoder")
ADDED = ("", " + Zoneout", " + Scheduled Sampling", " + ARNet")
ROWS = tuple(baseline + added for baseline in BASELINES for added in ADDED)


def _code(place: Place, **sizes: int) -> CaptionData:
    return code.load(folder_of(place, "habeascorpus"), **sizes)


def _lstm(
    d_embedding: int,
    hidden_size: int,
    first: tuple[float, int],
    second: tuple[float, int],
    batch_size: int,
    max_length: int = 20,
    source: str = "features",
    **stage: Any,
) -> TrainingConfig:
    """An LSTM trained in two stages, each (learning rate, epochs)."""
    return TrainingConfig.of(
        *(
            Stage(one_rate(*each, batch_size), max_length=max_length, **stage)
            for each in (first, second)
        ),
        family="recurrent",
        d_embedding=d_embedding,
        hidden_size=hidden_size,
        max_length=max_length,
        source=source,
    )


RATES = tuple({"lr": rate} for rate in (1e-3, 2e-3, 4e-3))
"""Learning rates of the first stage that the converged form on images tries for every row."""
IMAGES = {
    "scenes": Form(
        "2,000 generated scenes, 128 units, 3 + 2 epochs: minutes on a CPU",
        generated,
        _lstm(128, 128, (2e-3, 3), (5e-4, 2), 100, captions_per_image=5),
        status="embedded",
    ),
    "reduced": Form(
        "Flickr8k (with --features), 64 units, 6 + 2 epochs: on a CPU",
        flickr8k,
        _lstm(
            *(64, 64, (2e-3, 6), (4e-4, 2), 20, 30),
            captions_per_image=5,
            validation_images=250,
        ),
        sizes="reduced sizes",
    ),
    "converged": Form(
        "Flickr8k (with --features), 128 units, each stage until validation has not improved for "
        "2 epochs; the first's rate by row, by the worse of two trials of 2 epochs",
        flickr8k,
        _lstm(
            *(128, 128, (2e-3, 15), (4e-4, 8), 60, 20),
            captions_per_image=5,
            validation_images=500,
            patience=2,
        ),
        sizes="converged",
        grid=RATES,
        trial_seeds=TRIAL_SEEDS,
        trial={"epochs": 2},
    ),
    "flickr8k": Form(
        "Flickr8k, 512 units, 15 + 10 epochs: for a GPU",
        flickr8k,
        _lstm(512, 512, (5e-4, 15), (1e-4, 10), 64, 30, validation_images=500),
    ),
}
CODE = {
    "reduced": Form(
        "60 tokens of code, 20 words of comment, 64 units, 8 + 2 epochs: on a CPU",
        partial(_code, length=60, words=20, min_count=8),
        _lstm(64, 64, (4e-3, 8), (2e-3, 2), 32, 21, "tokens", metric="B4"),
    ),
    "converged": Form(
        "60 tokens of code, 20 words of comment, 128 units, each stage until validation has not "
        "improved for 6 epochs; the first's rate by row, by the worse of two trials of 8 epochs",
        partial(_code, length=60, words=20, min_count=8),
        _lstm(128, 128, (1e-3, 40), (2.5e-4, 10), 16, 21, "tokens", patience=6),
        sizes="converged",
        grid=tuple({"lr": rate} for rate in (5e-4, 1e-3, 2e-3)),
        trial_seeds=TRIAL_SEEDS,
        trial={"epochs": 8},
    ),
    "full": Form(
        "300 tokens, 256 units, up to 30 + 20 epochs, chosen by BLEU-4: for a GPU",
        _code,
        _lstm(512, 256, (1e-3, 30), (5e-4, 20), 16, 301, "tokens", metric="B4"),
    ),
}


def training(form: Form, row: str, weight: float = LAMBDA) -> TrainingConfig:
    """The two stages of a row; ``weight`` is lambda of rows with ARNet."""
    of = form.training.but(attentive=row.startswith("Attentive"))
    if row.endswith("Zoneout"):
        return of.but(zoneout_cell=0.5, zoneout_hidden=0.05)
    if row.endswith("Sampling"):
        return of.each(lambda stage: replace(stage, sampling=0.05))
    return regularised(of, weight) if row.endswith("ARNet") else of


def regularised(of: TrainingConfig, weight: float = LAMBDA) -> TrainingConfig:
    """``of`` with the reconstruction loss, of this weight, in its last stage."""
    name = list(of.stages)[-1]
    return replace(of, stages={**of.stages, name: replace(of.last, lambda_=weight)})


def train(run: RowRun) -> tuple[BaseCaptioner, dict[str, Any]]:
    """A row's captioner, trained or loaded from the work folder, and the details of a record."""
    best, _ = chosen(run, run.data)
    results = in_stages(run.data, best, run.seed, run.place)
    validations = [result.best for result in results]
    details = {**described(best, results), "form": run.name, "validations": validations}
    return results[-1].model, details


def score(run: RowRun, model: BaseCaptioner, details: Mapping[str, Any]) -> Record[Captions]:
    """A captioner's scores on the test split, as a row of the first table."""
    return evaluate(
        Captions,
        model,
        run.data.vocabulary,
        run.named(run.data),
        row=run.row,
        status=run.form.status,
        key=run.key,
        seed=run.seed,
        paper=PAPER,
        table=run.tables[0],
        beam_size=BEAM,
        max_length=run.training.last.max_length,
        tokeniser=run.form.tokeniser,
        details=details,
    )


def _measure(run: RowRun) -> list[Record[Captions] | Record[Discrepancy]]:
    model, details = train(run)
    scored = score(run, model, details)
    options = {"beam_size": BEAM, "max_length": run.training.last.max_length}
    apart = discrepancy.measure(model, run.data, "test", **options)
    far = records.replace(
        scored,
        table=run.tables[1],
        values=apart.values,
        signature="",
        details=Discrepancy(**details, **options, shares=rounded(apart.shares)),
    )
    return [scored, far]


IMAGE_CAPTIONS = Experiment(PAPER, ("1", "2"), ROWS, IMAGES, training, _measure, trial=tried)
CODE_CAPTIONS = Experiment(PAPER, ("3", "4"), ROWS, CODE, training, _measure, trial=tried)
