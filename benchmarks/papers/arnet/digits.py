"""ARNet Table 5: permuted sequential MNIST, the LSTM alone and with each regulariser.

Every row is trained with the two learning rates of section 5.3, as long with each; with ARNet the
second stage, which goes on from the unregularised LSTM's first, has the reconstruction loss too.
Chosen is the epoch of the best accuracy on the last sixth of the training digits. The paper prints
neither the rates of zoneout and recurrent dropout, nor lambda, nor how long it trained: zoneout's
0.15 is that of Krueger et al. (2017) for this task; the others are ours.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from tqdm import tqdm

from benchmarks import kinds, records
from benchmarks.data.digits import (
    CLASSES,
    LAYOUT,
    Digits,
    Mnist,
    load,
    permutation,
)
from benchmarks.errors import InputError
from benchmarks.files import (
    alone,
    read_bytes,
    sha256,
    write_atomically,
)
from benchmarks.papers.experiment import Experiment, Place, Run
from benchmarks.records import Record
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
"""The last is the other reading of recurrent dropout, which the paper leaves open."""


@dataclass(frozen=True)
class Form:
    """How much of it.

    Args:
        images: of the training split, validation included; None for all.
        halved: 14 x 14 pixels in place of 28 x 28.
        epochs: of the two stages.
        test: of the test split; None for all.
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


FORMS = {
    "reduced": Form(12_000, True, (6, 6)),
    "full": Form(None, False, (60, 40)),
}


def step(
    model: SequenceClassifier,
    optimiser: torch.optim.Optimizer,
    xs: Tensor,
    labels: Tensor,
    reconstructor: AutoReconstructor | None = None,
    lambda_: float = 0.0,
) -> Tensor:
    """An update of all that ``optimiser`` has by a batch, ARNet 9 with a reconstructor; the loss.

    Args:
        model: is trained.
        optimiser: of its parameters, and of the reconstructor's.
        xs: (B, T, 1), the pixels.
        labels: (B,).
        reconstructor: reads the model's states, if there is one.
        lambda_: the weight of its errors.
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
    """A classifier on its way: its weights, and the best that it had."""

    def __init__(
        self, splits: dict[str, tuple[Tensor, Tensor]], options: dict[str, Any], seed: int
    ) -> None:
        """Start with weights that are a function of the seed."""
        self.splits, self.seed = splits, seed
        with _seeded(seed):
            self.model = SequenceClassifier(1, HIDDEN, CLASSES, **options)
        self.model.to(splits["train"][0].device)
        self.best, self.weights = -1.0, dict(self.model.state_dict())
        self.history: list[dict[str, float]] = []

    def stage(
        self, number: int, epochs: int, path: Path, lambda_: float = 0.0, progress: bool = False
    ) -> None:
        """Train ``epochs`` with Adam from the best weights so far, going on where ``path`` was."""
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
        if path.exists():
            kept = torch.load(path, weights_only=True)
            done, self.best, self.weights = kept["done"], kept["best"], kept["weights"]
            self.history = kept["history"]
            optimiser.load_state_dict(kept["optimiser"])
            for module, state in zip(trained, kept["modules"], strict=True):
                module.load_state_dict(state)
        bar = tqdm(range(done, epochs), unit="epoch", disable=not progress, leave=False)
        for epoch in bar:
            loss = self._epoch(optimiser, reconstructor, lambda_, (number, epoch))
            accuracy = self.accuracy("val")
            bar.set_postfix(loss=loss, val=accuracy)
            self.history.append({"stage": number, "epoch": epoch, "loss": loss, "val": accuracy})
            if accuracy > self.best:
                self.best = accuracy
                self.weights = {k: v.detach().clone() for k, v in self.model.state_dict().items()}
            state = {
                "done": epoch + 1,
                "best": self.best,
                "weights": self.weights,
                "history": self.history,
                "optimiser": optimiser.state_dict(),
                "modules": [module.state_dict() for module in trained],
            }
            with write_atomically(path, "wb") as file:
                torch.save(state, file)

    def _epoch(
        self,
        optimiser: torch.optim.Optimizer,
        reconstructor: AutoReconstructor | None,
        lambda_: float,
        when: tuple[int, int],
    ) -> float:
        """Once through the digits; the mean loss."""
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
        """The share of digits that the model, as it is, tells right."""
        self.model.eval()
        xs, labels = self.splits[split]
        pairs = zip(xs.split(500), labels.split(500), strict=True)
        return sum(int((self.model(x).argmax(-1) == y).sum()) for x, y in pairs) / len(labels)


@contextmanager
def _seeded(*seeds: int) -> Iterator[None]:
    """Within, PyTorch's random numbers are a function of the seeds."""
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(int(np.random.SeedSequence(seeds).generate_state(1, np.uint64)[0]))
        yield


def _run(form: str, place: Place, row: str, seed: int, key: str, first: str) -> list[Record]:
    began, size = time.perf_counter(), FORMS[form]
    mnist = load(_file(place))
    digits = size.digits(mnist)
    order = permutation(digits["train"].images[0].size)
    splits = {
        name: (
            torch.from_numpy(d.sequences(order)).to(place.device),
            torch.from_numpy(d.labels).to(place.device),
        )
        for name, d in digits.items()
    }
    training = _Training(splits, ROWS[row], seed)
    lambdas = 0.0, LAMBDA if row == ARNET else 0.0
    for number, (epochs, name) in enumerate(zip(size.epochs, (first, key), strict=True)):
        path = place.work / f"{name}.pt"
        with alone(path):
            training.stage(number, epochs, path, lambdas[number], place.progress)
    training.model.load_state_dict(training.weights)
    return [
        records.make(
            kinds.Digits(
                form=form,
                hidden_size=HIDDEN,
                batch_size=BATCH,
                learning_rates=list(RATES),
                reconstruction_weight=lambdas[1],
                options=dict(ROWS[row]),
                epochs=list(size.epochs),
                steps=len(order),
                history=training.history,
            ),
            paper="arnet",
            table="5",
            row=row,
            values={"test accuracy": 100 * training.accuracy("test")},
            status="same data" if form == "full" else "other data",
            key=key,
            n=len(splits["test"][1]),
            seeds=[seed],
            data=records.Data(name=size.data, fingerprint=mnist.fingerprint, split="test"),
            wall_s=time.perf_counter() - began,
        )
    ]


def _file(place: Place) -> Path:
    if place.data is None:
        raise InputError(f"no data folder, expected one with {FILE} (--data)")
    return place.data / FILE


def runs(form: str, place: Place, seeds: Sequence[int]) -> list[Run]:
    """All rows of a seed, then those of the next."""
    data = sha256(read_bytes(_file(place), LAYOUT))
    found = []
    for seed in seeds:
        for row, options in ROWS.items():
            given = data, asdict(FORMS[form]), seed
            key = records.key_of(_run, row, *given)
            # the first stage knows nothing of the second: one of the LSTM serves both its rows
            first = records.key_of(_run, options, *given)
            make = partial(_run, form, place, row, seed, key, first)
            found.append(Run(row, seed, key, make))
    return found


EXPERIMENT = Experiment(
    "arnet",
    ("5",),
    tuple(FORMS),
    {
        "reduced": "12,000 digits of 14 x 14 pixels, 196 steps, 6 + 6 epochs: for a CPU",
        "full": "60,000 digits of 28 x 28 pixels, 784 steps, 60 + 40 epochs: for a GPU",
    },
    3,
    runs,
)
