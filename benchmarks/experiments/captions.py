"""What experiments on captions share: training in stages, losses, beams, folders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks import records
from benchmarks.captioning import captioners
from benchmarks.datasets import CaptionData
from benchmarks.datasets.batches import CaptionBatches, padded_features
from benchmarks.errors import InputError
from benchmarks.experiments.experiment import Place
from benchmarks.files import sha256
from benchmarks.records import Record
from benchmarks.training.fit import Result, fit
from benchmarks.training.presets import Settings
from torch_impl.models import AnyCaptioner, AnyConfiguration
from torch_impl.objectives import cross_entropy


def in_stages(
    data: CaptionData,
    configuration: AnyConfiguration,
    stages: Sequence[Settings],
    seed: int,
    place: Place,
    initial: Mapping[str, Tensor] | None = None,
) -> list[Result]:
    """Train by each of ``stages``, from the best weights of the one before.

    The first begins with the weights ``initial``, drawn by the seed if None. What a stage gave is
    kept in a folder of its own, which another row that begins alike goes on from, and a killed run
    too.
    """
    results: list[Result] = []
    begun: list[Any] = [data.fingerprint, configuration.to_dict(), seed]
    if initial is not None:
        begun.append(sha256(b"".join(x.cpu().numpy().tobytes() for x in initial.values())))
    for settings in stages:
        begun.append(settings)
        folder = place.work / records.key_of("stage", *map(str, begun))
        results.append(
            fit(
                data,
                configuration,
                settings,
                seed,
                folder,
                initial=results[-1].model.state_dict() if results else initial,
                resume=(folder / "config.json").exists(),
                device=place.device,
                progress=place.progress,
            )
        )
    return results


@torch.no_grad()
def mean_loss(model: AnyCaptioner, data: CaptionData, split: str, batch_size: int = 100) -> float:
    """The mean negative log-likelihood of a word of the split's captions, the end included."""
    batches = CaptionBatches(
        data.splits[split], data.vocabulary, batch_size, max_length=model.max_length
    )
    model.eval()
    device = next(model.parameters()).device
    total, words = 0.0, 0
    for batch in batches.epoch(0):
        features, lengths, tokens, images = (tensor.to(device) for tensor in batch)
        memory = model.encode(features, lengths)[images]
        log_probs = model.decode(tokens[:, :-1], memory, lengths[images])
        count = int((tokens[:, 1:] != model.pad_id).sum())
        total += count * cross_entropy(log_probs, tokens[:, 1:], model.pad_id).item()
        words += count
    return total / words


def with_beams(
    record: Record, model: AnyCaptioner, data: CaptionData, *, beam_size: int, max_length: int = 20
) -> Record:
    """``record`` with the whole beam of each image that it shows, the best caption first."""
    examples, split = record["details"]["examples"], data.splits[record["data"]["split"]]
    features, lengths = padded_features(split.features, [e["image"] for e in examples])
    sizes = {"beam_size": beam_size, "max_length": max_length, "num_return": beam_size}
    found = captioners.search(model, features, lengths, **sizes)
    shown = [
        {**example, "beam": [data.vocabulary.decode(caption.tokens) for caption in beam]}
        for example, beam in zip(examples, found, strict=True)
    ]
    return {**record, "details": {**record["details"], "examples": shown}}


def folder_of(place: Place, what: str) -> Path:
    """The folder of real data's part ``what``.

    Raises:
        InputError: there is no data folder.
    """
    if place.data is None:
        raise InputError(f"no data folder, expected one with {what} (--data)")
    return place.data / what
