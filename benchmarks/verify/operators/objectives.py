"""Training objectives: cross-entropy and self-critical."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np

from benchmarks.verify import gradients
from benchmarks.verify.cases import Array, Case
from benchmarks.verify.draw import Draw, Pins
from benchmarks.verify.operators.operator import GRADIENT, Operator, Property
from reference import neural_image_caption, objectives
from reference.primitives import Integers, Mask


def draw_log_probs(draw: Draw, *shape: int) -> Array:
    """Log-probabilities that float32 would round, not normalised; with a pin down to -1000, or to
    a hundred times of that.
    """
    factor = (256, 2**15)[draw.seed % 2] if draw.choose("unlikely", (False,)) else 1
    return -factor * draw.random.integers(0, 256, shape) / 65


FINITE = "log_probs are any finite numbers up to 0: they need not sum to a probability of 1."

UNLIKELY: Mapping[str, tuple[Pins, str]] = {
    "unlikely_words": ({"unlikely": True}, "words whose probability underflows")
}


def _cross_entropies(draw: Draw) -> Case:
    B = draw.size("B", 3, large=(9, 48))
    T, V = draw.size("T", 4, large=(40,)), draw.size("V", 5, large=(130, 10_001), least=2)
    pad_id = draw.size("pad_id", 4, least=0) % V
    targets = (pad_id + 1 + draw.words(V - 1, B, T)) % V
    if draw.flag("padding"):
        targets[draw.random.integers(0, 2, (B, T)) == 0] = pad_id
        targets[0, 0] = (pad_id + 1) % V  # at least one word is not padding
    label_smoothing = draw.choose("label_smoothing", (0.0, 0.1, 0.5))
    return draw_log_probs(draw, B, T, V), targets, pad_id, label_smoothing


def _sentences(draw: Draw) -> Case:
    N, V = draw.size("N", 5, large=(40,)), draw.size("V", 5, large=(130, 10_001), least=2)
    return draw_log_probs(draw, N, V), draw.words(V, N)


def _after_start(draw: Draw) -> Case:
    log_probs, words = _sentences(draw)
    start = draw.random.integers(0, log_probs.shape[1], 1)
    return log_probs, np.concatenate([start, words])


def cross_entropy(
    log_probs: Array, targets: Integers, pad_id: int, label_smoothing: float
) -> float:
    """The oracle's cross-entropy of the unpadded captions."""
    return objectives.smoothed_cross_entropy(
        [p[y != pad_id] for p, y in zip(log_probs, targets, strict=True)],
        [y[y != pad_id].tolist() for y in targets],
        label_smoothing,
    )


def _self_criticals(draw: Draw) -> Case:
    B, K = draw.size("B", 3, large=(9, 48)), draw.size("K", 4, large=(9, 33), least=2)
    T = draw.size("T", 4, large=(40,))
    log_probs = draw_log_probs(draw, B, K, T)
    mask = np.arange(T) < draw.random.integers(0, T + 1, (B, K, 1))
    if draw.flag("holes"):
        mask = draw.random.permuted(mask, axis=2)
    rewards = draw.random.integers(-650, 651, (B, K)) / 65  # CIDEr-D is up to 10, others are not
    if draw.chosen["unlikely"]:
        rewards *= 2**10
    return log_probs, mask, rewards, draw.choose("baseline", ("leave_one_out", "printed"))


def self_critical(
    log_probs: Array,
    mask: Mask,
    rewards: Array,
    baseline: Literal["leave_one_out", "printed"],
) -> float:
    """The mean over all samples of the oracle's loss with the oracle's baselines."""
    losses = [
        objectives.self_critical(log_p[valid], r, b)
        for image in zip(log_probs, mask, rewards, strict=True)
        for log_p, valid, r, b in zip(*image, objectives.baselines(image[2], baseline), strict=True)
    ]
    return float(np.mean(np.stack(losses)))


def exact(*by: int) -> tuple[Property, ...]:
    """The gradient by arguments ``by`` where an error is zero: the pin of cases is "exact"."""
    check, needs = gradients.gradient_in_regime, (GRADIENT,)
    words, pins = "the gradient where the error is zero", {"exact": True}
    return (Property("gradient_exact", check, words, pins, needs, {"by": by}, "no"),)


LONG = ({"N": 40, "V": 10000},)

OPERATORS = (
    Operator(
        "sentence_log_probability",
        ("log_probs", "words"),
        "a number",
        "The sum of the log-probabilities of words: (N,), the first included, by the rows of "
        "log_probs: (N, V).",
        neural_image_caption.sentence_log_probability,
        _sentences,
        {"lstm_readonly": (2,)},
        conventions=(FINITE,),
        special=UNLIKELY,
        by=("log_probs",),
        sizes=LONG,
    ),
    Operator(
        "negative_log_likelihood",
        ("log_probs", "words"),
        "a number",
        "Minus the sum of the log-probabilities of words: (N + 1,) but the first, the start token. "
        "log_probs: (N, V), row t of word t + 1.",
        objectives.negative_log_likelihood,
        _after_start,
        {"arnet": (8,), "lstm_readonly": (15,)},
        conventions=(FINITE,),
        special=UNLIKELY,
        by=("log_probs",),
        sizes=LONG,
    ),
    Operator(
        "cross_entropy",
        ("log_probs", "targets", "pad_id", "label_smoothing"),
        "a number",
        "The mean over all targets: (B, T) that are not pad_id of the cross-entropy of log_probs: "
        "(B, T, V).",
        cross_entropy,
        _cross_entropies,
        {"expansionnet_v1": (13,), "expansionnet_v2": (13,)},
        conventions=(
            "The smoothed target is 1 - e on the word and e / (V - 1) on each other.",
            FINITE,
        ),
        special={
            "unsmoothed": (
                {"padding": False, "label_smoothing": 0.0},
                "no padding, no label smoothing",
            ),
            "padding": ({"padding": True, "label_smoothing": 0.0}, "words that do not count"),
            "label_smoothing": ({"label_smoothing": (0.1, 0.5)}, "smoothed labels"),
            **UNLIKELY,
        },
        by=("log_probs",),
        sizes=(
            {"B": 48, "T": 40, "V": 130},
            {"V": 8192, "label_smoothing": 0.5},
            {"B": 48, "T": 8, "V": 10_000},
        ),
        batches=({"B": 6, "T": 40, "V": 10_000, "label_smoothing": 0.1},),
    ),
    Operator(
        "self_critical",
        ("log_probs", "mask", "rewards", "baseline"),
        "a number",
        "The mean over K samples of B images of -(r - b) times the sum of log_probs: (B, K, T) "
        "where mask: (B, K, T). rewards: (B, K). baseline: leave_one_out, the mean reward of the "
        "image's other samples, or printed, the sum of their rewards divided by K.",
        self_critical,
        _self_criticals,
        {"expansionnet_v1": (14, 15), "expansionnet_v2": (14,)},
        conventions=(
            "The gradient is by log_probs; rewards are constants.",
            "Words are added for each sample, then samples: a single float32 sum of all words has "
            "larger rounding errors.",
            "A sample's words are anywhere in its mask; a sample without words has a loss of 0.",
            "log_probs are finite, where mask is False too: a product with mask may hide them.",
        ),
        special={
            "leave_one_out": ({"baseline": "leave_one_out"}, "the baseline over K - 1"),
            "printed": ({"baseline": "printed"}, "the baseline as v1's equation 15 prints it"),
            **UNLIKELY,
        },
        by=("log_probs",),
        sizes=({"B": 48, "K": 5, "T": 40},),
        batches=({"B": 48, "K": 33, "T": 40},),
    ),
)
