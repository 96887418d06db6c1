"""v1 Tables 2 and 4, v2 Tables II and III: cross-entropy, then its CIDEr-D; ensembles.

Every model is trained by cross-entropy, then, from its best weights, self-critically, and is scored
after both, with the same beam. The papers' other models, whose numbers they cite, are not trained
here. v1's ExpansionNet_{64,16} differs from its ablation in the linear sum of its layers, as v2's
models do (v1 section 4.5.1), not in its width. An ensemble is of the models of the first seeds; v2
does not say how many its own has, ours has four.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from benchmarks import records
from benchmarks.data import CaptionData
from benchmarks.kinds import CrossEntropy, Rewards, as_kind
from benchmarks.papers.expansionnet_v2.ablation import (
    FORMS,
    V1,
    V2,
    configuration,
    load,
    score,
)
from benchmarks.papers.experiment import Experiment, Place, Run
from benchmarks.papers.stages import in_stages
from benchmarks.records import Record
from benchmarks.scoring import java
from benchmarks.training.fit import Result
from torch_impl.decoding.ensemble import Ensemble

STAGES = ("XE", "RL")
"""What the columns of each stage begin with."""


@dataclass(frozen=True)
class Model:
    """A row of one or more tables.

    Args:
        name: as the tables print it.
        encoder: what mixes the tokens in it.
        decoder: likewise.
        paper: whose way to sum the layers it has.
        places: (paper, table) of the row.
        members: how many models it is an ensemble of; 1 for a single model.
    """

    name: str
    encoder: str
    decoder: str
    paper: str
    places: tuple[tuple[str, str], ...]
    members: int = 1

    @property
    def single(self) -> Model:
        """The single model of the same kind."""
        kind = self.encoder, self.decoder, self.paper
        alike = (m for m in MODELS if (m.encoder, m.decoder, m.paper) == kind)
        return next(m for m in alike if m.members == 1)


_V2 = "static:32,64,128,256,512", "dynamic:16"
MODELS = (
    Model("Base (ours)", "attention", "attention", V1, ((V1, "2"), (V1, "4"))),
    Model("Base w/ AoA", "aoa", "aoa", V1, ((V1, "2"),)),
    Model("ExpansionNet_{64,1} (ablation)", "static:64", "dynamic:1", V1, ((V1, "2"),)),
    Model("ExpansionNet_{64,16} (ablation)", "static:64", "dynamic:16", V1, ((V1, "2"), (V1, "4"))),
    Model("ExpansionNet v2", *_V2, V2, ((V1, "2"), (V2, "II"))),
    Model("ExpansionNet_{64,16}", "static:64", "dynamic:16", V2, ((V1, "4"),)),
    Model("ExpansionNet_{64,16} (ensemble of 2)", "static:64", "dynamic:16", V2, ((V1, "4"),), 2),
    Model("ExpansionNet_{64,16} (ensemble of 4)", "static:64", "dynamic:16", V2, ((V1, "4"),), 4),
    Model("ExpansionNet v2", *_V2, V2, ((V2, "III"),), 4),
)
TABLES = ((V1, "2"), (V1, "4"), (V2, "II"), (V2, "III"))


def _trained(
    form: str, model: Model, seed: int, data: tuple[CaptionData, CaptionData], place: Place
) -> tuple[Result, Result]:
    """The model after cross-entropy, and after the self-critical training."""
    chosen = FORMS[form]
    sizes = configuration(data[0], chosen, model.paper, model.encoder, model.decoder)
    (first,) = in_stages(data[0], sizes, [chosen.settings], seed, place)
    (second,) = in_stages(
        data[1],
        sizes,
        [chosen.self_critical],
        seed,
        place,
        initial=first.model.state_dict(),
    )
    return first, second


def _run(form: str, model: Model, place: Place, seeds: Sequence[int], key: str) -> list[Record]:
    began = time.perf_counter()
    data = load(FORMS[form], place)
    trained = [_trained(form, model, seed, data, place) for seed in seeds]
    after = []
    for results in zip(*trained, strict=True):
        members = [result.model for result in results]
        scored = members[0] if model.members == 1 else Ensemble(members)
        details: dict[str, Any] = {
            "configuration": members[0].configuration.to_dict(),
            "validations": [result.best for result in results],
            "stages": [asdict(FORMS[form].settings), asdict(FORMS[form].self_critical)],
        }
        paper, table = model.places[0]
        after.append(
            score(scored, data[0], form, key, model.name, list(seeds), paper, table, details)
        )
    values = {
        f"{stage} {metric}": value
        for stage, record in zip(STAGES, after, strict=True)
        for metric, value in record.values.items()
    }
    xe, rl = after
    rewards = as_kind(
        Rewards,
        rl.details,
        cross_entropy=CrossEntropy(
            cider_d=xe.details.cider_d,
            validations=xe.details.validations,
            checkpoint=xe.checkpoint,
        ),
    )
    wall_s = time.perf_counter() - began
    return [
        records.replace(rl, paper=paper, table=table, values=values, details=rewards, wall_s=wall_s)
        for paper, table in model.places
    ]


def _runs(paper: str, table: str, form: str, place: Place, seeds: Sequence[int]) -> list[Run]:
    """All rows of a seed, then those of the next; ensembles, of the first seeds, at the end."""
    chosen = FORMS[form]
    given = form, asdict(chosen), java.available()
    rows = [model for model in MODELS if (paper, table) in model.places]
    asked = [(model, [seed]) for seed in seeds for model in rows if model.members == 1]
    asked += [(model, list(range(model.members))) for model in rows if model.members > 1]
    found = []
    for model, of in asked:
        key = records.key_of(_run, model, given, of)
        found.append(Run(model.name, of[0], key, partial(_run, form, model, place, of, key)))
    return found


EXPERIMENTS = tuple(
    Experiment(
        paper,
        (table,),
        tuple(FORMS),
        {
            "reduced": "Flickr8k (with --features), 4,000 images, 4 x 2,000 rewarded, width 128",
            "flickr8k": "Flickr8k, the papers' width 512 and 3 layers, 15 + 20 epochs: for a GPU",
        },
        3,
        partial(_runs, paper, table),
    )
    for paper, table in TABLES
)
