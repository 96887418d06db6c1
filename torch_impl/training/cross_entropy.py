"""Training by cross-entropy, teacher-forced (v1 13, v2 13), with ARNet's reconstructor if asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from torch_impl.models import AnyCaptioner
from torch_impl.recurrent.auto_reconstructor import AutoReconstructor, check_lambda, joint_loss
from torch_impl.training.loop import Batches, Terms, Training
from torch_impl.training.objectives import cross_entropy
from torch_impl.training.optimisation import Optimisation
from torch_impl.training.scheduled_sampling import sampled_inputs


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
        options: ``seed``, ``computation`` and ``process_group`` of ``Training``.

    Raises:
        ValueError: lambda below 0, or above it without a reconstructor.
    """

    def __init__(
        self,
        model: AnyCaptioner,
        batches: Batches[Batch],
        recipe: Optimisation,
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
