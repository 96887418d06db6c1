"""The oracle's functions in the form that a candidate has them, where the two differ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from reference import (
    attention,
    decoding,
    objectives,
    transformer,
)
from reference.primitives import (
    Array,
    Integers,
    Mask,
    Parameters,
)


def multi_head_attention(
    X: Array, Y: Array, parameters: Parameters, num_heads: int, causal: bool
) -> Array:
    """The oracle's, masked by ``causal``."""
    mask = np.tri(len(X), len(Y), dtype=np.bool_) if causal else None
    return attention.multi_head_attention(X, Y, parameters, num_heads, mask)


def attention_on_attention(
    X: Array, Y: Array, parameters: Parameters, num_heads: int, causal: bool
) -> Array:
    """The oracle's, masked by ``causal``."""
    mask = np.tri(len(X), len(Y), dtype=np.bool_) if causal else None
    return attention.attention_on_attention(X, Y, parameters, num_heads, mask)


def captioner(
    features: Array,
    tokens: Integers,
    parameters: Parameters,
    encoder: str,
    decoder: str,
    num_heads: int,
    encoder_reduction: str,
    decoder_reduction: str,
) -> Array:
    """The oracle's encoder and decoder, one after the other."""
    memory = transformer.encode(features, parameters, encoder, num_heads, encoder_reduction)
    return transformer.decode(tokens, memory, parameters, decoder, num_heads, decoder_reduction)


def cross_entropy(
    log_probs: Array, targets: Integers, pad_id: int, label_smoothing: float
) -> float:
    """The oracle's, on the captions without their padding."""
    return objectives.smoothed_cross_entropy(
        [p[y != pad_id] for p, y in zip(log_probs, targets, strict=True)],
        [y[y != pad_id].tolist() for y in targets],
        label_smoothing,
    )


def self_critical(
    log_probs: Array,
    mask: Mask,
    rewards: Array,
    baseline: Literal["leave_one_out", "printed"],
) -> float:
    """The oracle's loss of each sample against the oracle's baseline; the mean over all samples."""
    losses = [
        objectives.self_critical(log_p[valid], r, b)
        for image in zip(log_probs, mask, rewards, strict=True)
        for log_p, valid, r, b in zip(*image, objectives.baselines(image[2], baseline), strict=True)
    ]
    return float(np.mean(losses))


def beam_search(
    next_log_probs: Callable[..., Any],
    start: int,
    end: int,
    beam_size: int,
    max_length: int,
    num_return: int,
) -> list[tuple[list[int], float]]:
    """The oracle's hypotheses as (tokens, score)."""
    found = decoding.beam_search(
        next_log_probs,
        start=start,
        end=end,
        beam_size=beam_size,
        max_length=max_length,
        num_return=num_return,
    )
    return [(list(hypothesis.tokens), hypothesis.score) for hypothesis in found]
