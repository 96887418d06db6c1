"""v2 Table I and v1 Table 3: scores by the expansion coefficients of encoder and decoder.

Each row replaces the encoder or the decoder of the papers' Transformer, and is trained by
cross-entropy, the best of its epochs chosen on the validation split. The papers have MS-COCO, here
it is Flickr8k: order and sign of differences compare, values do not. Three things are the same for
both tables though the papers differ in them: the split, the beam, and the recipe. The models are
each paper's own: v2's sum their layers linearly where they expand, v1's ablations do not, and
v1's "Base" has twice the layers of the others (v1 section 4.2).

Two rows that no paper has hold dropout of whole expanded vectors, which is cheaper, against dropout
of values, as run.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from benchmarks import papers, records
from benchmarks.data import CaptionData
from benchmarks.files import sha256
from benchmarks.kinds import Captions
from benchmarks.papers.experiment import Experiment, Place, Run
from benchmarks.papers.stages import flickr8k, in_stages
from benchmarks.records import Record
from benchmarks.scoring import java
from benchmarks.scoring.evaluate import evaluate, row_name
from benchmarks.training import presets
from benchmarks.training.presets import Settings
from torch_impl.decoding.ensemble import Ensemble
from torch_impl.expansion.functional import DROPOUTS
from torch_impl.models import AnyCaptioner, Configuration
from torch_impl.training.optimisation import OPTIMISATION_PRESETS

V1, V2 = "expansionnet_v1", "expansionnet_v2"
TABLES = {V1: "3", V2: "I"}
BEAM = 3
BASELINE = row_name("attention", "attention")
BOTH = row_name("static:64", "dynamic:16")
OF_VALUES, OF_VECTORS = (f"{BOTH}, dropout of {what}" for what in DROPOUTS)


@dataclass(frozen=True)
class Row:
    """A model of a table: what mixes the tokens in its halves.

    ``dropout_of``: what an expansion's dropout, as run, falls on; None for the form's dropout.
    """

    name: str
    encoder: str
    decoder: str
    dropout_of: str | None = None


@dataclass(frozen=True)
class Form:
    """Sizes of the models, and their two stages of training.

    Args:
        sizes: in a word, for the data's name in records: forms are not mixed.
        model: what differs from the papers' sizes.
        settings: of cross-entropy.
        self_critical: of what follows it.
        images: of the training split the first ones that each stage has; None for all.
    """

    sizes: str
    model: Mapping[str, Any]
    settings: Settings
    self_critical: Settings
    images: tuple[int | None, int | None] = (None, None)


_AS_RUN = OPTIMISATION_PRESETS["v2-as-run"]
# as run: no warm-up, less dropout, words rewarded as they are (v2 section IV-A3, step C)
_REWARDED = replace(_AS_RUN, lr=1e-4, warmup=0, dropout=0.1, label_smoothing=0.0)
FORMS = {
    "reduced": Form(
        "reduced sizes",
        {
            "d_model": 128,
            "d_ff": 256,
            "num_heads": 4,
            "num_encoder_layers": 1,
            "num_decoder_layers": 1,
            "max_length": 20,
        },
        Settings(
            replace(_AS_RUN, lr=1.5e-3, warmup=50, epochs=1, batch_size=40, dropout=0.0),
            captions_per_image=5,
            validation_images=250,
        ),
        Settings(
            replace(_REWARDED, lr=1e-3, epochs=4, batch_size=20, dropout=0.0),
            validation_images=250,
            objective="self_critical",
        ),
        images=(4000, 2000),
    ),
    # COCO's warm-up of 10,000 updates is 0.85 of an epoch
    "flickr8k": Form(
        "the papers' sizes",
        {},
        Settings(replace(_AS_RUN, warmup=530, epochs=15)),
        Settings(replace(_REWARDED, epochs=20), objective="self_critical"),
    ),
}


def rows(paper: str) -> list[Row]:
    """The rows of the paper's table, in its order; after v2's, both kinds of dropout."""
    table = papers.load(paper).table(TABLES[paper])
    found = [
        Row(row.name, row.encoder, row.decoder) for row in table.rows if row.encoder and row.decoder
    ]
    if paper == V2:
        found += [
            Row(name, "static:64", "dynamic:16", what)
            for what, name in zip(DROPOUTS, (OF_VALUES, OF_VECTORS), strict=True)
        ]
    return found


def configuration(
    data: CaptionData, form: Form, paper: str, encoder: str, decoder: str
) -> Configuration:
    """The paper's model of these mixers for ``data``."""
    fields = {**form.model, "encoder": encoder, "decoder": decoder}
    model = presets.configuration(data, form.settings.recipe, fields)
    if paper == V2:
        return model
    factor = 2 if encoder == decoder == "attention" else 1
    return replace(
        model,
        encoder_reduction="norm",
        decoder_reduction="norm",
        num_encoder_layers=factor * model.num_encoder_layers,
        num_decoder_layers=factor * model.num_decoder_layers,
    )


