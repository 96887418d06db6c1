"""What the main job trains: expansion coefficients (v1 Table 3, v2 Table I) on embedded scenes.

Each row is trained with one seed, decoded with beam 3 on the test split and scored. The rows see
the same data in the same order, so that their differences are paired.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from msgspec import structs

from benchmarks import records
from benchmarks.data import CaptionData, scenes
from benchmarks.kinds import Ablation
from benchmarks.records import Record
from benchmarks.scoring import overlay
from benchmarks.scoring.evaluate import evaluate, row_name
from benchmarks.training.configuration import PRESETS, TrainingConfig
from benchmarks.training.fit import fit
from torch_impl.models import Captioner


@dataclass(frozen=True)
class Row:
    """One configuration: which layer mixes the tokens in the encoder and in the decoder."""

    encoder: str
    decoder: str

    @property
    def name(self) -> str:
        """As records and reports name it."""
        return row_name(self.encoder, self.decoder)


BASELINE = Row("attention", "attention")
BOTH = Row("static:64", "dynamic:16")
ROWS = (
    BASELINE,
    Row("static:16", "attention"),
    Row("static:64", "attention"),
    Row("attention", "dynamic:4"),
    Row("attention", "dynamic:16"),
    BOTH,
    Row("static:8,16,32", "dynamic:16"),
)


@dataclass(frozen=True)
class Scale:
    """How much data, how many epochs and rows a run of the ablation takes."""

    images: tuple[int, int, int]
    epochs: int | None
    rows: tuple[Row, ...]

    def training(self, row: Row) -> TrainingConfig:
        """The scenes' training of a row's model, cut to this scale's epochs."""
        training = PRESETS["scenes"].but(encoder=row.encoder, decoder=row.decoder)
        if self.epochs is None:
            return training
        epochs = self.epochs
        return training.each(lambda stage: stage.but(epochs=epochs))

    def key(self, row: Row, scorers: Sequence[str]) -> str:
        """Changes with anything that may change the run's numbers, ``scorers`` are `available`."""
        return records.key_of(run, self.images, self.training(row), scorers)


FULL = Scale((2000, 250, 250), None, ROWS)
QUICK = Scale((200, 20, 40), 1, (BASELINE, ROWS[-1]))
SEED = 0


@cache
def _scenes(train: int, val: int, test: int) -> CaptionData:
    return scenes.make(seed=0, train=train, val=val, test=test)


def run(key: str, scale: Scale, row: Row) -> list[Record]:
    """Train, decode and score one row; the record stands under ``key``."""
    began = time.perf_counter()
    data, training = _scenes(*scale.images), scale.training(row)
    fitted = fit(data, training.configuration(data), training.last, SEED)
    record = evaluate(
        Ablation,
        fitted.model,
        data.vocabulary,
        data,
        row=row.name,
        status="embedded",
        key=key,
        seed=SEED,
        max_length=training.last.max_length,
        tokeniser="words",
        examples=3,
        details={"training_seconds": fitted.seconds},
    )
    assert isinstance(fitted.model, Captioner)
    details = record.details
    looked = overlay.attention(fitted.model, data, details.examples[0], "test")
    # the work is all of it, not the scoring alone
    wall_s = time.perf_counter() - began
    details = structs.replace(details, attention=looked)
    return [records.replace(record, details=details, wall_s=wall_s)]
