"""CIDEr-D on tensors, in float64: the reward of self-critical training, on its device.

An n-gram is one int64, 15 bits a token: two sorts count those of all captions, without a
dictionary. The table of document frequencies is made once and never grows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

BITS = 15
MOST_WORDS = 2**BITS - 1
"""Different words of the references and a call's candidates: numbers start at 1, 0 is no word."""
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

    Any token ids may be scored, those of words in no reference too. The buffers move with the
    module and keep their size.

    Args:
        references: of each image, its captions as token ids, without start and padding; the
            document frequencies are theirs. The end token is a word like others: with it in
            references and candidates the score is the self-critical reward, without it the metric.
        n: the longest n-grams, 1 to 4.
        sigma: of the Gaussian penalty on the difference of lengths.

    Raises:
        ValueError: no images, an image without references, a token id below 0, more than
            ``MOST_WORDS`` different words, n not in 1 to 4, sigma not above 0.
    """

    words: Tensor
    keys: Tensor
    idf: Tensor
    references: Tensor
    first: Tensor

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
        self.n, self.sigma, self.log_images = n, sigma, math.log(len(references))
        tokens = padded([caption for captions in references for caption in captions])
        self.register_buffer("words", tokens[tokens != PAD].unique())
        tokens = self._numbered(tokens)
        counts = torch.tensor([len(captions) for captions in references])
        images = torch.arange(len(references)).repeat_interleave(counts)
        grams = _ngrams(tokens, n)  # (C, T, n)
        where = grams.nonzero(as_tuple=True)
        keys, ids = grams[where].unique(return_inverse=True)
        # an image counts once however many of its references have the n-gram
        once = (ids * len(references) + images[where[0]]).unique() // len(references)
        frequencies = torch.bincount(once, minlength=len(keys))
        self.register_buffer("keys", keys)
        self.register_buffer("idf", self.log_images - frequencies.double().log())
        self.register_buffer("references", tokens)
        self.register_buffer("first", F.pad(counts.cumsum(0), (1, 0)))

    @torch.no_grad()
    def forward(self, candidates: Tensor, images: Tensor) -> Tensor:
        """The CIDEr-D, 0 to 10, of each caption against the references of its image, (C,) float64.

        Args:
            candidates: (C, T) token ids, right-padded with ``PAD`` or any other below 0.
            images: (C,) indices of the corpus' images.

        On a GPU only sizes and the check of ``images`` are copied to the host.

        Raises:
            ValueError: shapes that do not fit, an image out of range, more than ``MOST_WORDS``
                different words in the corpus and these candidates.
        """
        if candidates.dim() != 2 or images.shape != candidates.shape[:1]:
            raise ValueError(
                f"candidates and images have shapes {tuple(candidates.shape)} and "
                f"{tuple(images.shape)}, expected (C, T) and (C,)"
            )
        if ((images < 0) | (images >= len(self.first) - 1)).any():
            raise ValueError(f"images must lie between 0 and {len(self.first) - 2}")
        candidates = self._numbered(candidates)
        # all P pairs of a candidate and a reference of its image
        counts = self.first[images + 1] - self.first[images]
        candidate, nth = _ragged(counts)  # (P,)
        reference, of_pair = (self.first[images][candidate] + nth).unique(return_inverse=True)
        of_pair = of_pair + len(candidates)
        rows = torch.cat(_equally_wide(candidates, self.references[reference]))  # (R, T)

        # the E different n-grams of each row, by rows, and their counts
        grams = _ngrams(rows, self.n)
        where = grams.nonzero(as_tuple=True)
        keys, ids = grams[where].unique(return_inverse=True)
        entries, times = (where[0] * len(keys) + ids).unique(return_counts=True)
        row, gram = entries // max(len(keys), 1), entries % max(len(keys), 1)
        weight = times * self._idf(keys)[gram]  # (E,)
        bits = BITS * torch.arange(1, self.n, device=keys.device)
        order = (keys[:, None] >> bits > 0).sum(-1)[gram]
        squares = weight.new_zeros(len(rows) * self.n)
        squares.index_add_(0, row * self.n + order, weight**2)
        norms = squares.view(-1, self.n).sqrt()  # (R, n)

        # each n-gram of a candidate, looked up in each of its references
        per_row = torch.bincount(row, minlength=len(rows))
        pair, nth = _ragged(per_row[candidate])
        entry = (per_row.cumsum(0) - per_row)[candidate[pair]] + nth
        place, found = _find(entries, of_pair[pair] * len(keys) + gram[entry])
        shared = torch.minimum(weight[entry], weight[place]) * weight[place] * found
        dot = weight.new_zeros(len(candidate) * self.n)
        dot.index_add_(0, pair * self.n + order[entry], shared)

        norm = norms[candidate] * norms[of_pair]
        cosine = torch.where(norm > 0, dot.view_as(norm) / norm.where(norm > 0, 1), 0)  # (P, n)
        # COCO counts bigrams, one less than words
        length = ((rows != PAD).sum(-1) - 1).clamp(min=0)
        gap = (length[candidate] - length[of_pair]).double()
        similarity = 10 * cosine.mean(-1) * torch.exp(-(gap**2) / (2 * self.sigma**2))
        total = weight.new_zeros(len(candidates)).index_add_(0, candidate, similarity)
        return total / counts

    def score(self, candidates: Sequence[Captions]) -> list[list[float]]:
        """The CIDEr-D of every candidate, nested like ``candidates``.

        Args:
            candidates: of each image of the corpus, any number of captions as token ids.

        Raises:
            ValueError: not one list of captions for each image of the corpus; as in ``forward``.
        """
        if len(candidates) != len(self.first) - 1:
            raise ValueError(
                f"captions of {len(candidates)} images, expected {len(self.first) - 1}"
            )
        flat = [caption for captions in candidates for caption in captions]
        if any(isinstance(caption, int) for caption in flat):
            raise ValueError("expected a list of captions for each image, got a list of token ids")
        counts = [len(captions) for captions in candidates]
        images = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
        device = self.first.device
        scores = self(padded(flat).to(device), images.to(device))
        return [of_image.tolist() for of_image in scores.split(counts)]

    def _numbered(self, tokens: Tensor) -> Tensor:
        """Token ids to numbers of ``BITS`` bits, ids below 0 to ``PAD``.

        Words of the references have fixed numbers; others get theirs for this call, as they count
        in a candidate's length and norm.
        """
        numbers, known = _find(self.words, tokens)
        others = (tokens >= 0) & ~known
        different, ranks = tokens[others].unique(return_inverse=True)
        count = len(self.words) + len(different)
        if count > MOST_WORDS:
            raise ValueError(f"{count} different words, expected at most {MOST_WORDS}")
        return numbers.where(known, PAD).masked_scatter(others, len(self.words) + ranks)

    def _idf(self, keys: Tensor) -> Tensor:
        """log(images / document frequency); 1 is the document frequency of an unknown n-gram."""
        place, found = _find(self.keys, keys)
        if not len(self.keys):
            return torch.full_like(keys, self.log_images, dtype=torch.float64)
        return torch.where(found, self.idf[place], self.log_images)


def _ngrams(tokens: Tensor, n: int) -> Tensor:
    """The key of the k-gram that starts at each token, (C, T, n) for k = 1..n; 0 if none."""
    shifted, valid = tokens + 1, tokens != PAD
    key = torch.zeros_like(tokens)
    keys = []
    for k in range(n):
        later = F.pad(shifted[:, k:], (0, min(k, tokens.shape[1])))
        valid = valid & (later > 0)
        key = (key << BITS) | later
        keys.append(key.where(valid, 0))
    return torch.stack(keys, -1)


def _ragged(counts: Tensor) -> tuple[Tensor, Tensor]:
    """The group of each item, and its index in the group, for groups of ``counts`` items."""
    group = torch.arange(len(counts), device=counts.device).repeat_interleave(counts)
    starts = counts.cumsum(0) - counts
    return group, torch.arange(len(group), device=counts.device) - starts[group]


def _find(values: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """The indices in the sorted ``values`` of those ``wanted``, and whether they are there."""
    if not len(values):
        return torch.zeros_like(wanted), torch.zeros_like(wanted, dtype=torch.bool)
    place = torch.searchsorted(values, wanted).clamp(max=len(values) - 1)
    return place, values[place] == wanted


def _equally_wide(*tokens: Tensor) -> list[Tensor]:
    width = max(x.shape[1] for x in tokens)
    return [F.pad(x, (0, width - x.shape[1]), value=PAD) for x in tokens]
