"""Beams of hypotheses that compete by summed log-probability, one step at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from torch_impl.common.protocols import CaptionModel

READ_EVERY = 8
"""Steps between two checks whether a search has ended: each synchronises with the device."""

BLOCK = 64
"""Scores whose maximum is found before any is sorted."""


@dataclass(frozen=True)
class Hypothesis:
    """A caption and its log-probabilities under the model."""

    tokens: list[int]
    """From the start token to the end token, or cut off at ``max_length``."""
    log_probs: list[float]
    """Of each token after the start token."""

    @property
    def score(self) -> float:
        """The sum of the log-probabilities over the number of tokens, start token included."""
        return sum(self.log_probs) / len(self.tokens)


class Beams(NamedTuple):
    """The K hypotheses of each of B images, after T tokens.

    Only `best` reads values back to the host, so a step can be captured (``graphs``).
    """

    tokens: Tensor
    """(B, K, T)."""
    log_probs: Tensor
    """(B, K, T - 1) float64."""
    sizes: Tensor
    """(B, K) numbers of tokens without padding."""
    finished: Tensor
    """(B, K)."""
    totals: Tensor
    """(B, K) sums of log-probabilities; -inf for an empty beam, which loses to every other."""
    scores: Tensor | None = None
    """(B, K, V) buffer, reused at every step: allocating it each time is slow."""
    order: Tensor | None = None
    """(B, K) the beam of the step before that each beam continues."""

    @classmethod
    def initial(cls, model: CaptionModel, features: Tensor, num_beams: int) -> Beams:
        """The start token, in the first beam of each image of ``features``."""
        shape, device = (len(features), num_beams), features.device
        totals = torch.full(shape, -torch.inf, dtype=torch.float64, device=device)
        totals[:, 0] = 0
        return cls(
            torch.full((*shape, 1), model.start_id, device=device),
            torch.empty((*shape, 0), dtype=torch.float64, device=device),
            torch.ones(shape, dtype=torch.int64, device=device),
            torch.zeros(shape, dtype=torch.bool, device=device),
            totals,
        )

    def continuations(self, log_p: Tensor, model: CaptionModel) -> Tensor:
        """The totals (B, K, V) of all continuations, float64, from log_p (B, K, V)."""
        scores = self.scores
        if scores is None:
            scores = torch.empty_like(log_p, dtype=torch.float64)
        scores.copy_(log_p).add_(self.totals.unsqueeze(-1))
        return mask_finished(scores, self.finished, self.totals, model.pad_id)

    def extend(
        self, choices: Tensor, totals: Tensor, log_p: Tensor, scores: Tensor, model: CaptionModel
    ) -> Beams:
        """The beams after ``choices`` (B, K) of the K V continuations, which have these totals."""
        order, token = choices // log_p.shape[-1], choices % log_p.shape[-1]
        finished = self.finished.gather(1, order)
        chosen = log_p.flatten(1).gather(1, choices).double().masked_fill(finished, 0)
        return Beams(
            tokens=append(gather_beams(self.tokens, order), token),  # (B, K, T + 1)
            log_probs=append(gather_beams(self.log_probs, order), chosen),  # (B, K, T)
            sizes=self.sizes.gather(1, order) + ~finished,
            finished=finished | (token == model.end_id),
            totals=totals,
            scores=scores,
            order=order,
        )

    def advance(self, log_p: Tensor, model: CaptionModel) -> Beams:
        """The K best continuations, from the next token's log-probabilities (B, K, V)."""
        scores = self.continuations(log_p, model)
        totals, choices = stable_topk(scores.flatten(1), scores.shape[1])  # (B, K V) -> (B, K)
        return self.extend(choices, totals, log_p, scores, model)

    def is_done(self, num_return: int, max_length: int) -> Tensor:
        """Whether no further step can change any image's ``num_return`` best; a boolean scalar.

        Log-probabilities are at most 0, so the largest unfinished total over ``max_length`` bounds
        every score that an unfinished hypothesis can reach. A finished hypothesis whose score
        exceeds the bound also has a larger total than they, and so stays in the beam.
        """
        unfinished = self.totals.masked_fill(self.finished, -torch.inf).amax(1, keepdim=True)
        scores = (self.totals / self.sizes).masked_fill(~self.finished, -torch.inf)
        worst = scores.sort(1, descending=True).values[:, num_return - 1, None]  # (B, 1)
        safe = worst > unfinished / max_length
        return (safe | (unfinished == -torch.inf)).all()

    def best(self, num_return: int) -> list[list[Hypothesis]]:
        """Each image's ``num_return`` best by ``Hypothesis.score``, ties in the order of the beams.

        Raises:
            ValueError: the model's log-probabilities are NaN.
        """
        used = self.totals > -torch.inf
        found = to_hypotheses(self.tokens, self.log_probs, self.sizes, used)
        return [sorted(kept, key=lambda one: -one.score)[:num_return] for kept in found]


