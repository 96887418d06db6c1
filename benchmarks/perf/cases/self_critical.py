"""A self-critical training step: samples, both passes, the update."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from benchmarks.perf.cases.case import Case, Subject, Work
from benchmarks.perf.cases.models import (
    IMPLEMENTATIONS,
    MODEL,
    RECIPE,
    Repeated,
    captioner,
    captions,
    features,
)
from torch_impl.cider import CiderD
from torch_impl.training import ImageBatch, SelfCriticalTraining
from torch_impl.training.sampling import SAMPLINGS, SamplingComputation
from torch_impl.training.self_critical import self_critical


def _reward(captions: Tensor, images: Tensor) -> Tensor:
    """Zeros in place of CIDEr-D, which the papers' training computes on the host."""
    return captions.new_zeros(len(captions), dtype=torch.float64)


def _step(case: Case, implementation: str, device: torch.device) -> Work:
    model = captioner(case, implementation, device, training=True)
    seen = features(case, device)
    images = torch.arange(len(seen), device=device)
    optimiser = RECIPE.optimiser(model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimiser.step()  # creates the optimiser's state

    def step() -> None:
        optimiser.zero_grad()
        sampled = self_critical(
            model,
            seen,
            None,
            images,
            _reward,
            num_samples=case.sizes.beam,
            max_length=case.sizes.tokens,
        )
        torch.autograd.backward(sampled.loss)
        optimiser.step()

    return Work(step, [*model.parameters(), seen], trains=True)


def _training(case: Case, sampling: str, device: torch.device) -> Work:
    sizes = case.sizes
    model = captioner(case, "auto", device, training=True)
    with torch.no_grad():
        # no sample ends early: the same length whatever the weights
        model.vocabulary.bias[model.end_id] = -1e4
    images = features(case, device)
    told = replace(case, sizes=replace(sizes, batch=sizes.batch * sizes.references))
    references = captions(told, torch.device("cpu")).split(sizes.references)
    lengths = torch.full(images.shape[:1], images.shape[1])
    batch = ImageBatch(images, lengths, torch.arange(len(images))).to(device)
    steps = SelfCriticalTraining(
        model,
        Repeated(batch),
        RECIPE,
        CiderD([each.tolist() for each in references]).to(device),
        num_samples=sizes.beam,
        max_length=sizes.tokens,
        computation=SamplingComputation(sampling=sampling),
    ).run(1)

    def step() -> None:
        next(steps)
        model.zero_grad()  # so that every step begins with the same memory

    return Work(step, [*model.parameters(), *batch], trains=True)


_SIZES = "batch", "beam", "length", "tokens", *MODEL, "dropout"
"""``beam`` is K, the samples of an image."""
SUBJECT = Subject(
    "self-critical step",
    "samples of each image, both passes over them and the update, without the reward",
    _SIZES,
    IMPLEMENTATIONS,
    make=_step,
)
"""For predictions only."""
SUBJECTS = [
    Subject(
        "sc-step",
        "a step of self-critical training from encoding to update, by how it samples",
        (*_SIZES, "references"),
        tuple(SAMPLINGS),
        make=_training,
        precisions=("float32",),
    )
]
