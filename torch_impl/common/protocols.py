"""The interfaces of models for decoding: scoring whole prefixes, or one token with a cache."""

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
    """A model and its cache of (B, K) hypotheses, K of each image."""

    def step(self, tokens: Tensor) -> Tensor:
        """Append tokens (B, K); return the log-probabilities (B, K, V) of those after them."""

    def reorder(self, beams: Tensor) -> None:
        """Replace hypothesis k of image b by its hypothesis ``beams[b, k]``."""


@runtime_checkable
class IncrementalModel(CaptionModel, Protocol):
    """A model with a cache, unusable while its forward pass is stochastic."""

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
        """A cache of ``num_beams`` empty hypotheses of each image, at most ``max_length`` long."""
