"""An ensemble of captioners: at each step the mean of their next-word probabilities.

The ensembles of v1 (Table 4) and v2 (Tables II to IV). Every decoding function takes one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from torch_impl.common.padding import Lengths
from torch_impl.common.protocols import DecoderCache
from torch_impl.models import BaseCaptioner, MiddleOutConfiguration


class Ensemble(nn.Module):
    """A captioner whose probabilities are the mean of its members'.

    The members have the same features, vocabulary and special tokens and decode from left to right;
    all else may differ. The ensemble's memory is theirs concatenated.

    Args:
        members: at least one.

    Raises:
        ValueError: no members, members of different features, words or special tokens, or one that
            decodes from the middle.
    """

    def __init__(self, members: Sequence[BaseCaptioner]) -> None:
        super().__init__()
        if not members:
            raise ValueError("no members, expected at least one captioner")
        first = members[0].configuration
        for name in ("d_feature", "vocabulary_size", "start_id", "end_id", "pad_id"):
            values = [getattr(member.configuration, name) for member in members]
            if len(set(values)) > 1:
                raise ValueError(f"the members' {name} are {values}, expected the same of all")
        for i, member in enumerate(members):
            c = member.configuration
            if isinstance(c, MiddleOutConfiguration) and c.middle_out:
                raise ValueError(f"member {i} decodes from the middle, expected from left to right")
        self.members = nn.ModuleList(members)
        self.d_feature = first.d_feature
        self.start_id, self.end_id, self.pad_id = first.start_id, first.end_id, first.pad_id
        self.max_length = min(member.max_length for member in members)

    def encode(self, features: Tensor, lengths: Lengths | None = None) -> Tensor:
        """Features (B, L, d_feature) to the members' concatenated memories, (B, L, sum of d).

        Raises:
            ValueError: features are not (B, L, d_feature) or lengths do not fit them.
        """
        return torch.cat([member.encode(features, lengths) for member in self._members()], -1)

    def decode(
        self, tokens: Tensor, memory: Tensor, memory_lengths: Lengths | None = None
    ) -> Tensor:
        """Words so far (B, T) to log of the mean probabilities of the next, (B, T, V).

        Raises:
            ValueError: as a member's ``decode``, or a memory of another width.
        """
        return _mean(
            [
                member.decode(tokens, part, memory_lengths)
                for member, part in zip(self._members(), self._parts(memory), strict=True)
            ]
        )

    @property
    def is_stochastic(self) -> bool:
        """Whether a member's forward pass draws random numbers."""
        return any(member.is_stochastic for member in self._members())

    def init_cache(
        self,
        memory: Tensor,
        memory_lengths: Lengths | None = None,
        num_beams: int = 1,
        max_length: int | None = None,
    ) -> EnsembleCache:
        """See ``BaseCaptioner.init_cache``.

        Raises:
            ValueError: as a member's ``init_cache``, or a memory of another width.
        """
        longest = self.max_length if max_length is None else max_length
        return EnsembleCache(
            [
                member.init_cache(part, memory_lengths, num_beams, longest)
                for member, part in zip(self._members(), self._parts(memory), strict=True)
            ]
        )

    def _members(self) -> Iterator[BaseCaptioner]:
        return iter(cast(Sequence[BaseCaptioner], self.members))

    def _parts(self, memory: Tensor) -> tuple[Tensor, ...]:
        """The members' memories, (B, L, d_memory) each."""
        widths = [member.configuration.d_memory for member in self._members()]
        if memory.dim() != 3 or memory.shape[-1] != sum(widths):
            raise ValueError(
                f"memory has shape {tuple(memory.shape)}, expected (B, L, {sum(widths)})"
            )
        return memory.split(widths, -1)


class EnsembleCache:
    """The members' caches."""

    def __init__(self, states: Sequence[DecoderCache]) -> None:
        self._states = states

    def step(self, tokens: Tensor) -> Tensor:
        """Append tokens (B, K); return log of the mean probabilities (B, K, V) of those after."""
        return _mean([state.step(tokens) for state in self._states])

    def reorder(self, beams: Tensor) -> None:
        """Replace hypothesis k of image b by its hypothesis ``beams[b, k]``."""
        for state in self._states:
            state.reorder(beams)


def _mean(log_probs: Sequence[Tensor]) -> Tensor:
    """log(1/N sum_n p_n) of N log-probabilities (..., V)."""
    return torch.stack(list(log_probs)).logsumexp(0) - math.log(len(log_probs))
