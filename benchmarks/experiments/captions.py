"""What experiments on captions share: training in stages, losses, hidden states at the end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks import records
from benchmarks.batches import CaptionBatches, chunks, padded_features, padded_tokens
from benchmarks.datasets import CaptionData, Split
from benchmarks.errors import InputError
from benchmarks.experiments.experiment import Place
from benchmarks.fit import Result, fit
from benchmarks.presets import Settings
from torch_impl.auto_reconstructor import (
    last_states,
    mean_centroid_distance,
    point_wise_distance,
)
from torch_impl.decoding import beam_search
from torch_impl.models import AnyCaptioner, AnyConfiguration
from torch_impl.objectives import cross_entropy


def in_stages(
    data: CaptionData,
    configuration: AnyConfiguration,
    stages: Sequence[Settings],
    seed: int,
    place: Place,
) -> list[Result]:
    """Train by each of ``stages``, from the best weights of the one before.

    What a stage gave is kept in a folder of its own, which another row that begins alike goes on
    from, and a killed run too.
    """
    results: list[Result] = []
    begun: list[Any] = [data.fingerprint, configuration.to_dict(), seed]
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
                initial=results[-1].model.state_dict() if results else None,
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


@torch.no_grad()
def discrepancy(
    model: AnyCaptioner,
    data: CaptionData,
    split: str,
    *,
    beam_size: int,
    max_length: int,
    batch_size: int = 50,
) -> dict[str, float]:
    """How far training and inference are apart: {"d_mc", "d_pw"} (ARNet 10-12).

    Of each image the hidden state that emits the end of its first reference, and of the caption
    that beam search gives it.
    """
    part: Split = data.splits[split]
    model.eval()
    device = next(model.parameters()).device
    read: dict[str, list[torch.Tensor]] = {"training": [], "inference": []}
    for image_ids in chunks(part.image_ids, batch_size):
        features, lengths = (x.to(device) for x in padded_features(part.features, image_ids))
        words = [data.vocabulary.tokenise(part.references[i][0]) for i in image_ids]
        true = [data.vocabulary.encode(caption)[:max_length] for caption in words]
        found = beam_search(model, features, lengths, beam_size=beam_size, max_length=max_length)
        own = [best.tokens for (best,) in found]
        for mode, captions in (("training", true), ("inference", own)):
            sizes = torch.tensor([len(caption) for caption in captions])
            tokens = padded_tokens(captions).to(device)
            read[mode].append(last_states(model, features, lengths, tokens, sizes))
    U, V = (torch.cat(states).double() for states in read.values())
    return {
        "d_mc": mean_centroid_distance(U, V).item(),
        "d_pw": point_wise_distance(U, V).item(),
    }


def folder_of(place: Place, what: str) -> Path:
    """The folder of real data's part ``what``.

    Raises:
        InputError: there is no data folder.
    """
    if place.data is None:
        raise InputError(f"no data folder, expected one with {what} (--data)")
    return place.data / what
