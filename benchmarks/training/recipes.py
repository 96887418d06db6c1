"""The papers' trainings, step by step, as data: v1 section 4.3, v2 section IV-A3.

A recipe has presets. "paper" is the text's, "as-run" what the authors' runs did where that is known
(the numbers of the first step are those of `OPTIMISATION_PRESETS`), "scenes" a small one for the
generated scenes. Where the text is silent: no warm-up but in the steps that name one, the dropout
0.1 of the self-critical steps, the beams of the validations, which are those that the papers score
these steps with (v1 Table 2; v2 Table I, section IV-C2). "As run" knows no other learning rates,
epochs and batch sizes of the later steps than the text's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from benchmarks.training.presets import PRESETS, SMALL, Settings
from torch_impl.training.optimisation import OPTIMISATION_PRESETS, Optimisation


@dataclass(frozen=True)
class RecipeStep:
    """One step: it begins with the best weights of the step before.

    Args:
        settings: its training.
        end_to_end: whether the backbone is trained too; else its features are made once.
    """

    settings: Settings
    end_to_end: bool = False


@dataclass(frozen=True)
class RecipePreset:
    """All steps of a recipe, by name and in order, and the sizes of its model."""

    steps: Mapping[str, RecipeStep]
    model: Mapping[str, Any]


def _self_critical(recipe: Optimisation, **fields: Any) -> Settings:
    dropout = min(recipe.dropout, 0.1)
    return Settings(
        replace(recipe, dropout=dropout, label_smoothing=0.0, **fields),
        objective="self_critical",
        validation_beam=5,
    )


def _v1(first: Optimisation) -> Mapping[str, RecipeStep]:
    """The fast convergence, the optional fine-tuning, and self-critical learning with "the same
    learning rate algorithm": its warm-up and annealing.
    """
    fine = replace(first, lr=5e-6, warmup=0, anneal=1.0, epochs=1, batch_size=10)
    return {
        "cross-entropy": RecipeStep(Settings(first, validation_beam=2)),
        "fine-tuning": RecipeStep(Settings(fine, validation_beam=2)),
        "self-critical": RecipeStep(_self_critical(first, lr=1e-4, epochs=35, batch_size=32)),
    }


def _v2(first: Optimisation) -> Mapping[str, RecipeStep]:
    every = replace(first, warmup=0, anneal_every=1)
    whole = replace(every, lr=3e-5, anneal=0.55, epochs=2)
    return {
        "A": RecipeStep(Settings(first, validation_beam=3)),
        "B": RecipeStep(Settings(whole, validation_beam=3), end_to_end=True),
        "C": RecipeStep(_self_critical(every, lr=1e-4, epochs=9)),
        "D": RecipeStep(
            _self_critical(every, lr=2e-6, anneal=1.0, epochs=1, batch_size=20), end_to_end=True
        ),
    }


def _scenes(steps: Mapping[str, RecipeStep]) -> Mapping[str, RecipeStep]:
    """``steps`` with the scenes' first training, and short ones after it."""
    first = PRESETS["scenes"].settings
    rates = {"cross_entropy": 1e-4, "self_critical": 3e-4}

    def small(name: str, step: RecipeStep) -> RecipeStep:
        given = step.settings
        if name == next(iter(steps)):
            return RecipeStep(first)
        rate = rates[given.objective] / (10 if step.end_to_end else 1)
        batch = 20 if given.objective == "self_critical" else first.recipe.batch_size
        recipe = replace(first.recipe, lr=rate, warmup=0, epochs=2, batch_size=batch)
        small = replace(first, recipe=recipe, objective=given.objective, validate_every=1)
        return replace(step, settings=small)

    return {name: small(name, step) for name, step in steps.items()}


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

RECIPES: Mapping[str, Mapping[str, RecipePreset]] = MappingProxyType(
    {
        "expansionnet_v1": {
            "paper": RecipePreset(_v1(OPTIMISATION_PRESETS["v1-paper"]), _V1_MODEL),
            "as-run": RecipePreset(
                _v1(OPTIMISATION_PRESETS["v1-as-run"]), {**_V1_MODEL, "d_model": 768}
            ),
            "scenes": RecipePreset(_scenes(_v1(OPTIMISATION_PRESETS["v1-as-run"])), SMALL),
        },
        "expansionnet_v2": {
            "paper": RecipePreset(_v2(OPTIMISATION_PRESETS["v2-paper"]), _V2_MODEL),
            "as-run": RecipePreset(_v2(OPTIMISATION_PRESETS["v2-as-run"]), _V2_MODEL),
            "scenes": RecipePreset(_scenes(_v2(OPTIMISATION_PRESETS["v2-as-run"])), SMALL),
        },
    }
)
