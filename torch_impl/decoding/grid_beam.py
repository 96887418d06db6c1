"""Grid beam search for a word that must appear (Hokamp and Liu, 2017), batched over images.

The oracle takes constraints of any number and length; Middle-Out's Table 5 asks for one word an
image, and so does this: the grid has two beams, of hypotheses without the word and with it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from torch_impl.common.padding import Lengths
from torch_impl.decoding.beams import largest
from torch_impl.decoding.protocols import Model
from torch_impl.decoding.search import (
    Hypothesis,
    hypotheses_of,
    next_log_probs_of,
)


@torch.no_grad()
def grid_beam_search(
    model: Model,
    features: Tensor,
    lengths: Lengths | None = None,
    *,
    words: Sequence[int],
    beam_size: int,
    max_length: int,
    num_return: int = 1,
) -> list[list[Hypothesis]]:
    """The best captions with the image's word in them.

    At each step the beam without the word is filled from its own continuations, the end token
    excepted; the beam with it from its own, and from the other's by the word. Those with the
    largest sums go on; one that has ended competes unchanged. Generating the word by chance does
    not count as taking it, and the same tokens are kept once. Ties keep the order: what is
    generated, by hypothesis and token id, then what takes the word, by hypothesis. The final order
    is by ``Hypothesis.score``.

    Args:
        model: the captioning model.
        features: (B, L, d_feature).
        lengths: (B,) valid feature rows, or (B, L) True where valid; all if None.
        words: one token id an image.
        beam_size: hypotheses kept in each beam.
        max_length: the longest caption in tokens, start and end included.
        num_return: hypotheses returned for each image, best first.

    Returns:
        ``num_return`` hypotheses for each image; fewer where fewer of probability above zero exist.

    Raises:
        ValueError: not one word an image, or one that is the end token; ``beam_size`` < 1;
            ``num_return`` not in 1 to ``beam_size``; ``max_length`` less than 2 or more than the
            model's; a word outside the vocabulary; the model's log-probabilities are NaN.
    """
    B, K, device = features.shape[0], beam_size, features.device
    if len(words) != B:
        raise ValueError(f"{len(words)} words for {B} images, expected one each")
    if model.end_id in words:
        raise ValueError(f"word {model.end_id} is the end token, expected a word")
    if beam_size < 1:
        raise ValueError(f"beam_size is {beam_size}, expected at least 1")
    if not 1 <= num_return <= beam_size:
        raise ValueError(f"num_return is {num_return}, expected 1 to beam_size ({beam_size})")
    if not 2 <= max_length <= model.max_length:
        raise ValueError(f"max_length is {max_length}, expected 2 to {model.max_length}")
    next_log_probs = next_log_probs_of(model, features, lengths, 2 * K, max_length)
    word = torch.tensor(list(words), device=device).view(B, 1, 1)
    # the beam without the word, then the beam with it; a sum of -inf is an empty place
    tokens = torch.full((B, 2 * K, 1), model.start_id, device=device)
    log_probs = torch.empty((B, 2 * K, 0), dtype=torch.float64, device=device)
    sums = torch.full((B, 2 * K), -torch.inf, dtype=torch.float64, device=device)
    sums[:, 0] = 0
    sizes = torch.ones((B, 2 * K), dtype=torch.int64, device=device)
    ended = torch.zeros((B, 2 * K), dtype=torch.bool, device=device)
    order = None
    for _ in range(max_length - 1):
        log_p = next_log_probs(tokens, order).double()
        V = log_p.shape[-1]
        if not 0 <= min(words) <= max(words) < V:
            raise ValueError(f"words {list(words)} are not all in a vocabulary of {V} words")
        scores = sums.unsqueeze(-1) + log_p
        scores.masked_fill_(ended.unsqueeze(-1), -torch.inf)
        scores[..., model.pad_id] = sums.where(ended, scores[..., model.pad_id])
        without, having = scores[:, :K], scores[:, K:]
        taking = without.gather(-1, word.expand(B, K, 1)).squeeze(-1)
        # the same tokens by generating: a hypothesis of the same words has the word already
        same = (tokens[:, :K, None] == tokens[:, None, K:]).all(-1)
        alive = (sums[:, None, K:] > -torch.inf) & ~ended[:, None, K:]
        taking = taking.masked_fill((same & alive).any(-1), -torch.inf)
        without[..., model.end_id] = -torch.inf
        of_without, chosen_without = largest(without.flatten(1), K)
        of_having, chosen = largest(torch.cat([having.flatten(1), taking], 1), K)
        # what takes the word comes from the first beam
        generated = chosen < K * V
        taker = chosen - K * V
        beams = torch.where(generated, K + chosen // V, taker)
        token = torch.where(generated, chosen % V, word.squeeze(-1))
        order = torch.cat([chosen_without // V, beams], 1)
        token = torch.cat([chosen_without % V, token], 1)
        sums = torch.cat([of_without, of_having], 1)
        was_ended = ended.gather(1, order)
        values = log_p.gather(1, order.unsqueeze(-1).expand(-1, -1, V)).gather(2, token[..., None])
        tokens, log_probs = (
            torch.cat([x.gather(1, order[..., None].expand(-1, -1, x.shape[-1])), column], -1)
            for x, column in (
                (tokens, token[..., None]),
                (log_probs, values.masked_fill(was_ended[..., None], 0)),
            )
        )
        sizes = sizes.gather(1, order) + ~was_ended
        ended = was_ended | (token == model.end_id)
    found = (x[:, K:] for x in (tokens, log_probs, sizes, sums > -torch.inf))
    return [
        sorted(kept, key=lambda hypothesis: -hypothesis.score)[:num_return]
        for kept in hypotheses_of(*found)
    ]
