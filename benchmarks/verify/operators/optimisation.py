"""Optimisation: gradient descent, clipping, RAdam, and learning rate schedules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benchmarks.verify.cases import Array, Case
from benchmarks.verify.draw import Draw, Pins
from benchmarks.verify.operators.operator import Operator
from reference import optimisation

SCHEDULE = ("iteration", "lr", "warmup", "batches_per_epoch", "anneal", "anneal_every")
ANNEALED = "It is annealed throughout: by anneal after every anneal_every epochs, whole ones."
FIRST = "iteration counts the updates already made: 0 for the first."


def _descents(draw: Draw) -> Case:
    n, B = draw.size("n", 5, large=(130, 1000)), draw.size("B", 4, large=(9, 48, 300))
    return draw.array(n), draw.inputs(B, n), draw.choose("alpha", (0.5, 0.1))


def _clippings(draw: Draw) -> Case:
    d, e = draw.size("d", 5, large=(130, 512)), draw.size("e", 5, large=(130, 512))
    gradients = {"weight": draw.inputs(d, e), "bias": draw.inputs(d)}
    for i in range(draw.size("layers", 3, large=(33,), least=0)):
        gradients[f"layers.{i}.weight"] = draw.inputs(*range(1 + i % 3, 3 + i % 3 + i % 2))
    if draw.regime == "zeros" and draw.seed % 2:  # of all parameters
        gradients = {name: np.zeros_like(array) for name, array in gradients.items()}
    return gradients, draw.choose("threshold", (0.5, 0.1, 2.0, 64.0))


def _radams(draw: Draw) -> Case:
    n, T = draw.size("n", 4, large=(130, 1000)), draw.size("T", 10, large=(40, 300))
    betas = draw.choose("beta_1", (0.9, 0.5)), draw.choose("beta_2", (0.98, 0.75, 0.999))
    rates = draw.random.integers(0, 8, T) / 65
    return (
        draw.array(n),
        draw.inputs(T, n),
        rates,
        *betas,
        draw.choose("epsilon", (1e-9, 2.0**-10)),
        draw.flag("published"),
    )


def _schedules(draw: Draw) -> Case:
    iteration = draw.size("iteration", 40, large=(9_999, 10_000, 200_000), least=0)
    lr, warmup = draw.choose("lr", (0.5, 2e-4)), draw.size("warmup", 20, large=(10_000,), least=0)
    # at most 100 epochs, so that annealed rates are not subnormal numbers, which are inexact
    batches_per_epoch = max(draw.size("batches_per_epoch", 8, large=(11_800,)), iteration // 100)
    anneal = draw.choose("anneal", (0.5, 0.8, 1.0))
    return iteration, lr, warmup, batches_per_epoch, anneal, draw.size("anneal_every", 3)


EPOCH: Pins = {"iteration": 49, "batches_per_epoch": 49, "anneal_every": 1, "warmup": (0, 20)}
"""49 updates times 1/49 are less than an epoch, by rounding."""


def clip_gradients(gradients: Mapping[str, Array], threshold: float) -> dict[str, Array]:
    """The oracle's clipped gradients, by name."""
    clipped = optimisation.clip_gradients(list(gradients.values()), threshold)
    return dict(zip(gradients, clipped, strict=True))


def radam(
    theta: Array,
    gradients: Array,
    rates: Array,
    beta_1: float,
    beta_2: float,
    eps: float,
    published: bool,
) -> Array:
    """The oracle's parameters after each update."""
    settings: Any = {"beta_1": beta_1, "beta_2": beta_2, "epsilon": eps, "published": published}
    return np.stack(optimisation.radam(theta, list(gradients), rates.tolist(), **settings))


def _schedule(
    name: str, oracle: Callable[..., float], more: tuple[str, ...], about: str, *conventions: str
) -> Operator:
    arguments = (*SCHEDULE, *more)

    def case(draw: Draw) -> Case:
        floor = [draw.choose("floor", (5e-7, 0.125))] if more else []
        return *_schedules(draw), *floor

    return Operator(
        name,
        arguments,
        "a number",
        about,
        lambda *values: oracle(values[0], **dict(zip(arguments[1:], values[1:], strict=True))),
        case,
        conventions=(FIRST, *conventions, ANNEALED),
        special={
            "no_warmup": ({"warmup": 0}, "no warm-up"),
            "first_update": ({"iteration": 0}, "the first update"),
            "last_of_warmup": ({"iteration": 2, "warmup": 3}, "the last update of a warm-up"),
            "first_after": ({"iteration": 3, "warmup": 3}, "the first update after a warm-up"),
            "epoch_begins": (EPOCH, "the first update of an epoch"),
        },
        sizes=({"iteration": 5000, "warmup": 10_000}, {"iteration": 9999, "warmup": 10_000}),
    )


OPERATORS = (
    Operator(
        "gradient_descent",
        ("theta", "gradients", "alpha"),
        "(n,)",
        "theta: (n,) after a step of size alpha, from gradients: (B, n) of each example's loss.",
        optimisation.gradient_descent,
        _descents,
        {"lstm_readonly": (19,)},
        conventions=("The loss is the mean over the examples.",),
        special={"one_example": ({"B": 1}, "a single example")},
        regimes=("huge",),
    ),
    Operator(
        "clip_gradients",
        ("gradients", "threshold"),
        "a mapping like gradients",
        "The gradients by parameter, any number of arrays, all scaled to the norm threshold where "
        "theirs is larger.",
        clip_gradients,
        _clippings,
        {"lstm_readonly": ("gradient clipping",)},
        conventions=("One norm, of all parameters together; nothing is added to it.",),
        special={"small": ({"threshold": 1e6}, "a norm below the threshold")},
        regimes=("zeros", "huge"),
    ),
    Operator(
        "radam",
        ("theta", "gradients", "learning_rates", "beta_1", "beta_2", "epsilon", "published"),
        "(T, n)",
        "theta: (n,) after each of T updates of Rectified Adam (Liu et al. 2019), with gradients: "
        "(T, n) and learning_rates: (T,).",
        radam,
        _radams,
        conventions=(
            "epsilon is added to the root of the second moment before its bias is corrected.",
            "Where the rectification is undefined (rho_t < 5) the published algorithm takes a step "
            "of momentum, its bias corrected; if not published, only the moments change.",
        ),
        special={
            "as_run": ({"published": False}, "no step without rectification"),
            "published": ({"published": True}, "a step of momentum without rectification"),
        },
        regimes=("zeros", "huge"),
        sizes=tuple({"n": n, "T": 40} for n in (257, 512, 1000)),
    ),
    _schedule(
        "hyperbolic_warmup",
        optimisation.hyperbolic_warmup,
        ("floor",),
        "The learning rate of an update as the papers' runs had it: lr over the updates left of "
        "the warm-up.",
        "In update warmup - 1 the rate is lr. From update warmup on it is at least floor.",
    ),
    _schedule(
        "linear_warmup",
        optimisation.linear_warmup,
        (),
        "The learning rate of an update as the papers' text has it: a linear rise.",
        "The warmup-th update has lr, the first lr / warmup.",
    ),
)
