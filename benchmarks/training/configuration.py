"""The configuration of a captioner's training, from the command line to the loop.

A `TrainingConfig` has the model's sizes and its stages; a `Stage` has its optimisation, objective,
data loading and validation. `PRESETS` are our own. `RECIPES` are the papers' (v1 section 4.3, v2
section IV-A3): "paper" as in the text, "as-run" as in the authors' runs as far as known (the first
stage's numbers are in `OPTIMISATION_PRESETS`; later stages have the text's learning rates, epochs
and batch sizes), and "scenes", a small one for the generated scenes.

Where the text says nothing we chose: warm-up only in stages that name it, dropout 0.1 in
self-critical stages, and for validations the beam sizes that the papers score these stages with
(v1 Table 2; v2 Table I, section IV-C2).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Any

from benchmarks.data import CaptionData
from benchmarks.data.vocabulary import END_ID, PAD_ID, START_ID
from benchmarks.errors import InputError
from torch_impl import models
from torch_impl.layers.transformer import Mixer
from torch_impl.models import AnyConfiguration
from torch_impl.training.objectives import BASELINES
from torch_impl.training.optimisation import OPTIMISATION_PRESETS, Optimisation

AS_RUN = OPTIMISATION_PRESETS["v2-as-run"]
OBJECTIVES = ("cross_entropy", "self_critical")


@dataclass(frozen=True)
class Stage:
    """One stage: with the data, the model and the seed it determines a training's numbers.

    Args:
        optimisation: optimiser, learning rates, regularisers, epochs, batch size.
        objective: a name in ``OBJECTIVES``.
        end_to_end: whether the backbone is trained too; else its features are extracted once.
        images: only the first images of the train set; None for all.
        captions_per_image: captions that share one encoding of their image; 1 as in the papers.
        window: batches that are sorted by caption length together; 1 sorts nothing.
        validate_every: epochs between validations.
        validation_images: only the first images of the validation set; None for all.
        validation_beam: beam size of validations; 1 is greedy.
        max_length: of a decoded caption, start included.
        metric: for choosing the best checkpoint.
        patience: epochs without a better validation before early stopping; None for none.
        lambda_: the weight of the reconstruction loss (ARNet 9); 0 for none.
        sampling: scheduled sampling: increase, for each epoch after the first, of the probability
            that an input token is sampled from the model.
        most_sampling: maximum of that probability.
        num_samples: K, sampled captions for each image in self-critical training.
        baseline: of the self-critical reward, a name in ``BASELINES``.

    Raises:
        InputError: an integer below 1, lambda below 0, a probability outside [0, 1], an unknown
            name.
    """

    optimisation: Optimisation
    objective: str = "cross_entropy"
    end_to_end: bool = False
    images: int | None = None
    captions_per_image: int = 1
    window: int = 20
    validate_every: int = 1
    validation_images: int | None = None
    validation_beam: int = 1
    max_length: int = 20
    metric: str = "CIDEr-D"
    patience: int | None = None
    lambda_: float = 0.0
    sampling: float = 0.0
    most_sampling: float = 0.25
    num_samples: int = 5
    baseline: str = "leave_one_out"

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if type(value) is int and value < 1:
                raise InputError(f"{name.replace('_', ' ')} is {value}, expected at least 1")
        if not 0 <= self.lambda_ < math.inf:
            raise InputError(f"lambda is {self.lambda_}, expected at least 0")
        for name in ("sampling", "most_sampling"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"{name} is {getattr(self, name)}, expected in [0, 1]")
        for name, known in (("objective", OBJECTIVES), ("baseline", BASELINES)):
            if getattr(self, name) not in known:
                expected = " or ".join(known)
                raise InputError(f"{name} is {getattr(self, name)!r}, expected {expected}")

    def sampling_rate(self, epoch: int) -> float:
        """The probability of a sampled input token in ``epoch``, counted from 0."""
        return min(self.sampling * epoch, self.most_sampling)

    def but(self, **changes: Any) -> Stage:
        """A copy with changed fields of the stage or its optimisation.

        Raises:
            InputError: a field is out of range.
        """
        own = {k: v for k, v in changes.items() if k in Stage.__dataclass_fields__}
        others = {k: v for k, v in changes.items() if k not in own}
        try:
            return replace(self, optimisation=replace(self.optimisation, **others), **own)
        except ValueError as error:
            raise InputError(str(error)) from error


@dataclass(frozen=True)
class TrainingConfig:
    """A model and the stages of its training.

    Args:
        model: fields that differ from the defaults of the model's ``family`` (default: that of
            ``Configuration``).
        stages: by name, in order; each starts from the best weights of the previous one.
    """

    model: Mapping[str, Any]
    stages: Mapping[str, Stage]

    @classmethod
    def of(cls, *stages: Stage, **model: Any) -> TrainingConfig:
        """A configuration with stages called "1", "2", ..., and these fields of the model."""
        return cls(model, {str(n): stage for n, stage in enumerate(stages, start=1)})

    @property
    def last(self) -> Stage:
        return list(self.stages.values())[-1]

    def first(self, count: int = 1) -> TrainingConfig:
        """A copy with only the first stages."""
        return replace(self, stages=dict(list(self.stages.items())[:count]))

    def each(self, change: Callable[[Stage], Stage]) -> TrainingConfig:
        """A copy with ``change`` applied to each stage."""
        return replace(self, stages={name: change(stage) for name, stage in self.stages.items()})

    def but(self, **model: Any) -> TrainingConfig:
        """A copy with changed fields of the model."""
        return replace(self, model={**self.model, **model})

    def configuration(self, data: CaptionData) -> AnyConfiguration:
        """The model's configuration for ``data``; the dropout is set by each stage.

        Raises:
            InputError: an invalid mixer or size.
        """
        fields: dict[str, Any] = {
            "vocabulary_size": len(data.vocabulary),
            "d_feature": data.splits["train"].store.d_feature,
            "start_id": START_ID,
            "end_id": END_ID,
            "pad_id": PAD_ID,
        }
        try:
            if "family" not in self.model:
                mixers = {"encoder": "static:64", "decoder": "dynamic:16"} | dict(self.model)
                fields["encoder_reduction"] = reduction(mixers["encoder"])
                fields["decoder_reduction"] = reduction(mixers["decoder"])
                fields |= mixers
            return models.configuration({**fields, **self.model})
        except (TypeError, ValueError) as error:
            raise InputError(str(error)) from error


def reduction(mixer: str) -> str:
    """How the layers of an encoder or decoder are summed (v2): linearly if they expand."""
    return "norm" if Mixer.parse(mixer).attends else "linear"


SMALL = MappingProxyType(
    {
        "d_model": 64,
        "d_ff": 128,
        "num_heads": 4,
        "num_encoder_layers": 2,
        "num_decoder_layers": 2,
    }
)
"""A model that trains on generated scenes in minutes on a CPU."""

PRESETS: Mapping[str, TrainingConfig] = {
    "scenes": TrainingConfig(
        SMALL,
        {
            "cross-entropy": Stage(
                replace(
                    AS_RUN,
                    lr=1e-3,
                    warmup=50,
                    schedule="linear",
                    anneal=0.7,
                    anneal_every=1,
                    epochs=5,
                    batch_size=100,
                    dropout=0.0,
                ),
                captions_per_image=5,
                validate_every=2,
                validation_images=100,
            )
        },
    ),
    "few": TrainingConfig(
        SMALL,
        {
            "cross-entropy": Stage(
                replace(
                    AS_RUN,
                    lr=1e-3,
                    warmup=20,
                    schedule="linear",
                    anneal=1.0,
                    epochs=40,
                    batch_size=20,
                    dropout=0.0,
                ),
                captions_per_image=5,
                validate_every=10,
            )
        },
    ),
    "flickr8k": TrainingConfig(
        MappingProxyType(
            {
                "encoder": "static:16,32,64",
                "decoder": "dynamic:8",
                "d_model": 256,
                "d_ff": 1024,
                "num_heads": 8,
                "num_encoder_layers": 2,
                "num_decoder_layers": 2,
            }
        ),
        {
            "cross-entropy": Stage(
                replace(AS_RUN, lr=5e-4, warmup=200, epochs=8, batch_size=60),
                captions_per_image=5,
                validation_images=500,
            )
        },
    ),
}
"""Our own trainings, of one stage each."""


def self_critical(optimisation: Optimisation, **fields: Any) -> Stage:
    """A self-critical stage with another stage's optimisation, and changed ``fields`` of it."""
    dropout = min(optimisation.dropout, 0.1)
    recipe = replace(optimisation, dropout=dropout, label_smoothing=0.0, **fields)
    return Stage(recipe, "self_critical", validation_beam=5)


