"""Scheduled sampling (Bengio et al., 2015): in training the model reads some of its own words."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_impl.common.padding import Lengths
from torch_impl.decoding.search import inverse_cdf
from torch_impl.models import AnyCaptioner


@torch.no_grad()
def sampled_inputs(
    model: AnyCaptioner,
    tokens: Tensor,
    memory: Tensor,
    memory_lengths: Lengths | None,
    coins: Tensor,
    uniforms: Tensor,
) -> Tensor:
    """The words that a decoder in training reads instead of the true ones.

    Each word after the first is, where its coin says so, one sampled from the model's distribution
    at the step before, which has read the words so chosen. The model samples as it decodes, in
    evaluation mode, and is left in the mode it was in. No gradient reaches a sampled word, so the
    whole sequence can be read at once afterwards.

    Args:
        model: the captioner.
        tokens: (B, T), the true words, the start token first.
        memory: (B, L, d), of ``model.encode``.
        memory_lengths: (B,) valid rows, or (B, L) True where valid; all if None.
        coins: (B, T - 1) booleans, True where a word is to be sampled.
        uniforms: (B, T - 1), draws of [0, 1) for the samples.

    Returns:
        (B, T).

    Raises:
        ValueError: coins or uniforms are not (B, T - 1).
    """
    B, T = tokens.shape
    for name, x in (("coins", coins), ("uniforms", uniforms)):
        if x.shape != (B, T - 1):
            raise ValueError(f"{name} has shape {tuple(x.shape)}, expected {(B, T - 1)}")
    was_training = model.training
    model.eval()
    try:
        state = model.incremental(memory, memory_lengths, 1, T)
        read = [tokens[:, 0]]
        for t in range(1, T):
            log_probs = state.step(read[-1][:, None]).squeeze(1)
            sampled = inverse_cdf(log_probs, uniforms[:, t - 1])
            read.append(sampled.where(coins[:, t - 1], tokens[:, t]))
    finally:
        model.train(was_training)
    return torch.stack(read, 1)