def load(form: Form, place: Place) -> tuple[CaptionData, CaptionData]:
    """Flickr8k as each stage of training has it.

    Raises:
        InputError: there is no such data, or no features of it.
    """
    data = flickr8k(place)
    first, second = (_first(data, count) for count in form.images)
    return first, second


def _first(data: CaptionData, images: int | None) -> CaptionData:
    """``data`` with only the first ``images`` to train on, and all of its words."""
    if images is None:
        return data
    train = data.splits["train"]
    kept = train.image_ids[:images]
    fewer = replace(train, image_ids=kept, references={i: train.references[i] for i in kept})
    return replace(
        data,
        fingerprint=sha256(f"{data.fingerprint} {len(kept)}".encode()),
        splits={**data.splits, "train": fewer},
    )


def _run(form: str, paper: str, place: Place, row: Row, seed: int, key: str) -> list[Record]:
    began = time.perf_counter()
    chosen = FORMS[form]
    data, _ = load(chosen, place)
    model = configuration(data, chosen, paper, row.encoder, row.decoder)
    settings = chosen.settings
    if row.dropout_of:
        recipe = replace(settings.recipe, dropout=_AS_RUN.dropout, dropout_of=row.dropout_of)
        settings = replace(settings, recipe=recipe)
    (result,) = in_stages(data, model, [settings], seed, place)
    validations = [entry for entry in result.history if entry["kind"] == "validation"]
    details = {
        "configuration": result.model.configuration.to_dict(),
        "stages": [asdict(settings)],
        "validations": validations,
    }
    record = score(result.model, data, form, key, row.name, seed, paper, TABLES[paper], details)
    return [records.replace(record, wall_s=time.perf_counter() - began)]


def score(
    model: AnyCaptioner | Ensemble,
    data: CaptionData,
    form: str,
    key: str,
    row: str,
    seed: int | Sequence[int],
    paper: str,
    table: str,
    details: Mapping[str, Any],
) -> Record:
    """What ``model`` scores on the test split, as a line of that table in that form."""
    return evaluate(
        Captions,
        model,
        data.vocabulary,
        replace(data, name=f"{data.name}, {FORMS[form].sizes}"),
        row=row,
        status="other data",
        key=key,
        seed=seed,
        paper=paper,
        table=table,
        beam_size=BEAM,
        max_length=FORMS[form].settings.max_length,
        tokeniser="words",
        details={"form": form, **details},
    )


def _runs(paper: str, form: str, place: Place, seeds: Sequence[int]) -> list[Run]:
    """All rows of a seed, then those of the next."""
    chosen = FORMS[form]
    # what can score here too: what could not is measured when it can
    given = form, asdict(chosen), java.available()
    found = []
    for seed in seeds:
        for row in rows(paper):
            key = records.key_of(_run, paper, TABLES[paper], row, given, seed)
            make = partial(_run, form, paper, place, row, seed, key)
            found.append(Run(row.name, seed, key, make))
    return found


V1_COEFFICIENTS, V2_COEFFICIENTS = (
    Experiment(
        paper,
        (table,),
        tuple(FORMS),
        {
            "reduced": "4,000 images of Flickr8k (with --features), width 128",
            "flickr8k": "Flickr8k, the papers' width 512 and 3 layers, 15 epochs: for a GPU",
        },
        3,
        partial(_runs, paper),
    )
    for paper, table in TABLES.items()
)
