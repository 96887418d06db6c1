"""LSTMs over whole sequences against loops of steps, and training steps of their models."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.data.digits import CLASSES
from benchmarks.papers.arnet import digits
from benchmarks.perf.cases.case import FULL_PRECISIONS, Case, Subject, Work, both_passes, prepared
from benchmarks.perf.cases.expansions import random_normal, work
from benchmarks.perf.cases.models import captions, features, training_step
from torch_impl.models import MiddleOutCaptioner, MiddleOutConfiguration, SequenceClassifier
from torch_impl.recurrent import LSTM, AttentiveLSTM, read_only_inputs
from torch_impl.recurrent.auto_reconstructor import AutoReconstructor

FORMS = ("literal", "custom_backward", "auto")
"""A loop over time under autograd; one with a custom backward; the default."""
KINDS: dict[str, tuple[str, tuple[str, ...], dict[str, Any]]] = {
    "lstm": ("an LSTM", ("literal", "custom_backward", "library", "auto"), {}),
    "zoneout": ("an LSTM with zoneout", FORMS, {"zoneout": digits.ZONEOUT}),
    "read-only": (
        "the printed LSTM with a read-only unit that reads the image",
        FORMS,
        {"bias": False, "squash": False, "read_only": True},
    ),
}


def _layer(
    case: Case, implementation: str, device: torch.device, *, kind: str, backward: bool
) -> Work:
    sizes = case.sizes
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        lstm = LSTM(sizes.d_model, sizes.d_model, implementation=implementation, **KINDS[kind][2])
    lstm.to(device).train(backward)

    def along(xs: Tensor) -> Tensor:
        hs, _ = lstm(xs, read=read_only_inputs(xs, "image") if lstm.read_only else None)
        return hs

    xs = random_normal(sizes.batch, sizes.tokens, sizes.d_model, device=device)
    forward = prepared(along, case, implementation, device)
    return work(forward, [xs], list(lstm.parameters()), backward)


def _attentive(case: Case, implementation: str, device: torch.device, *, backward: bool) -> Work:
    sizes = case.sizes
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        d = sizes.d_model
        layer = AttentiveLSTM(d, d, d, implementation=implementation)
    layer.to(device).train(backward)

    def along(xs: Tensor, memory: Tensor) -> Tensor:
        return layer(xs, memory)[0]

    xs = random_normal(sizes.batch, sizes.tokens, d, device=device)
    memory = random_normal(sizes.batch, sizes.length, d, device=device)
    forward = prepared(along, case, implementation, device)
    return work(forward, [xs, memory], list(layer.parameters()), backward)


def _digits(case: Case, implementation: str, device: torch.device) -> Work:
    """A step of ARNet's Table 5, second stage, of the row with ARNet."""
    sizes = case.sizes
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = SequenceClassifier(1, sizes.d_model, CLASSES, implementation=implementation)
        reconstructor = AutoReconstructor(sizes.d_model, implementation=implementation)
    parts = [p for module in (model, reconstructor) for p in module.to(device).parameters()]
    optimiser = torch.optim.Adam(parts, lr=digits.RATES[1])
    xs = random_normal(sizes.batch, sizes.tokens, 1, device=device)
    labels = (torch.arange(sizes.batch) % CLASSES).to(device)

    def step() -> None:
        digits.step(model, optimiser, xs, labels, reconstructor, digits.LAMBDA)
        optimiser.zero_grad()  # so that every step begins with the same memory

    return Work(step, [*parts, xs, labels], trains=True)


def _middle_out(case: Case, implementation: str, device: torch.device) -> Work:
    sizes = case.sizes
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = MiddleOutCaptioner(
            MiddleOutConfiguration(
                sizes.vocabulary,
                sizes.d_feature,
                d_embedding=sizes.d_model,
                hidden_size=sizes.d_model,
                max_length=sizes.tokens,
                dropout=sizes.dropout,
            )
        )
    model.implement(implementation).to(device)
    return training_step(model, features(case, device), captions(case, device))


STEPS = ("batch", "tokens", "d_model")
# under autocast neither the loop nor the library's LSTM on a CPU uses half precision
_along = partial(both_passes, drops=False, precisions=FULL_PRECISIONS)

SUBJECTS = [
    *(
        subject
        for kind, (about, implementations, _) in KINDS.items()
        for subject in _along(kind, about, STEPS, implementations, partial(_layer, kind=kind))
    ),
    *_along(
        "attentive",
        "an LSTM that attends to an image at every step",
        ("length", *STEPS),
        FORMS,
        _attentive,
    ),
    Subject(
        "digits-step",
        "a step of training of the LSTM that reads permuted digits, with ARNet's reconstructor",
        STEPS,
        KINDS["lstm"][1],
        make=_digits,
        precisions=FULL_PRECISIONS,
    ),
    Subject(
        "middle-out-step",
        "a step of training of Middle-Out with dual self-attention, all words of both sides",
        ("batch", "length", "tokens", "d_model", "vocabulary", "d_feature", "dropout"),
        ("literal", "custom_backward"),
        make=_middle_out,
        precisions=FULL_PRECISIONS,
    ),
]