def should_check_end(step: int, num_steps: int, device: torch.device) -> bool:
    """Whether to check after ``step``, from 1, that a search has ended: on a CPU always.

    Steps after the end append only padding.
    """
    return step < num_steps and (device.type == "cpu" or step % READ_EVERY == 0)


def check_beam(model: CaptionModel, beam_size: int, num_return: int, max_length: int) -> None:
    """Raise ValueError unless the options of a beam search are in range."""
    if beam_size < 1:
        raise ValueError(f"beam_size is {beam_size}, expected at least 1")
    if not 1 <= num_return <= beam_size:
        raise ValueError(f"num_return is {num_return}, expected 1 to beam_size ({beam_size})")
    check_length(model, max_length)


def check_length(model: CaptionModel, max_length: int) -> None:
    """Raise ValueError unless captions of ``max_length`` tokens, start included, can be decoded."""
    if max_length < 2:
        raise ValueError(f"max_length is {max_length}, expected at least 2: the start token counts")
    if max_length > model.max_length:
        raise ValueError(f"max_length is {max_length}, the model's is {model.max_length}")


def mask_finished(scores: Tensor, finished: Tensor, unchanged: Tensor, pad_id: int) -> Tensor:
    """Set ``scores`` (B, K, V) in place so that finished hypotheses continue with padding only.

    With it their score is the ``unchanged`` one (B, K).
    """
    scores.masked_fill_(finished.unsqueeze(-1), -torch.inf)
    scores[..., pad_id] = unchanged.where(finished, scores[..., pad_id])
    return scores


def stable_topk(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The ``k`` largest of each row (B, n) and their indices, (B, k) each, ties by index.

    ``topk`` leaves the order of ties open, and a stable sort of all is slow: only the ``k`` blocks
    with the largest maxima, by index among equals, are sorted, and what is left after whole blocks.
    """
    B, n = scores.shape
    blocks = scores[:, : n - n % BLOCK].unflatten(1, (n // BLOCK, BLOCK))
    largest = blocks.amax(-1).sort(dim=-1, descending=True, stable=True).indices[:, :k]
    positions = torch.arange(BLOCK, device=scores.device)
    within = largest.sort(-1).values.unsqueeze(-1) * BLOCK + positions  # (B, k, BLOCK)
    left = (positions[: n % BLOCK] + (n - n % BLOCK)).expand(B, -1)
    indices = torch.cat([within.flatten(1), left], 1)
    values, order = scores.gather(1, indices).sort(dim=-1, descending=True, stable=True)
    return values[:, :k], indices.gather(1, order[:, :k])


def gather_beams(x: Tensor, beams: Tensor) -> Tensor:
    """The rows ``beams`` (B, K) of x (B, J, T), (B, K, T)."""
    return x.gather(1, beams.unsqueeze(-1).expand(-1, -1, x.shape[-1]))


def append(x: Tensor, column: Tensor) -> Tensor:
    """x (B, K, T) with ``column`` (B, K) as its last, (B, K, T + 1)."""
    return torch.cat([x, column.unsqueeze(-1)], -1)


def to_hypotheses(
    tokens: Tensor, log_probs: Tensor, sizes: Tensor, used: Tensor
) -> list[list[Hypothesis]]:
    """Each image's hypotheses where ``used`` (B, K), cut to their ``sizes`` (B, K).

    Everything is read back to the host at once.

    Raises:
        ValueError: a log-probability is NaN.
    """
    columns = tokens, log_probs, sizes.unsqueeze(-1), used.unsqueeze(-1)
    packed = torch.cat([part.double() for part in columns], -1).cpu()  # (B, K, 2 T + 1)
    T = tokens.shape[-1]
    values, last = packed[..., T:-2], packed[..., -2:].long()
    if bool(values.isnan().any()):
        raise ValueError("the model's log-probabilities are NaN")
    images = zip(packed[..., :T].long().tolist(), values.tolist(), last.tolist(), strict=True)
    return [
        [
            Hypothesis(words[:size], numbers[: size - 1])
            for words, numbers, (size, keep) in zip(*image, strict=True)
            if keep
        ]
        for image in images
    ]
