"""The objectives that captioners are trained by: cross-entropy, and self-critical (v1 13-15)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from torch_impl.models import AnyCaptioner
from torch_impl.recurrent.auto_reconstructor import AutoReconstructor, check_lambda, joint_loss
from torch_impl.training.loop import (
    Batches,
    NonFiniteError,
    Step,
    Terms,
    Training,
    data_generator,
)
from torch_impl.training.objectives import baselines, cross_entropy
from torch_impl.training.optimization import Recipe
from torch_impl.training.scheduled_sampling import sampled_inputs
from torch_impl.training.self_critical import Reward, self_critical

__all__ = [
    "Batch",
    "Batches",
    "CrossEntropyTraining",
    "Images",
    "NonFiniteError",
    "SelfCriticalTraining",
    "Step",
    "data_generator",
]


class Batch(NamedTuple):
    """Captions and the images they describe, an image standing once however many describe it."""

    features: Tensor
    """(B, L, d_feature), rows beyond an image's length are padding."""
    lengths: Tensor
    """(B,) feature rows of each image."""
    tokens: Tensor
    """(P, T) token ids from start to end, then pad."""
    images: Tensor
    """(P,) the image, 0 to B - 1, that each caption describes."""

    def to(self, device: torch.device) -> Batch:
        """All of it on a device."""
        return Batch(*(tensor.to(device) for tensor in self))

    def parts(self, count: int) -> list[Batch]:
        """``count`` parts of nearly as many images each, an image's captions staying together."""
        parts = []
        for images in torch.arange(len(self.features)).tensor_split(min(count, len(self.features))):
            first, end = int(images[0]), int(images[-1]) + 1
            of = (self.images >= first) & (self.images < end)
            if of.any():
                seen = self.features[first:end], self.lengths[first:end]
                parts.append(Batch(*seen, self.tokens[of], self.images[of] - first))
        return parts


class Images(NamedTuple):
    """Images to sample captions of."""

    features: Tensor
    """(B, L, d_feature), rows beyond an image's length are padding."""
    lengths: Tensor
    """(B,) feature rows of each image."""
    places: Tensor
    """(B,) what the reward knows the images as."""

    def to(self, device: torch.device) -> Images:
        """All of it on a device."""
        return Images(*(tensor.to(device) for tensor in self))

    def parts(self, count: int) -> list[Images]:
        """``count`` parts of nearly as many images each; fewer where there are fewer images."""
        split = (tensor.tensor_split(min(count, len(self.features))) for tensor in self)
        return [Images(*of_part) for of_part in zip(*split, strict=True)]


