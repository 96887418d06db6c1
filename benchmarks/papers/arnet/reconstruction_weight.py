"""ARNet Figure 5: CIDEr-D by lambda, the weight of the reconstruction loss in eq. 9.

The attentive encoder-decoder, trained as in Table 1. At lambda = 0 and at Table 1's lambda it
shares the training of that table's rows.
"""

from __future__ import annotations

from benchmarks.kinds import Captions
from benchmarks.papers.arnet import captions as arnet
from benchmarks.papers.experiment import Experiment, Form, RowRun
from benchmarks.records import Record
from benchmarks.training.configuration import TrainingConfig

TABLE = "lambda"
WEIGHTS = (0.0, 0.001, 0.005, 0.01, 0.05, 0.1)
MODEL = "Attentive Encoder-Decoder + ARNet"
ROWS = {f"lambda = {weight:g}": weight for weight in WEIGHTS}


def _training(form: Form, row: str) -> TrainingConfig:
    return arnet.training(form, MODEL, ROWS[row])


def _measure(run: RowRun) -> list[Record[Captions]]:
    return [arnet.score(run, *arnet.train(run))]


EXPERIMENT = Experiment(arnet.PAPER, (TABLE,), tuple(ROWS), arnet.IMAGES, _training, _measure)
