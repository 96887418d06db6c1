"""What decoding needs of a model: it scores prefixes, or one token at a time from a cache."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from torch import Tensor


class CaptionModel(Protocol):
    """A captioning model that scores whole prefixes."""

    start_id: int
    end_id: int
    pad_id: int
    max_length: int

    def encode(self, features: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Features (B, L, d_feature) to memory (B, L, d)."""

    def decode(
        self, tokens: Tensor, memory: Tensor, memory_lengths: Tensor | None = None
    ) -> Tensor:
        """Tokens (B, T) to the log-probabilities (B, T, V) of the token after each."""


class DecoderCache(Protocol):
    """The cache of (B, K) hypotheses, K of each image, and the model that reads from it."""

    def step(self, tokens: Tensor) -> Tensor:
        """Append tokens (B, K); the log-probabilities (B, K, V) of the tokens after them."""

    def reorder(self, beams: Tensor) -> None:
        """Hypothesis k of image b becomes a continuation of its hypothesis ``beams[b, k]``."""


@runtime_checkable
class IncrementalModel(CaptionModel, Protocol):
    """A model with a cache, which it cannot use while a forward pass is stochastic."""

    @property
    def is_stochastic(self) -> bool:
        """Whether a forward pass draws random numbers: in training mode, with dropout."""

    def init_cache(
        self,
        memory: Tensor,
        memory_lengths: Tensor | None = None,
        num_beams: int = 1,
        max_length: int | None = None,
    ) -> DecoderCache:
        """``num_beams`` empty hypotheses of each image, of at most ``max_length`` tokens."""
