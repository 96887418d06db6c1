"""The loop of all training, which can be stopped anywhere and resumed to the same numbers.

Nothing random has a state to lose: the order of the data is a function of (seed, epoch), all that
is drawn in a step a function of (seed, step) and of where in the batch a part begins. What there is
to keep is the weights, the optimiser's moments, three counters, and the scale of a loss in float16.
Nor is there anything of the number of processes: another number can go on.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from torch_impl.checkpoints.checkpoint import CheckpointError, load_weights
from torch_impl.models import AnyCaptioner
from torch_impl.training.computation import Computation
from torch_impl.training.distributed import ProcessGroup
from torch_impl.training.optimisation import Optimisation, clip_gradients

_ORDER, _DROPOUT, _DRAWS = range(3)


class AnyBatch(Protocol):
    """Tensors that a step is computed from, a named tuple of them."""

    @property
    def features(self) -> Tensor:
        """(B, ...), of each image."""

    def to(self, device: torch.device) -> Self:
        """All of them on a device."""

    def parts(self, count: int) -> Sequence[Self]:
        """``count`` parts of nearly as many images each; fewer where there are fewer images."""


BatchT = TypeVar("BatchT", bound=AnyBatch)
BatchT_co = TypeVar("BatchT_co", bound=AnyBatch, covariant=True)


class Batches(Protocol[BatchT_co]):
    """The data: the batches of any epoch, from any position in it."""

    def __len__(self) -> int:
        """How many batches an epoch has."""

    def epoch(self, epoch: int, start: int) -> Iterator[BatchT_co]:
        """The batches of ``epoch`` from number ``start`` on: the same whenever asked.

        Of several processes each has its share of every batch, one of no images where there are
        fewer of them than processes; the shares, in turn, are the batch.
        """


class Terms(NamedTuple):
    """What an objective makes of a batch."""

    loss: Tensor
    """A scalar, a mean over what ``Training.count`` counts."""
    reward: Tensor | None = None
    """The mean reward, of an objective that has one."""


@dataclass(frozen=True)
class Step:
    """What one step was and took."""

    step: int
    """Steps done, this one included."""
    epoch: int
    position: int
    """Batches of the epoch done, this one included."""
    loss: float
    reward: float | None
    gradient_norm: float
    learning_rate: float
    captions: int
    seconds: float
    waited: float
    """Seconds of ``seconds`` spent waiting for the batch."""


class _Gradient(NamedTuple):
    """What a batch gave, all processes' shares of it together."""

    loss: float
    reward: float | None
    norm: float
    captions: int


class NonFiniteError(ArithmeticError):
    """The loss or its gradient is NaN or infinite; the model is as it was before the step."""

    def __init__(self, what: str, value: float, step: int, epoch: int, position: int) -> None:
        """Name the step (from 1); the epoch and the batch in it, from 0, are said from 1 too."""
        where = f"epoch {epoch + 1}, batch {position + 1}"
        super().__init__(f"{what} is {value} at step {step} ({where})")
        self.epoch = epoch
        self.position = position


def data_generator(seed: int, epoch: int) -> np.random.Generator:
    """The random numbers that order the data of ``epoch``: a function of the arguments alone."""
    return np.random.default_rng((seed, _ORDER, epoch))


