"""How a model is trained here: the two settings that the report uses, and one for few pictures."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import Any

from benchmarks.data import CaptionData
from benchmarks.data.vocabulary import END_ID, PAD_ID, START_ID
from benchmarks.errors import InputError
from torch_impl.layers.transformer import Mixer
from torch_impl.models import Configuration
from torch_impl.training.objectives import BASELINES
from torch_impl.training.optimisation import OPTIMISATION_PRESETS, Optimisation

OBJECTIVES = ("cross_entropy", "self_critical")


@dataclass(frozen=True)
class Settings:
    """All that decides a training's numbers beside the data, the model and the seed.

    Args:
        recipe: optimiser, learning rates, regularisers, epochs, batch size.
        captions_per_image: captions that share one encoding of their image; 1 as in the papers.
        window: batches that are sorted by caption length together; 1 sorts nothing.
        validate_every: epochs from one validation to the next.
        validation_images: how many of the split's first images; None for all.
        validation_beam: 1 is greedy.
        max_length: of a decoded caption, the start included.
        metric: that the best validation is chosen by.
        lambda_: the weight of a reconstructor's errors (ARNet 9); 0 for none.
        sampling: what every epoch adds to the probability that a word which the model reads is its
            own sample; scheduled sampling, its first epoch has none.
        most_sampling: where that ends.
        objective: a name in ``OBJECTIVES``.
        num_samples: K, captions that self-critical training samples of an image.
        baseline: what a sample's reward is held against, a name in ``BASELINES``.

    Raises:
        InputError: a whole number below 1, lambda below 0, a probability outside [0, 1], an
            unknown name.
    """

    recipe: Optimisation
    captions_per_image: int = 1
    window: int = 20
    validate_every: int = 1
    validation_images: int | None = None
    validation_beam: int = 1
    max_length: int = 20
    metric: str = "CIDEr-D"
    lambda_: float = 0.0
    sampling: float = 0.0
    most_sampling: float = 0.25
    objective: str = "cross_entropy"
    num_samples: int = 5
    baseline: str = "leave_one_out"

    def __post_init__(self) -> None:
        """Hold every number to its range."""
        for name, value in asdict(self).items():
            if isinstance(value, int) and value < 1:
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
        """The probability of reading a sampled word, in the epoch that ``epoch`` others precede."""
        return min(self.sampling * epoch, self.most_sampling)


@dataclass(frozen=True)
class Preset:
    """A model's sizes and its training."""

    settings: Settings
    model: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


SMALL = MappingProxyType(
    {
        "d_model": 64,
        "d_ff": 128,
        "num_heads": 4,
        "num_encoder_layers": 2,
        "num_decoder_layers": 2,
    }
)
"""A model that learns generated scenes in minutes on a CPU."""

PRESETS = {
    "scenes": Preset(
        Settings(
            replace(
                OPTIMISATION_PRESETS["v2-as-run"],
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
        ),
        SMALL,
    ),
    "few": Preset(
        Settings(
            replace(
                OPTIMISATION_PRESETS["v2-as-run"],
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
        ),
        SMALL,
    ),
    "flickr8k": Preset(
        Settings(
            replace(
                OPTIMISATION_PRESETS["v2-as-run"],
                lr=5e-4,
                warmup=200,
                epochs=8,
                batch_size=60,
            ),
            captions_per_image=5,
            validation_images=500,
        ),
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
    ),
}


def reduction(mixer: str) -> str:
    """How a half's layers are summed: linearly where they expand, by their norm where not (v2)."""
    return "norm" if Mixer.parse(mixer).attends else "linear"


def configuration(
    data: CaptionData, recipe: Optimisation, model: Mapping[str, Any]
) -> Configuration:
    """The model for ``data``: ``model`` names what differs from ``Configuration``'s defaults.

    Raises:
        InputError: a mixer or a size that no model can have.
    """
    fields = {"encoder": "static:64", "decoder": "dynamic:16", **model}
    try:
        return Configuration(
            vocabulary_size=len(data.vocabulary),
            d_feature=data.splits["train"].features.d_feature,
            encoder_reduction=reduction(fields["encoder"]),
            decoder_reduction=reduction(fields["decoder"]),
            dropout=recipe.dropout,
            dropout_of=recipe.dropout_of,
            start_id=START_ID,
            end_id=END_ID,
            pad_id=PAD_ID,
            **fields,
        )
    except ValueError as error:
        raise InputError(str(error)) from error
