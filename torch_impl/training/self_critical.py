"""Self-critical training: a reward for sampled captions (v1 14-15, v2 14).

Everything from the sampled tokens to the loss stays on the device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torch_impl.cider import PAD
from torch_impl.common.padding import Lengths
from torch_impl.common.protocols import CaptionModel
from torch_impl.decoding.search import Samples, sample, teacher_forced
from torch_impl.models import BaseCaptioner
from torch_impl.training import objectives
from torch_impl.training.loop import Batches, Terms, TrainingLoop
from torch_impl.training.optimisation import Optimisation

Reward = Callable[[Tensor, Tensor], Tensor]
"""Captions (C, T), below 0 beyond their ends, and image ids (C,), to rewards (C,): a ``CiderD``."""


class SelfCritical(NamedTuple):
    """The outputs of ``self_critical``."""

    loss: Tensor
    """A scalar, whose gradient is the estimator of v2 equation 14."""
    rewards: Tensor
    """(B, K)."""
    samples: Samples


def self_critical(
    model: CaptionModel,
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
    """Sample captions, reward them, and weight their log-probabilities (v1 14-15, v2 14).

    The model's current mode is used for samples and log-probabilities: in training mode, as the
    papers' models were trained, both have dropout. Sampling has no gradient.

    Args:
        features: (B, L, d_feature).
        lengths: (B,) valid feature rows, or (B, L) True where valid; all if None.
        images: (B,) image ids for ``reward``.
        reward: of captions without the start token, with the end token: as run, the references of
            the ``CiderD`` have it too.
        num_samples: K, samples of each image.
        max_length: in tokens, start and end included.
        baseline: of ``objectives.self_critical``.
        generator: of ``decoding.sample``.

    Raises:
        ValueError: not one of ``images`` for each image; as ``decoding.sample``,
            ``objectives.self_critical`` and ``reward`` do.
    """
    images = torch.as_tensor(images, device=features.device)
    if images.shape != features.shape[:1]:
        raise ValueError(f"images has shape {tuple(images.shape)}, expected ({len(features)},)")
    options = {"max_length": max_length, "num_samples": num_samples}
    samples = sample(model, features, lengths, **options, generator=generator)
    words = samples.tokens[..., 1:].masked_fill(~samples.mask, PAD)  # (B, K, T - 1)
    rewards = reward(words.flatten(0, 1), images.repeat_interleave(num_samples))  # (B K,)
    rewards = rewards.view(words.shape[:2])  # (B, K)
    log_probs = teacher_forced(model, features, lengths, samples.tokens)  # (B, K, T - 1)
    loss = objectives.self_critical(log_probs, samples.mask, rewards, baseline)
    return SelfCritical(loss, rewards, samples)


class ImageBatch(NamedTuple):
    """Images to caption."""

    features: Tensor
    """(B, L, d_feature), padded beyond an image's length."""
    lengths: Tensor
    """(B,) feature rows of each image."""
    image_ids: Tensor
    """(B,) image ids for the reward."""

    def to(self, device: torch.device) -> ImageBatch:
        return ImageBatch(*(tensor.to(device) for tensor in self))

    def micro_batches(self, count: int) -> list[ImageBatch]:
        """``count`` micro-batches of nearly equal numbers of images; fewer if there are fewer."""
        split = (tensor.tensor_split(min(count, len(self.features))) for tensor in self)
        return [ImageBatch(*part) for part in zip(*split, strict=True)]


class SelfCriticalTraining(TrainingLoop[ImageBatch]):
    """Training by the reward of sampled captions (v1 14-15, v2 14).

    Args:
        model, batches: of ``TrainingLoop``.
        optimisation: of ``TrainingLoop``; its label smoothing is not read.
        reward: of captions with their end token, on the model's device.
        num_samples: K, samples of each image.
        max_length: of a sample in tokens, start and end included.
        baseline: of ``objectives.self_critical``.
        options: ``seed``, ``computation`` and ``process_group`` of ``TrainingLoop``.

    Raises:
        ValueError: too few or too long samples, or an unknown baseline.
    """

    def __init__(
        self,
        model: BaseCaptioner,
        batches: Batches[ImageBatch],
        optimisation: Optimisation,
        reward: Reward,
        *,
        num_samples: int = 5,
        max_length: int = 20,
        baseline: str = "leave_one_out",
        **options: Any,
    ) -> None:
        if num_samples < 1:
            raise ValueError(f"num_samples is {num_samples}, expected at least 1")
        objectives.baselines(torch.zeros(num_samples), baseline)
        if not 2 <= max_length <= model.max_length:
            limits = f"2 to the model's {model.max_length}"
            raise ValueError(f"max_length is {max_length}, expected {limits}")
        self.reward = reward
        self.num_samples = num_samples
        self.max_length = max_length
        self.baseline = baseline
        super().__init__(model, batches, optimisation, **options)

    def terms(self, batch: ImageBatch) -> Terms:
        """The self-critical loss of the images' samples, and their mean reward."""
        found = self_critical(
            self.captioner,
            batch.features,
            batch.lengths,
            batch.image_ids,
            self.reward,
            num_samples=self.num_samples,
            max_length=self.max_length,
            baseline=self.baseline,
            generator=self.generator,
        )
        return Terms(found.loss, found.rewards.mean())

    def num_targets(self, batch: ImageBatch) -> int:
        """The number of images: each has the same number of samples."""
        return len(batch.features)

    def skip_draws(self, num_images: int) -> None:
        """Draw what ``decoding.sample`` draws for these images."""
        shape = num_images, self.num_samples, self.max_length - 1
        torch.rand(shape, dtype=torch.float64, generator=self.generator)

    def num_captions(self, batch: ImageBatch) -> int:
        return self.num_samples * len(batch.features)
