"""ARNet Tables 1 to 4: captions of images and of code, and how far training is from inference.

Each row is trained in the two stages of section 4.2, both of them with what the row is named for
but ARNet, which is in the second alone, where it goes on from the plain model's first. The second
stage of the others has no reconstruction and is otherwise the same, so that a row differs from its
baseline in one thing. The paper does not print the rates of zoneout and of scheduled sampling, nor
lambda for code: zoneout's are those of Krueger et al. (2017) for words, sampling's those of
Middle-Out (section 4.2), lambda that of images.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from benchmarks import records
from benchmarks.data import CaptionData, code
from benchmarks.data.vocabulary import END_ID, PAD_ID, START_ID
from benchmarks.kinds import Captions, Discrepancy
from benchmarks.papers.experiment import (
    Experiment,
    Place,
    Run,
    rows_by_seed,
)
from benchmarks.papers.stages import (
    flickr8k,
    flickr8k_reduced,
    folder_of,
    generated,
    in_stages,
    one_rate,
    rounded,
)
from benchmarks.records import Record
from benchmarks.scoring import discrepancy, java
from benchmarks.scoring.evaluate import evaluate
from benchmarks.training.presets import Settings
from torch_impl.models import AnyCaptioner, RecurrentConfiguration
from torch_impl.training.optimisation import Optimisation

PAPER = "arnet"
LAMBDA = 0.01
BEAM = 3
BASELINES = ("Encoder-Decoder", "Attentive Encoder-Decoder")
ADDED = ("", " + Zoneout", " + Scheduled Sampling", " + ARNet")
ROWS = tuple(baseline + added for baseline in BASELINES for added in ADDED)


@dataclass(frozen=True)
class Form:
    """What is captioned, and how much of it.

    Args:
        load: where -> the data.
        status: of its records.
        model: sizes of the captioner.
        stages: the training.
        tokeniser: of the scores.
        max_length: of a caption, the start included.
    """

    load: Callable[[Place], CaptionData]
    status: str
    model: Mapping[str, Any]
    stages: tuple[Settings, Settings]
    tokeniser: str = "words"
    max_length: int = 20


def _code(place: Place, **sizes: int) -> CaptionData:
    return code.load(folder_of(place, "habeascorpus"), **sizes)


def _stages(
    first: Optimisation, second: Optimisation, **settings: Any
) -> tuple[Settings, Settings]:
    return Settings(first, **settings), Settings(second, **settings)


IMAGES = {
    "scenes": Form(
        generated,
        "embedded",
        {"d_embedding": 128, "hidden_size": 128},
        _stages(one_rate(2e-3, 3, 100), one_rate(5e-4, 2, 100), captions_per_image=5),
    ),
    "reduced": Form(
        flickr8k_reduced,
        "other data",
        {"d_embedding": 64, "hidden_size": 64},
        _stages(
            one_rate(2e-3, 6, 20),
            one_rate(4e-4, 2, 20),
            captions_per_image=5,
            validation_images=250,
            max_length=30,
        ),
        max_length=30,
    ),
    "flickr8k": Form(
        flickr8k,
        "other data",
        {"d_embedding": 512, "hidden_size": 512},
        _stages(
            one_rate(5e-4, 15, 64), one_rate(1e-4, 10, 64), validation_images=500, max_length=30
        ),
        max_length=30,
    ),
}
CODE = {
    "reduced": Form(
        partial(_code, length=60, words=20, min_count=8),
        "other data",
        {"d_embedding": 64, "hidden_size": 64, "source": "tokens"},
        _stages(
            one_rate(4e-3, 8, 32),
            one_rate(2e-3, 2, 32),
            metric="B4",
            max_length=21,
        ),
        max_length=21,
    ),
    "full": Form(
        _code,
        "other data",
        {"d_embedding": 512, "hidden_size": 256, "source": "tokens"},
        _stages(one_rate(1e-3, 30, 16), one_rate(5e-4, 20, 16), metric="B4", max_length=301),
        max_length=301,
    ),
}


@dataclass(frozen=True)
class Trained:
    """A row's captioner, what it was trained on, and how."""

    model: AnyCaptioner
    data: CaptionData
    details: Mapping[str, Any]


