"""Discrepancy by model (ARNet 10-12): the papers' captioners beside ARNet's, a table no paper has.

Every row is trained in two stages, both of them by its family's recipe, the second slower; "+
ARNet" goes on from its baseline's first stage and adds the reconstruction to the second alone, so
that it differs from its baseline in one thing. The reconstructor knows nothing of recurrence: it
reads the states of an expansion model as it does an LSTM's.

The rows of the LSTMs are trained as ARNet's Table 1 (`arnet`), the read-only unit's too, whose
paper trains otherwise (`read_only`). Middle-Out's are those of its own tables (`middle_out`), in
one stage, of the captions that have a middle word: on the scenes, of the moving ones. In training
it begins with the image's own word, in inference with its classifier's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from benchmarks import records
from benchmarks.data import CaptionData
from benchmarks.data.vocabulary import END_ID, PAD_ID, START_ID
from benchmarks.kinds import Discrepancy
from benchmarks.papers.arnet import captions as arnet
from benchmarks.papers.experiment import (
    Experiment,
    Place,
    Run,
    rows_by_seed,
)
from benchmarks.papers.middle_out import captions as middle_out
from benchmarks.papers.stages import in_stages, rounded
from benchmarks.records import Record
from benchmarks.scoring import discrepancy
from benchmarks.scoring.captioners import weights_sha256
from benchmarks.scoring.evaluate import row_name
from benchmarks.training import presets
from benchmarks.training.fit import Result
from benchmarks.training.presets import PRESETS, Settings
from torch_impl.models import (
    AnyCaptioner,
    AnyConfiguration,
    MiddleOutConfiguration,
    RecurrentConfiguration,
)

TABLE = "discrepancy"
ARNET = " + ARNet"
LSTMS: dict[str, dict[str, Any]] = {
    "NIC": {},
    "NIC with attention": {"attentive": True},
    "NIC with a read-only unit": {"read_only": "image", "bias": False, "squash": False},
    "NIC with a read-only unit, previous input": {
        "read_only": "previous_input",
        "bias": False,
        "squash": False,
    },
}
SELF_ATTENTIVE = "LSTM with dual self-attention"
MIXERS: dict[str, tuple[str, str]] = {
    "Transformer": ("attention", "attention"),
    "Transformer w/ AoA": ("aoa", "aoa"),
    **{
        row_name(encoder, decoder): (encoder, decoder)
        for encoder, decoder in (("static:64", "dynamic:16"), ("static:8,16,32", "dynamic:16"))
    },
}
MIDDLE_OUT = ("Middle-Out + Attention", "Middle-Out + Attention + Self-Attention")
"""Rows of Middle-Out's Table 2."""
BASELINES = (*LSTMS, SELF_ATTENTIVE, *MIXERS)
REGULARISED = ("NIC", "NIC with attention", "Transformer", "static:64 | dynamic:16")
"""Those that a row "+ ARNet" goes on from."""
OF_ONE_SIDE = tuple(
    name
    for baseline in BASELINES
    for name in (baseline, *([baseline + ARNET] if baseline in REGULARISED else []))
)
ROWS = (*OF_ONE_SIDE, *MIDDLE_OUT)


@dataclass(frozen=True)
class Form:
    """What is captioned, and how large the models are.

    Args:
        lstm: sizes, stages and data of the LSTMs.
        mixers: sizes of the others.
        stages: of the others.
        middle_out: what Middle-Out's rows are trained in.
    """

    lstm: arnet.Form
    mixers: Mapping[str, Any]
    stages: tuple[Settings, Settings]
    middle_out: middle_out.Form


def _stages(
    preset: str, epochs: tuple[int, int], slower: float, like: arnet.Form
) -> tuple[Settings, Settings]:
    """A preset's training cut in two, the second at one rate, ``slower`` times the first.

    It is validated as the LSTMs, ``like``, are.
    """
    first = replace(
        PRESETS[preset].settings,
        validate_every=1,
        validation_images=like.stages[0].validation_images,
        max_length=like.max_length,
    )
    first = replace(first, recipe=replace(first.recipe, epochs=epochs[0]))
    recipe = replace(
        first.recipe,
        lr=slower * first.recipe.lr,
        warmup=0,
        schedule="linear",
        anneal=1.0,
        epochs=epochs[1],
    )
    return first, replace(first, recipe=recipe)


FORMS = {
    "scenes": Form(
        arnet.IMAGES["scenes"],
        dict(PRESETS["scenes"].model),
        _stages("scenes", (3, 2), 0.25, arnet.IMAGES["scenes"]),
        middle_out.FORMS["scenes"],
    ),
    "reduced": Form(
        arnet.IMAGES["reduced"],
        {**PRESETS["scenes"].model, "num_encoder_layers": 1, "num_decoder_layers": 1},
        _stages("scenes", (2, 1), 0.2, arnet.IMAGES["reduced"]),
        middle_out.FORMS["reduced"],
    ),
    "flickr8k": Form(
        arnet.IMAGES["flickr8k"],
        dict(PRESETS["flickr8k"].model),
        _stages("flickr8k", (8, 4), 0.1, arnet.IMAGES["flickr8k"]),
        middle_out.FORMS["flickr8k"],
    ),
}


