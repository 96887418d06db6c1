"""Beam search from the middle outwards (Middle-Out, section 4.2), the sides in turn.

With a one-sided model it is left to right from the start token, by the same score.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from torch_impl.common.padding import Lengths
from torch_impl.decoding.beams import (
    Hypothesis,
    append,
    check_beam,
    gather_beams,
    mask_finished,
    should_check_end,
    stable_topk,
    to_hypotheses,
)
from torch_impl.middle_out import interleave
from torch_impl.models.middle_out import MiddleOutCaptioner, check_middle_word


@dataclass(frozen=True)
class Halves:
    """A caption from its middle outwards, and its log-probabilities under the model."""

    middle: int
    """The start token if there is one side."""
    left: list[int]
    """The words to the left from the middle outwards, the end token last unless cut off."""
    right: list[int]
    """The words to the right, likewise."""
    log_probs: list[float]
    """Of each word but the middle, in the generated order."""

    @property
    def score(self) -> float:
        """The summed log-probability plus the number of tokens, middle and ends included."""
        return sum(self.log_probs) + 1 + len(self.left) + len(self.right)

    def caption(self, end_id: int) -> list[int]:
        """The words from left to right without end tokens; with one side, the start token first."""
        words = (*reversed(self.left), self.middle, *self.right)
        return [word for word in words if word != end_id]

    def generated(self, side_order: Sequence[int], pad_id: int) -> list[int]:
        """The tokens in the generated order, as a model reads them (`interleave`)."""
        first, second = ((self.left, self.right)[side] for side in side_order)
        return interleave(first, self.middle, second, pad_id)


def middle_words(
    model: MiddleOutCaptioner,
    features: Tensor,
    lengths: Lengths | None = None,
    middle: int | Sequence[int] | None = None,
) -> Tensor:
    """The middle word of each image (B,): the classifier's, or as given.

    Args:
        features: (B, L, d_feature).
        lengths: (B,) valid feature rows, or (B, L) True where valid; all if None.
        middle: a user's word for all, or one an image (an oracle's); the classifier's if None.

    Raises:
        ValueError: a word outside the vocabulary or a special one, not one an image, or None
            without candidates.
    """
    B = features.shape[0]
    if middle is None:
        candidates = torch.tensor(model.configuration.middle_words, device=features.device)
        return candidates[model.middle_words(features, lengths).argmax(-1)]
    several = isinstance(middle, Iterable) and not isinstance(middle, str)
    words: list[object] = list(cast(Iterable[object], middle)) if several else [middle] * B
    if any(isinstance(word, bool | str | float) for word in words):
        raise ValueError(f"middle is {middle!r}, expected token ids")
    if len(words) != B:
        raise ValueError(f"{len(words)} middle words for {B} images, expected one each")
    given = [int(cast(int, word)) for word in words]
    for word in given:
        check_middle_word(word, model.configuration)
    return torch.tensor(given, device=features.device)


@torch.no_grad()
def middle_out_beam_search(
    model: MiddleOutCaptioner,
    features: Tensor,
    lengths: Lengths | None = None,
    *,
    beam_size: int,
    max_length: int,
    middle: int | Sequence[int] | None = None,
    num_return: int = 1,
) -> list[list[Halves]]:
    """Beam search in which the sides, or the only one, take turns, as the model's ``first`` says.

    At each turn the candidates are the continuations on that side of hypotheses whose side is
    unfinished, and the others unchanged; the largest scores survive. The score, within the beam and
    in the end, is the sum of log-probabilities plus the number of tokens. Ties keep the order of
    hypotheses, then of token ids.

    Args:
        model: of one side or two, in evaluation mode.
        features: (B, L, d_feature).
        lengths: (B,) valid feature rows, or (B, L) True where valid; all if None.
        beam_size: hypotheses kept for each image.
        max_length: the words of a half and the middle at most; a side that never ends is cut there.
        middle: see `middle_words`; None for one side, which begins with the start token.
        num_return: hypotheses returned for each image, best first.

    Returns:
        ``num_return`` hypotheses for each image; fewer where fewer of probability above zero exist.

    Raises:
        ValueError: ``beam_size`` < 1; ``num_return`` not in 1 to ``beam_size``; ``max_length`` less
            than 2 or more than the model's; a middle word for one side; NaN; or as `middle_words`.
    """
    side_order = model.configuration.side_order
    if len(side_order) == 1 and middle is not None:
        raise ValueError("a model of one side begins with the start token, expected no middle word")
    check_beam(model, beam_size, num_return, max_length)
    B, K, device = features.shape[0], beam_size, features.device
    if len(side_order) == 1:
        first = torch.full((B,), model.start_id, device=device)
    else:
        first = middle_words(model, features, lengths, middle)
    memory = model.encode(features, lengths)  # (B, L, d)
    num_steps = len(side_order) * (max_length - 1)
    cache = model.init_cache(memory, lengths, K, num_steps)
    tokens = first[:, None, None].expand(B, K, 1)
    log_probs = torch.zeros((B, K, 0), dtype=torch.float64, device=device)
    # for each side: the number of words, and whether the last is the end token
    counts = torch.zeros((2, B, K), dtype=torch.float64, device=device)
    finished = torch.ones((2, B, K), dtype=torch.bool, device=device)
    finished[list(side_order)] = False
    # sums of log-probabilities; -inf for an empty beam, which loses to every other
    totals = torch.full((B, K), -torch.inf, dtype=torch.float64, device=device)
    totals[:, 0] = 0
    unfinished = None
    for t in range(num_steps):
        side = side_order[t % len(side_order)]
        log_p = cache.step(tokens[..., -1], unfinished).double()  # (B, K, V)
        side_finished = finished[side]  # (B, K)
        longer = counts.clone()
        longer[side] += ~side_finished
        # added in the order of ``Halves.score``, so that equal scores are equal bit by bit
        left, right = longer.unsqueeze(-1)  # (B, K, 1) each
        scores = totals.unsqueeze(-1) + log_p + left + 1 + right  # (B, K, V)
        unchanged = totals + longer[0] + 1 + longer[1]
        mask_finished(scores, side_finished, unchanged, model.pad_id)
        kept, choices = stable_topk(scores.flatten(1), K)  # (B, K V) -> (B, K)
        beams, token = choices // log_p.shape[-1], choices % log_p.shape[-1]
        cache.reorder(beams)
        unfinished = ~side_finished.gather(1, beams)
        chosen = log_p.flatten(1).gather(1, choices).where(unfinished, 0)
        totals = (totals.gather(1, beams) + chosen).where(kept > -torch.inf, -torch.inf)
        counts, finished = (x.gather(2, beams.expand(2, B, K)) for x in (longer, finished))
        finished[side] |= token == model.end_id
        tokens = append(gather_beams(tokens, beams), token)
        log_probs = append(gather_beams(log_probs, beams), chosen)
        ended = finished.all(0) | (totals == -torch.inf)  # (B, K)
        if should_check_end(t + 1, num_steps, device) and bool(ended.all()):
            break
    sizes = torch.full_like(totals, tokens.shape[-1])
    found = to_hypotheses(tokens, log_probs, sizes, totals > -torch.inf)
    return [[_halves(one, side_order, model.end_id) for one in of[:num_return]] for of in found]


def _halves(generated: Hypothesis, side_order: Sequence[int], end_id: int) -> Halves:
    """`Halves` from a hypothesis in the generated order."""
    halves: tuple[list[int], list[int]] = ([], [])
    log_probs = []
    middle, *tokens = generated.tokens
    for t, (token, value) in enumerate(zip(tokens, generated.log_probs, strict=True)):
        half = halves[side_order[t % len(side_order)]]
        if half[-1:] != [end_id]:
            half.append(token)
            log_probs.append(value)
    return Halves(middle, *halves, log_probs)
