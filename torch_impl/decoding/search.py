"""Captions from a model: greedy, multinomial samples, beam search, and the score of given ones.

All are batched over images and over each image's hypotheses. ``max_length`` counts the start token.
The model is used in the mode it is in: call ``model.eval()`` first unless dropout is wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from torch_impl.common.padding import Lengths
from torch_impl.decoding.beams import Beams, append
from torch_impl.decoding.protocols import IncrementalModel, Model


@dataclass(frozen=True)
class Hypothesis:
    """A caption as the model gave it."""

    tokens: list[int]
    """The start token included, the end token too unless ``max_length`` cut it off."""
    log_probs: list[float]
    """One for each token after the start."""

    @property
    def score(self) -> float:
        """The sum of the log-probabilities over the number of tokens, start included."""
        return sum(self.log_probs) / len(self.tokens)


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
        sizes = 1 + self.mask.sum(-1)
        return hypotheses_of(self.tokens, self.log_probs, sizes, sizes > 0)


def greedy(
    model: Model, features: Tensor, lengths: Lengths | None = None, *, max_length: int
) -> list[Hypothesis]:
    """The most likely token at each step until the end token; among equals the lowest id.

    Args:
        model: the captioning model.
        features: (B, L, d_feature).
        lengths: (B,) valid feature rows, or (B, L) True where valid; all if None.
        max_length: the longest caption in tokens, start and end included.

    Returns:
        One hypothesis for each image.

    Raises:
        ValueError: ``max_length`` is less than 2 or more than the model's.
    """
    captions = _roll_out(
        model, features, lengths, 1, max_length, lambda log_probs, _: log_probs.argmax(-1)
    )
    return [caption for (caption,) in captions.hypotheses()]


def draw(
    model: Model,
    features: Tensor,
    lengths: Lengths | None = None,
    *,
    max_length: int,
    num_samples: int,
    generator: torch.Generator | None = None,
) -> Samples:
    """Multinomial samples, by the inverse of the cumulated distribution.

    The uniform draws are ``torch.rand((B, num_samples, max_length - 1), dtype=torch.float64)`` from
    ``generator``, one a step, drawn whether a sample ends early or not: so an image's samples do
    not depend on how long its neighbours' are.

    Args:
        model: the captioning model.
        features: (B, L, d_feature).
        lengths: (B,) valid feature rows, or (B, L) True where valid; all if None.
        max_length: the longest caption in tokens, start and end included.
        num_samples: samples of each image.
        generator: on any device; the default generator of the features' device if None.

    Raises:
        ValueError: ``num_samples`` < 1; ``max_length`` is less than 2 or more than the model's.
    """
    if num_samples < 1:
        raise ValueError(f"num_samples is {num_samples}, expected at least 1")
    _check_length(model, max_length)
    uniforms = torch.rand(
        (features.shape[0], num_samples, max_length - 1),
        dtype=torch.float64,
        device=features.device if generator is None else generator.device,
        generator=generator,
    ).to(features.device)

    def choose(log_probs: Tensor, step: int) -> Tensor:
        return inverse_cdf(log_probs, uniforms[..., step])

    return _roll_out(model, features, lengths, num_samples, max_length, choose)


def inverse_cdf(log_probs: Tensor, uniforms: Tensor) -> Tensor:
    """The token (...) that a uniform draw of [0, 1) means by log-probabilities (..., V)."""
    cumulated = log_probs.double().exp().cumsum(-1)
    # a float64 below 1 is at most 1 - 2^-53, and its product with the total below the total
    return (cumulated <= uniforms.double()[..., None] * cumulated[..., -1:]).sum(-1)


def sample(
    model: Model,
    features: Tensor,
    lengths: Lengths | None = None,
    *,
    max_length: int,
    num_samples: int,
    generator: torch.Generator | None = None,
) -> list[list[Hypothesis]]:
    """``draw`` as lists: ``num_samples`` hypotheses for each image."""
    return draw(
        model,
        features,
        lengths,
        max_length=max_length,
        num_samples=num_samples,
        generator=generator,
    ).hypotheses()


@torch.no_grad()
def beam_search(
    model: Model,
    features: Tensor,
    lengths: Lengths | None = None,
    *,
    beam_size: int,
    max_length: int,
    num_return: int = 1,
) -> list[list[Hypothesis]]:
    """Beam search as the papers' scores were made.

    In the search hypotheses compete by their summed log-probability; a finished one stays in the
    beam with its sum unchanged and competes. Ties go to the earlier beam, then to the lower token
    id. The final order is by ``Hypothesis.score``; ties keep the order of the beam.

    Args:
        model: the captioning model.
        features: (B, L, d_feature).
        lengths: (B,) valid feature rows, or (B, L) True where valid; all if None.
        beam_size: hypotheses kept for each image.
        max_length: the longest caption in tokens, start and end included.
        num_return: hypotheses returned for each image, best first.

    Returns:
        ``num_return`` hypotheses for each image; fewer where fewer of probability above zero exist.

    Raises:
        ValueError: ``beam_size`` < 1; ``num_return`` not in 1 to ``beam_size``; ``max_length`` less
            than 2 or more than the model's; the model's log-probabilities are NaN.
    """
    if beam_size < 1:
        raise ValueError(f"beam_size is {beam_size}, expected at least 1")
    if not 1 <= num_return <= beam_size:
        raise ValueError(f"num_return is {num_return}, expected 1 to beam_size ({beam_size})")
    _check_length(model, max_length)
    next_log_probs = next_log_probs_of(model, features, lengths, beam_size, max_length)
    beams = Beams.begin(model, features, beam_size)
    for _ in range(max_length - 1):
        beams = beams.advance(next_log_probs(beams.tokens, beams.order), model)
        if bool(beams.settled(num_return, max_length)):
            break
    return best(beams, num_return)


def forced(
    model: Model,
    features: Tensor,
    lengths: Lengths | None,
    tokens: Sequence[Sequence[Sequence[int]]],
) -> tuple[Tensor, Tensor]:
    """The log-probabilities of given captions, each token read after the given ones before it.

    Gradients flow, in one pass over whole captions: the self-critical loss takes the two results.

    Args:
        model: the captioning model.
        features: (B, L, d_feature).
        lengths: (B,) valid feature rows, or (B, L) True where valid; all if None.
        tokens: for each image its captions, each from the start token on.

    Returns:
        Log-probabilities (B, K, T - 1) of each token after the start, 0 beyond a caption's end, and
        the mask (B, K, T - 1), True on a caption's own; K captions at most, T tokens at most.

    Raises:
        ValueError: not one list of captions for each image, no captions, or too long for the model.
    """
    if len(tokens) != features.shape[0]:
        raise ValueError(f"captions of {len(tokens)} images, expected {features.shape[0]}")
    K = max((len(captions) for captions in tokens), default=0)
    T = max((len(caption) for captions in tokens for caption in captions), default=0)
    if T < 2:
        raise ValueError("expected a caption of at least 2 tokens, the start token included")
    # filled on the host and moved once
    padded = torch.full((len(tokens), K, T), model.pad_id)
    mask = torch.zeros((len(tokens), K, T - 1), dtype=torch.bool)
    for b, captions in enumerate(tokens):
        for k, caption in enumerate(captions):
            padded[b, k, : len(caption)] = torch.tensor(caption)
            mask[b, k, : len(caption) - 1] = True
    padded, mask = padded.to(features.device), mask.to(features.device)
    return rescore(model, features, lengths, padded).where(mask, 0), mask


def rescore(model: Model, features: Tensor, lengths: Lengths | None, tokens: Tensor) -> Tensor:
    """``forced`` on tensors: tokens (B, K, T), start first, to log-probabilities (B, K, T - 1).

    What stands beyond a caption's end gets log-probabilities too, to be masked.
    """
    memory, memory_lengths = _repeated(model, features, lengths, tokens.shape[1])
    log_p = model.decode(tokens[..., :-1].flatten(0, 1), memory, memory_lengths)
    chosen = log_p.gather(-1, tokens[..., 1:].flatten(0, 1).unsqueeze(-1))
    return chosen.view(*tokens.shape[:2], tokens.shape[-1] - 1)


@torch.no_grad()
def _roll_out(
    model: Model,
    features: Tensor,
    lengths: Lengths | None,
    copies: int,
    max_length: int,
    choose: Callable[[Tensor, int], Tensor],
) -> Samples:
    """``copies`` captions of each image, each token by ``choose``: (B, K, V), step -> (B, K)."""
    _check_length(model, max_length)
    next_log_probs = next_log_probs_of(model, features, lengths, copies, max_length)
    B, device = features.shape[0], features.device
    tokens = torch.full((B, copies, 1), model.start_id, device=device)
    log_probs = torch.empty((B, copies, 0), dtype=torch.float64, device=device)
    mask = torch.empty((B, copies, 0), dtype=torch.bool, device=device)
    going_on = torch.ones((B, copies), dtype=torch.bool, device=device)
    for step in range(max_length - 1):
        log_p = next_log_probs(tokens, None)
        token = choose(log_p, step)
        chosen = log_p.gather(-1, token.unsqueeze(-1)).squeeze(-1)
        log_probs = append(log_probs, chosen.double().where(going_on, 0))
        tokens = append(tokens, token.where(going_on, model.pad_id))
        mask = append(mask, going_on)
        going_on = going_on & (token != model.end_id)
        if not bool(going_on.any()):
            break
    return Samples(tokens, log_probs, mask)


def next_log_probs_of(
    model: Model, features: Tensor, lengths: Lengths | None, copies: int, max_length: int
) -> Callable[[Tensor, Tensor | None], Tensor]:
    """Prefixes (B, copies, T) to the next token's log-probabilities (B, copies, V).

    The prefixes go on from those of the call before in the order of the second argument
    (B, copies), or as they stand. A model that can read one token at a time does, unless it draws;
    another reads the whole prefix. What is made of the values is made in float64, so that sums and
    their ties are those of the model's values, whatever its dtype.
    """
    if isinstance(model, IncrementalModel) and not model.draws:
        valid = _on_device(lengths, features)
        # the last token is never read
        memory = model.encode(features, valid)
        state = model.incremental(memory, valid, copies, max_length - 1)

        def step(tokens: Tensor, order: Tensor | None) -> Tensor:
            if order is not None:
                state.reorder(order)
            return state.step(tokens[..., -1])

        return step
    memory, memory_lengths = _repeated(model, features, lengths, copies)

    def recompute(tokens: Tensor, order: Tensor | None) -> Tensor:
        log_p = model.decode(tokens.flatten(0, 1), memory, memory_lengths)[:, -1]
        return log_p.view(*tokens.shape[:2], log_p.shape[-1])

    return recompute


def _repeated(
    model: Model, features: Tensor, lengths: Lengths | None, copies: int
) -> tuple[Tensor, Tensor | None]:
    """Memory and lengths, each image's ``copies`` times in a row: encoded once, then repeated."""
    valid = _on_device(lengths, features)
    memory = model.encode(features, valid).repeat_interleave(copies, 0)
    return memory, None if valid is None else valid.repeat_interleave(copies, 0)


