"""Growth of memory: of dynamic expansion with N_E, of a training step with the batch."""

from __future__ import annotations

from dataclasses import replace

import torch

from benchmarks.perf import resources
from benchmarks.perf.cases import expansions, models
from benchmarks.perf.cases.case import Case, Subject, Work
from torch_impl.layers.transformer import Mixer

MEMORY = 8e9
"""Bytes that the largest batch must fit into."""
_LAYER = next(s for s in expansions.SUBJECTS if s.name == "dynamic-layer forward+backward")
_STEP = next(s for s in models.SUBJECTS if s.name == "xe-step")


def _growth(case: Case, implementation: str, device: torch.device) -> dict[str, float]:
    """Saved activations in bytes per expansion vector, at d and at 2 d.

    "linearity" is the growth from 2 N_E to 4 N_E over twice that from N_E to 2 N_E; 1 is linear.
    """
    (N_E,) = Mixer.parse(case.sizes.decoder).coefficients

    def saved(vectors: int, d: int) -> float:
        sizes = replace(case.sizes, decoder=f"dynamic:{vectors}", d_model=d)
        work = replace(case, subject=_LAYER, sizes=sizes).work(implementation, device)
        return resources.count(work, device)["saved bytes"]

    d = case.sizes.d_model
    one, two, four = (saved(times * N_E, d) for times in (1, 2, 4))
    wider = saved(2 * N_E, 2 * d) - saved(N_E, 2 * d)
    return {
        "bytes a vector": (two - one) / N_E,
        "bytes a vector at twice the width": wider / N_E,
        "growth": wider / (two - one),
        "linearity": (four - two) / (2 * (two - one)),
    }


def _images(case: Case, implementation: str, device: torch.device) -> dict[str, float]:
    """Memory of a training step, and of each further image by its growth from B to 2 B.

    "images in 8 GB" is the largest batch within `MEMORY`, weights and Adam's two moments included.
    """

    def step(batch: int) -> Work:
        sized = replace(case, subject=_STEP, sizes=replace(case.sizes, batch=batch))
        return sized.work(implementation, device)

    B = case.sizes.batch
    one, two = (resources.count(step(batch), device) for batch in (B, 2 * B))
    values: dict[str, float] = {}
    for name in ("saved bytes", "peak bytes"):
        values[name] = one[name]
        values[f"{name} an image"] = (two[name] - one[name]) / B
    held = 3 * sum(x.nbytes for x in step(B).given if x.requires_grad)
    if an_image := values["peak bytes an image"]:  # 0 if the update is the peak
        further = (MEMORY - held - values["peak bytes"]) // an_image
        values["images in 8 GB"] = max(B + further, 0)
    return values


SUBJECTS = [
    Subject(
        "dynamic-memory",
        "saved activations by dynamic expansion over N_E and d",
        ("batch", "tokens", "d_model", "decoder"),
        expansions.EXPANSIONS,
        count=_growth,
    ),
    Subject(
        "step-memory",
        "saved activations and peak memory of a training step, and of each further image",
        ("batch", "length", "tokens", *models.MODEL, "dropout"),
        (*expansions.EXPANSIONS, expansions.ATTENTION),
        count=_images,
    ),
]
