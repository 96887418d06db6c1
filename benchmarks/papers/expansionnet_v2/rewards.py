"""v1 Tables 2 and 4, v2 Tables II and III: cross-entropy, then self-critical training; ensembles.

Every model is trained by cross-entropy, then self-critically from its best weights, and scored
after both with the same beam. The cited models of other papers are not trained. v1's
ExpansionNet_{64,16} differs from its ablation in the linear sum of its layers (v1 section 4.5.1),
not in its width. An ensemble has the models of the first seeds; v2 does not say how many its own
has, ours has four. Three rows that no paper has compare how dropout is sampled.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from benchmarks import records
from benchmarks.kinds import CrossEntropy, Rewards, as_kind
from benchmarks.papers.caption_experiments import chosen, described, in_stages, tried
from benchmarks.papers.expansionnet_v2 import ablation
from benchmarks.papers.expansionnet_v2.ablation import FORMS, V1, V2, score
from benchmarks.papers.experiment import Experiment, Form, RowRun, by_seed
from benchmarks.records import Record
from benchmarks.training.configuration import TrainingConfig
from torch_impl.decoding.ensemble import Ensemble
from torch_impl.training.sampling import SAMPLINGS

STAGES = ("XE", "RL")
"""Prefixes of the columns of each stage."""


@dataclass(frozen=True)
class Model:
    """A row of one or more tables.

    Args:
        name: as the tables print it.
        paper: the paper whose sum of the layers it has.
        places: (paper, table) of the row.
        members: size of the ensemble; 1 for a single model.
        sampling: in the self-critical stage, of `SamplingComputation`; "": as run.
    """

    name: str
    encoder: str
    decoder: str
    paper: str
    places: tuple[tuple[str, str], ...]
    members: int = 1
    sampling: str = ""

    @property
    def single(self) -> Model:
        """The single model with the same mixers."""
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
    *(
        Model(f"ExpansionNet v2, sampling {name}", *_V2, V2, ((V2, "II"),), sampling=name)
        for name in SAMPLINGS
    ),
)
TABLES = ((V1, "2"), (V1, "4"), (V2, "II"), (V2, "III"))


def _of(paper: str, table: str, row: str) -> Model:
    return next(m for m in MODELS if m.name == row and (paper, table) in m.places)


def _places(paper: str, table: str, row: str) -> tuple[tuple[str, str], ...]:
    return _of(paper, table, row).places


def training(paper: str, table: str, form: Form, row: str) -> TrainingConfig:
    """Both stages of a row's model; the second has dropout if the row names a sampling."""
    of = _of(paper, table, row)
    sizes = form.training.model
    both = form.training.but(**ablation.model(of.paper, of.encoder, of.decoder, sizes))
    if not of.sampling:
        return both
    rate = ablation.REWARDED.optimisation.dropout
    return both.each(lambda stage: stage if stage is not both.last else stage.but(dropout=rate))


def _measure(run: RowRun) -> list[Record[Rewards]]:
    of, data = _of(*run.places[0], run.row), run.data
    both, _ = chosen(run, data)
    sampling = of.sampling or "as-run"
    trained = [in_stages(data, both, seed, run.place, sampling=sampling) for seed in run.seeds]
    after = []
    for results in zip(*trained, strict=True):
        members = [result.model for result in results]
        details = {
            **described(both, results),
            "validations": [result.best for result in results],
        }
        model = members[0] if of.members == 1 else Ensemble(members)
        after.append(score(run, model, both.last.max_length, details))
    xe, rl = after
    values = {
        f"{stage} {metric}": value
        for stage, record in zip(STAGES, after, strict=True)
        for metric, value in record.values.items()
    }
    before = CrossEntropy(
        cider_d=xe.details.cider_d, validations=xe.details.validations, checkpoint=xe.checkpoint
    )
    rewards = as_kind(Rewards, rl.details, cross_entropy=before)
    return [
        records.replace(rl, paper=paper, table=table, values=values, details=rewards)
        for paper, table in run.places
    ]


def _seeding(
    paper: str, table: str, rows: Iterable[str], seeds: Sequence[int]
) -> list[tuple[str, tuple[int, ...]]]:
    """Single models by seed, then ensembles of the first seeds."""
    members = {row: _of(paper, table, row).members for row in rows}
    return [
        *by_seed((row for row, count in members.items() if count == 1), seeds),
        *((row, tuple(range(count))) for row, count in members.items() if count > 1),
    ]


EXPERIMENTS = tuple(
    Experiment(
        paper,
        (table,),
        tuple(model.name for model in MODELS if (paper, table) in model.places),
        FORMS,
        partial(training, paper, table),
        _measure,
        seeding=partial(_seeding, paper, table),
        places=partial(_places, paper, table),
        trial=tried,
        later=True,
    )
    for paper, table in TABLES
)
