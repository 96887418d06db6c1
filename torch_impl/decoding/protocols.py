"""What decoding asks of a model: to decode prefixes, or to decode a token at a time."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from torch import Tensor


class Model(Protocol):
    """What decoding asks of a captioning model."""

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


class State(Protocol):
    """Hypotheses, (B, K) of them, that a model reads a token at a time."""

    def step(self, tokens: Tensor) -> Tensor:
        """The next tokens (B, K) to the log-probabilities (B, K, V) of those after."""

    def reorder(self, hypotheses: Tensor) -> None:
        """Let each go on from the hypothesis of its image that ``hypotheses`` (B, K) names."""


@runtime_checkable
class IncrementalModel(Model, Protocol):
    """A model that need not read a prefix again, unless its passes draw."""

    @property
    def draws(self) -> bool:
        """Whether a pass draws at random: in training mode, with dropout."""

    def incremental(
        self,
        memory: Tensor,
        memory_lengths: Tensor | None = None,
        copies: int = 1,
        max_length: int | None = None,
    ) -> State:
        """``copies`` empty hypotheses for each image, to have ``max_length`` tokens at most."""
