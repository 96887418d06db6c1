"""Caption metrics, and CIDEr-D as a reward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count, islice, product
from typing import Any

from benchmarks.verify import properties, sentences
from benchmarks.verify.cases import Case
from benchmarks.verify.draw import Draw
from benchmarks.verify.operators.operator import Operator
from reference import cider, metrics
from reference.primitives import Array

Captions = list[list[str]]

SMOOTHED = (
    "As published, counts of matches have 1e-15 added, and counts of n-grams 1e-9; a textbook's "
    "BLEU without these, 0 where an order has no match, is right too."
)
CLOSEST = "The brevity penalty takes the reference of the closest length, the shorter of two."
BIGRAMS = "The length in the penalty counts bigrams, as the published scorer does."

AS_GIVEN = "Words are compared as they are: capitals and punctuation count."

COUNTS = (
    "A term frequency is a count, not divided by the number of n-grams. An n-gram of no reference "
    "counts as if one image had it."
)

LETTERS = ("".join(letters) for n in count(1) for letters in product("aA.é,-'", repeat=n))
SPECIAL = (
    *("<unk>", "<pad>", "<s>", "</s>", "<eos>", "<bos>", "<sos>", "<start>", "<end>", "_"),
    *("<UNK>", "<PAD>", "<BOS>", "<EOS>", "[UNK]", "[PAD]", "[CLS]", "[SEP]", "[MASK]", "UNK"),
    *("e", "é", "e\u0301", "cafe", "café", "dog", "dogs", "run", "running", "ss", "ß"),
    *("1", "2", "10", "two", "skateboarder", "skateboarding", 40 * "z", 41 * "z"),
)
WORDS = list(
    dict.fromkeys(("a", "aé", "A", ".", ",", "a-", "a'", *SPECIAL, *islice(LETTERS, 10_000)))
)
"""Words with common prefixes, which differ in capitals, accents and signs, shortest first; those
that look like a vocabulary's tokens; and those that are easily taken for one."""

FEW = 8
"""Number of the first words, which differ in each of these."""


def _caption(draw: Draw, vocabulary: Sequence[str], least: int, most: int) -> list[str]:
    length = draw.random.integers(least, most + 1)
    return [vocabulary[i] for i in draw.random.integers(0, len(vocabulary), length)]


def _corpora(draw: Draw) -> Case:
    """(candidates, references): for each image a caption and its references, as lists of words."""
    images = draw.size("images", 4, large=(40,))
    most = draw.size("words", 7, large=(13, 40))
    vocabulary = WORDS[: draw.size("vocabulary", FEW, large=(100, 10_000))]
    least, many = 1 - draw.flag("empty"), draw.size("references", 3, large=(5, 8))
    times = draw.size("times", 1)
    references = [
        [
            [word for word in _caption(draw, vocabulary, least, most) for _ in range(times)]
            for _ in range(draw.random.integers(1, many + 1))
        ]
        for _ in range(images)
    ]
    if not any(any(of) for of in references):
        references[0][0] = ["a"]  # the published CIDEr-D needs at least one word
    return [_like(draw, of, vocabulary, least, most) for of in references], references


def _like(draw: Draw, of: Captions, vocabulary: Sequence[str], least: int, most: int) -> list[str]:
    """A copy of a caption, one with other words in places, or a new one; words may be unseen."""
    words = [*vocabulary, "z"]
    kind, copy = draw.random.integers(0, 3), of[draw.random.integers(len(of))]
    if kind == 0:
        return _caption(draw, words, least, most)
    other = [words[i] for i in draw.random.integers(0, len(words), len(copy))]
    kept = draw.random.integers(0, 3, len(copy)) > 0
    return copy if kind == 1 else [a if k else b for a, b, k in zip(copy, other, kept, strict=True)]


def _sets(draw: Draw) -> Case:
    """(captions,), two or more."""
    candidates, references = _corpora(draw)
    captions = [*candidates, *(caption for of in references for caption in of)]
    if draw.flag("same_list"):
        captions[-1] = captions[0]
    return (captions,)


def _rewards(draw: Draw) -> Case:
    """(candidates, images, corpus): captions of some images, which may repeat."""
    corpus = _corpora(draw)[1]
    images = draw.random.integers(0, len(corpus), draw.size("candidates", 5, large=(40,))).tolist()
    return [_like(draw, corpus[i], WORDS[:FEW], 1, 12) for i in images], images, corpus


def cider_d_reward(candidates: Captions, images: list[int], corpus: list[Captions]) -> Array:
    """The oracle's CIDEr-D with the document frequencies of ``corpus``."""
    return cider.cider_d(candidates, [corpus[i] for i in images], corpus=corpus)


REPEATED = {"repeated_words": ({"vocabulary": 2}, "two words, over and over")}
ALL_FULL = {"full_captions": ({"empty": False}, "captions that all have words")}
SOME_EMPTY = {"empty_captions": ({"empty": True}, "captions without words among others")}
LONG = (
    {"images": 40, "words": 40, "references": 5, "vocabulary": 5},
    {"images": 8, "words": 40, "references": 2, "vocabulary": 1},
    {"images": 100, "words": 13, "references": 2, "vocabulary": 100},
    {"images": 3, "words": 3, "references": 2, "vocabulary": FEW, "times": 200},
)
WIDE = (
    *LONG,
    {"candidates": 40, "images": 2000, "words": 13, "references": 2, "vocabulary": 10_000},
)
ONE = {"one_image": ({"images": 1}, "a corpus of one image")}


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
        special={**ONE, **REPEATED, **ALL_FULL, **SOME_EMPTY},
        compare=compare,
        sizes=WIDE,
    )


OPERATORS = (
    _metric(
        "cider_d",
        cider.cider_d,
        "(images,)",
        "CIDEr-D of each image, 0 to 10.",
        "n = 1 to 4, sigma 6; document frequencies are those of the references given.",
        BIGRAMS,
        COUNTS,
        AS_GIVEN,
    ),
    _metric(
        "bleu",
        metrics.bleu,
        "(4,)",
        "BLEU-1 to BLEU-4 of the corpus, 0 to 1.",
        SMOOTHED,
        CLOSEST,
        AS_GIVEN,
        compare=sentences.same_bleu,
    ),
    _metric(
        "rouge_l",
        metrics.rouge_l,
        "(images,)",
        "ROUGE-L of each image, 0 to 1.",
        "beta is 1.2; precision and recall are each the best over the image's references.",
        "A caption without words counts as one empty word: score 1 against a reference without "
        "words, else 0.",
        AS_GIVEN,
    ),
    Operator(
        "self_bleu",
        ("captions",),
        "(4,)",
        "Self-BLEU-1 to -4 of an image's captions, two or more lists of words: the mean of each "
        "caption's BLEU with all the others as its references.",
        metrics.self_bleu,
        _sets,
        conventions=(SMOOTHED, CLOSEST, AS_GIVEN),
        special={**REPEATED, **ALL_FULL, **SOME_EMPTY},
        compare=sentences.same_self_bleu,
    ),
    Operator(
        "cider_d_reward",
        ("candidates", "images", "corpus"),
        "(candidates,)",
        "CIDEr-D, 0 to 10, of each of candidates: lists of words, against the references of its "
        "image, by its index in corpus: the references, lists of words, of each image of a train "
        "set.",
        cider_d_reward,
        _rewards,
        conventions=(
            "n = 1 to 4, sigma 6; document frequencies are those of the whole corpus, and never "
            "change.",
            BIGRAMS,
            COUNTS,
            AS_GIVEN,
        ),
        special={**ONE, **REPEATED},
        sizes=WIDE,
    ),
)
