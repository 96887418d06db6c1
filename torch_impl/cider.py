"""CIDEr-D on tensors: the reward of self-critical training, without leaving the device.

An n-gram is one int64, 15 bits a token, so that the counts of all captions come from two sorts and
no dictionary; the table of document frequencies is made once and never grows. In float64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

BITS = 15
LARGEST_VOCABULARY = 2**BITS - 1
"""Token ids are kept plus one, zero being no token."""
PAD = -1
"""What stands beyond a caption's end."""

Captions = Sequence[Sequence[int]]


def padded(captions: Captions) -> Tensor:
    """Captions as a tensor (C, T) of token ids, ``PAD`` beyond each one's end, T at least 1."""
    tokens = torch.full((len(captions), max([1, *map(len, captions)])), PAD)
    for row, caption in zip(tokens, captions, strict=True):
        row[: len(caption)] = torch.tensor(caption, dtype=torch.int64)
    return tokens


class CiderD(nn.Module):
    """CIDEr-D against the references of a corpus of images (Vedantam et al. 2015).

    Args:
        references: of each image, its captions as token ids, without start, end and padding. They
            give the document frequencies too.
        n: the longest n-grams, 1 to 4.
        sigma: of the Gaussian penalty on the difference of lengths.

    Raises:
        ValueError: no images, an image without references, a token id below 0 or from
            ``LARGEST_VOCABULARY`` on, n not in 1 to 4.
    """

    keys: Tensor
    idf: Tensor
    references: Tensor
    first: Tensor

    def __init__(self, references: Sequence[Captions], *, n: int = 4, sigma: float = 6.0) -> None:
        super().__init__()
        if not 1 <= n <= 4:
            raise ValueError(f"n is {n}, expected 1 to 4: four tokens fill the 64 bits of a key")
        if not references:
            raise ValueError("no images, expected the references of at least one")
        if not all(references):
            image = next(i for i, captions in enumerate(references) if not captions)
            raise ValueError(f"image {image} has no references")
        self.n, self.sigma, self.log_images = n, sigma, math.log(len(references))
        tokens = padded([caption for captions in references for caption in captions])
        _check(tokens)
        counts = torch.tensor([len(captions) for captions in references])
        images = torch.arange(len(references)).repeat_interleave(counts)
        grams = _ngrams(tokens, n)
        valid = grams > 0
        keys, ids = grams[valid].unique(return_inverse=True)
        # an image counts once however many of its references have the n-gram
        images = images[:, None, None].expand_as(grams)[valid]
        once = (ids * len(references) + images).unique() // len(references)
        frequencies = torch.bincount(once, minlength=len(keys))
        self.register_buffer("keys", keys)
        self.register_buffer("idf", self.log_images - frequencies.double().log())
        self.register_buffer("references", tokens)
        self.register_buffer("first", F.pad(counts.cumsum(0), (1, 0)))

    @torch.no_grad()
    def forward(self, candidates: Tensor, images: Tensor) -> Tensor:
        """The CIDEr-D, 0 to 10, of each caption against the references of its image, (C,) float64.

        Args:
            candidates: (C, T) token ids, ``PAD`` beyond a caption's end.
            images: (C,) the images, by their place in the corpus.

        Raises:
            ValueError: shapes that do not fit, an image or a token id out of range.
        """
        if candidates.dim() != 2 or images.shape != candidates.shape[:1]:
            raise ValueError(
                f"candidates and images have shapes {tuple(candidates.shape)} and "
                f"{tuple(images.shape)}, expected (C, T) and (C,)"
            )
        _check(candidates)
        if len(images) and not (images.min() >= 0 and images.max() < len(self.first) - 1):
            raise ValueError(f"images must lie between 0 and {len(self.first) - 2}")
        # every pair of a candidate and a reference of its image
        counts = self.first[images + 1] - self.first[images]
        candidate, nth = _ragged(counts)
        reference, of_pair = (self.first[images][candidate] + nth).unique(return_inverse=True)
        of_pair = of_pair + len(candidates)
        rows = torch.cat(_equally_wide(candidates, self.references[reference]))

        # the n-grams of each row once, in the order of rows, and how often each stands there
        grams = _ngrams(rows, self.n)
        valid = grams > 0
        keys, ids = grams[valid].unique(return_inverse=True)
        row = torch.arange(len(rows), device=rows.device)[:, None, None].expand_as(grams)[valid]
        entries, times = (row * len(keys) + ids).unique(return_counts=True)
        row, gram = entries // max(len(keys), 1), entries % max(len(keys), 1)
        weight = times * self._idf(keys)[gram]
        order = torch.bucketize(keys, keys.new_tensor([2 ** (BITS * k) for k in (1, 2, 3)]))[gram]
        squares = weight.new_zeros(len(rows) * self.n)
        squares.index_add_(0, row * self.n + order, weight**2)
        norms = squares.view(-1, self.n).sqrt()

        # each n-gram of a candidate, looked up in each of its references
        per_row = torch.bincount(row, minlength=len(rows))
        pair, nth = _ragged(per_row[candidate])
        entry = (per_row.cumsum(0) - per_row)[candidate[pair]] + nth
        place, found = _find(entries, of_pair[pair] * len(keys) + gram[entry])
        shared = torch.minimum(weight[entry], weight[place]) * weight[place] * found
        dot = weight.new_zeros(len(candidate) * self.n)
        dot.index_add_(0, pair * self.n + order[entry], shared)

        norm = norms[candidate] * norms[of_pair]
        cosine = torch.where(norm > 0, dot.view_as(norm) / norm.where(norm > 0, 1), 0).mean(-1)
        # COCO counts bigrams, one less than words
        length = ((rows != PAD).sum(-1) - 1).clamp(min=0)
        gap = (length[candidate] - length[of_pair]).double()
        similarity = 10 * cosine * torch.exp(-(gap**2) / (2 * self.sigma**2))
        total = weight.new_zeros(len(candidates)).index_add_(0, candidate, similarity)
        return total / counts

    def _idf(self, keys: Tensor) -> Tensor:
        """log(images / document frequency); an unknown n-gram counts as one image's."""
        place, found = _find(self.keys, keys)
        if not len(self.keys):
            return torch.full_like(keys, self.log_images, dtype=torch.float64)
        return torch.where(found, self.idf[place], self.log_images)


