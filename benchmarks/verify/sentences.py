"""The checks of operators that give words, or scores of them.

As in ``properties``, the lines of a check are printed with a failing case.
"""

from __future__ import annotations

import numpy as np

from benchmarks.verify.candidate import BaseCandidate
from benchmarks.verify.cases import Case
from benchmarks.verify.properties import Function
from benchmarks.verify.tolerances import assert_close, assert_smoothed, assert_words
from reference.metrics import bleu, ngrams
from reference.primitives import Array


def same_hypotheses(candidate: BaseCandidate, oracle: Function, case: Case) -> None:
    """Hypotheses and scores equal the oracle's, in the same order."""
    found, expected = candidate(*case), oracle(*case)
    for i, ((tokens, _), (wanted, _)) in enumerate(zip(found, expected, strict=False)):
        assert_words(tokens, wanted, f"hypothesis {i}: ")
    assert len(found) == len(expected), f"{len(found)} hypotheses, expected {len(expected)}"
    assert_close([score for _, score in found], [score for _, score in expected], "scores")


def same_words(candidate: BaseCandidate, oracle: Function, case: Case) -> None:
    """The words equal the oracle's."""
    assert_words(candidate(*case), oracle(*case))


def same_bleu(candidate: BaseCandidate, oracle: Function, case: Case) -> None:
    """BLEU equals the oracle's, with or without smoothing."""
    found, smoothed = np.asarray(candidate(*case)), oracle(*case)
    assert_either(found, smoothed, np.where(matched(*case), smoothed, 0.0))


def same_self_bleu(candidate: BaseCandidate, oracle: Function, case: Case) -> None:
    """Self-BLEU equals the oracle's, with or without BLEU's smoothing."""
    found, smoothed, (captions,) = np.asarray(candidate(*case)), oracle(*case), case
    corpora = [([one], [[*captions[:i], *captions[i + 1 :]]]) for i, one in enumerate(captions)]
    textbook = np.mean([np.where(matched(*each), bleu(*each), 0.0) for each in corpora], axis=0)
    assert_either(found, smoothed, textbook)


def assert_either(found: Array, smoothed: Array, textbook: Array) -> None:
    """Assert that each of BLEU-1 to -4 equals the smoothed one, or the textbook's."""
    if found.shape == np.shape(smoothed):
        nearer = np.abs(found - textbook) < np.abs(found - smoothed)
        smoothed = np.where(nearer, textbook, smoothed)
    assert_smoothed(found, smoothed)


def matched(candidates: list[list[str]], references: list[list[list[str]]]) -> Array:
    """For each order n from 1 to 4, whether the corpus has matches of all orders up to n."""
    pairs = list(zip(candidates, references, strict=True))
    orders = [any(matches(c, of, n) for c, of in pairs) for n in (1, 2, 3, 4)]
    return np.logical_and.accumulate(orders)


def matches(candidate: list[str], references: list[list[str]], n: int) -> bool:
    """Whether an n-gram of the candidate is in a reference."""
    of_references = {ngram for reference in references for ngram in ngrams(reference, n)}
    return any(ngram in of_references for ngram in ngrams(candidate, n))
