"""A step of self-critical training, on the device from the sampled tokens to the loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from torch_impl.cider import PAD
from torch_impl.common.padding import Lengths
from torch_impl.decoding.protocols import Model
from torch_impl.decoding.search import (
    Samples,
    draw,
    rescore,
)
from torch_impl.training import objectives

Reward = Callable[[Tensor, Tensor], Tensor]
"""Captions (C, T), below 0 beyond their ends, and their images (C,), to (C,): a ``CiderD``."""


class SelfCritical(NamedTuple):
    """What a step made."""

    loss: Tensor
    """A scalar, whose gradient is the estimator of v2 equation 14."""
    rewards: Tensor
    """(B, K)."""
    samples: Samples


def self_critical(
    model: Model,
    features: Tensor,
    lengths: Lengths | None,
    images: Tensor | Sequence[int],
    reward: Reward,
    *,
    num_samples: int,
    max_length: int,
    baseline: str = "leave_one_out",
    generator: torch.Generator | None = None,
) -> SelfCritical:
    """Sample captions, reward them, and weigh their log-probabilities (v1 14-15, v2 14).

    The model is used in the mode it is in, for the samples and for their log-probabilities: in
    training mode, as the papers' models were trained, both have dropout. Sampling has no gradient.

    Args:
        model: the captioning model.
        features: (B, L, d_feature).
        lengths: (B,) valid feature rows, or (B, L) True where valid; all if None.
        images: (B,) what ``reward`` knows the images as.
        reward: of captions without the start token, their end token included: as run, the
            references of a ``CiderD`` have it too.
        num_samples: K, samples of each image.
        max_length: the longest caption in tokens, start and end included.
        baseline: of ``objectives.self_critical``.
        generator: of ``decoding.draw``.

    Raises:
        ValueError: not one of ``images`` for each image; as ``decoding.draw``,
            ``objectives.self_critical`` and ``reward`` do.
    """
    images = torch.as_tensor(images, device=features.device)
    if images.shape != features.shape[:1]:
        raise ValueError(f"images has shape {tuple(images.shape)}, expected ({len(features)},)")
    options = {"max_length": max_length, "num_samples": num_samples}
    samples = draw(model, features, lengths, **options, generator=generator)
    words = samples.tokens[..., 1:].masked_fill(~samples.mask, PAD)
    rewards = reward(words.flatten(0, 1), images.repeat_interleave(num_samples))
    rewards = rewards.view(words.shape[:2])
    log_probs = rescore(model, features, lengths, samples.tokens)
    loss = objectives.self_critical(log_probs, samples.mask, rewards, baseline)
    return SelfCritical(loss, rewards, samples)
