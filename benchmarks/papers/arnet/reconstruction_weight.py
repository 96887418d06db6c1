"""ARNet Figure 5: CIDEr-D by lambda, the weight of the reconstruction in eq. 9.

The attentive encoder-decoder, trained as in Table 1. At lambda = 0 and at Table 1's it is a row of
that table, whose training it shares.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

from benchmarks import records
from benchmarks.papers.arnet import captions as arnet
from benchmarks.papers.experiment import (
    Experiment,
    Place,
    Run,
    rows_by_seed,
)
from benchmarks.records import Record
from benchmarks.scoring import java

TABLE = "lambda"
WEIGHTS = (0.0, 0.001, 0.005, 0.01, 0.05, 0.1)
MODEL = "Attentive Encoder-Decoder + ARNet"
ROWS = {f"lambda = {weight:g}": weight for weight in WEIGHTS}


def _run(form: arnet.Form, place: Place, row: str, seed: int, key: str) -> list[Record]:
    began = time.perf_counter()
    trained = arnet.train(form, place, MODEL, seed, ROWS[row])
    record = arnet.score(form, trained, TABLE, row, seed, key)
    return [records.replace(record, wall_s=time.perf_counter() - began)]


def _runs(form: str, place: Place, seeds: Sequence[int]) -> list[Run]:
    """All rows of a seed, then those of the next."""
    chosen = arnet.IMAGES[form]
    # what can score here too: what could not is measured when it can
    given = form, chosen.model, chosen.stages, java.available()
    make = partial(_run, chosen, place)
    return rows_by_seed(ROWS, seeds, make, arnet.PAPER, TABLE, given)


EXPERIMENT = Experiment(
    arnet.PAPER,
    (TABLE,),
    tuple(arnet.IMAGES),
    {form: f"as Table 1's: {about}" for form, about in arnet.IMAGE_CAPTIONS.about.items()},
    3,
    _runs,
)
