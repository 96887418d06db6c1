"""A beam under way: hypotheses that compete by their summed log-probability, step by step."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from torch_impl.decoding.protocols import Model


class Beams(NamedTuple):
    """The hypotheses of a beam search, K of each of B images, T tokens read.

    Nothing here looks into a tensor: a step can be captured (``graphs``).
    """

    tokens: Tensor
    """(B, K, T)."""
    log_probs: Tensor
    """(B, K, T - 1) float64."""
    sizes: Tensor
    """(B, K) tokens of each, padding apart."""
    finished: Tensor
    """(B, K)."""
    totals: Tensor
    """(B, K) sums of log-probabilities; -inf where a place is empty, which loses to all others."""
    scores: Tensor | None = None
    """(B, K, V), the same memory at every step: beams times vocabulary are too many to ask for
    each time."""
    order: Tensor | None = None
    """(B, K) the hypothesis of its image, one token ago, that each goes on from."""

    @classmethod
    def begin(cls, model: Model, features: Tensor, beam_size: int) -> Beams:
        """One empty hypothesis of each image of ``features``."""
        shape, device = (len(features), beam_size), features.device
        totals = torch.full(shape, -torch.inf, dtype=torch.float64, device=device)
        totals[:, 0] = 0
        return cls(
            torch.full((*shape, 1), model.start_id, device=device),
            torch.empty((*shape, 0), dtype=torch.float64, device=device),
            torch.ones(shape, dtype=torch.int64, device=device),
            torch.zeros(shape, dtype=torch.bool, device=device),
            totals,
        )

    def advance(self, log_p: Tensor, model: Model) -> Beams:
        """The best by the next token's log-probabilities (B, K, V)."""
        scores = (
            torch.empty_like(log_p, dtype=torch.float64) if self.scores is None else self.scores
        )
        scores.copy_(log_p).add_(self.totals.unsqueeze(-1))
        # a finished hypothesis has one continuation: itself, padded, at no cost
        scores.masked_fill_(self.finished.unsqueeze(-1), -torch.inf)
        padded = self.totals.where(self.finished, scores[..., model.pad_id])
        scores[..., model.pad_id] = padded
        totals, choices = largest(scores.flatten(1), scores.shape[1])
        order, token = choices // log_p.shape[-1], choices % log_p.shape[-1]
        finished = self.finished.gather(1, order)
        chosen = log_p.flatten(1).gather(1, choices).double().masked_fill(finished, 0)
        return Beams(
            tokens=append(pick(self.tokens, order), token),
            log_probs=append(pick(self.log_probs, order), chosen),
            sizes=self.sizes.gather(1, order) + ~finished,
            finished=finished | (token == model.end_id),
            totals=totals,
            scores=scores,
            order=order,
        )

    def settled(self, num_return: int, max_length: int) -> Tensor:
        """Whether every image's ``num_return`` best are certain before ``max_length`` is reached.

        Log-probabilities are not positive, so the best sum of the unfinished over ``max_length`` is
        a bound on any score that they can come to. A finished one with a score above it has a
        larger sum than they too, and so stays in the beam.
        """
        unfinished = self.totals.masked_fill(self.finished, -torch.inf).amax(1, keepdim=True)
        scores = (self.totals / self.sizes).masked_fill(~self.finished, -torch.inf)
        worst = scores.sort(1, descending=True).values[:, num_return - 1, None]
        safe = worst > unfinished / max_length
        return (safe | (unfinished == -torch.inf)).all()


def largest(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The ``k`` largest of each row, with their indices; equal ones by index, -inf past the last.

    They are -inf in ``scores`` afterwards.
    ``topk`` leaves the order of equals open, a stable sort of beams times vocabulary is far slower.
    """
    values, indices = [], []
    for _ in range(k):
        index = scores.argmax(-1, keepdim=True)  # the first of equals
        values.append(scores.gather(-1, index))
        indices.append(index)
        scores.scatter_(-1, index, -torch.inf)
    return torch.cat(values, -1), torch.cat(indices, -1)


def pick(x: Tensor, beams: Tensor) -> Tensor:
    """The rows ``beams`` (B, K) of x (B, K, T)."""
    return x.gather(1, beams.unsqueeze(-1).expand(-1, -1, x.shape[-1]))


def append(x: Tensor, column: Tensor) -> Tensor:
    """x (B, K, T) and ``column`` (B, K) as its next."""
    return torch.cat([x, column.unsqueeze(-1)], -1)
