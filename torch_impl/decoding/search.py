"""Captions from a model: greedy search, multinomial samples, beam search, teacher forcing.

All are batched over images and over each image's hypotheses. ``max_length`` counts the start token.
The model is used in its current mode: call ``model.eval()`` first unless dropout is wanted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from torch_impl.common.padding import Lengths
from torch_impl.common.protocols import CaptionModel, IncrementalModel
from torch_impl.decoding.beams import (
    Beams,
    Hypothesis,
    append,
    check_beam,
    check_length,
    should_check_end,
    to_hypotheses,
)

NextToken = Callable[[Tensor, Tensor | None], Tensor]
"""Prefixes (B, K, T) to the log-probabilities (B, K, V) of the next token. The second argument, if
not None, is the beam (B, K) of the call before that each continues."""


class Samples(NamedTuple):
    """K captions of each of B images, as tensors on the model's device; T tokens at most."""

    tokens: Tensor
    """(B, K, T), the start token first, the pad token beyond a caption's end."""
    log_probs: Tensor
    """(B, K, T - 1) float64, of each token after the start; 0 beyond a caption's end."""
    mask: Tensor
    """(B, K, T - 1), True on the tokens after the start, the end token included."""

    def hypotheses(self) -> list[list[Hypothesis]]:
        """The same as lists.

        Raises:
            ValueError: the model's log-probabilities are NaN.
        """
        sizes = 1 + self.mask.sum(-1)  # (B, K)
        return to_hypotheses(self.tokens, self.log_probs, sizes, sizes > 0)


def greedy(
    model: CaptionModel, features: Tensor, lengths: Lengths | None = None, *, max_length: int
) -> list[Hypothesis]:
    """The most likely token at each step until the end token, ties to the lowest id.

    Args:
        features: (B, L, d_feature).
        lengths: (B,) valid feature rows, or (B, L) True where valid; all if None.
        max_length: in tokens, start and end included.

    Raises:
        ValueError: ``max_length`` is less than 2 or more than the model's.
    """
    captions = _generate(
        model, features, lengths, 1, max_length, lambda log_probs, _: log_probs.argmax(-1)
    )
    return [caption for (caption,) in captions.hypotheses()]


def sample(
    model: CaptionModel,
    features: Tensor,
    lengths: Lengths | None = None,
    *,
    max_length: int,
    num_samples: int,
    generator: torch.Generator | None = None,
) -> Samples:
    """``num_samples`` multinomial samples of each image, by `inverse_cdf`.

    The uniforms are ``torch.rand((B, num_samples, max_length - 1), dtype=torch.float64)`` from
    ``generator``, drawn at once: an image's samples do not depend on when the others end.

    Args:
        features: (B, L, d_feature).
        lengths: (B,) valid feature rows, or (B, L) True where valid; all if None.
        max_length: in tokens, start and end included.
        generator: on any device; the default generator of the features' device if None.

    Raises:
        ValueError: ``num_samples`` < 1; ``max_length`` is less than 2 or more than the model's.
    """
    if num_samples < 1:
        raise ValueError(f"num_samples is {num_samples}, expected at least 1")
    check_length(model, max_length)
    uniforms = torch.rand(
        (features.shape[0], num_samples, max_length - 1),
        dtype=torch.float64,
        device=features.device if generator is None else generator.device,
        generator=generator,
    ).to(features.device)

    def choose(log_probs: Tensor, step: int) -> Tensor:
        return inverse_cdf(log_probs, uniforms[..., step])

    return _generate(model, features, lengths, num_samples, max_length, choose)


def inverse_cdf(log_probs: Tensor, uniforms: Tensor) -> Tensor:
    """The tokens (...) at the quantiles ``uniforms`` (...) in [0, 1) of log_probs (..., V)."""
    cumulated = log_probs.double().exp().cumsum(-1)
    # u <= 1 - 2^-53, so that u times the total is below the total
    return (cumulated <= uniforms.double()[..., None] * cumulated[..., -1:]).sum(-1)


@torch.no_grad()
def beam_search(
    model: CaptionModel,
    features: Tensor,
    lengths: Lengths | None = None,
    *,
    beam_size: int,
    max_length: int,
    num_return: int = 1,
) -> list[list[Hypothesis]]:
    """Beam search as used for the papers' scores.

    Hypotheses compete by summed log-probability, a finished one with its sum unchanged. Ties go to
    the earlier beam, then to the lower token id. The final order is by ``Hypothesis.score``; ties
    keep the order of the beam.

    Args:
        features: (B, L, d_feature).
        lengths: (B,) valid feature rows, or (B, L) True where valid; all if None.
        beam_size: hypotheses kept for each image.
        max_length: in tokens, start and end included.
        num_return: hypotheses returned for each image, best first.

    Returns:
        ``num_return`` hypotheses for each image; fewer where fewer of probability above zero exist.

    Raises:
        ValueError: ``beam_size`` < 1; ``num_return`` not in 1 to ``beam_size``; ``max_length`` less
            than 2 or more than the model's; the model's log-probabilities are NaN.
    """
    check_beam(model, beam_size, num_return, max_length)
    next_token = next_token_fn(model, features, lengths, beam_size, max_length)
    beams = Beams.initial(model, features, beam_size)
    for step in range(1, max_length):
        beams = beams.advance(next_token(beams.tokens, beams.order), model)
        check = should_check_end(step, max_length - 1, features.device)
        if check and bool(beams.is_done(num_return, max_length)):
            break
    return beams.best(num_return)


