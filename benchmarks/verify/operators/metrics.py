"""Caption metrics on words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.verify import properties
from benchmarks.verify.cases import Case
from benchmarks.verify.draw import Draw
from benchmarks.verify.operators.operator import WORDS, Operator
from reference import cider, metrics

Captions = list[list[str]]

SMOOTHED = (
    "As published, counts of matches have 1e-15 added, and counts of n-grams 1e-9; a textbook's "
    "BLEU without these, 0 where an order has no match, is right too."
)


def _caption(draw: Draw, vocabulary: str, least: int, most: int) -> list[str]:
    length = draw.random.integers(least, most + 1)
    return [vocabulary[i] for i in draw.random.integers(0, len(vocabulary), length)]


def _corpora(draw: Draw) -> Case:
    """(candidates, references): a caption an image, and its references, as lists of words."""
    images = draw.size("images", 4, large=(40,))
    most = draw.size("words", 7, large=(13, 40))
    vocabulary = "abcde"[: draw.size("vocabulary", 5)]
    least = 1 - draw.flag("empty")
    references = [
        [_caption(draw, vocabulary, least, most) for _ in range(draw.random.integers(1, 4))]
        for _ in range(images)
    ]
    if not any(any(of) for of in references):
        references[0][0] = ["a"]  # no word at all is no corpus: the published CIDEr-D needs one
    candidates = []
    for of in references:
        copied = draw.random.integers(0, 2)
        unseen = _caption(draw, vocabulary + "z", least, most)
        candidates.append(of[draw.random.integers(len(of))] if copied else unseen)
    return candidates, references


def _metric(
    name: str,
    oracle: Callable[..., Any],
    result: str,
    about: str,
    *conventions: str,
    compare: Callable[..., None] = properties.equals_oracle,
) -> Operator:
    return Operator(
        name,
        ("candidates", "references"),
        result,
        f"{about} candidates: one list of words an image; references: lists of such lists.",
        oracle,
        _corpora,
        conventions=conventions,
        special={
            "one_image": ({"images": 1}, "a corpus of one image"),
            "repeated_words": ({"vocabulary": 2}, "two words, over and over"),
            "full_captions": ({"empty": False}, "captions that all have words"),
            "empty_captions": ({"empty": True}, "captions without words among others"),
        },
        compare=compare,
        dtypes=WORDS,
    )


OPERATORS = (
    _metric(
        "cider_d",
        cider.cider_d,
        "(images,)",
        "CIDEr-D of each image, 0 to 10.",
        "n = 1 to 4, sigma 6; document frequencies are those of the references given.",
        "The length in the penalty counts bigrams, as the published scorer does.",
    ),
    _metric(
        "bleu",
        metrics.bleu,
        "(4,)",
        "BLEU-1 to BLEU-4 of the corpus, 0 to 1.",
        SMOOTHED,
        "The brevity penalty takes the reference of the closest length, the shorter of two.",
        compare=properties.same_bleu,
    ),
    _metric(
        "rouge_l",
        metrics.rouge_l,
        "(images,)",
        "ROUGE-L of each image, 0 to 1.",
        "beta is 1.2; precision and recall are each the best over the image's references.",
        "A caption without words, candidate or reference, is one of a single empty word.",
    ),
)
