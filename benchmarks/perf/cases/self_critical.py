"""A step of self-critical training as something to predict: samples, both passes, the update."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.perf.cases.case import Case, Subject, Work
from benchmarks.perf.cases.models import IMPLEMENTATIONS, MODEL, RECIPE, captioner, features
from torch_impl.training.self_critical import self_critical


def _reward(captions: Tensor, images: Tensor) -> Tensor:
    """In the place of CIDEr-D, which the papers' training computes on the host."""
    return captions.new_zeros(len(captions), dtype=torch.float64)


def _step(case: Case, implementation: str, device: torch.device) -> Work:
    model = captioner(case, implementation, device, training=True)
    seen = features(case, device)
    images = torch.arange(len(seen), device=device)
    optimiser = RECIPE.optimiser(model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimiser.step()  # makes what the next steps find

    def step() -> None:
        optimiser.zero_grad()
        made = self_critical(
            model,
            seen,
            None,
            images,
            _reward,
            num_samples=case.sizes.beam,
            max_length=case.sizes.tokens,
        )
        torch.autograd.backward(made.loss)
        optimiser.step()

    return Work(step, [*model.parameters(), seen], trains=True)


SUBJECT = Subject(
    "self-critical step",
    "samples of each image, both passes over them and the update, without the reward",
    ("batch", "beam", "length", "tokens", *MODEL, "dropout"),
    IMPLEMENTATIONS,
    make=_step,
)
"""The beam of a case is K, the samples of an image."""
