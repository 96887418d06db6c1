"""Scheduled sampling (Bengio et al., 2015): some of the decoder's inputs are its own samples."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from torch_impl.common.padding import Lengths
from torch_impl.decoding.search import inverse_cdf
from torch_impl.models import BaseCaptioner


@torch.no_grad()
def sampled_inputs(
    model: BaseCaptioner,
    tokens: Tensor,
    memory: Tensor,
    memory_lengths: Lengths | None,
    coins: Tensor,
    uniforms: Tensor,
) -> Tensor:
    """The decoder's inputs with some of the true words replaced by samples.

    Where its coin is True, a word is sampled from the model's distribution given the inputs before
    it, in evaluation mode. No gradient reaches a sampled word, so the whole sequence can be read at
    once afterwards.

    Args:
        tokens: (B, T), the true words, the start token first.
        memory: (B, L, d), from ``model.encode``.
        memory_lengths: (B,) valid rows, or (B, L) True where valid; all if None.
        coins: (B, T - 1) booleans, True where a word is sampled.
        uniforms: (B, T - 1) in [0, 1), for the samples.

    Returns:
        (B, T).

    Raises:
        ValueError: coins or uniforms are not (B, T - 1).
    """
    B, T = tokens.shape
    for name, x in (("coins", coins), ("uniforms", uniforms)):
        if x.shape != (B, T - 1):
            raise ValueError(f"{name} has shape {tuple(x.shape)}, expected {(B, T - 1)}")
    with _evaluating(model):
        cache = model.init_cache(memory, memory_lengths, 1, T)
        read = [tokens[:, 0]]
        for t in range(1, T):
            log_probs = cache.step(read[-1][:, None]).squeeze(1)  # (B, V)
            sampled = inverse_cdf(log_probs, uniforms[:, t - 1])  # (B,)
            read.append(sampled.where(coins[:, t - 1], tokens[:, t]))
    return torch.stack(read, 1)  # (B, T)


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Run the block in evaluation mode; afterwards every submodule is in its former mode."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training
