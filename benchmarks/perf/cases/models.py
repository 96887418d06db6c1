"""The encoder, the decoder, and a whole training step by cross-entropy."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import repeat
from typing import Generic, TypeVar

import torch
from torch import Tensor

from benchmarks.perf.cases.case import COMPILED, Case, Subject, Work, both_passes, prepared
from benchmarks.perf.cases.expansions import ATTENTION, EXPANSIONS, implement, random_normal, work
from benchmarks.training.configuration import reduction
from torch_impl.models import BaseCaptioner, Captioner, Configuration
from torch_impl.training import Batch, CrossEntropyTraining
from torch_impl.training.optimisation import OPTIMISATION_PRESETS

T = TypeVar("T")
RECIPE = OPTIMISATION_PRESETS["v2-as-run"]
WIDTHS = ("d_model", "d_ff", "heads", "layers")
MODEL = (*WIDTHS, "vocabulary", "d_feature", "encoder", "decoder")
"""The sizes of a whole model."""
IMPLEMENTATIONS = (*EXPANSIONS, *(name + COMPILED for name in EXPANSIONS), ATTENTION)


def captioner(
    case: Case, implementation: str, device: torch.device, *, training: bool
) -> Captioner:
    """The case's model, with the same weights on every device."""
    sizes = case.sizes
    configuration = Configuration(
        vocabulary_size=sizes.vocabulary,
        d_feature=sizes.d_feature,
        encoder=sizes.encoder,
        decoder=sizes.decoder,
        encoder_reduction=reduction(sizes.encoder),
        decoder_reduction=reduction(sizes.decoder),
        d_model=sizes.d_model,
        d_ff=sizes.d_ff,
        num_heads=sizes.heads,
        num_encoder_layers=sizes.layers,
        num_decoder_layers=sizes.layers,
        max_length=sizes.tokens,
        dropout=sizes.dropout,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Captioner(configuration).to(device).train(training)
    implement(model, implementation)
    return model


def features(case: Case, device: torch.device) -> Tensor:
    """Random features of the case's images, (B, L, d_feature)."""
    return random_normal(case.sizes.batch, case.sizes.length, case.sizes.d_feature, device=device)


def captions(case: Case, device: torch.device) -> Tensor:
    """Random captions of the case's images, (B, T)."""
    sizes = case.sizes
    generator = torch.Generator().manual_seed(0)
    shape = sizes.batch, sizes.tokens
    # no special tokens: captions of full length
    return torch.randint(3, sizes.vocabulary, shape, generator=generator).to(device)


def _encoder(case: Case, implementation: str, device: torch.device, *, backward: bool) -> Work:
    model = captioner(case, implementation, device, training=backward)
    used = [*model.input.parameters(), *model.encoder.parameters()]
    images = features(case, device)
    forward = prepared(model.encode, case, implementation, device)
    return work(partial(forward, images), [], used, backward)


def _decoder(case: Case, implementation: str, device: torch.device, *, backward: bool) -> Work:
    model = captioner(case, implementation, device, training=backward)
    parts = (model.embedding, model.decoder, model.vocabulary)
    used = [model.positions.weight, *(p for part in parts for p in part.parameters())]
    memory = random_normal(case.sizes.batch, case.sizes.length, case.sizes.d_model, device=device)
    forward = prepared(model.decode, case, implementation, device)
    return work(partial(forward, captions(case, device)), [memory], used, backward)


class Repeated(Generic[T]):
    """A loader of one batch, again and again."""

    def __init__(self, batch: T) -> None:
        self.batch = batch

    def __len__(self) -> int:
        return 10**6

    def epoch(self, epoch: int, start: int) -> Iterator[T]:
        return repeat(self.batch)


def training_step(model: BaseCaptioner, images: Tensor, words: Tensor) -> Work:
    """A whole step as run, on features (B, L, d_feature) and captions (B, T)."""
    lengths = torch.full(images.shape[:1], images.shape[1], device=images.device)
    own = torch.arange(len(images), device=images.device)
    batch = Batch(images, lengths, words, own)
    steps = CrossEntropyTraining(model, Repeated(batch), RECIPE).run(1)

    def step() -> None:
        next(steps)
        model.zero_grad()  # so that every step begins with the same memory

    return Work(step, [*model.parameters(), *batch], trains=True)


def _step(case: Case, implementation: str, device: torch.device) -> Work:
    model = captioner(case, implementation, device, training=True)
    for name in ("encode", "states", "predict"):  # the methods that training calls
        setattr(model, name, prepared(getattr(model, name), case, implementation, device))
    return training_step(model, features(case, device), captions(case, device))


SUBJECTS = [
    *both_passes(
        "encoder",
        "features to memory",
        ("batch", "length", *WIDTHS, "d_feature", "encoder"),
        IMPLEMENTATIONS,
        _encoder,
    ),
    *both_passes(
        "decoder",
        "words, teacher-forced, to log-probabilities",
        ("batch", "length", "tokens", *WIDTHS, "vocabulary", "decoder"),
        IMPLEMENTATIONS,
        _decoder,
    ),
    Subject(
        "xe-step",
        "a step of training by cross-entropy: both passes and the update, as run",
        ("batch", "length", "tokens", *MODEL, "dropout"),
        IMPLEMENTATIONS,
        make=_step,
    ),
]
