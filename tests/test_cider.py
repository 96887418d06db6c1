"""CIDEr-D on tensors: the published implementation's numbers, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from pycocoevalcap.cider.cider import Cider

from reference import cider as oracle
from tests.tolerances import METRIC, error
from torch_impl.cider import LARGEST_VOCABULARY, PAD, CiderD, padded

words = st.sampled_from([0, 1, 2, 3, 4, 32_765, LARGEST_VOCABULARY - 1])
captions = st.lists(words, max_size=8)
corpora = st.lists(st.lists(captions, min_size=1, max_size=3), min_size=1, max_size=4)


def text(caption: list[int]) -> str:
    return " ".join(map(str, caption))


@given(corpora, st.data())
def test_scores_are_the_published_ones(
    references: list[list[list[int]]], data: st.DataObject
) -> None:
    assume(any(caption for refs in references for caption in refs))  # it takes no empty corpus
    candidates = [data.draw(captions) for _ in references]
    actual = CiderD(references)(padded(candidates), torch.arange(len(references)))
    gts = {i: [text(c) for c in refs] for i, refs in enumerate(references)}
    res = {i: [text(c)] for i, c in enumerate(candidates)}
    assert error(actual, Cider().compute_score(gts, res)[1]) <= METRIC


@given(corpora, st.integers(1, 4), st.sampled_from([1.0, 6.0]), st.data())
def test_several_captions_of_some_images_are_the_oracle_s(
    references: list[list[list[int]]], n: int, sigma: float, data: st.DataObject
) -> None:
    """In any order and number; the document frequencies stay the whole corpus'."""
    place = st.integers(0, len(references) - 1)
    images = data.draw(st.lists(place, max_size=5))
    candidates = [data.draw(captions) for _ in images]
    reward = CiderD(references, n=n, sigma=sigma)
    actual = reward(padded(candidates), torch.tensor(images, dtype=torch.int64))
    named = [[[str(w) for w in caption] for caption in refs] for refs in references]
    if images:
        chosen = [[str(w) for w in caption] for caption in candidates]
        of_images = [named[image] for image in images]
        expected = oracle.cider_d(chosen, of_images, n, sigma, corpus=named)
        assert error(actual, expected) <= METRIC
    assert actual.shape == (len(images),)


def test_the_table_does_not_grow() -> None:
    reward = CiderD([[[1, 2, 3]], [[2, 3]]])
    sizes = {name: len(buffer) for name, buffer in reward.named_buffers()}
    generator = np.random.default_rng(0)
    for _ in range(3):
        reward(torch.from_numpy(generator.integers(900, size=(4, 9))), torch.tensor([0, 1, 1, 0]))
    assert {name: len(buffer) for name, buffer in reward.named_buffers()} == sizes


def test_what_cannot_be_is_named() -> None:
    with pytest.raises(ValueError, match="no images"):
        CiderD([])
    with pytest.raises(ValueError, match="image 1 has no references"):
        CiderD([[[1]], []])
    with pytest.raises(ValueError, match="n is 5"):
        CiderD([[[1]]], n=5)
    with pytest.raises(ValueError, match="token ids from 32767"):
        CiderD([[[LARGEST_VOCABULARY]]])
    reward = CiderD([[[1]]])
    with pytest.raises(ValueError, match="token ids from -2"):
        reward(torch.tensor([[PAD - 1]]), torch.tensor([0]))
    with pytest.raises(ValueError, match="images must lie between 0 and 0"):
        reward(torch.tensor([[1]]), torch.tensor([1]))
    with pytest.raises(ValueError, match=r"expected \(C, T\) and \(C,\)"):
        reward(torch.tensor([[1]]), torch.tensor([0, 0]))
