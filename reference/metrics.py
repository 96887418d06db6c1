"""Caption metrics on tokens: BLEU, self-BLEU, ROUGE-L; the errors of de-noised sequences.

A caption is a sequence of words; a corpus has one candidate and one or more references an image.
The definitions are those of the cited papers; the constants and edge cases are those of the COCO
caption evaluation, so that the numbers equal the published ones.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from reference.checks import checked_by, requires
from reference.equations import Decision, passage
from reference.primitives import Array

Caption = Sequence[str]
NGram = tuple[str, ...]

TINY, SMALL = 1e-15, 1e-9
"""Added to BLEU's numerators and denominators: no match is nearly 0, no n-gram no division by 0."""


def ngrams(caption: Caption, n: int) -> Counter[NGram]:
    """The counts of the n-grams of ``n`` words in ``caption``."""
    return Counter(tuple(caption[i : i + n]) for i in range(len(caption) - n + 1))


def check_corpus(candidates: Sequence[Caption], references: Sequence[Sequence[Caption]]) -> None:
    """Raise ValueError unless there are images, each with a candidate and at least 1 reference."""
    if not candidates or len(candidates) != len(references):
        raise ValueError(
            f"{len(candidates)} candidates for {len(references)} images, expected one for each, "
            "and at least one"
        )
    for image, captions in enumerate(references):
        if not captions:
            raise ValueError(f"image {image} has no references, expected at least one")


# BLEU: Papineni et al. 2002, "BLEU: a method for automatic evaluation of machine translation"


def _clipped_matches(candidate: Caption, references: Sequence[Caption], n: int) -> int:
    """The candidate's matching n-grams, each clipped to its largest count in any one reference."""
    most: Counter[NGram] = Counter()
    for reference in references:
        most |= ngrams(reference, n)
    return sum((ngrams(candidate, n) & most).values())


def _closest_length(candidate: Caption, references: Sequence[Caption]) -> int:
    """The length of the reference closest in length to the candidate, the shorter one on a tie."""
    return min((abs(len(r) - len(candidate)), len(r)) for r in references)[1]


@checked_by(check_corpus)
def bleu(
    candidates: Sequence[Caption], references: Sequence[Sequence[Caption]], n: int = 4
) -> Array:
    """BLEU-1 to BLEU-n of a corpus: (n,), 0 to 1. A corpus of one image gives the sentence's BLEU.

    BLEU-k is the brevity penalty times the geometric mean of the clipped precisions of 1- to
    k-grams, each counted over the corpus before dividing (Papineni et al. 2002, 2.1-2.3).
    """
    corpus = list(zip(candidates, references, strict=True))
    c = sum(len(candidate) for candidate in candidates)
    r = sum(_closest_length(candidate, captions) for candidate, captions in corpus)
    ratio = (c + TINY) / (r + SMALL)
    brevity_penalty = 1.0 if ratio >= 1 else math.exp(1 - 1 / ratio)

    precisions = []
    for k in range(1, n + 1):
        correct = sum(_clipped_matches(candidate, captions, k) for candidate, captions in corpus)
        guessed = sum(max(0, len(candidate) - k + 1) for candidate in candidates)
        precisions.append((correct + TINY) / (guessed + SMALL))
    return np.array(
        [brevity_penalty * math.prod(precisions[:k]) ** (1 / k) for k in range(1, n + 1)]
    )


@passage(
    "middle_out",
    "4.2, Self-BLEU, Self-METEOR",
    Decision(
        "assess similarity between the different captions in a generated set",
        "the mean over captions of the score of each with all the others as references, then over "
        "sets",
        "the work that the paper cites",
    ),
)
@requires(
    lambda captions: len(captions) >= 2,
    "an image has the captions {captions}, expected at least 2 to compare",
)
def self_bleu(captions: Sequence[Caption], n: int = 4) -> Array:
    """Self-BLEU-1 to -n of a set of captions: (n,), 0 to 1, lower if they are more diverse.

    The mean of each caption's BLEU with all the others as its references (Zhu et al. 2018,
    "Texygen: a benchmarking platform for text generation models").
    """
    scores = [
        bleu([caption], [[*captions[:i], *captions[i + 1 :]]], n)
        for i, caption in enumerate(captions)
    ]
    mean: Array = np.mean(scores, axis=0)
    return mean


# ROUGE-L: Lin 2004, "ROUGE: a package for automatic evaluation of summaries", section 3


def longest_common_subsequence(a: Caption, b: Caption) -> int:
    """The length of the longest common subsequence of words."""
    lengths = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, word in enumerate(a):
        for j, other in enumerate(b):
            if word == other:
                lengths[i + 1][j + 1] = lengths[i][j] + 1
            else:
                lengths[i + 1][j + 1] = max(lengths[i][j + 1], lengths[i + 1][j])
    return lengths[-1][-1]


@checked_by(check_corpus)
def rouge_l(
    candidates: Sequence[Caption], references: Sequence[Sequence[Caption]], beta: float = 1.2
) -> Array:
    """ROUGE-L of each image: (images,), 0 to 1; a corpus' score is the mean.

    F_lcs = (1 + beta^2) R P / (R + beta^2 P), with the best precision and the best recall over the
    references, not necessarily of the same one (Lin 2004, section 3.1; beta as COCO sets it).
    """
    scores = []
    for candidate, captions in zip(candidates, references, strict=True):
        # COCO splits "" into one empty word, so an empty caption has the length 1
        hypothesis = list(candidate) or [""]
        targets = [list(caption) or [""] for caption in captions]
        common = [longest_common_subsequence(hypothesis, target) for target in targets]
        P = max(lcs / len(hypothesis) for lcs in common)
        R = max(lcs / len(target) for lcs, target in zip(common, targets, strict=True))
        scores.append((1 + beta**2) * R * P / (R + beta**2 * P) if R and P else 0.0)
    return np.array(scores)


# De-noising: Middle-Out section 4.1; the error of a set of sequences is the mean of theirs


@passage(
    "middle_out",
    "4.1, MSE",
    Decision(
        "the mean over sequences of different lengths is not defined",
        "the mean over the sequences of each one's mean",
        "every sequence counts the same",
    ),
)
@requires(lambda y_hat, y: y_hat.shape == y.shape, "{y_hat.shape} values for a target of {y.shape}")
def mse(y_hat: Array, y: Array) -> float:
    """The mean squared error of a de-noised sequence: both (n,)."""
    return float(np.mean((y_hat - y) ** 2))


@requires(
    lambda y_hat: len(y_hat) >= 3 and len(y_hat) % 2 == 1,
    "{y_hat.size} values have no two halves, expected 2 N + 1 of them",
)
def symmetric_mse(y_hat: Array) -> float:
    """The mean squared error between the two halves of a sequence (2 N + 1,), one mirrored."""
    N = len(y_hat) // 2
    return mse(y_hat[:N][::-1], y_hat[N + 1 :])