def _v1(first: Optimisation) -> Mapping[str, Stage]:
    """Fast convergence, the optional fine-tuning, and self-critical learning, whose "same learning
    rate algorithm" we read as the same warm-up and annealing.
    """
    fine = replace(first, lr=5e-6, warmup=0, anneal=1.0, epochs=1, batch_size=10)
    return {
        "cross-entropy": Stage(first, validation_beam=2),
        "fine-tuning": Stage(fine, validation_beam=2),
        "self-critical": self_critical(first, lr=1e-4, epochs=35, batch_size=32),
    }


def _v2(first: Optimisation) -> Mapping[str, Stage]:
    every = replace(first, warmup=0, anneal_every=1)
    whole = replace(every, lr=3e-5, anneal=0.55, epochs=2)
    last = self_critical(every, lr=2e-6, anneal=1.0, epochs=1, batch_size=20)
    return {
        "A": Stage(first, validation_beam=3),
        "B": Stage(whole, end_to_end=True, validation_beam=3),
        "C": self_critical(every, lr=1e-4, epochs=9),
        "D": replace(last, end_to_end=True),
    }


def _scenes(stages: Mapping[str, Stage]) -> Mapping[str, Stage]:
    """``stages`` for the scenes: the preset "scenes" first, then short stages."""
    first = PRESETS["scenes"].last
    rates = {"cross_entropy": 1e-4, "self_critical": 3e-4}

    def small(name: str, stage: Stage) -> Stage:
        if name == next(iter(stages)):
            return first
        return first.but(
            objective=stage.objective,
            end_to_end=stage.end_to_end,
            validate_every=1,
            lr=rates[stage.objective] / (10 if stage.end_to_end else 1),
            warmup=0,
            epochs=2,
            batch_size=20 if stage.objective == "self_critical" else first.optimisation.batch_size,
        )

    return {name: small(name, stage) for name, stage in stages.items()}