def stages(form: Form, row: str, weight: float = LAMBDA) -> tuple[Settings, Settings]:
    """The training of a row; ``weight`` is lambda of the row that has ARNet."""
    first, second = form.stages
    if row.endswith("Sampling"):
        return replace(first, sampling=0.05), replace(second, sampling=0.05)
    return first, replace(second, lambda_=weight) if row.endswith("ARNet") else second


def train(form: Form, place: Place, row: str, seed: int, weight: float = LAMBDA) -> Trained:
    """Train a row, or have it from the folder of work."""
    data = form.load(place)
    fields: dict[str, Any] = {"attentive": row.startswith("Attentive")}
    if row.endswith("Zoneout"):
        fields |= {"zoneout_cell": 0.5, "zoneout_hidden": 0.05}
    configuration = RecurrentConfiguration(
        len(data.vocabulary),
        data.splits["train"].features.d_feature,
        start_id=START_ID,
        end_id=END_ID,
        pad_id=PAD_ID,
        max_length=form.max_length,
        **{**form.model, **fields},
    )
    training = stages(form, row, weight)
    results = in_stages(data, configuration, training, seed, place)
    details = {
        "configuration": configuration.to_dict(),
        "stages": [asdict(settings) for settings in training],
        "validations": [result.best for result in results],
    }
    return Trained(results[-1].model, data, details)


def score(form: Form, trained: Trained, table: str, row: str, seed: int, key: str) -> Record:
    """What a captioner scores on the test split, as a line of ``table``."""
    return evaluate(
        Captions,
        trained.model,
        trained.data.vocabulary,
        trained.data,
        row=row,
        status=form.status,
        key=key,
        seed=seed,
        paper=PAPER,
        table=table,
        beam_size=BEAM,
        max_length=form.max_length,
        tokeniser=form.tokeniser,
        details=trained.details,
    )


def _run(
    form: Form, tables: tuple[str, str], place: Place, row: str, seed: int, key: str
) -> list[Record]:
    began = time.perf_counter()
    trained = train(form, place, row, seed)
    scored = score(form, trained, tables[0], row, seed, key)
    apart = discrepancy.measure(
        trained.model, trained.data, "test", beam_size=BEAM, max_length=form.max_length
    )
    far = records.replace(
        scored,
        table=tables[1],
        values=apart.values,
        signature="",
        details=Discrepancy(
            **trained.details,
            beam_size=BEAM,
            max_length=form.max_length,
            shares=rounded(apart.shares),
        ),
    )
    wall_s = time.perf_counter() - began
    return [records.replace(record, wall_s=wall_s) for record in (scored, far)]


def _runs(
    forms: Mapping[str, Form],
    tables: tuple[str, str],
    form: str,
    place: Place,
    seeds: Sequence[int],
) -> list[Run]:
    """All rows of a seed, then those of the next."""
    chosen = forms[form]
    # what can score here too: what could not is measured when it can
    given = form, chosen.model, chosen.stages, java.available()
    make = partial(_run, chosen, tables, place)
    return rows_by_seed(ROWS, seeds, make, PAPER, tables, given)


IMAGE_CAPTIONS = Experiment(
    PAPER,
    ("1", "2"),
    tuple(IMAGES),
    {
        "scenes": "2,000 generated scenes, 128 units, 3 + 2 epochs: minutes on a CPU",
        "reduced": "Flickr8k (with --features), 64 units, 6 + 2 epochs: on a CPU",
        "flickr8k": "Flickr8k, 512 units, 15 + 10 epochs: for a GPU",
    },
    3,
    partial(_runs, IMAGES, ("1", "2")),
)
CODE_CAPTIONS = Experiment(
    PAPER,
    ("3", "4"),
    tuple(CODE),
    {
        "reduced": "60 tokens of code, 20 words of comment, 64 units, 8 + 2 epochs: on a CPU",
        "full": "300 tokens, 256 units, up to 30 + 20 epochs, chosen by BLEU-4: for a GPU",
    },
    3,
    partial(_runs, CODE, ("3", "4")),
)