def configuration(data: CaptionData, form: Form, row: str) -> AnyConfiguration:
    """The captioner of a row for ``data``."""
    baseline = row.removesuffix(ARNET)
    if baseline in MIXERS:
        encoder, decoder = MIXERS[baseline]
        sizes = {**form.mixers, "encoder": encoder, "decoder": decoder}
        return presets.configuration(data, form.stages[0].recipe, sizes)
    kind: Callable[..., AnyConfiguration] = RecurrentConfiguration
    fields = LSTMS.get(baseline, {})
    if baseline == SELF_ATTENTIVE:
        kind, fields = MiddleOutConfiguration, {"middle_out": False, "self_attention": "dual"}
    return kind(
        len(data.vocabulary),
        data.splits["train"].features.d_feature,
        start_id=START_ID,
        end_id=END_ID,
        pad_id=PAD_ID,
        max_length=form.lstm.max_length,
        **{**form.lstm.model, **fields},
    )


def stages(form: Form, row: str) -> list[Settings]:
    """The training of a row."""
    first, second = form.stages if row.removesuffix(ARNET) in MIXERS else form.lstm.stages
    return [first, replace(second, lambda_=arnet.LAMBDA) if row.endswith(ARNET) else second]


@dataclass(frozen=True)
class Trained:
    """A row's captioner, what it is measured on, and how it was trained."""

    model: AnyCaptioner
    data: CaptionData
    stages: Sequence[Settings]
    results: Sequence[Result]
    max_length: int


def train(form: Form, place: Place, row: str, seed: int) -> Trained:
    """Train a row, or have it from the folder of work."""
    if row in MIDDLE_OUT:
        words = middle_out.with_middle_words(form.middle_out, place)
        result, _ = middle_out.train(form.middle_out, words, middle_out.MODELS[row], seed, place)
        most = form.middle_out.settings.max_length
        test = replace(words.data.splits["test"], learned=words.in_order("test", most - 1))
        data = replace(words.data, splits={**words.data.splits, "test": test})
        return Trained(result.model, data, [form.middle_out.settings], [result], most)
    data = form.lstm.load(place)
    training = stages(form, row)
    results = in_stages(data, configuration(data, form, row), training, seed, place)
    return Trained(results[-1].model, data, training, results, form.lstm.max_length)


def _run(form: Form, place: Place, row: str, seed: int, key: str) -> list[Record]:
    began = time.perf_counter()
    trained = train(form, place, row, seed)
    captioner, data = trained.model, trained.data
    options: dict[str, Any] = {"beam_size": arnet.BEAM, "max_length": trained.max_length}
    found = discrepancy.measure(captioner, data, "test", **options)
    return [
        records.make(
            Discrepancy(
                **options,
                configuration=captioner.configuration.to_dict(),
                stages=[asdict(settings) for settings in trained.stages],
                validations=[result.best for result in trained.results],
                parameters=sum(p.numel() for p in captioner.parameters()),
                shares=rounded(found.shares),
            ),
            paper="arnet",
            table=TABLE,
            row=row,
            values=found.values,
            status=form.lstm.status,
            key=key,
            n=len(found.training),
            seeds=[seed],
            data=records.Data(name=data.name, fingerprint=data.fingerprint, split="test"),
            checkpoint=weights_sha256(captioner),
            wall_s=time.perf_counter() - began,
        )
    ]


def _runs(form: str, place: Place, seeds: Sequence[int]) -> list[Run]:
    """All rows of a seed, then those of the next."""
    chosen = FORMS[form]
    given = form, chosen.lstm.model, chosen.lstm.stages, chosen.mixers, chosen.stages
    make, two_sides = partial(_run, chosen, place), chosen.middle_out
    of_middle_out = form, two_sides.model, two_sides.settings, two_sides.schedule
    return [
        run
        for seed in seeds
        for rows, of in ((OF_ONE_SIDE, given), (MIDDLE_OUT, of_middle_out))
        for run in rows_by_seed(rows, [seed], make, "arnet", TABLE, of)
    ]


EXPERIMENT = Experiment(
    "arnet",
    (TABLE,),
    tuple(FORMS),
    {
        "scenes": "2,000 generated scenes, LSTMs of 128 units, the others of d = 64, 3 + 2 epochs: "
        "a minute a row on a CPU",
        "reduced": "Flickr8k (with --features), LSTMs of 64 units, 6 + 2 epochs, the others of "
        "d = 64 and one layer, 2 + 1 epochs: on a CPU",
        "flickr8k": "Flickr8k, LSTMs of 512 units, 15 + 10 epochs, the others of d = 256, 8 + 4: "
        "for a GPU",
    },
    3,
    _runs,
)
