"""Discrepancy by model (ARNet 10-12): all papers' captioners, a table that no paper has.

Every row is trained in two stages by its family's recipe, the second at a lower learning rate.
"+ ARNet" continues its baseline's first stage and adds the reconstruction loss to the second, so
that it differs from its baseline in one thing. The reconstructor is not specific to LSTMs: it also
reads the states of an expansion model.

The LSTMs are trained as in ARNet's Table 1 (`arnet`), also those with a read-only unit, whose paper
trains otherwise (`read_only`). Middle-Out's rows are those of its own tables (`middle_out`): one
stage, on captions with a middle word, or on moving scenes. In training it starts from the image's
own word, in inference from the classifier's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from benchmarks import records
from benchmarks.data import CaptionData
from benchmarks.kinds import Discrepancy
from benchmarks.papers.arnet import captions as arnet
from benchmarks.papers.caption_experiments import rounded
from benchmarks.papers.experiment import Experiment, Form, RowRun
from benchmarks.papers.middle_out import captions as middle_out
from benchmarks.records import Record
from benchmarks.scoring import discrepancy
from benchmarks.scoring.captioners import weights_sha256
from benchmarks.scoring.evaluate import row_name
from benchmarks.training.configuration import PRESETS, TrainingConfig
from torch_impl.models import BaseCaptioner

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
"""Baselines that have a row "+ ARNet"."""
OF_ONE_SIDE = tuple(
    name
    for baseline in BASELINES
    for name in (baseline, *([baseline + ARNET] if baseline in REGULARISED else []))
)
ROWS = (*OF_ONE_SIDE, *MIDDLE_OUT)


@dataclass(frozen=True)
class Families:
    """The training of the LSTMs and of the other models."""

    lstms: TrainingConfig
    mixers: TrainingConfig


def _families(
    form: str, preset: str, epochs: tuple[int, int], slower: float, **sizes: int
) -> Families:
    """ARNet's LSTMs, and a preset's training in two stages, the second at a constant rate.

    Args:
        form: of ARNet's Table 1; all models are validated as its LSTMs.
        preset: of the other models.
        epochs: of its two stages.
        slower: the second stage's learning rate over the first's.
        sizes: of the other models, overriding the preset's.
    """
    lstms = arnet.IMAGES[form].training
    first = PRESETS[preset].last.but(
        validate_every=1,
        validation_images=lstms.last.validation_images,
        max_length=lstms.last.max_length,
        epochs=epochs[0],
    )
    rate = slower * first.optimisation.lr
    second = first.but(lr=rate, warmup=0, schedule="linear", anneal=1.0, epochs=epochs[1])
    return Families(lstms, TrainingConfig.of(first, second, **PRESETS[preset].model).but(**sizes))


_LAYERS = {"num_encoder_layers": 1, "num_decoder_layers": 1}
FORMS = {
    name: replace(arnet.IMAGES[name], about=about, training=families)
    for name, about, families in (
        (
            "scenes",
            "2,000 generated scenes, LSTMs of 128 units, the others of d = 64, 3 + 2 epochs: a "
            "minute a row on a CPU",
            _families("scenes", "scenes", (3, 2), 0.25),
        ),
        (
            "reduced",
            "Flickr8k (with --features), LSTMs of 64 units, 6 + 2 epochs, the others of d = 64 "
            "and one layer, 2 + 1 epochs: on a CPU",
            _families("reduced", "scenes", (2, 1), 0.2, **_LAYERS),
        ),
        (
            "flickr8k",
            "Flickr8k, LSTMs of 512 units, 15 + 10 epochs, the others of d = 256, 8 + 4: for a GPU",
            _families("flickr8k", "flickr8k", (8, 4), 0.1),
        ),
    )
}


def training(form: Form, row: str) -> TrainingConfig:
    """The two stages of a row."""
    families: Families = form.training
    baseline = row.removesuffix(ARNET)
    if baseline in MIXERS:
        encoder, decoder = MIXERS[baseline]
        of = families.mixers.but(encoder=encoder, decoder=decoder)
    elif baseline == SELF_ATTENTIVE:
        sizes = {name: families.lstms.model[name] for name in middle_out.SIZES}
        of = replace(families.lstms, model={**middle_out.ONE_SIDE, **sizes})
    else:
        of = families.lstms.but(**{"attentive": False, **LSTMS[baseline]})
    return arnet.regularised(of) if row.endswith(ARNET) else of


def _measure(run: RowRun) -> list[Record[Discrepancy]]:
    model, details = arnet.train(run)
    return [_apart(run, model, run.named(run.data), run.training.last.max_length, details)]


def _measure_middle_out(run: RowRun) -> list[Record[Discrepancy]]:
    words = middle_out.with_middle_words(run)
    (result, _), most = middle_out.train(run, words), run.training.decoder.last.max_length
    test = replace(words.data.splits["test"], targets=words.in_order("test", most - 1))
    data = replace(words.data, splits={**words.data.splits, "test": test})
    details = {**middle_out.described(run, result), "validations": [result.best]}
    return [_apart(run, result.model, data, most, details)]


def _apart(
    run: RowRun, model: BaseCaptioner, data: CaptionData, max_length: int, details: dict[str, Any]
) -> Record[Discrepancy]:
    options = {"beam_size": arnet.BEAM, "max_length": max_length}
    found = discrepancy.measure(model, data, "test", **options)
    return records.make(
        Discrepancy(
            **{**details, **options},
            parameters=sum(p.numel() for p in model.parameters()),
            shares=rounded(found.shares),
        ),
        paper=run.paper,
        table=TABLE,
        row=run.row,
        values=found.values,
        status=run.form.status,
        key=run.key,
        n=len(found.training),
        seeds=[run.seed],
        data=records.Data(name=data.name, fingerprint=data.fingerprint, split="test"),
        checkpoint=weights_sha256(model),
    )


EXPERIMENT = Experiment("arnet", (TABLE,), OF_ONE_SIDE, FORMS, training, _measure, scored=False)
FROM_THE_MIDDLE = Experiment(
    "arnet",
    (TABLE,),
    MIDDLE_OUT,
    middle_out.FORMS,
    middle_out.training,
    _measure_middle_out,
    scored=False,
)
