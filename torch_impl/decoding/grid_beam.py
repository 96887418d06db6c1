"""Grid beam search for a word that must appear (Hokamp and Liu, 2017), batched over images.

The oracle takes constraints of any number and length; this takes one word an image, as Middle-Out's
Table 5 needs: the grid has two beams, of hypotheses without the word and with it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from torch_impl.common.padding import Lengths
from torch_impl.common.protocols import CaptionModel
from torch_impl.decoding.beams import Beams, Hypothesis, check_beam, stable_topk
from torch_impl.decoding.search import next_token_fn


@torch.no_grad()
def grid_beam_search(
    model: CaptionModel,
    features: Tensor,
    lengths: Lengths | None = None,
    *,
    words: Sequence[int],
    beam_size: int,
    max_length: int,
    num_return: int = 1,
) -> list[list[Hypothesis]]:
    """The best captions that contain the image's word.

    At each step the candidates for the beam without the word are its own continuations, without the
    end token; those for the beam with it are its own continuations, and hypotheses of the other
    beam that take the word. The largest sums survive; a finished hypothesis competes unchanged. A
    word that is generated freely does not count as taken, and candidates of equal tokens count
    once. Ties keep this order, then that of hypotheses, then of token ids. The final order is by
    ``Hypothesis.score``.

    Args:
        features: (B, L, d_feature).
        lengths: (B,) valid feature rows, or (B, L) True where valid; all if None.
        words: one token id an image.
        beam_size: K, hypotheses kept in each beam.
        max_length: in tokens, start and end included.
        num_return: hypotheses returned for each image, best first.

    Returns:
        ``num_return`` hypotheses for each image; fewer where fewer of probability above zero exist.

    Raises:
        ValueError: not one word an image, or one that is the end token; ``beam_size`` < 1;
            ``num_return`` not in 1 to ``beam_size``; ``max_length`` less than 2 or more than the
            model's; a word outside the vocabulary; the model's log-probabilities are NaN.
    """
    B, K = features.shape[0], beam_size
    if len(words) != B:
        raise ValueError(f"{len(words)} words for {B} images, expected one each")
    if model.end_id in words:
        raise ValueError(f"word {model.end_id} is the end token, expected a word")
    check_beam(model, beam_size, num_return, max_length)
    next_token = next_token_fn(model, features, lengths, 2 * K, max_length)
    word = torch.tensor(list(words), device=features.device).view(B, 1)
    # the K hypotheses without the word, then the K with it
    beams = Beams.initial(model, features, 2 * K)
    for _ in range(max_length - 1):
        log_p = next_token(beams.tokens, beams.order)  # (B, 2 K, V)
        V = log_p.shape[-1]
        if not 0 <= min(words) <= max(words) < V:
            raise ValueError(f"words {list(words)} are not all in a vocabulary of {V} words")
        scores = beams.continuations(log_p, model)
        without, containing = scores[:, :K], scores[:, K:]  # (B, K, V)
        taking = without.gather(-1, word.unsqueeze(-1).expand(B, K, 1)).squeeze(-1)  # (B, K)
        # no duplicates: the second beam's hypothesis of the same tokens generates the word too
        same = (beams.tokens[:, :K, None] == beams.tokens[:, None, K:]).all(-1)  # (B, K, K)
        unfinished = (beams.totals > -torch.inf) & ~beams.finished
        taking = taking.masked_fill((same & unfinished[:, None, K:]).any(-1), -torch.inf)
        without[..., model.end_id] = -torch.inf
        totals_without, chosen_without = stable_topk(without.flatten(1), K)
        # (B, K V + K): the continuations of the second beam, then those of the first by the word
        candidates = torch.cat([containing.flatten(1), taking], 1)
        totals_containing, chosen = stable_topk(candidates, K)
        takes = chosen >= K * V
        chosen = torch.where(takes, (chosen - K * V) * V + word, chosen + K * V)  # of 2 K V
        choices = torch.cat([chosen_without, chosen], 1)
        totals = torch.cat([totals_without, totals_containing], 1)
        beams = beams.extend(choices, totals, log_p, scores, model)
    found = (beams.tokens, beams.log_probs, beams.sizes, beams.finished, beams.totals)
    return Beams(*(x[:, K:] for x in found)).best(num_return)
