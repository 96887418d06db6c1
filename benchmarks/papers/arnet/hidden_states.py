"""ARNet Figure 4: t-SNE of the last hidden states of one batch in training and in inference.

The models are those of Table 1, the attentive encoder-decoder with and without ARNet. The states
are those whose distances Table 2 has; each model is embedded separately.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from benchmarks import records
from benchmarks.data import CaptionData
from benchmarks.kinds import States
from benchmarks.papers.arnet import captions as arnet
from benchmarks.papers.arnet import t_sne
from benchmarks.papers.caption_experiments import data_of
from benchmarks.papers.experiment import Experiment, RowRun
from benchmarks.records import Record
from benchmarks.scoring import discrepancy
from benchmarks.scoring.captioners import weights_sha256

TABLE = "states"
BATCH = 80
PERPLEXITY = 30.0
ROWS = ("Attentive Encoder-Decoder", "Attentive Encoder-Decoder + ARNet")
MODES = ("training", "inference")


def first_batch(data: CaptionData) -> CaptionData:
    """Only the first ``BATCH`` images of the test split."""
    test = data.splits["test"]
    return replace(data, splits={"test": replace(test, image_ids=test.image_ids[:BATCH])})


def _measure(run: RowRun) -> list[Record[States]]:
    model, details = arnet.train(run)
    options = {"beam_size": arnet.BEAM, "max_length": run.training.last.max_length}
    found = discrepancy.measure(model, first_batch(run.data), "test", **options)
    states = np.concatenate([found.training.numpy(), found.inference.numpy()])
    embedded = t_sne.embed(states, perplexity=PERPLEXITY, seed=run.seed)
    by_mode = np.split(embedded.points.round(4), 2)
    return [
        records.make(
            States(
                **details,
                **options,
                perplexity=PERPLEXITY,
                divergence=embedded.divergence,
                points={m: y.tolist() for m, y in zip(MODES, by_mode, strict=True)},
            ),
            paper=arnet.PAPER,
            table=TABLE,
            row=run.row,
            values=found.values,
            status=run.form.status,
            key=run.key,
            n=len(found.training),
            seeds=[run.seed],
            data=data_of(run, run.data, "test"),
            checkpoint=weights_sha256(model),
        )
    ]


EXPERIMENT = Experiment(
    arnet.PAPER,
    (TABLE,),
    ROWS,
    arnet.IMAGES,
    arnet.training,
    _measure,
    seeds=1,
    scored=False,
)