class Training(ABC, Generic[BatchT]):
    """The training of ``model`` on ``batches``: weights, optimiser, and where it stands.

    A subclass is an objective: ``terms``, of what they are a mean (``count``), and what else is
    trained (``beside``).

    Args:
        model: is put into training mode at each step, on the device it is on.
        batches: the data.
        recipe: the optimiser and learning rates; its dropout is the model's own affair, its batch
            size the batches'.
        seed: of all that a step draws; the order of the data is the batches' own affair.
        computation: how a step is computed.
        process_group: the ranks that train together. The world size changes a step by rounding
            alone, and by the random numbers of dropout and scheduled sampling, which are seeded by
            the index of a micro-batch's first image: two ranks of two equal micro-batches draw what
            one rank of four draws.
    """

    def __init__(
        self,
        model: AnyCaptioner,
        batches: Batches[BatchT],
        recipe: Optimisation,
        *,
        seed: int = 0,
        computation: Computation = Computation(),  # noqa: B008 - it is frozen
        process_group: ProcessGroup = ProcessGroup(),  # noqa: B008 - alone
    ) -> None:
        """Start at step 0 of epoch 0."""
        self.model = model
        self.batches = batches
        self.recipe = recipe
        self.seed = seed
        self.computation = computation
        self.process_group = process_group
        self.captioner: Any = computation.captioner(model)
        """The model as objectives call it."""
        self.draws = torch.Generator()
        """A step's draws, which its parts take in turn: the same as of the whole batch.

        What the other processes' parts take before, ``skip`` leaves out.
        """
        self.optimiser = recipe.optimiser(self._parameters().values())
        self.scaler = computation.scaler(self.device)
        self.step = self.epoch = self.position = 0

    @abstractmethod
    def terms(self, batch: BatchT) -> Terms:
        """The objective, of a batch on the model's device."""

    @abstractmethod
    def count(self, batch: BatchT) -> int:
        """How many things, words say, the loss of ``batch`` is a mean over; at least 1."""

    @abstractmethod
    def captions(self, batch: BatchT) -> int:
        """How many captions a step reads."""

    def skip(self, images: int) -> None:
        """Take from ``draws`` what the batch's first ``images`` take, which others compute."""

    @property
    def beside(self) -> Mapping[str, nn.Module]:
        """What is trained beside the model, by name."""
        return {}

    def run(self, epochs: int) -> Generator[Step, None, None]:
        """Train until ``epochs`` are done, a record after every step.

        Between two records the training may be saved, evaluated, or left for good.

        Raises:
            NonFiniteError: the loss or its gradient is NaN or infinite.
            ProcessGroupError: a process has ended, or has other weights.
        """
        while self.epoch < epochs:
            self.process_group.check_same_weights(self._parameters())
            batches = iter(self.batches.epoch(self.epoch, self.position))
            while self.position < len(self.batches):
                began = time.perf_counter()
                batch = next(batches)
                waited = time.perf_counter() - began
                made, rate = self._step(batch)
                seconds = time.perf_counter() - began
                self.step += 1
                self.position += 1
                yield Step(
                    step=self.step,
                    epoch=self.epoch,
                    position=self.position,
                    loss=made.loss,
                    reward=made.reward,
                    gradient_norm=made.norm,
                    learning_rate=rate,
                    captions=made.captions,
                    seconds=seconds,
                    waited=waited,
                )
            self.epoch, self.position = self.epoch + 1, 0

    def _step(self, batch: BatchT) -> tuple[_Gradient, float]:
        rate = self.recipe.learning_rate(self.step, len(self.batches))
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        self.model.train()
        made = self._gradient(batch)
        # a scaled loss that overflows makes no step: it is done again at half the scale
        while not math.isfinite(made.norm) and self.scaler.get_scale() > 1:
            self.scaler.update()
            made = self._gradient(batch)
        self._check("gradient", made.norm)
        self.scaler.step(self.optimiser)
        self.scaler.update()
        return made, rate

    def _gradient(self, batch: BatchT) -> _Gradient:
        """Leave the clipped gradient of the batch's mean loss.

        A mean over the whole batch, however it is divided: here, and nowhere else, parts and
        processes are weighed by what they are means over.
        """
        self.optimiser.zero_grad()
        parts = self._parts(batch)
        counts, images = [self.count(part) for part in parts], len(batch.features)
        of_all = self.process_group.all_gather(sum(counts), images, self.captions(batch))
        total, _, captions = (int(sum(numbers)) for numbers in zip(*of_all, strict=True))
        place = int(sum(images for _, images, _ in of_all[: self.process_group.rank]))
        loss = reward = 0.0
        rewarded = False
        with self._random_numbers(place):
            for part, count in zip(parts, counts, strict=True):
                torch.manual_seed(self._seed_of(_DROPOUT, place))
                place += len(part.features)
                with self.computation.autocast(self.device):
                    terms = self.terms(part.to(self.device))
                share = count / total
                scaled = self.scaler.scale(terms.loss)
                torch.autograd.backward(scaled, torch.full_like(scaled, share))
                loss += share * terms.loss.item()
                if terms.reward is not None:
                    rewarded = True
                    reward += share * terms.reward.item()
        sums = zip(*self.process_group.all_gather(loss, reward, rewarded), strict=True)
        loss, reward, rewards = (sum(numbers) for numbers in sums)
        self._check("loss", loss)
        parameters = self._parameters().values()
        # before they are unscaled: what overflows in one process does in all
        self.process_group.all_reduce_gradients(parameters)
        self.scaler.unscale_(self.optimiser)
        norm = clip_gradients([p.grad for p in parameters if p.grad is not None], self.recipe.clip)
        return _Gradient(loss, reward if rewards else None, norm, captions)

    def _parts(self, batch: BatchT) -> Sequence[BatchT]:
        """What is computed one after the other, of a share that may have no images."""
        if not len(batch.features):
            return []
        accumulate = self.computation.accumulate
        return [batch] if accumulate == 1 else batch.parts(accumulate)

    def _parameters(self) -> dict[str, nn.Parameter]:
        """Everything that is trained, by name."""
        named = dict(self.model.named_parameters())
        for name, module in self.beside.items():
            named |= dict(module.named_parameters(prefix=name))
        return named

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters()).device

    @contextmanager
    def _random_numbers(self, place: int) -> Iterator[None]:
        """Within, draws are those of this step from image ``place`` on; nobody's are disturbed."""
        self.draws.manual_seed(self._seed_of(_DRAWS, 0))
        self.skip(place)
        device = self.device
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            yield

    def _seed_of(self, what: int, place: int) -> int:
        seeds = np.random.SeedSequence((self.seed, what, self.step, place))
        return int(seeds.generate_state(1, np.uint64)[0])

    def _check(self, what: str, value: float) -> None:
        if not math.isfinite(value):
            raise NonFiniteError(what, value, self.step + 1, self.epoch, self.position)

    def state_dict(self) -> dict[str, Any]:
        """All that resuming needs beside the weights: what `checkpoints.save` takes as state."""
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
            **{name: dict(module.state_dict()) for name, module in self.beside.items()},
        }

    def load_state_dict(
        self, weights: Mapping[str, Tensor], state: Mapping[str, Any], where: str = "checkpoint"
    ) -> None:
        """Stand where the training that saved ``weights`` and ``state`` stood.

        Raises:
            CheckpointError: they are of another model or another seed, or hold no training state.
        """
        own = {"step", "epoch", "position", "seed", "scaler", "optimiser"}
        if missing := own - set(state):
            raise CheckpointError(f"{where}: has no training state ({', '.join(sorted(missing))})")
        if state["seed"] != self.seed:
            raise CheckpointError(f"{where}: seed {state['seed']}, expected {self.seed}")
        there, here = sorted(set(state) - own), sorted(self.beside)
        if there != here:
            raise CheckpointError(
                f"{where}: expected {', '.join(here) or 'nothing'} beside the model, "
                f"it has {', '.join(there) or 'nothing'}"
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
        for name, module in self.beside.items():
            load_weights(module, state[name], where)
        if state["scaler"]:
            self.scaler.load_state_dict(dict(state["scaler"]))
        self.optimiser.state.clear()
        for name, moments in state["optimiser"].items():
            self.optimiser.state[parameters[name]] = {
                # PyTorch keeps its count of steps, a scalar, in the CPU's memory
                key: value.to(self.device) if isinstance(value, Tensor) and value.dim() else value
                for key, value in moments.items()
            }
        self.step, self.epoch, self.position = state["step"], state["epoch"], state["position"]
