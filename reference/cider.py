"""CIDEr-D on tokens, as the papers' scores were computed (Vedantam et al. 2015).

"CIDEr: consensus-based image description evaluation"; the constants and edge cases are those of the
COCO caption evaluation, so that the numbers equal the published ones.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from reference.checks import checked_by, requires
from reference.metrics import Caption, NGram, check_corpus, ngrams
from reference.primitives import Array


def document_frequencies(references: Sequence[Sequence[Caption]], n: int = 4) -> Counter[NGram]:
    """The number of images whose references have each n-gram of 1 to ``n`` words."""
    frequencies: Counter[NGram] = Counter()
    for captions in references:
        grams = {gram for s in captions for k in range(1, n + 1) for gram in ngrams(s, k)}
        frequencies.update(grams)
    return frequencies


@checked_by(check_corpus)
@requires(
    lambda corpus: corpus is None or len(corpus) > 0,
    "the corpus of the document frequencies has no images",
)
def cider_d(
    candidates: Sequence[Caption],
    references: Sequence[Sequence[Caption]],
    n: int = 4,
    sigma: float = 6.0,
    corpus: Sequence[Sequence[Caption]] | None = None,
) -> Array:
    """CIDEr-D of each image: (images,), 0 to 10; a corpus' score is the mean.

    CIDEr-D_k(c, S) = 10/m sum_j exp(-(l(c) - l(s_j))^2 / (2 sigma^2))
                      * min(g_k(c), g_k(s_j)) . g_k(s_j) / (|g_k(c)| |g_k(s_j)|),
    averaged over k = 1..n, where g_k(c) weighs each k-gram of c by its count times log(I / df)
    (Vedantam et al. 2015). The document frequencies df and the number of images I are those of
    ``corpus``, the references of each of its images; by default it is ``references`` itself, as in
    evaluation, while training takes the training split.
    """
    documents = references if corpus is None else corpus
    df = document_frequencies(documents, n)
    log_images = math.log(len(documents))

    def g(caption: Caption, k: int) -> dict[NGram, float]:
        # an n-gram of no reference counts as if one image had it
        return {
            gram: count * (log_images - math.log(max(1, df[gram])))
            for gram, count in ngrams(caption, k).items()
        }

    def length(caption: Caption) -> int:
        # COCO counts bigrams, one less than words: the difference of two lengths is the same,
        # except between captions of no word and of one
        return max(0, len(caption) - 1)

    def norm(vector: dict[NGram, float]) -> float:
        return math.sqrt(sum(weight**2 for weight in vector.values()))

    def similarity(candidate: Caption, reference: Caption, k: int) -> float:
        c, s = g(candidate, k), g(reference, k)
        # clipped, so that repeating a matching word gains nothing
        dot = sum(min(weight, s[gram]) * s[gram] for gram, weight in c.items() if gram in s)
        penalty = math.exp(-((length(candidate) - length(reference)) ** 2) / (2 * sigma**2))
        norms = norm(c) * norm(s)
        return penalty * dot / norms if norms else 0.0

    return np.array(
        [
            10 * np.mean([[similarity(c, s, k) for s in captions] for k in range(1, n + 1)])
            for c, captions in zip(candidates, references, strict=True)
        ]
    )
