"""CIDEr-D on tensors, in float64: the reward of self-critical training, on its device.

An n-gram is one int64 key, its words the digits to the base 2^16: below 0 for words of the
references, above 0 for others, 0 for none. Different n-grams have different keys, so sorting and
searching count them. No shape depends on a value, and nothing is read back to the host.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torch_impl.common.padding import can_check_values

BASE = 2**16
MOST_WORDS = BASE // 2 - 1
"""The most distinct words of the references, and the most tokens of a candidate."""
PAD = -1
"""Padding of captions."""

Captions = Sequence[Sequence[int]]


def padded(captions: Captions) -> Tensor:
    """Captions as a tensor (C, T) of token ids, right-padded with ``PAD``, T at least 1.

    Raises:
        ValueError: a token id below 0.
    """
    width = max([1, *map(len, captions)])
    if any(caption and min(caption) < 0 for caption in captions):
        raise ValueError("a token id is below 0, which is padding")
    rows = [[*caption, *[PAD] * (width - len(caption))] for caption in captions]
    return torch.tensor(rows, dtype=torch.int64).view(len(rows), width)


class CiderD(nn.Module):
    """CIDEr-D against the references of a corpus of images (Vedantam et al. 2015).

    Candidates may have any token ids, those of no reference too. The buffers move with the module
    and keep their size.

    Args:
        references: each image's captions as token ids, without start and padding; they also give
            the document frequencies. The end token is a word like any other: with it in references
            and candidates the score is the self-critical reward, without it the metric.
        n: the longest n-grams, 1 to 4.
        sigma: of the Gaussian penalty on the difference of lengths.

    Raises:
        ValueError: no images, an image without references, a token id below 0, more than
            ``MOST_WORDS`` different words, n not in 1 to 4, sigma not above 0.
    """

    words: Tensor
    """Token ids of the references' words, ascending."""
    keys: Tensor
    """(G,) the references' n-grams, ascending."""
    idf: Tensor
    """(G + 1,) log(images / document frequency); the last is for unknown n-grams, frequency 1."""
    entries: Tensor
    """(E,) ascending, image * (G + 1) + n-gram for each n-gram of the image's references."""
    times: Tensor
    """(E + 1, M) counts in each of the image's references, M at most; 0 in the last row."""
    norms: Tensor
    """(images, n, M) of the references' k-gram vectors, k = 1..n."""
    lengths: Tensor
    """(images, M) tokens."""
    counts: Tensor
    """(images,) references."""

    def __init__(self, references: Sequence[Captions], *, n: int = 4, sigma: float = 6.0) -> None:
        super().__init__()
        if not 1 <= n <= 4:
            raise ValueError(f"n is {n}, expected 1 to 4: four tokens fill the 64 bits of a key")
        if not sigma > 0:
            raise ValueError(f"sigma is {sigma}, expected above 0")
        if not references:
            raise ValueError("no images, expected the references of at least one")
        if not all(references):
            image = next(i for i, captions in enumerate(references) if not captions)
            raise ValueError(f"image {image} has no references")
        self.n, self.sigma = n, sigma
        tokens = padded([caption for captions in references for caption in captions])  # (R, T)
        self.register_buffer("words", tokens[tokens != PAD].unique())
        if len(self.words) > MOST_WORDS:
            found = f"{len(self.words)} different words"
            raise ValueError(f"the references have {found}, expected at most {MOST_WORDS}")
        counts = torch.tensor([len(captions) for captions in references])
        images = torch.arange(len(references)).repeat_interleave(counts)  # (R,)
        nth = torch.arange(len(tokens)) - (counts.cumsum(0) - counts)[images]  # (R,)
        grams = _ngrams(self._numbered(tokens), n)  # (R, n, T)
        row, order, _ = where = grams.nonzero(as_tuple=True)
        keys, gram = grams[where].unique(return_inverse=True)
        # an image counts once, however many of its references have the n-gram
        entries, place = (images[row] * (len(keys) + 1) + gram).unique(return_inverse=True)
        frequencies = torch.bincount(entries % (len(keys) + 1), minlength=len(keys))
        unknown = torch.tensor([math.log(len(references))], dtype=torch.float64)
        idf = torch.cat([unknown - frequencies.double().log(), unknown])
        M = int(counts.max())
        times = torch.zeros(len(entries) + 1, M, dtype=torch.int16)
        one = torch.ones(len(row), dtype=torch.int16)
        times.index_put_((place, nth[row]), one, accumulate=True)
        weight = times[:-1] * idf[entries % (len(keys) + 1), None]  # (E, M)
        group = torch.empty_like(entries).scatter_(0, place, images[row] * n + order)
        squares = torch.zeros(len(references) * n, M, dtype=torch.float64)
        squares.scatter_add_(0, group[:, None].expand_as(weight), weight**2)
        lengths = torch.zeros(len(references), M, dtype=torch.int64)
        lengths[images, nth] = (tokens != PAD).sum(-1)
        self.register_buffer("keys", keys)
        self.register_buffer("idf", idf)
        self.register_buffer("entries", entries)
        self.register_buffer("times", times)
        self.register_buffer("norms", squares.view(-1, n, M).sqrt())
        self.register_buffer("lengths", lengths)
        self.register_buffer("counts", counts)

    @torch.no_grad()
    def forward(self, candidates: Tensor, images: Tensor) -> Tensor:
        """The CIDEr-D, 0 to 10, of each caption against the references of its image, (C,) float64.

        Args:
            candidates: (C, T) token ids, right-padded with ``PAD`` or any other below 0.
            images: (C,) indices of the corpus' images.

        Raises:
            ValueError: shapes that do not fit, more than ``MOST_WORDS`` tokens, or an image out of
                range.
        """
        if candidates.dim() != 2 or images.shape != candidates.shape[:1]:
            raise ValueError(
                f"candidates and images have shapes {tuple(candidates.shape)} and "
                f"{tuple(images.shape)}, expected (C, T) and (C,)"
            )
        if candidates.shape[1] > MOST_WORDS:
            raise ValueError(f"{candidates.shape[1]} tokens, expected at most {MOST_WORDS}")
        if can_check_values(images) and ((images < 0) | (images >= len(self.counts))).any():
            raise ValueError(f"images must lie between 0 and {len(self.counts) - 1}")
        if not candidates.shape[1]:
            candidates = F.pad(candidates, (0, 1), value=PAD)
        grams = _ngrams(self._numbered(candidates), self.n).sort(-1).values  # (C, n, T)
        # the count of each n-gram, at its first place in the sorted row; 0 at the others
        position = torch.arange(grams.shape[-1], device=grams.device)
        is_first = (torch.searchsorted(grams, grams) == position) & (grams != 0)
        times = (torch.searchsorted(grams, grams, right=True) - position) * is_first
        gram = _find(self.keys, grams)
        weight = times * self.idf[gram]  # (C, n, T)
        entry = _find(self.entries, images[:, None, None] * len(self.idf) + gram)  # (C, n, T)
        of_references = self.times[entry] * self.idf[gram, None]  # (C, n, T, M)
        shared = torch.minimum(weight[..., None], of_references) * of_references

        norm = _sum(weight**2, 2).sqrt()[..., None] * self.norms[images]  # (C, n, M)
        cosine = torch.where(norm > 0, _sum(shared, 2) / norm.where(norm > 0, 1), 0)
        # COCO's length counts bigrams, one less than words
        length = ((candidates >= 0).sum(-1) - 1).clamp(min=0)
        gap = (length[:, None] - (self.lengths[images] - 1).clamp(min=0)).double()  # (C, M)
        similarity = 10 * cosine.mean(1) * torch.exp(-(gap**2) / (2 * self.sigma**2))  # (C, M)
        return _sum(similarity, 1) / self.counts[images]

    def score(self, candidates: Sequence[Captions]) -> list[list[float]]:
        """The CIDEr-D of every candidate, nested like ``candidates``.

        Args:
            candidates: of each image of the corpus, any number of captions as token ids.

        Raises:
            ValueError: not one list of captions for each image of the corpus; as in ``forward``.
        """
        if len(candidates) != len(self.counts):
            raise ValueError(f"captions of {len(candidates)} images, expected {len(self.counts)}")
        flat = [caption for captions in candidates for caption in captions]
        if any(isinstance(caption, int) for caption in flat):
            raise ValueError("expected a list of captions for each image, got a list of token ids")
        counts = [len(captions) for captions in candidates]
        images = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
        device = self.counts.device
        scores = self(padded(flat).to(device), images.to(device))
        return [of_image.tolist() for of_image in scores.split(counts)]

    def _numbered(self, tokens: Tensor) -> Tensor:
        """Token ids (C, T) to digits; padding, any id below 0, to 0.

        A word of no reference affects only a candidate's length and norm; its digit is its rank
        among the caption's tokens.
        """
        digits = _find(self.words, tokens) - len(self.words)
        rank = torch.searchsorted(tokens.sort(-1).values, tokens)
        return digits.where((digits < 0) | (tokens < 0), 1 + rank)


def _ngrams(digits: Tensor, n: int) -> Tensor:
    """The keys of the k-grams that start at digits (C, T), k = 1..n: (C, n, T), 0 if none."""
    key, valid = torch.zeros_like(digits), digits != 0
    keys = []
    for k in range(n):
        later = F.pad(digits[:, k:], (0, min(k, digits.shape[1])))
        valid = valid & (later != 0)
        key = key * BASE + later
        keys.append(key.where(valid, 0))
    return torch.stack(keys, 1)


def _find(values: Tensor, wanted: Tensor) -> Tensor:
    """The indices of ``wanted`` in the sorted ``values``; ``len(values)`` where missing."""
    if not len(values):
        return torch.zeros_like(wanted)
    place = torch.searchsorted(values, wanted)
    return place.where(values[place.clamp(max=len(values) - 1)] == wanted, len(values))


def _sum(x: Tensor, dim: int) -> Tensor:
    """The sum over ``dim`` in order, so that zeros among the terms change no bit of it."""
    return x.cumsum(dim).select(dim, -1)
