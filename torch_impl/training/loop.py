"""The training loop: interrupted anywhere and resumed, it computes the same numbers.

No random state is saved: the order of the data depends on (seed, epoch) only, a step's random
numbers on (seed, step) and the index of a micro-batch's first image. A checkpoint holds the
weights, the optimiser's moments, three counters, and the loss scale of float16. Nothing in it
depends on the world size, so a run may be resumed with another.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from torch_impl.checkpoints.checkpoint import CheckpointError, load_weights
from torch_impl.models import BaseCaptioner
from torch_impl.training.computation import Computation
from torch_impl.training.distributed import ProcessGroup
from torch_impl.training.optimisation import Optimisation, clip_gradients

_ORDER, _DROPOUT, _DRAWS = range(3)


class AnyBatch(Protocol):
    """The tensors of a step, as a named tuple."""

    @property
    def features(self) -> Tensor:
        """(B, ...), of each image."""

    def to(self, device: torch.device) -> Self:
        """All tensors on ``device``."""

    def micro_batches(self, count: int) -> Sequence[Self]:
        """``count`` micro-batches of nearly equal numbers of images; fewer if there are fewer."""


BatchT = TypeVar("BatchT", bound=AnyBatch)
BatchT_co = TypeVar("BatchT_co", bound=AnyBatch, covariant=True)


class Batches(Protocol[BatchT_co]):
    """The data: the batches of any epoch, from any position in it."""

    def __len__(self) -> int:
        """The number of batches in an epoch."""

    def epoch(self, epoch: int, start: int) -> Iterator[BatchT_co]:
        """The batches of ``epoch`` from number ``start`` on: the same at every call.

        In a process group each rank gets its shard of every batch, which is empty if the batch has
        fewer images than there are ranks; the shards in rank order are the batch.
        """


class Terms(NamedTuple):
    """The value of an objective on a micro-batch."""

    loss: Tensor
    """A scalar, a mean over ``TrainingLoop.num_targets``."""
    reward: Tensor | None = None
    """The mean reward, if the objective has one."""


class Numbers(NamedTuple):
    """The numbers that a step computes, of the whole batch."""

    loss: float
    reward: float | None
    gradient_norm: float


@dataclass(frozen=True)
class Step:
    """The log of one step.

    An accelerator copies the loss, reward and gradient norm to the host while it computes the next
    step; reading one waits for the copy, and raises ``NonFiniteError`` as ``TrainingLoop.run``.
    """

    step: int
    """Steps done, this one included."""
    epoch: int
    position: int
    """Batches of the epoch done, this one included."""
    learning_rate: float
    captions: int
    seconds: float
    waited: float
    """Seconds of ``seconds`` spent waiting for the batch."""
    read: Callable[[], Numbers] = field(repr=False, compare=False)

    @property
    def loss(self) -> float:
        return self.read().loss

    @property
    def reward(self) -> float | None:
        return self.read().reward

    @property
    def gradient_norm(self) -> float:
        return self.read().gradient_norm

    def to_dict(self) -> dict[str, Any]:
        """Every number by name."""
        return {k: v for k, v in vars(self).items() if k != "read"} | self.read()._asdict()

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Step:
        """The inverse of ``to_dict``."""
        numbers = Numbers(*(values[name] for name in Numbers._fields))
        rest = {name: value for name, value in values.items() if name not in Numbers._fields}
        return cls(**rest, read=lambda: numbers)


class NonFiniteError(ArithmeticError):
    """The loss or its gradient is NaN or infinite.

    The model is as it was before the step; but on an accelerator, where the numbers are read later,
    only in float16.
    """

    def __init__(self, what: str, value: float, step: int, epoch: int, position: int) -> None:
        """``step`` counts from 1; ``epoch`` and ``position`` from 0, and are printed from 1."""
        where = f"epoch {epoch + 1}, batch {position + 1}"
        super().__init__(f"{what} is {value} at step {step} ({where})")
        self.step = step
        self.epoch = epoch
        self.position = position


def data_generator(seed: int, epoch: int) -> np.random.Generator:
    """The random generator for the order of the data of ``epoch``, of (seed, epoch) only."""
    return np.random.default_rng((seed, _ORDER, epoch))


class TrainingLoop(ABC, Generic[BatchT]):
    """The training of ``model`` on ``batches``: weights, optimiser and position.

    A subclass defines the objective: ``terms``, the number of targets that they average over
    (``num_targets``), and the modules trained beside the model (``auxiliary``).

    Args:
        model: on its device; each step puts it into training mode.
        optimisation: the optimiser and learning rates; its dropout and batch size are not used.
        seed: of every random number of a step; the order of the data is up to ``batches``.
        computation: how a step is computed.
        process_group: the ranks that train together. The world size changes a step only by rounding
            and by the random numbers of dropout and scheduled sampling. These are seeded by the
            index of a micro-batch's first image: two ranks of two equal micro-batches draw the same
            as one rank of four.
    """

    def __init__(
        self,
        model: BaseCaptioner,
        batches: Batches[BatchT],
        optimisation: Optimisation,
        *,
        seed: int = 0,
        computation: Computation = Computation(),  # noqa: B008 - it is frozen
        process_group: ProcessGroup = ProcessGroup(),  # noqa: B008 - a group of one
    ) -> None:
        self.model = model
        self.batches = batches
        self.optimisation = optimisation
        self.seed = seed
        self.computation = computation
        self.process_group = process_group
        self.captioner: Any = computation.captioner(model)
        """The model, compiled if ``computation`` says so."""
        self.generator = torch.Generator()
        """For the whole batch's samples, one micro-batch after the other.

        ``skip_draws`` discards those of the ranks before this one.
        """
        self.optimiser = optimisation.optimiser(self._parameters().values())
        self.scaler = computation.scaler(self.device)
        self.step = self.epoch = self.position = 0
        self._read: Callable[[], object] = lambda: None
        """Waits for the last step's numbers and checks them."""

    @abstractmethod
    def terms(self, batch: BatchT) -> Terms:
        """The objective on a micro-batch, on the model's device."""

    @abstractmethod
    def num_targets(self, batch: BatchT) -> int:
        """The number of targets, such as words, that the loss of ``batch`` averages over, >= 1."""

    @abstractmethod
    def num_captions(self, batch: BatchT) -> int:
        """The number of captions of ``batch``."""

    def skip_draws(self, num_images: int) -> None:
        """Draw and discard ``generator``'s numbers for the batch's first ``num_images``."""

    @property
    def auxiliary(self) -> Mapping[str, nn.Module]:
        """Modules trained beside the model, by name."""
        return {}

    def run(self, epochs: int) -> Generator[Step, None, None]:
        """Train until ``epochs`` are done, and yield the log of every step.

        Between two steps the training may be saved, evaluated or stopped.

        Raises:
            NonFiniteError: the loss or its gradient is NaN or infinite.
            ProcessGroupError: a rank has ended, or has other weights.
        """
        while self.epoch < epochs:
            self.process_group.check_same_weights(self._parameters())
            batches = iter(self.batches.epoch(self.epoch, self.position))
            while self.position < len(self.batches):
                began = time.perf_counter()
                batch = next(batches)
                waited = time.perf_counter() - began
                read, captions, rate = self._step(batch)
                self._read()  # the previous step's numbers, while the device computes this one
                self._read = read
                self.step += 1
                self.position += 1
                if self.position == len(self.batches):
                    read()
                yield Step(
                    step=self.step,
                    epoch=self.epoch,
                    position=self.position,
                    learning_rate=rate,
                    captions=captions,
                    seconds=time.perf_counter() - began,
                    waited=waited,
                    read=read,
                )
            self.epoch, self.position = self.epoch + 1, 0

    def _step(self, batch: BatchT) -> tuple[Callable[[], Numbers], int, float]:
        rate = self.optimisation.learning_rate(self.step, len(self.batches))
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        self.model.train()
        numbers, captions = self._gradient(batch)
        # on overflow the step is retried at half the loss scale
        while self.scaler.get_scale() > 1 and not math.isfinite(numbers[-1]):
            self.scaler.update()
            numbers, captions = self._gradient(batch)
        read = cache(self._reader(numbers))
        # nothing is gained by reading later: the scaler synchronises to decide on the update
        if self.device.type == "cpu" or self.scaler.is_enabled():
            read()
        self.scaler.step(self.optimiser)
        self.scaler.update()
        return read, captions, rate

    def _reader(self, numbers: Tensor) -> Callable[[], Numbers]:
        """Start copying ``_gradient``'s numbers to the host; return what waits and checks them."""
        where = self.step + 1, self.epoch, self.position
        host, copied = numbers.to("cpu", non_blocking=True), None
        if numbers.device.type != "cpu":
            copied = torch.get_device_module(numbers.device).Event()
            copied.record()

        def read() -> Numbers:
            if copied is not None:
                copied.synchronize()
            loss, reward, rewarded, norm = host.tolist()
            for what, value in (("loss", loss), ("gradient", norm)):
                if not math.isfinite(value):
                    raise NonFiniteError(what, value, *where)
            return Numbers(loss, reward if rewarded else None, norm)

        return read

    def _gradient(self, batch: BatchT) -> tuple[Tensor, int]:
        """Set the parameters' ``grad`` to the clipped gradient of the whole batch's mean loss.

        Micro-batches and ranks are weighted, here only, by their numbers of targets.

        Returns:
            (4,) float64 on the device: the loss, the reward, a number above 0 if there is a reward,
            the gradient's norm; and the number of captions.
        """
        self.optimiser.zero_grad()
        parts = self._micro_batches(batch)
        counts, num_images = [self.num_targets(part) for part in parts], len(batch.features)
        ranks = self.process_group.all_gather(sum(counts), num_images, self.num_captions(batch))
        total, _, captions = (int(sum(numbers)) for numbers in zip(*ranks, strict=True))
        # the next micro-batch's first image, as an index in the whole batch
        image = int(sum(images for _, images, _ in ranks[: self.process_group.rank]))
        sums = torch.zeros(3, dtype=torch.float64, device=self.device)
        with self._random_numbers(image):
            for part, count in zip(parts, counts, strict=True):
                torch.manual_seed(self._seed_of(_DROPOUT, image))
                image += len(part.features)
                with self.computation.autocast(self.device):
                    terms = self.terms(part.to(self.device))
                weight = count / total
                scaled = self.scaler.scale(terms.loss)
                torch.autograd.backward(scaled, torch.full_like(scaled, weight))
                sums[0] += weight * terms.loss.detach().double()
                if terms.reward is not None:
                    sums[1] += weight * terms.reward.detach().double()
                    sums[2] += 1
        sums = self.process_group.all_reduce(sums)
        parameters = self._parameters().values()
        # before unscaling, so that all ranks see an overflow of one
        self.process_group.all_reduce_gradients(parameters)
        self.scaler.unscale_(self.optimiser)
        gradients = [p.grad for p in parameters if p.grad is not None]
        norm = clip_gradients(gradients, self.optimisation.clip)
        return torch.cat([sums, norm.double()[None]]), captions

    def _micro_batches(self, batch: BatchT) -> Sequence[BatchT]:
        """The micro-batches of a shard; none if it has no images."""
        if not len(batch.features):
            return []
        accumulate = self.computation.accumulate
        return [batch] if accumulate == 1 else batch.micro_batches(accumulate)

    def _parameters(self) -> dict[str, nn.Parameter]:
        """All trained parameters, by name."""
        named = dict(self.model.named_parameters())
        for name, module in self.auxiliary.items():
            named |= dict(module.named_parameters(prefix=name))
        return named

    @property
    def device(self) -> torch.device:
        """The model's."""
        return next(self.model.parameters()).device

    @contextmanager
    def _random_numbers(self, image: int) -> Iterator[None]:
        """Seed this step's random numbers from ``image`` on; the caller's state is restored."""
        self.generator.manual_seed(self._seed_of(_DRAWS, 0))
        self.skip_draws(image)
        device = self.device
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            yield

    def _seed_of(self, purpose: int, image: int) -> int:
        seeds = np.random.SeedSequence((self.seed, purpose, self.step, image))
        return int(seeds.generate_state(1, np.uint64)[0])

    def state_dict(self) -> dict[str, Any]:
        """What resuming needs beside the weights, the ``state`` for `checkpoints.save`.

        Raises:
            NonFiniteError: the last step's loss or gradient was NaN or infinite.
        """
        self._read()
        return {
            "step": self.step,
            "epoch": self.epoch,
            "position": self.position,
            "seed": self.seed,
            "scaler": self.scaler.state_dict(),
            "optimiser": {
                name: dict(self.optimiser.state[parameter])
                for name, parameter in self._parameters().items()
                if parameter in self.optimiser.state
            },
            **{name: dict(module.state_dict()) for name, module in self.auxiliary.items()},
        }

    def load_state_dict(
        self, weights: Mapping[str, Tensor], state: Mapping[str, Any], where: str = "checkpoint"
    ) -> None:
        """Resume from the ``weights`` and ``state`` that a training saved.

        Raises:
            CheckpointError: of another model or another seed, or without a training state.
        """
        own = {"step", "epoch", "position", "seed", "scaler", "optimiser"}
        if missing := own - set(state):
            raise CheckpointError(f"{where}: has no training state ({', '.join(sorted(missing))})")
        if state["seed"] != self.seed:
            raise CheckpointError(f"{where}: seed {state['seed']}, expected {self.seed}")
        found, expected = sorted(set(state) - own), sorted(self.auxiliary)
        if found != expected:
            raise CheckpointError(
                f"{where}: expected {', '.join(expected) or 'nothing'} beside the model, "
                f"it has {', '.join(found) or 'nothing'}"
            )
        if bool(state["scaler"]) != self.scaler.is_enabled():
            raise CheckpointError(
                f"{where}: of another precision than {self.computation.precision}"
            )
        parameters = self._parameters()
        unknown = sorted(set(state["optimiser"]) - set(parameters))
        if unknown:
            raise CheckpointError(f"{where}: optimiser state of unknown {', '.join(unknown)}")
        load_weights(self.model, weights, where)
        for name, module in self.auxiliary.items():
            load_weights(module, state[name], where)
        if state["scaler"]:
            self.scaler.load_state_dict(dict(state["scaler"]))
        self.optimiser.state.clear()
        for name, moments in state["optimiser"].items():
            self.optimiser.state[parameters[name]] = {
                # PyTorch's optimisers expect their scalar step counts on the CPU
                key: value.to(self.device) if isinstance(value, Tensor) and value.dim() else value
                for key, value in moments.items()
            }
        self.step, self.epoch, self.position = state["step"], state["epoch"], state["position"]
        self._read = lambda: None
