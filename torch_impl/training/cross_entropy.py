"""Cross-entropy training, teacher-forced (v1 13, v2 13), optionally with ARNet's reconstructor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from torch_impl.models import BaseCaptioner
from torch_impl.models.base import gather_memory
from torch_impl.recurrent.auto_reconstructor import AutoReconstructor, check_lambda, joint_loss
from torch_impl.training.loop import Batches, Terms, TrainingLoop
from torch_impl.training.objectives import cross_entropy
from torch_impl.training.optimisation import Optimisation
from torch_impl.training.scheduled_sampling import sampled_inputs


class Batch(NamedTuple):
    """Captions and the images they describe, each image once."""

    features: Tensor
    """(B, L, d_feature), padded beyond an image's length."""
    lengths: Tensor
    """(B,) feature rows of each image."""
    tokens: Tensor
    """(P, T) token ids from start to end, then pad."""
    image_index: Tensor
    """(P,) index in 0 .. B - 1 of the image that each caption describes."""

    def to(self, device: torch.device) -> Batch:
        queued = device.type != "cpu"  # behind the device's work: the host does not wait for it
        return Batch(*(tensor.to(device, non_blocking=queued) for tensor in self))

    def micro_batches(self, count: int) -> list[Batch]:
        """``count`` micro-batches of nearly equal numbers of images, each with its captions."""
        parts = []
        for images in torch.arange(len(self.features)).tensor_split(min(count, len(self.features))):
            first, end = int(images[0]), int(images[-1]) + 1
            own = (self.image_index >= first) & (self.image_index < end)  # (P,)
            if own.any():
                source = self.features[first:end], self.lengths[first:end]
                parts.append(Batch(*source, self.tokens[own], self.image_index[own] - first))
        return parts


class CrossEntropyTraining(TrainingLoop[Batch]):
    """Training by cross-entropy, teacher-forced (v1 13, v2 13).

    ARNet's two stages (section 4.2) are two trainings of one model: without a reconstructor until
    it converges, then with it and with another recipe.

    Args:
        model, batches: of ``TrainingLoop``.
        optimisation: of ``TrainingLoop``; its label smoothing is used too.
        reconstructor: trained beside the model, on the same device.
        lambda_: the weight of its errors in the loss (ARNet 9); with 0 the training is bitwise the
            same as without it.
        sampling: for scheduled sampling, a step, from 0, to the probability that an input word is
            sampled; at 0 no random numbers are drawn.
        options: ``seed``, ``computation`` and ``process_group`` of ``TrainingLoop``.

    Raises:
        ValueError: lambda below 0, or above it without a reconstructor.
    """

    def __init__(
        self,
        model: BaseCaptioner,
        batches: Batches[Batch],
        optimisation: Optimisation,
        *,
        reconstructor: AutoReconstructor | None = None,
        lambda_: float = 0.0,
        sampling: Callable[[int], float] | None = None,
        **options: Any,
    ) -> None:
        if lambda_ and check_lambda(lambda_) and reconstructor is None:
            raise ValueError(f"lambda is {lambda_}, but there is no reconstructor")
        self.reconstructor = reconstructor
        self.lambda_ = lambda_
        self.sampling = sampling
        super().__init__(model, batches, optimisation, **options)

    @property
    def auxiliary(self) -> Mapping[str, nn.Module]:
        return {} if self.reconstructor is None else {"reconstructor": self.reconstructor}

    def terms(self, batch: Batch) -> Terms:
        return Terms(self.loss(batch))

    def num_targets(self, batch: Batch) -> int:
        """The number of words to predict; 1 if there are none."""
        return max(1, int((batch.tokens[:, 1:] != self.model.pad_id).sum()))

    def num_captions(self, batch: Batch) -> int:
        return len(batch.tokens)

    def loss(self, batch: Batch) -> Tensor:
        """The mean cross-entropy of the next words (v1 13), plus the reconstructor's errors.

        The errors too are divided by the number of words: the loss is ARNet 9 over that number.

        Raises:
            ValueError: a sampling rate outside [0, 1].
        """
        features, rows, tokens, image_index = batch
        # only on a CPU: elsewhere reading a tensor's values would wait for the device
        on_cpu = features.device.type == "cpu"
        lengths = None if on_cpu and bool((rows == features.shape[1]).all()) else rows
        memory = self.captioner.encode(features, lengths)  # (B, L, d)
        targets = tokens[:, 1:]
        words = self._inputs(tokens[:, :-1], memory, lengths, image_index)  # (P, T - 1)
        states = self.captioner.states(words, memory, lengths, image_index)  # (P, T - 1, d)
        valid = targets != self.model.pad_id
        # likewise, only on a CPU valid words are selected; elsewhere padding is computed too
        by_value = on_cpu and not self.model.predicts_by_position
        positions = valid if by_value else slice(None)
        nll = cross_entropy(
            self.captioner.predict(states[positions]),
            targets[positions],
            self.model.pad_id,
            self.optimisation.label_smoothing,
        )
        if self.reconstructor is None or not self.lambda_:
            return nll
        errors = self.reconstructor(states, valid) / valid.sum().clamp(min=1)
        return joint_loss(nll, errors.flatten(), self.lambda_)

    def _inputs(
        self,
        tokens: Tensor,
        memory: Tensor,
        lengths: Tensor | None,
        image_index: Tensor | None = None,
    ) -> Tensor:
        """The inputs (P, T) with some of the true words (P, T) replaced, by scheduled sampling."""
        rate = self.sampling(self.step) if self.sampling else 0.0
        if not 0 <= rate <= 1:
            raise ValueError(f"the sampling rate of step {self.step} is {rate}, expected in [0, 1]")
        if not rate:
            return tokens
        shape = len(tokens), tokens.shape[1] - 1
        coins = torch.rand(shape, device=tokens.device) < rate
        # a finished side of Middle-Out has no word to replace
        coins &= tokens[:, 1:] != self.model.pad_id
        uniforms = torch.rand(shape, device=tokens.device, dtype=torch.float64)
        memory, of_each = gather_memory(memory.detach(), lengths, image_index)
        return sampled_inputs(self.model, tokens, memory, of_each, coins, uniforms)
