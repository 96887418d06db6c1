"""v2 Table I and v1 Table 3: scores by the expansion coefficients of encoder and decoder.

Each row replaces the encoder or the decoder of the papers' Transformer, and is trained by
cross-entropy, with the best epoch chosen on the validation set. The papers use MS-COCO, we use
Flickr8k: order and sign of differences compare, values do not. Split, beam and recipe are the same
for both tables, although the papers differ in them. The models are each paper's own: v2's sum their
layers linearly where they expand, v1's ablations do not, and v1's "Base" has twice the layers of
the others (v1 section 4.2).

Two rows that no paper has compare dropout of whole expanded vectors, which is cheaper, with dropout
of single values, as run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

from benchmarks import papers
from benchmarks.kinds import Captions
from benchmarks.papers.caption_experiments import chosen, described, flickr8k, in_stages, tried
from benchmarks.papers.experiment import Experiment, Form, RowRun, by_seed
from benchmarks.records import Record
from benchmarks.scoring.evaluate import evaluate, row_name
from benchmarks.training.configuration import (
    AS_RUN,
    PRESETS,
    Stage,
    TrainingConfig,
    self_critical,
)
from torch_impl.decoding.ensemble import Ensemble
from torch_impl.expansion.functional import DROPOUTS
from torch_impl.models import BaseCaptioner

V1, V2 = "expansionnet_v1", "expansionnet_v2"
TABLES = {V1: "3", V2: "I"}
BEAM = 3
FEWER = 3
"""Number of seeds of the less important rows."""
BASELINE = row_name("attention", "attention")
BOTH = row_name("static:64", "dynamic:16")
OF_VALUES, OF_VECTORS = (f"{BOTH}, dropout of {what}" for what in DROPOUTS)
BEST = row_name("static:32,64,128,256,512", "dynamic:16")
"""The row of v2's own model."""

_SMALL = {
    "d_model": 128,
    "d_ff": 256,
    "num_heads": 4,
    "num_encoder_layers": 1,
    "num_decoder_layers": 1,
    "max_length": 20,
}
# as run: no warm-up, less dropout, no label smoothing (v2 section IV-A3, step C)
REWARDED = self_critical(AS_RUN, lr=1e-4, warmup=0).but(validation_beam=1)
_CONVERGED = PRESETS["flickr8k"].last.but(
    lr=1.5e-3, warmup=50, anneal=0.75, anneal_every=1, epochs=15, patience=2
)
FORMS = {
    "reduced": Form(
        "4,000 images of Flickr8k (with --features), 4 x 2,000 rewarded, width 128",
        flickr8k,
        TrainingConfig.of(
            Stage(AS_RUN, captions_per_image=5, validation_images=250, images=4000).but(
                lr=1.5e-3, warmup=50, epochs=1, batch_size=40, dropout=0.0
            ),
            REWARDED.but(
                lr=1e-3,
                epochs=4,
                batch_size=20,
                dropout=0.0,
                validation_images=250,
                images=2000,
            ),
            **_SMALL,
        ),
        sizes="reduced sizes",
    ),
    # an epoch takes a minute on one core; training stops when validation has not improved
    "converged": Form(
        "Flickr8k (with --features), width 128, trained until validation has not improved for "
        "2 epochs; rate and dropout by row, from trials of 2 epochs",
        flickr8k,
        TrainingConfig.of(
            _CONVERGED,
            REWARDED.but(epochs=20, batch_size=20, patience=3, validation_images=500),
            **_SMALL,
        ),
        sizes="converged",
        grid=tuple(
            {"lr": lr, "dropout": dropout}
            for lr, dropout in product((7.5e-4, 1.5e-3, 3e-3), (0.1, 0.3))
        ),
        trial={"epochs": 2},
    ),
    # COCO's warm-up of 10,000 updates is 0.85 of an epoch
    "flickr8k": Form(
        "Flickr8k, the papers' width 512 and 3 layers, 15 + 20 epochs: for a GPU",
        flickr8k,
        TrainingConfig.of(Stage(AS_RUN).but(warmup=530, epochs=15), REWARDED.but(epochs=20)),
        sizes="the papers' sizes",
    ),
}


def rows(paper: str) -> dict[str, tuple[str, str]]:
    """The rows of the paper's table with their encoder and decoder mixers.

    For v2 also a row for each kind of dropout. The baselines and the paper's best come first.
    """
    table = papers.load(paper).table(TABLES[paper])
    found = {r.name: (r.encoder, r.decoder) for r in table.rows if r.encoder and r.decoder}
    if paper == V2:
        found |= dict.fromkeys((OF_VALUES, OF_VECTORS), ("static:64", "dynamic:16"))
    first = [name for name in (BASELINE, BOTH, BEST) if name in found]
    return {name: found[name] for name in [*first, *found]}


def model(paper: str, encoder: str, decoder: str, sizes: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the paper's model with these mixers; v1's "Base" has twice the layers."""
    fields = {"encoder": encoder, "decoder": decoder}
    if paper == V2:
        return fields
    factor = 2 if encoder == decoder == "attention" else 1
    layers = ("num_encoder_layers", "num_decoder_layers")
    return {
        **fields,
        "encoder_reduction": "norm",
        "decoder_reduction": "norm",
        **{name: factor * sizes.get(name, 3) for name in layers},
    }


def training(paper: str, form: Form, row: str) -> TrainingConfig:
    """A row's cross-entropy stage, with the row's kind of dropout if it names one."""
    first = form.training.first()
    of = {OF_VALUES: "values", OF_VECTORS: "vectors"}.get(row)
    if of:
        first = first.each(lambda stage: stage.but(dropout=AS_RUN.dropout, dropout_of=of))
    encoder, decoder = rows(paper)[row]
    return first.but(**model(paper, encoder, decoder, first.model))


def _measure(run: RowRun) -> list[Record[Captions]]:
    data = run.data
    best, _ = chosen(run, data)
    (result,) = in_stages(data, best, run.seed, run.place)
    details = {
        **described(best, [result]),
        "validations": [entry for entry in result.history if entry["kind"] == "validation"],
    }
    return [score(run, result.model, best.last.max_length, details)]


def score(
    run: RowRun,
    model: BaseCaptioner | Ensemble,
    max_length: int,
    details: Mapping[str, Any],
) -> Record[Captions]:
    """The scores of ``model`` on the test split, as a row of the run's first table."""
    return evaluate(
        Captions,
        model,
        run.data.vocabulary,
        run.named(run.data),
        row=run.row,
        status=run.form.status,
        key=run.key,
        seed=list(run.seeds),
        paper=run.paper,
        table=run.tables[0],
        beam_size=BEAM,
        max_length=max_length,
        tokeniser=run.form.tokeniser,
        details={"form": run.name, **details},
    )


def _seeding(rows: Iterable[str], seeds: Sequence[int]) -> list[tuple[str, tuple[int, ...]]]:
    """All seeds of the most important rows, the first ``FEWER`` of the others."""
    most = (BASELINE, BOTH, BEST)
    return [(row, of) for row, of in by_seed(rows, seeds) if row in most or of[0] < FEWER]


V1_COEFFICIENTS, V2_COEFFICIENTS = (
    Experiment(
        paper,
        (table,),
        tuple(rows(paper)),
        FORMS,
        partial(training, paper),
        _measure,
        seeds=5,
        seeding=_seeding,
        trial=tried,
    )
    for paper, table in TABLES.items()
)
