"""Cross-entropy training that can be stopped anywhere and resumed to the same numbers.

Nothing random has a state to lose: the order of the data is a function of (seed, epoch), the
dropout of a step a function of (seed, step). What there is to keep is the weights, the optimiser's
moments, and three counters.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from torch_impl.auto_reconstructor import AutoReconstructor, check_lambda, joint_loss
from torch_impl.checkpoints import CheckpointError, load_weights
from torch_impl.models import AnyCaptioner
from torch_impl.objectives import cross_entropy
from torch_impl.optimization import Recipe, clip_gradients
from torch_impl.scheduled_sampling import sampled_inputs

_ORDER, _DROPOUT = range(2)
_RECONSTRUCTOR = "reconstructor"


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


class Batches(Protocol):
    """The data: the batches of any epoch, from any position in it."""

    def __len__(self) -> int:
        """How many batches an epoch has."""

    def epoch(self, epoch: int, start: int) -> Iterator[Batch]:
        """The batches of ``epoch`` from number ``start`` on: the same whenever asked."""


@dataclass(frozen=True)
class Step:
    """What one step was and took."""

    step: int
    """Steps done, this one included."""
    epoch: int
    position: int
    """Batches of the epoch done, this one included."""
    loss: float
    gradient_norm: float
    learning_rate: float
    captions: int
    seconds: float
    waited: float
    """Seconds of ``seconds`` spent waiting for the batch."""


class NonFiniteError(ArithmeticError):
    """The loss or its gradient is NaN or infinite; the model is as it was before the step."""

    def __init__(self, what: str, value: float, step: int, epoch: int, position: int) -> None:
        """Name the step (from 1), the epoch and the batch in it (both from 0)."""
        super().__init__(f"{what} is {value} at step {step} (epoch {epoch}, batch {position})")
        self.epoch = epoch
        self.position = position


def data_generator(seed: int, epoch: int) -> np.random.Generator:
    """The random numbers that order the data of ``epoch``: a function of the arguments alone."""
    return np.random.default_rng((seed, _ORDER, epoch))


class CrossEntropyTraining:
    """The training of ``model`` on ``batches``: weights, optimiser, and where it stands.

    ARNet's two stages (section 4.2) are two trainings of one model: the first without a
    reconstructor until it converges, the second with it, and with a recipe of its own.

    Args:
        model: is put into training mode at each step, on the device it is on.
        batches: the data.
        recipe: the optimiser, learning rates and label smoothing; its dropout is the model's own
            affair, its batch size the batches'.
        seed: of dropout; the order of the data is the batches' own affair.
        reconstructor: is trained with the model, which knows nothing of it; on the same device.
        lambda_: the weight of what it adds to the loss (ARNet 9); with 0 the training is that
            without it, to the bit.
        sampling: of a step, from 0, the probability that a word which the model reads is one that
            it sampled itself (scheduled sampling); with 0 nothing is drawn.

    Raises:
        ValueError: lambda below 0, or above it without a reconstructor.
    """

    def __init__(
        self,
        model: AnyCaptioner,
        batches: Batches,
        recipe: Recipe,
        *,
        seed: int = 0,
        reconstructor: AutoReconstructor | None = None,
        lambda_: float = 0.0,
        sampling: Callable[[int], float] | None = None,
    ) -> None:
        """Start at step 0 of epoch 0."""
        if check_lambda(lambda_) and reconstructor is None:
            raise ValueError(f"lambda is {lambda_}, but there is no reconstructor")
        self.model = model
        self.reconstructor = reconstructor
        self.lambda_ = lambda_
        self.sampling = sampling
        self.batches = batches
        self.recipe = recipe
        self.seed = seed
        self.optimiser = recipe.optimiser(self._parameters().values())
        self.step = self.epoch = self.position = 0

    def run(self, epochs: int) -> Generator[Step, None, None]:
        """Train until ``epochs`` are done, a record after every step.

        Between two records the training may be saved, evaluated, or left for good.

        Raises:
            NonFiniteError: the loss or its gradient is NaN or infinite.
        """
        while self.epoch < epochs:
            batches = iter(self.batches.epoch(self.epoch, self.position))
            while self.position < len(self.batches):
                began = time.perf_counter()
                batch = next(batches)
                waited = time.perf_counter() - began
                loss, norm, rate = self._step(batch)
                seconds = time.perf_counter() - began
                self.step += 1
                self.position += 1
                yield Step(
                    step=self.step,
                    epoch=self.epoch,
                    position=self.position,
                    loss=loss,
                    gradient_norm=norm,
                    learning_rate=rate,
                    captions=len(batch.tokens),
                    seconds=seconds,
                    waited=waited,
                )
            self.epoch, self.position = self.epoch + 1, 0

    def _step(self, batch: Batch) -> tuple[float, float, float]:
        rate = self.recipe.learning_rate(self.step, len(self.batches))
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        self.optimiser.zero_grad()
        self.model.train()
        with self._dropout():
            loss = self.loss(batch)
        self._check("loss", loss.item())
        torch.autograd.backward(loss)
        gradients = [p.grad for p in self._parameters().values() if p.grad is not None]
        norm = clip_gradients(gradients, self.recipe.clip)
        self._check("gradient", norm)
        self.optimiser.step()
        return loss.item(), norm, rate

    def loss(self, batch: Batch) -> Tensor:
        """The mean cross-entropy of the batch's next words, teacher-forced but for what is sampled.

        With a reconstructor its errors are added, by the same number of words as the cross-entropy
        is a mean over: ARNet 9 over that number.

        Raises:
            ValueError: a sampling rate outside [0, 1].
        """
        batch = Batch(*(tensor.to(self._device) for tensor in batch))
        memory = self.model.encode(batch.features, batch.lengths)
        # not memory[images], whose gradient adds in no fixed order on several threads
        memory = memory.index_select(0, batch.images)
        lengths = batch.lengths.index_select(0, batch.images)
        targets = batch.tokens[:, 1:]
        states = self.model.states(
            self._read(batch.tokens[:, :-1], memory, lengths), memory, lengths
        )
        nll = cross_entropy(
            self.model.predict(states), targets, self.model.pad_id, self.recipe.label_smoothing
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
        uniforms = torch.rand(shape, device=tokens.device, dtype=torch.float64)
        return sampled_inputs(self.model, tokens, memory.detach(), lengths, coins, uniforms)

    def _parameters(self) -> dict[str, nn.Parameter]:
        """Everything that is trained, by name."""
        named = dict(self.model.named_parameters())
        if self.reconstructor is not None:
            named |= dict(self.reconstructor.named_parameters(prefix=_RECONSTRUCTOR))
        return named

    @property
    def _device(self) -> torch.device:
        return next(self.model.parameters()).device

    @contextmanager
    def _dropout(self) -> Iterator[None]:
        """Within, random numbers are those of this step; without, nobody's are disturbed."""
        device = self._device
        seeds = np.random.SeedSequence((self.seed, _DROPOUT, self.step))
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(int(seeds.generate_state(1, np.uint64)[0]))
            yield

    def _check(self, what: str, value: float) -> None:
        if not math.isfinite(value):
            raise NonFiniteError(what, value, self.step + 1, self.epoch, self.position)

    def state_dict(self) -> dict[str, Any]:
        """All that resuming needs beside the weights: what `checkpoints.save` takes as state."""
        state: dict[str, Any] = {
            "step": self.step,
            "epoch": self.epoch,
            "position": self.position,
            "seed": self.seed,
            "optimiser": {
                name: dict(self.optimiser.state[parameter])
                for name, parameter in self._parameters().items()
                if parameter in self.optimiser.state
            },
        }
        if self.reconstructor is not None:
            state[_RECONSTRUCTOR] = dict(self.reconstructor.state_dict())
        return state

    def load_state_dict(
        self, weights: Mapping[str, Tensor], state: Mapping[str, Any], where: str = "checkpoint"
    ) -> None:
        """Stand where the training that saved ``weights`` and ``state`` stood.

        Raises:
            CheckpointError: they are of another model or another seed, or hold no training state.
        """
        missing = {"step", "epoch", "position", "seed", "optimiser"} - set(state)
        if missing:
            raise CheckpointError(f"{where}: has no training state ({', '.join(sorted(missing))})")
        if state["seed"] != self.seed:
            raise CheckpointError(f"{where}: seed {state['seed']}, expected {self.seed}")
        if (_RECONSTRUCTOR in state) != (self.reconstructor is not None):
            here, there = ("a", "none") if self.reconstructor else ("no", "one")
            raise CheckpointError(f"{where}: expected {here} reconstructor, it has {there}")
        parameters = self._parameters()
        unknown = sorted(set(state["optimiser"]) - set(parameters))
        if unknown:
            raise CheckpointError(f"{where}: optimiser state of unknown {', '.join(unknown)}")
        load_weights(self.model, weights, where)
        if self.reconstructor is not None:
            load_weights(self.reconstructor, state[_RECONSTRUCTOR], where)
        self.optimiser.state.clear()
        for name, moments in state["optimiser"].items():
            self.optimiser.state[parameters[name]] = {
                # PyTorch keeps its count of steps, a scalar, in the CPU's memory
                key: value.to(self._device) if isinstance(value, Tensor) and value.dim() else value
                for key, value in moments.items()
            }
        self.step, self.epoch, self.position = state["step"], state["epoch"], state["position"]