def _on_device(lengths: Lengths | None, features: Tensor) -> Tensor | None:
    return None if lengths is None else torch.as_tensor(lengths, device=features.device)


def best(beams: Beams, num_return: int) -> list[list[Hypothesis]]:
    """Each image's ``num_return`` best hypotheses by ``Hypothesis.score``.

    Raises:
        ValueError: the model's log-probabilities are NaN.
    """
    found = hypotheses_of(beams.tokens, beams.log_probs, beams.sizes, beams.totals > -torch.inf)
    return [sorted(kept, key=lambda one: -one.score)[:num_return] for kept in found]


def hypotheses_of(
    tokens: Tensor, log_probs: Tensor, sizes: Tensor, kept: Tensor
) -> list[list[Hypothesis]]:
    """Each image's hypotheses where ``kept`` (B, K), without their padding."""
    if bool(log_probs.isnan().any()):
        raise ValueError("the model's log-probabilities are NaN")
    images = zip(tokens.tolist(), log_probs.tolist(), sizes.tolist(), kept.tolist(), strict=True)
    return [
        [
            Hypothesis(words[:size], values[: size - 1])
            for words, values, size, keep in zip(*image, strict=True)
            if keep
        ]
        for image in images
    ]


def _check_length(model: Model, max_length: int) -> None:
    if max_length < 2:
        raise ValueError(f"max_length is {max_length}, expected at least 2: the start token counts")
    if max_length > model.max_length:
        raise ValueError(f"max_length is {max_length}, the model's is {model.max_length}")