def _check(tokens: Tensor) -> None:
    """Raise ValueError for a token id that is no ``PAD`` and cannot be kept in ``BITS`` bits."""
    if tokens.numel() and not (tokens.min() >= PAD and tokens.max() < LARGEST_VOCABULARY):
        raise ValueError(
            f"token ids from {int(tokens.min())} to {int(tokens.max())}, expected 0 to "
            f"{LARGEST_VOCABULARY - 1}, or {PAD} beyond a caption's end"
        )


def _ngrams(tokens: Tensor, n: int) -> Tensor:
    """The key of the k-gram that begins at each token, (C, T, n) for k = 1..n; 0 where none."""
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
    """Of the items of groups of ``counts``: each one's group, and its number in it."""
    group = torch.arange(len(counts), device=counts.device).repeat_interleave(counts)
    starts = counts.cumsum(0) - counts
    return group, torch.arange(len(group), device=counts.device) - starts[group]


def _find(values: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """Places in the sorted ``values``, and whether what stands there is what is ``wanted``."""
    if not len(values):
        return torch.zeros_like(wanted), torch.zeros_like(wanted, dtype=torch.bool)
    place = torch.searchsorted(values, wanted).clamp(max=len(values) - 1)
    return place, values[place] == wanted


def _equally_wide(*tokens: Tensor) -> list[Tensor]:
    width = max(x.shape[1] for x in tokens)
    return [F.pad(x, (0, width - x.shape[1]), value=PAD) for x in tokens]