class CrossEntropyTraining(Training[Batch]):
    """Training by cross-entropy, teacher-forced (v1 13, v2 13).

    ARNet's two stages (section 4.2) are two trainings of one model: the first without a
    reconstructor until it converges, the second with it, and with a recipe of its own.

    Args:
        model: as of ``Training``.
        batches: likewise.
        recipe: likewise, and the label smoothing.
        reconstructor: is trained with the model, which knows nothing of it; on the same device.
        lambda_: the weight of what it adds to the loss (ARNet 9); with 0 the training is that
            without it, to the bit.
        sampling: of a step, from 0, the probability that a word which the model reads is one that
            it sampled itself (scheduled sampling); with 0 nothing is drawn.
        options: ``seed``, ``computation`` and ``processes`` of ``Training``.

    Raises:
        ValueError: lambda below 0, or above it without a reconstructor.
    """

    def __init__(
        self,
        model: AnyCaptioner,
        batches: Batches[Batch],
        recipe: Recipe,
        *,
        reconstructor: AutoReconstructor | None = None,
        lambda_: float = 0.0,
        sampling: Callable[[int], float] | None = None,
        **options: Any,
    ) -> None:
        """Start at step 0 of epoch 0."""
        if check_lambda(lambda_) and reconstructor is None:
            raise ValueError(f"lambda is {lambda_}, but there is no reconstructor")
        self.reconstructor = reconstructor
        self.lambda_ = lambda_
        self.sampling = sampling
        super().__init__(model, batches, recipe, **options)

    @property
    def beside(self) -> Mapping[str, nn.Module]:
        """The reconstructor, if there is one."""
        return {} if self.reconstructor is None else {"reconstructor": self.reconstructor}

    def terms(self, batch: Batch) -> Terms:
        """See ``loss``."""
        return Terms(self.loss(batch))

    def count(self, batch: Batch) -> int:
        """The words to predict; 1 where there are none."""
        return max(1, int((batch.tokens[:, 1:] != self.model.pad_id).sum()))

    def captions(self, batch: Batch) -> int:
        """All of the batch."""
        return len(batch.tokens)

    def loss(self, batch: Batch) -> Tensor:
        """The mean cross-entropy of the batch's next words, teacher-forced but for what is sampled.

        With a reconstructor its errors are added, by the same number of words as the cross-entropy
        is a mean over: ARNet 9 over that number.

        Raises:
            ValueError: a sampling rate outside [0, 1].
        """
        memory = self.captioner.encode(batch.features, batch.lengths)
        # not memory[images], whose gradient adds in no fixed order on several threads
        memory = memory.index_select(0, batch.images)
        lengths = batch.lengths.index_select(0, batch.images)
        targets = batch.tokens[:, 1:]
        words = self._read(batch.tokens[:, :-1], memory, lengths)
        states = self.captioner.states(words, memory, lengths)
        nll = cross_entropy(
            self.captioner.predict(states), targets, self.model.pad_id, self.recipe.label_smoothing
        )
        if self.reconstructor is None or not self.lambda_:
            return nll
        valid = targets != self.model.pad_id
        errors = self.reconstructor(states, valid) / valid.sum().clamp(min=1)
        return joint_loss(nll, errors.flatten(), self.lambda_)

    def _read(self, tokens: Tensor, memory: Tensor, lengths: Tensor) -> Tensor:
        """What the model reads of the true words (P, T)."""
        rate = self.sampling(self.step) if self.sampling else 0.0
        if not 0 <= rate <= 1:
            raise ValueError(f"the sampling rate of step {self.step} is {rate}, expected in [0, 1]")
        if not rate:
            return tokens
        shape = len(tokens), tokens.shape[1] - 1
        coins = torch.rand(shape, device=tokens.device) < rate
        # where a side from the middle is through there is no word to be another
        coins &= tokens[:, 1:] != self.model.pad_id
        uniforms = torch.rand(shape, device=tokens.device, dtype=torch.float64)
        return sampled_inputs(self.model, tokens, memory.detach(), lengths, coins, uniforms)


class SelfCriticalTraining(Training[Images]):
    """Training by the reward of sampled captions (v1 14-15, v2 14).

    Args:
        model: as of ``Training``.
        batches: likewise.
        recipe: likewise; its label smoothing means nothing here.
        reward: of captions with their end token, on the model's device.
        num_samples: K, samples of each image.
        max_length: the longest sample in tokens, start and end included.
        baseline: of ``objectives.self_critical``.
        options: ``seed``, ``computation`` and ``processes`` of ``Training``.

    Raises:
        ValueError: samples too few or too long, or an unknown baseline.
    """

    def __init__(
        self,
        model: AnyCaptioner,
        batches: Batches[Images],
        recipe: Recipe,
        reward: Reward,
        *,
        num_samples: int = 5,
        max_length: int = 20,
        baseline: str = "leave_one_out",
        **options: Any,
    ) -> None:
        """Start at step 0 of epoch 0."""
        if num_samples < 1:
            raise ValueError(f"num_samples is {num_samples}, expected at least 1")
        baselines(torch.zeros(num_samples), baseline)
        if not 2 <= max_length <= model.max_length:
            limits = f"2 to the model's {model.max_length}"
            raise ValueError(f"max_length is {max_length}, expected {limits}")
        self.reward = reward
        self.num_samples = num_samples
        self.max_length = max_length
        self.baseline = baseline
        super().__init__(model, batches, recipe, **options)

    def terms(self, batch: Images) -> Terms:
        """The self-critical loss of the images' samples, and their mean reward."""
        made = self_critical(
            self.captioner,
            batch.features,
            batch.lengths,
            batch.places,
            self.reward,
            num_samples=self.num_samples,
            max_length=self.max_length,
            baseline=self.baseline,
            generator=self.draws,
        )
        return Terms(made.loss, made.rewards.mean())

    def count(self, batch: Images) -> int:
        """The images, each with as many samples."""
        return len(batch.features)

    def skip(self, images: int) -> None:
        """As ``decoding.draw`` draws for them."""
        shape = images, self.num_samples, self.max_length - 1
        torch.rand(shape, dtype=torch.float64, generator=self.draws)

    def captions(self, batch: Images) -> int:
        """The samples."""
        return self.num_samples * len(batch.features)
