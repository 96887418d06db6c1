"""The published scorers, and our CIDEr-D on tensors, as candidates."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.rouge.rouge import Rouge
from torch import Tensor

from torch_impl.cider import CiderD, padded


def _coco(captions: list[list[str]]) -> dict[int, list[str]]:
    return {i: [" ".join(words)] for i, words in enumerate(captions)}


def _published(scorer: Any, candidates: Any, references: Any) -> tuple[Any, Any]:
    joined = {i: [" ".join(words) for words in of] for i, of in enumerate(references)}
    result: tuple[Any, Any] = scorer(joined, _coco(candidates))
    return result


def cider_d(candidates: list[list[str]], references: list[list[list[str]]]) -> Any:
    """The published scorer, ``pycocoevalcap``."""
    return _published(Cider().compute_score, candidates, references)[1]


def bleu(candidates: list[list[str]], references: list[list[list[str]]]) -> Any:
    """The published scorer, ``pycocoevalcap``."""
    return _published(partial(Bleu(4).compute_score, verbose=0), candidates, references)[0]


def rouge_l(candidates: list[list[str]], references: list[list[list[str]]]) -> Any:
    """The published scorer, ``pycocoevalcap``."""
    return _published(Rouge().compute_score, candidates, references)[1]


def self_bleu(captions: list[list[str]]) -> Any:
    """The published scorer, ``pycocoevalcap``, for each caption against the others."""
    each = [bleu([one], [[*captions[:i], *captions[i + 1 :]]]) for i, one in enumerate(captions)]
    return np.mean(each, axis=0)


def cider_d_reward(
    candidates: list[list[str]], images: list[int], corpus: list[list[list[str]]], *, device: str
) -> Tensor:
    """``torch_impl.cider.CiderD``; ids below 0 are padding, all of them."""
    ids: dict[str, int] = {}

    def tokens(caption: list[str]) -> list[int]:
        return [ids.setdefault(word, len(ids)) for word in caption]

    scorer = CiderD([[tokens(caption) for caption in of] for of in corpus]).to(device)
    rows = padded([tokens(caption) for caption in candidates]).to(device)
    return scorer(rows.where(rows >= 0, -100), torch.tensor(images, device=device))
