"""ARNet Figure 4: the last hidden states of one batch in training and in inference, in the plane.

The attentive encoder-decoder and it with ARNet, both as trained for Table 1; the states are those
whose distances Table 2 gives, embedded by t-SNE, each model's by themselves.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from benchmarks import records
from benchmarks.data import CaptionData
from benchmarks.kinds import States
from benchmarks.papers.arnet import captions as arnet
from benchmarks.papers.arnet import t_sne
from benchmarks.papers.experiment import (
    Experiment,
    Place,
    Run,
    rows_by_seed,
)
from benchmarks.records import Record
from benchmarks.scoring import discrepancy
from benchmarks.scoring.captioners import weights_sha256

TABLE = "states"
BATCH = 80
PERPLEXITY = 30.0
ROWS = ("Attentive Encoder-Decoder", "Attentive Encoder-Decoder + ARNet")
MODES = ("training", "inference")


def first_batch(data: CaptionData) -> CaptionData:
    """``data`` with the first ``BATCH`` images of its test split alone."""
    test = data.splits["test"]
    return replace(data, splits={"test": replace(test, image_ids=test.image_ids[:BATCH])})


def _run(form: arnet.Form, place: Place, row: str, seed: int, key: str) -> list[Record]:
    began = time.perf_counter()
    trained = arnet.train(form, place, row, seed)
    data = first_batch(trained.data)
    options: dict[str, Any] = {"beam_size": arnet.BEAM, "max_length": form.max_length}
    found = discrepancy.measure(trained.model, data, "test", **options)
    states = np.concatenate([found.training.numpy(), found.inference.numpy()])
    embedded = t_sne.embed(states, perplexity=PERPLEXITY, seed=seed)
    by_mode = np.split(embedded.points.round(4), 2)
    return [
        records.make(
            States(
                **trained.details,
                **options,
                perplexity=PERPLEXITY,
                divergence=embedded.divergence,
                points={m: y.tolist() for m, y in zip(MODES, by_mode, strict=True)},
            ),
            paper=arnet.PAPER,
            table=TABLE,
            row=row,
            values=found.values,
            status=form.status,
            key=key,
            n=len(found.training),
            seeds=[seed],
            data=records.Data(name=data.name, fingerprint=data.fingerprint, split="test"),
            checkpoint=weights_sha256(trained.model),
            wall_s=time.perf_counter() - began,
        )
    ]


def _runs(form: str, place: Place, seeds: Sequence[int]) -> list[Run]:
    """Both rows of a seed, then those of the next."""
    chosen = arnet.IMAGES[form]
    given = form, chosen.model, chosen.stages
    make = partial(_run, chosen, place)
    return rows_by_seed(ROWS, seeds, make, arnet.PAPER, TABLE, given)


EXPERIMENT = Experiment(
    arnet.PAPER,
    (TABLE,),
    tuple(arnet.IMAGES),
    {form: f"as Table 1's: {about}" for form, about in arnet.IMAGE_CAPTIONS.about.items()},
    1,
    _runs,
)
