"""ARNet Table 5: permuted sequential MNIST, the LSTM alone and with each regulariser.

Every row is trained in two stages with the learning rates of section 5.3. ARNet's second stage
continues the unregularised LSTM's first and adds the reconstruction loss. The best epoch is chosen
by accuracy on the validation set, the last sixth of the training digits. The paper prints neither
the rates of zoneout and recurrent dropout, nor lambda, nor the epochs: zoneout's 0.15 is that of
Krueger et al. (2017) for this task; the others are ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from tqdm import tqdm

from benchmarks import kinds, records
from benchmarks.data.digits import CLASSES, Digits, Mnist, load, permutation
from benchmarks.files import locked
from benchmarks.papers.caption_experiments import folder_of
from benchmarks.papers.experiment import Experiment, Form, Place, RowRun
from benchmarks.records import Record
from benchmarks.training import work_file
from torch_impl.models import SequenceClassifier
from torch_impl.recurrent.auto_reconstructor import AutoReconstructor, joint_loss
from torch_impl.training.optimisation import clip_gradients

FILE = Path("mnist") / "mnist.npz"
HIDDEN, BATCH = 128, 64
RATES = (1e-3, 5e-4)
LAMBDA = 0.005
CLIP = 1.0
ZONEOUT = (0.15, 0.15)

PLAIN = "Unregularized LSTM"
ARNET = "LSTM + ARNet"
ROWS: dict[str, dict[str, Any]] = {
    PLAIN: {},
    ARNET: {},
    "LSTM + zoneout": {"zoneout": ZONEOUT},
    "LSTM + recurrent dropout": {"recurrent_dropout": 0.25},
    "LSTM + recurrent dropout of the update": {
        "recurrent_dropout": 0.25,
        "recurrent_dropout_of": "update",
    },
}
"""Options of each row; the last is another reading of "recurrent dropout", which is ambiguous."""


@dataclass(frozen=True)
class Size:
    """The size of an experiment.

    Args:
        images: from the training split, validation included; None for all.
        halved: 14 x 14 pixels instead of 28 x 28.
        epochs: of the two stages.
        test: images from the test split; None for all.
    """

    images: int | None
    halved: bool
    epochs: tuple[int, int]
    test: int | None = None

    @property
    def data(self) -> str:
        """The data's name in records."""
        sizes = [] if self.images is None else [f"first {self.images:,} digits"]
        return ", ".join(["mnist", *(["14 x 14 pixels"] if self.halved else []), *sizes])

    def digits(self, mnist: Mnist) -> dict[str, Digits]:
        """The splits "train", "val" and "test"."""
        train, test = mnist.splits["train"].first(self.images), mnist.splits["test"]
        kept = len(train) - len(train) // 6
        splits = {
            "train": train.first(kept),
            "val": Digits(train.images[kept:], train.labels[kept:]),
            "test": test.first(self.test),
        }
        return {name: d.halved() if self.halved else d for name, d in splits.items()}


@dataclass(frozen=True)
class Regularised:
    """A row's training.

    Args:
        size: of the experiment.
        options: of the classifier.
        lambda_: the weight of the reconstruction loss in the second stage.
    """

    size: Size
    options: Mapping[str, Any]
    lambda_: float = 0.0


def _mnist(place: Place) -> Mnist:
    return load(folder_of(place, str(FILE)))


FORMS = {
    "reduced": Form(
        "12,000 digits of 14 x 14 pixels, 196 steps, 6 + 6 epochs: for a CPU",
        _mnist,
        Size(12_000, True, (6, 6)),
    ),
    "full": Form(
        "60,000 digits of 28 x 28 pixels, 784 steps, 60 + 40 epochs: for a GPU",
        _mnist,
        Size(None, False, (60, 40)),
        status="same data",
    ),
}


def training(form: Form, row: str) -> Regularised:
    """A row's training."""
    return Regularised(form.training, ROWS[row], LAMBDA if row == ARNET else 0.0)


def step(
    model: SequenceClassifier,
    optimiser: torch.optim.Optimizer,
    xs: Tensor,
    labels: Tensor,
    reconstructor: AutoReconstructor | None = None,
    lambda_: float = 0.0,
) -> Tensor:
    """One optimiser step on a batch, with ARNet's joint loss (9) if given a reconstructor.

    Args:
        optimiser: of the model's and the reconstructor's parameters.
        xs: (B, T, 1), the pixels.
        reconstructor: reconstructs the model's hidden states.
        lambda_: the weight of the reconstruction loss.

    Returns:
        The loss, detached.
    """
    hs, last = model.states(xs)
    loss = F.nll_loss(model.predict(last), labels)
    if reconstructor is not None:
        loss = joint_loss(loss, reconstructor(hs).mean(0), lambda_)
    optimiser.zero_grad()
    torch.autograd.backward(loss)
    trained = [p for group in optimiser.param_groups for p in group["params"]]
    clip_gradients([p.grad for p in trained if p.grad is not None], CLIP)
    optimiser.step()
    return loss.detach()


