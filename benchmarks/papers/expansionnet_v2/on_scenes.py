"""The main job's ablation on generated scenes, with rows like v2's Table I and v1's Table 3.

All rows train on the same data in the same order, so that their differences are paired.
"""

from __future__ import annotations

from functools import partial

from msgspec import structs

from benchmarks import records
from benchmarks.data import CaptionData, scenes
from benchmarks.kinds import Ablation
from benchmarks.papers.experiment import Experiment, Form, Place, RowRun
from benchmarks.records import Record
from benchmarks.scoring import overlay
from benchmarks.scoring.evaluate import PAPER, TABLE, evaluate, row_name
from benchmarks.training.configuration import PRESETS, TrainingConfig
from benchmarks.training.fit import fit
from torch_impl.models import Captioner

ROWS = {
    row_name(*mixers): mixers
    for mixers in (
        ("attention", "attention"),
        ("static:16", "attention"),
        ("static:64", "attention"),
        ("attention", "dynamic:4"),
        ("attention", "dynamic:16"),
        ("static:64", "dynamic:16"),
        ("static:8,16,32", "dynamic:16"),
    )
}


def _scenes(_: Place, train: int, val: int, test: int) -> CaptionData:
    return scenes.make(seed=0, train=train, val=val, test=test)


_TRAINING = PRESETS["scenes"].but()  # a copy that can be sent to another process
FORMS = {
    "quick": Form(
        "200 generated scenes, an epoch: to try it",
        partial(_scenes, train=200, val=20, test=40),
        _TRAINING.each(lambda stage: stage.but(epochs=1)),
        status="embedded",
    ),
    "scenes": Form(
        "2,000 generated scenes: a minute a row on a CPU",
        partial(_scenes, train=2000, val=250, test=250),
        _TRAINING,
        status="embedded",
    ),
}


def _training(form: Form, row: str) -> TrainingConfig:
    encoder, decoder = ROWS[row]
    of: TrainingConfig = form.training
    return of.but(encoder=encoder, decoder=decoder)


def _measure(run: RowRun) -> list[Record[Ablation]]:
    """Scores on the test split, and the decoder's attention for its first image."""
    data, stage = run.data, run.training.last
    fitted = fit(data, run.training.configuration(data), stage, run.seed)
    record = evaluate(
        Ablation,
        fitted.model,
        data.vocabulary,
        data,
        row=run.row,
        status=run.form.status,
        key=run.key,
        seed=run.seed,
        max_length=stage.max_length,
        tokeniser=run.form.tokeniser,
        examples=3,
        details={"training_seconds": fitted.seconds},
    )
    assert isinstance(fitted.model, Captioner)
    looked = overlay.attention(fitted.model, data, record.details.examples[0], "test")
    return [records.replace(record, details=structs.replace(record.details, attention=looked))]


EXPERIMENT = Experiment(PAPER, (TABLE,), tuple(ROWS), FORMS, _training, _measure, seeds=1)