def teacher_forced(
    model: CaptionModel, features: Tensor, lengths: Lengths | None, tokens: Tensor
) -> Tensor:
    """log p(y_t | y_<t, image) of given captions, in one differentiable pass over whole captions.

    Args:
        features: (B, L, d_feature).
        lengths: (B,) valid feature rows, or (B, L) True where valid; all if None.
        tokens: (B, K, T), K captions of each image, each from the start token on.

    Returns:
        (B, K, T - 1), of each token after the start; mask it beyond a caption's end.

    Raises:
        ValueError: tokens are not (B, K, T) for the features' B, or T below 2 or too long.
    """
    if tokens.dim() != 3 or len(tokens) != len(features) or tokens.shape[-1] < 2:
        expected = f"({len(features)}, K, T) with at least 2 tokens"
        raise ValueError(f"tokens has shape {tuple(tokens.shape)}, expected {expected}")
    K = tokens.shape[1]
    memory, memory_lengths = _encode_repeated(model, features, lengths, K)  # (B K, L, d)
    log_p = model.decode(tokens[..., :-1].flatten(0, 1), memory, memory_lengths)  # (B K, T - 1, V)
    chosen = log_p.gather(-1, tokens[..., 1:].flatten(0, 1).unsqueeze(-1))  # (B K, T - 1, 1)
    return chosen.view(*tokens.shape[:2], tokens.shape[-1] - 1)  # (B, K, T - 1)


@torch.no_grad()
def _generate(
    model: CaptionModel,
    features: Tensor,
    lengths: Lengths | None,
    K: int,
    max_length: int,
    choose: Callable[[Tensor, int], Tensor],
) -> Samples:
    """K captions of each image; ``choose``: log-probabilities (B, K, V), step -> tokens (B, K)."""
    check_length(model, max_length)
    next_token = next_token_fn(model, features, lengths, K, max_length)
    B, device = features.shape[0], features.device
    tokens = torch.full((B, K, 1), model.start_id, device=device)
    log_probs = torch.empty((B, K, 0), dtype=torch.float64, device=device)
    mask = torch.empty((B, K, 0), dtype=torch.bool, device=device)
    unfinished = torch.ones((B, K), dtype=torch.bool, device=device)
    for step in range(max_length - 1):
        log_p = next_token(tokens, None)  # (B, K, V)
        token = choose(log_p, step)  # (B, K)
        chosen = log_p.gather(-1, token.unsqueeze(-1)).squeeze(-1)  # (B, K)
        log_probs = append(log_probs, chosen.double().where(unfinished, 0))
        tokens = append(tokens, token.where(unfinished, model.pad_id))
        mask = append(mask, unfinished)
        unfinished = unfinished & (token != model.end_id)
        if should_check_end(step + 1, max_length - 1, device) and not bool(unfinished.any()):
            break
    return Samples(tokens, log_probs, mask)


def next_token_fn(
    model: CaptionModel, features: Tensor, lengths: Lengths | None, num_beams: int, max_length: int
) -> NextToken:
    """Encode the images, and return the function that a search calls at each step.

    It reads one token if the model has a cache and is not stochastic, else the whole prefix. Values
    stay in the model's dtype; searches sum them in float64.
    """
    if isinstance(model, IncrementalModel) and not model.is_stochastic:
        valid = _on_device(lengths, features)
        memory = model.encode(features, valid)  # (B, L, d)
        # the last token is never read
        cache = model.init_cache(memory, valid, num_beams, max_length - 1)

        def cached(tokens: Tensor, order: Tensor | None) -> Tensor:
            if order is not None:
                cache.reorder(order)
            return cache.step(tokens[..., -1])

        return cached
    memory, memory_lengths = _encode_repeated(model, features, lengths, num_beams)

    def recomputed(tokens: Tensor, order: Tensor | None) -> Tensor:
        log_p = model.decode(tokens.flatten(0, 1), memory, memory_lengths)[:, -1]  # (B K, V)
        return log_p.view(*tokens.shape[:2], log_p.shape[-1])

    return recomputed


def _encode_repeated(
    model: CaptionModel, features: Tensor, lengths: Lengths | None, K: int
) -> tuple[Tensor, Tensor | None]:
    """Memory (B K, L, d) and its lengths: each image encoded once, then repeated K times."""
    valid = _on_device(lengths, features)
    memory = model.encode(features, valid).repeat_interleave(K, 0)
    return memory, None if valid is None else valid.repeat_interleave(K, 0)


def _on_device(lengths: Lengths | None, features: Tensor) -> Tensor | None:
    return None if lengths is None else torch.as_tensor(lengths, device=features.device)