class _Training:
    """The state of training: a classifier, its best weights so far, and the history."""

    def __init__(
        self, splits: dict[str, tuple[Tensor, Tensor]], options: dict[str, Any], seed: int
    ) -> None:
        self.splits, self.seed = splits, seed
        with _seeded(seed):
            self.model = SequenceClassifier(1, HIDDEN, CLASSES, **options)
        self.model.to(splits["train"][0].device)
        self.best, self.weights = -1.0, dict(self.model.state_dict())
        self.history: list[dict[str, float]] = []

    def stage(
        self, number: int, epochs: int, path: Path, lambda_: float = 0.0, progress: bool = False
    ) -> None:
        """Train for ``epochs`` with Adam from the best weights so far, resuming from ``path``."""
        self.model.load_state_dict(self.weights)
        trained: list[torch.nn.Module] = [self.model]
        reconstructor = None
        if lambda_:
            with _seeded(self.seed, number):
                reconstructor = AutoReconstructor(HIDDEN)
            trained.append(reconstructor.to(self.splits["train"][0].device))
        parts = [parameter for module in trained for parameter in module.parameters()]
        optimiser = torch.optim.Adam(parts, lr=RATES[number])
        done = 0
        modules = {str(place): module for place, module in enumerate(trained)}
        if path.exists():
            kept = work_file.load(path, modules, optimiser)
            done, self.best, self.history = kept["done"], kept["best"], kept["history"]
            self.weights = kept["weights"]
        bar = tqdm(range(done, epochs), unit="epoch", disable=not progress, leave=False)
        for epoch in bar:
            loss = self._epoch(optimiser, reconstructor, lambda_, (number, epoch))
            accuracy = self.accuracy("val")
            bar.set_postfix(loss=loss, val=accuracy)
            self.history.append({"stage": number, "epoch": epoch, "loss": loss, "val": accuracy})
            if accuracy > self.best:
                self.best = accuracy
                self.weights = {k: v.detach().clone() for k, v in self.model.state_dict().items()}
            values = {
                "done": epoch + 1,
                "best": self.best,
                "weights": self.weights,
                "history": self.history,
            }
            work_file.save(path, modules, optimiser, values)

    def _epoch(
        self,
        optimiser: torch.optim.Optimizer,
        reconstructor: AutoReconstructor | None,
        lambda_: float,
        when: tuple[int, int],
    ) -> float:
        """Train one epoch; returns the mean loss."""
        xs, labels = self.splits["train"]
        order = np.random.default_rng((self.seed, *when)).permutation(len(labels))
        self.model.train()
        total = 0.0
        with _seeded(self.seed, *when, 1):
            for batch in torch.from_numpy(order).split(BATCH):
                given = xs[batch], labels[batch]
                loss = step(self.model, optimiser, *given, reconstructor, lambda_)
                total += loss.item() * len(batch)
        return total / len(labels)

    @torch.no_grad()
    def accuracy(self, split: str) -> float:
        """The accuracy of the current weights, between 0 and 1."""
        self.model.eval()
        xs, labels = self.splits[split]
        pairs = zip(xs.split(500), labels.split(500), strict=True)
        return sum(int((self.model(x).argmax(-1) == y).sum()) for x, y in pairs) / len(labels)


@contextmanager
def _seeded(*seeds: int) -> Iterator[None]:
    """Within, PyTorch's random numbers are determined by the seeds."""
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(int(np.random.SeedSequence(seeds).generate_state(1, np.uint64)[0]))
        yield


def _measure(run: RowRun) -> list[Record[kinds.Digits]]:
    of: Regularised = run.training
    size, mnist = of.size, run.data
    digits = size.digits(mnist)
    order = permutation(digits["train"].images[0].size)
    splits = {
        name: (
            torch.from_numpy(d.sequences(order)).to(run.place.device),
            torch.from_numpy(d.labels).to(run.place.device),
        )
        for name, d in digits.items()
    }
    classifier = _Training(splits, dict(of.options), run.seed)
    # the first stage does not depend on lambda: the plain LSTM's and ARNet's rows share it
    first = records.key_of(_Training, mnist.fingerprint, size, of.options, run.seed)
    lambdas = 0.0, of.lambda_
    for number, (epochs, name) in enumerate(zip(size.epochs, (first, run.key), strict=True)):
        path = run.place.work / f"digits-{name}.safetensors"
        with locked(path):
            classifier.stage(number, epochs, path, lambdas[number], run.place.progress)
    classifier.model.load_state_dict(classifier.weights)
    return [
        records.make(
            kinds.Digits(
                form=run.name,
                hidden_size=HIDDEN,
                batch_size=BATCH,
                learning_rates=list(RATES),
                reconstruction_weight=of.lambda_,
                options=dict(of.options),
                epochs=list(size.epochs),
                steps=len(order),
                history=classifier.history,
            ),
            paper="arnet",
            table="5",
            row=run.row,
            values={"test accuracy": 100 * classifier.accuracy("test")},
            status=run.form.status,
            key=run.key,
            n=len(splits["test"][1]),
            seeds=[run.seed],
            data=records.Data(name=size.data, fingerprint=mnist.fingerprint, split="test"),
        )
    ]


EXPERIMENT = Experiment("arnet", ("5",), tuple(ROWS), FORMS, training, _measure, scored=False)
