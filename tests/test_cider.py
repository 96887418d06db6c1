"""CIDEr-D on tensors: the published implementation's numbers, and what it refuses."""

import gc

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from pycocoevalcap.cider.cider import Cider

from benchmarks.verify.tolerances import METRIC, error
from reference import cider as oracle
from torch_impl.cider import MOST_WORDS, CiderD, padded

words = st.sampled_from([0, 1, 2, 3, 4, MOST_WORDS, 2**40])
others = st.sampled_from([0, 1, 2, 3, 5, 6, MOST_WORDS - 1, 2**62])
captions = st.lists(words, max_size=8)
guesses = st.lists(words | others, max_size=8)
corpora = st.lists(st.lists(captions, min_size=1, max_size=3), min_size=1, max_size=4)


def text(caption):
    return " ".join(map(str, caption))


@given(corpora, st.data())
def test_scores_are_the_published_ones(references, data):
    assume(any(caption for refs in references for caption in refs))  # it takes no empty corpus
    candidates = [data.draw(guesses) for _ in references]
    actual = CiderD(references)(padded(candidates), torch.arange(len(references)))
    gts = {i: [text(c) for c in refs] for i, refs in enumerate(references)}
    res = {i: [text(c)] for i, c in enumerate(candidates)}
    assert error(actual, Cider().compute_score(gts, res)[1]) <= METRIC


@given(corpora, st.integers(1, 4), st.sampled_from([1.0, 6.0]), st.data())
def test_several_captions_of_some_images_are_the_oracle_s(references, n, sigma, data):
    """In any order and number; the document frequencies stay the whole corpus'."""
    place = st.integers(0, len(references) - 1)
    images = data.draw(st.lists(place, max_size=5))
    candidates = [data.draw(guesses) for _ in images]
    reward = CiderD(references, n=n, sigma=sigma)
    actual = reward(padded(candidates), torch.tensor(images, dtype=torch.int64))
    named = [[[str(w) for w in caption] for caption in refs] for refs in references]
    if images:
        chosen = [[str(w) for w in caption] for caption in candidates]
        of_images = [named[image] for image in images]
        expected = oracle.cider_d(chosen, of_images, n, sigma, corpus=named)
        assert error(actual, expected) <= METRIC
    assert actual.shape == (len(images),)


@given(corpora, st.data())
def test_score_is_nested_as_the_captions_are(references, data):
    candidates = [data.draw(st.lists(guesses, max_size=3)) for _ in references]
    reward = CiderD(references)
    scores = reward.score(candidates)
    for image, captions_of_image in enumerate(candidates):
        alone = [
            reward(padded([caption]), torch.tensor([image])).item() for caption in captions_of_image
        ]
        assert error(scores[image], alone) <= METRIC


@given(corpora, st.data())
def test_words_are_names(references, data):
    """Other ids for the same words, the same scores; neighbours in a call are not felt."""
    candidates = [[data.draw(guesses), data.draw(guesses)] for _ in references]
    used = sorted({w for refs in [*references, *candidates] for c in refs for w in c})
    names = dict(zip(used, data.draw(st.permutations(range(len(used)))), strict=True))

    def renamed(corpus):
        return [[[names[w] for w in c] for c in refs] for refs in corpus]

    scores = CiderD(references).score(candidates)
    for one, other in zip(
        scores, CiderD(renamed(references)).score(renamed(candidates)), strict=True
    ):
        assert error(one, other) <= METRIC


def test_a_long_training_holds_no_more_than_a_short_one():
    reward = CiderD([[[1, 2, 3]], [[2, 3]]])
    generator = np.random.default_rng(0)

    def held(batches):
        """Elements of every buffer, and how many Python objects there are."""
        for _ in range(batches):
            words = torch.from_numpy(generator.integers(10**6, size=(4, 9)))
            reward(words, torch.tensor([0, 1, 1, 0]))
        gc.collect()
        sizes = {name: buffer.numel() for name, buffer in reward.named_buffers()}
        return sizes, len(gc.get_objects())

    (sizes, _), (same, before), (still, after) = held(1), held(1), held(50)
    assert sizes == same == still
    assert after - before < 50


def test_a_corpus_may_have_more_images_times_n_grams_than_fit_into_32_bits():
    words = np.random.default_rng(0).integers(10_000, size=(12_000, 10))
    reward = CiderD([[caption] for caption in words.tolist()])
    assert len(words) * len(reward.idf) > 2**31
    last = torch.tensor([len(words) - 1])
    assert error(reward(torch.from_numpy(words[-1:]), last), [10.0]) <= METRIC


def test_as_many_words_as_fit_and_not_one_more():
    """Exact with the highest digits, of words that no reference has too; refused beyond them."""
    vocabulary = list(range(0, 10 * MOST_WORDS, 10))
    references = [[vocabulary[k : k + 7]] for k in range(0, len(vocabulary), 7)]
    references[-1].append(vocabulary[:3])
    reward = CiderD(references)
    last = torch.tensor([len(references) - 1])
    named = [[[str(w) for w in caption] for caption in refs] for refs in references]
    # with half the base its key would be that of the first three words
    alike = [vocabulary[0], vocabulary[1], vocabulary[-1], 3, 1, 5]
    for some in (references[-1][0][2:], [1, *references[-1][0], 3, 1], [3, 1], alike):
        expected = oracle.cider_d([[str(w) for w in some]], named[-1:], corpus=named)
        assert error(reward(torch.tensor([some]), last), expected) <= METRIC
    with pytest.raises(ValueError, match="32768 different words, expected at most 32767"):
        CiderD([*references, [[1]]])


def test_what_cannot_be_is_named():
    with pytest.raises(ValueError, match="no images"):
        CiderD([])
    with pytest.raises(ValueError, match="image 1 has no references"):
        CiderD([[[1]], []])
    with pytest.raises(ValueError, match="sigma is 0"):
        CiderD([[[1]]], sigma=0.0)
    with pytest.raises(ValueError, match="n is 5"):
        CiderD([[[1]]], n=5)
    with pytest.raises(ValueError, match="a token id is below 0"):
        CiderD([[[1, -2]]])
    reward = CiderD([[[1]]])
    with pytest.raises(ValueError, match="a token id is below 0"):
        reward.score([[[1], [-1]]])
    with pytest.raises(ValueError, match="captions of 2 images, expected 1"):
        reward.score([[[1]], [[1]]])
    with pytest.raises(ValueError, match="got a list of token ids"):
        reward.score([[1]])
    with pytest.raises(ValueError, match="images must lie between 0 and 0"):
        reward(torch.tensor([[1]]), torch.tensor([1]))
    with pytest.raises(ValueError, match=r"expected \(C, T\) and \(C,\)"):
        reward(torch.tensor([[1]]), torch.tensor([0, 0]))
    with pytest.raises(ValueError, match="32768 tokens, expected at most 32767"):
        reward(torch.ones(1, MOST_WORDS + 1, dtype=torch.int64), torch.tensor([0]))
