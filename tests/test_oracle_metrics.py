"""The oracle's BLEU, self-BLEU, ROUGE-L, CIDEr-D: the published programs', and their own laws."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.rouge.rouge import Rouge

from benchmarks.verify.tolerances import METRIC, SMOOTHED, error
from reference import cider, metrics

# few words, so that captions share n-grams and repeat words
WORDS = st.sampled_from(["a", "man", "dog", "rides", "on", "the"])
ONLY_CANDIDATES = st.sampled_from(["a", "man", "dog", "rides", "unseen", "zebra"])


def captions(words, *, min_size=0):
    return st.lists(words, min_size=min_size, max_size=9)


@st.composite
def corpora(draw, *, min_images=1, min_words=0):
    """Candidates and references: one image, empty captions, repeated words and unseen words too."""
    references = draw(
        st.lists(
            st.lists(captions(WORDS, min_size=min_words), min_size=1, max_size=4),
            min_size=min_images,
            max_size=6,
        )
    )
    candidates = [
        draw(st.one_of(captions(ONLY_CANDIDATES, min_size=min_words), st.sampled_from(refs)))
        for refs in references
    ]
    return candidates, references


def published(scorer, corpus, **options):
    """(corpus score, per-image scores) as pycocoevalcap gives them."""
    candidates, references = corpus
    res = {i: [" ".join(c)] for i, c in enumerate(candidates)}
    gts = {i: [" ".join(c) for c in refs] for i, refs in enumerate(references)}
    return scorer.compute_score(gts, res, **options)


ONE_IMAGE = (["a", "man", "rides"],), ((["a", "man", "rides"], ["the", "dog"]),)
EMPTY = ([], ["a"]), (([], ["a"]), (["a", "dog"], []))
REPEATED = (["a"] * 9, ["the", "the"]), ((["a", "dog"], ["a", "a"]), (["the"], ["the", "man"]))
UNSEEN = (["zebra"] * 5, ["zebra", "a"]), ((["a", "dog"],), (["a", "man"],))


def check_bleu(corpus):
    corpus_scores, image_scores = published(Bleu(4), corpus, verbose=0)
    assert error(metrics.bleu(*corpus), corpus_scores) <= METRIC
    for i, (candidate, refs) in enumerate(zip(*corpus, strict=True)):
        expected = [scores[i] for scores in image_scores]
        assert error(metrics.bleu([candidate], [refs]), expected) <= METRIC


def check_rouge_l(corpus):
    mean, image_scores = published(Rouge(), corpus)
    actual = metrics.rouge_l(*corpus)
    assert error(actual, image_scores) <= METRIC
    assert error(actual.mean(), mean) <= METRIC


def check_cider_d(corpus):
    mean, image_scores = published(Cider(), corpus)
    actual = cider.cider_d(*corpus)
    assert error(actual, image_scores) <= METRIC
    assert error(actual.mean(), mean) <= METRIC


@pytest.mark.parametrize("corpus", [ONE_IMAGE, EMPTY, REPEATED, UNSEEN])
@pytest.mark.parametrize("check", [check_bleu, check_rouge_l, check_cider_d])
def test_named_corner_cases_equal_the_published_implementation(check, corpus):
    check(corpus)


@given(corpora())
def test_bleu_equals_the_published_implementation(corpus):
    check_bleu(corpus)


@given(corpora())
def test_rouge_l_equals_the_published_implementation(corpus):
    check_rouge_l(corpus)


@given(corpora().filter(lambda corpus: any(c for refs in corpus[1] for c in refs)))
def test_cider_d_equals_the_published_implementation(corpus):
    # which has no score where no reference has a word
    check_cider_d(corpus)


@given(corpora(), st.sampled_from([0.5, 6.0, 100.0]))
def test_cider_d_equals_the_published_implementation_for_other_sigmas(corpus, sigma):
    candidates, references = corpus
    references = [[*refs, ["a"]] for refs in references]
    _, image_scores = published(Cider(sigma=sigma), (candidates, references))
    assert error(cider.cider_d(candidates, references, sigma=sigma), image_scores) <= METRIC


@given(corpora(), st.integers(1, 5))
def test_longer_n_grams_only_add_to_the_sum_that_cider_d_averages(corpus, n):
    shorter, longer = (cider.cider_d(*corpus, n=k) * k for k in (n, n + 1))
    assert (longer >= shorter - METRIC).all()


def all_metrics(candidates, references):
    """(corpus-level values, per-image values), the latter with images in rows."""
    images = [metrics.bleu([c], [r]) for c, r in zip(candidates, references, strict=True)]
    per_image = np.column_stack(
        [
            np.array(images),
            metrics.rouge_l(candidates, references),
            cider.cider_d(candidates, references),
        ]
    )
    return metrics.bleu(candidates, references), per_image


@given(corpora())
def test_all_scores_lie_in_their_range(corpus):
    whole, per_image = all_metrics(*corpus)
    assert (whole >= 0).all() and (whole <= 1).all()
    assert (per_image >= 0).all() and (per_image[:, :5] <= 1 + METRIC).all()
    assert (per_image[:, 5] <= 10 + METRIC).all()


@given(corpora(), corpora())
def test_document_frequencies_come_from_the_corpus_that_is_given(corpus, others):
    # the same images among others: scored alone, on the whole corpus' document frequencies
    whole = [*corpus[1], *others[1]]
    among = cider.cider_d([*corpus[0], *others[0]], whole)[: len(corpus[0])]
    assert error(cider.cider_d(*corpus, corpus=whole), among) <= METRIC


@given(corpora())
def test_scoring_leaves_the_document_frequencies_as_they_were(corpus):
    before = cider.document_frequencies(corpus[1])
    first, second = cider.cider_d(*corpus), cider.cider_d(*corpus)
    assert (first == second).all()
    assert cider.document_frequencies(corpus[1]) == before


def test_bleu_of_a_worked_example():
    # 5 of 6 words, 3 of 5 bigrams, 1 of 4 trigrams match; both captions have 6 words
    candidate = ["the", "cat", "sat", "on", "a", "mat"]
    reference = ["the", "cat", "is", "on", "a", "mat"]
    expected = [5 / 6, math.sqrt(5 / 6 * 3 / 5), (5 / 6 * 3 / 5 * 1 / 4) ** (1 / 3)]
    assert metrics.bleu([candidate], [[reference]], n=3) == pytest.approx(expected, abs=SMOOTHED)


def test_rouge_l_of_a_worked_example():
    # the common sequence is "the cat on a mat": 5 of 6 words both ways
    candidate = ["the", "cat", "sat", "on", "a", "mat"]
    reference = ["the", "cat", "is", "on", "a", "mat"]
    assert metrics.rouge_l([candidate], [[reference]]) == pytest.approx(5 / 6, abs=METRIC)


def test_cider_d_of_a_worked_example():
    # two images of one reference each: a word in one of them weighs log 2, in both nothing
    references = [[["a", "dog"]], [["a", "cat", "cat"]]]
    candidates = [["a", "dog"], ["a", "cat", "dog"]]
    # 1: "dog" and "a dog" match whole, there are no longer n-grams: (1 + 1 + 0 + 0) / 4 * 10
    # 2: unigrams 1*2 / (sqrt(1+1) * 2); bigrams "a cat" of "a cat", "cat dog" / "cat cat": 1/2
    expected = [5.0, 10 * (2 / (math.sqrt(2) * 2) + 1 / 2) / 4]
    assert cider.cider_d(candidates, references) == pytest.approx(expected, abs=METRIC)


SETS = st.lists(captions(WORDS), min_size=2, max_size=5)


@given(SETS)
def test_self_bleu_is_the_mean_of_the_published_bleu_of_each_against_the_others(group):
    others = [[*group[:i], *group[i + 1 :]] for i in range(len(group))]
    _, image_scores = published(Bleu(4), (group, others), verbose=0)
    assert error(metrics.self_bleu(group), np.mean(image_scores, axis=1)) <= METRIC


def test_captions_without_a_common_word_are_not_alike_at_all():
    captions = [["a", "man", "rides", "on"], ["the", "dog", "barks", "loudly"]]
    assert (metrics.self_bleu(captions) <= metrics.TINY / metrics.SMALL).all()


@pytest.mark.parametrize("captions", [[], [["a"]]])
def test_captions_that_have_none_to_compare_with_are_named(captions):
    with pytest.raises(ValueError, match="expected at least 2 to compare"):
        metrics.self_bleu(captions)


@pytest.mark.parametrize("metric", [metrics.bleu, metrics.rouge_l, cider.cider_d])
def test_impossible_corpora_are_named(metric):
    with pytest.raises(ValueError, match="0 candidates for 0 images"):
        metric([], [])
    with pytest.raises(ValueError, match="1 candidates for 2 images"):
        metric([["a"]], [[["a"]], [["b"]]])
    with pytest.raises(ValueError, match="image 1 has no references"):
        metric([["a"], ["b"]], [[["a"]], []])


def test_cider_d_without_a_corpus_for_its_document_frequencies_is_named():
    with pytest.raises(ValueError, match="corpus of the document frequencies has no images"):
        cider.cider_d([["a"]], [[["a"]]], corpus=[])