_V1_AS_RUN = OPTIMISATION_PRESETS["v1-as-run"]
_V1_MODEL = {
    "encoder": "static:64",
    "decoder": "dynamic:16",
    "d_model": 512,
    "d_ff": 2048,
    "num_heads": 8,
    "num_encoder_layers": 3,
    "num_decoder_layers": 3,
}
_V2_MODEL = {**_V1_MODEL, "encoder": "static:32,64,128,256,512"}

RECIPES: Mapping[str, Mapping[str, TrainingConfig]] = {
    "expansionnet_v1": {
        "paper": TrainingConfig(_V1_MODEL, _v1(OPTIMISATION_PRESETS["v1-paper"])),
        "as-run": TrainingConfig({**_V1_MODEL, "d_model": 768}, _v1(_V1_AS_RUN)),
        "scenes": TrainingConfig(SMALL, _scenes(_v1(_V1_AS_RUN))),
    },
    "expansionnet_v2": {
        "paper": TrainingConfig(_V2_MODEL, _v2(OPTIMISATION_PRESETS["v2-paper"])),
        "as-run": TrainingConfig(_V2_MODEL, _v2(AS_RUN)),
        "scenes": TrainingConfig(SMALL, _scenes(_v2(AS_RUN))),
    },
}
"""The papers' trainings, with all stages."""


def preset(paper: str | None, name: str | None, *, of_scenes: bool) -> TrainingConfig:
    """A preset by name, or a paper's recipe; without a name the default for the data.

    Raises:
        InputError: there is no such preset.
    """
    known, usual = (RECIPES[paper], "as-run") if paper else (PRESETS, "flickr8k")
    chosen = name or ("scenes" if of_scenes else usual)
    if chosen not in known:
        raise InputError(f"--preset {name}: expected one of {', '.join(known)} here")
    return known[chosen]
