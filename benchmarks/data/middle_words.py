"""Middle words: the words that middle-out decoding starts from (Middle-Out, section 4.2).

The paper defines a video's: the most frequent word in "-ing" of its captions. It does not define
one for a caption without that word, nor for a video without any. Here a caption that lacks its
image's word starts from its own most frequent word in "-ing". A caption without any is not trained
on, and an image without any is in no split. They are counted, and left out for every model, so that
compared models train on the same captions. Middle words must be in the vocabulary. Scores are
against all of an image's captions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from benchmarks.data import CaptionData, Features, FeatureStore, Split
from benchmarks.data.vocabulary import END_ID, PAD_ID, UNKNOWN_ID, Vocabulary
from benchmarks.errors import InputError
from benchmarks.files import sha256
from torch_impl.middle_out import interleave, most_common_word, split

ENDING = "ing"
CANDIDATES = 40
"""Classes of the paper's classifier: the most frequent of the 211 middle words in MSVD's train
set."""


@dataclass(frozen=True)
class MiddleWords:
    """A data set with its middle words."""

    # only images with a middle word; captions without one are removed from "train" alone
    data: CaptionData
    of_image: Mapping[int, str]  # the middle word of each image
    candidates: tuple[str, ...]  # the most frequent in "train": the classes of a classifier
    # by split, how many images have no middle word; by "captions", how many of "train" have none
    left_out: Mapping[str, int]

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(self.data.vocabulary.words)

    def id_of(self, word: str) -> int:
        """The token id of a word.

        Raises:
            InputError: the vocabulary does not have the word.
        """
        return word_id(self.data.vocabulary, word)

    def encode(self, image_id: int, caption: str, most: int) -> list[int]:
        """A caption's token ids in generation order, at most ``most`` of each half."""
        vocabulary = self.data.vocabulary
        words, middle = vocabulary.tokenise(caption), self.of_image[image_id]
        if middle not in words:
            middle = most_common_word([self._tokens(caption)], ENDING)
        ids = vocabulary.encode(words)[1:-1]
        left, right = split(ids, self.id_of(middle), END_ID)
        return interleave(left[:most], self.id_of(middle), right[:most], PAD_ID)

    def in_order(self, split: str, most: int) -> dict[int, list[list[int]]]:
        """Each image's captions that have a word in "-ing", by `encode`."""
        texts = self.data.splits[split].references
        return {
            i: [
                self.encode(i, caption, most)
                for caption in captions
                if any(w.endswith(ENDING) for w in self._tokens(caption))
            ]
            for i, captions in texts.items()
        }

    def _tokens(self, caption: str) -> list[str]:
        """The words of a caption that are in the vocabulary."""
        return [w for w in self.data.vocabulary.tokenise(caption) if w in self._known]


def word_id(vocabulary: Vocabulary, word: str) -> int:
    """The token id of a middle word.

    Raises:
        InputError: the vocabulary does not have the word.
    """
    token = vocabulary.encode([word])[1]
    if token == UNKNOWN_ID:
        size = len(vocabulary)
        raise InputError(f"middle word {word!r}: not in the vocabulary of {size} words")
    return token


def choose(data: CaptionData, candidates: int = CANDIDATES) -> MiddleWords:
    """``data`` with a middle word for every image.

    Raises:
        InputError: no image of some split has a middle word.
    """
    of_image: dict[int, str] = {}
    splits, left_out = {}, {}
    vocabulary, known = data.vocabulary, frozenset(data.vocabulary.words)
    for name, part in data.splits.items():
        tokens = {
            image_id: [[t for t in vocabulary.tokenise(text) if t in known] for text in texts]
            for image_id, texts in part.references.items()
        }
        for image_id in part.image_ids:
            with suppress(ValueError):
                of_image[image_id] = most_common_word(tokens[image_id], ENDING)
        kept = [image_id for image_id in part.image_ids if image_id in of_image]
        if not kept:
            raise InputError(
                f"{data.name}: no image of the split {name!r} has a caption with a word in "
                f"{ENDING!r} that the vocabulary has, expected some"
            )
        left_out[name] = len(part.image_ids) - len(kept)
        texts = {image_id: part.references[image_id] for image_id in kept}
        if name == "train":
            has = {i: [any(w.endswith(ENDING) for w in t) for t in tokens[i]] for i in kept}
            left_out["captions"] = sum(not one for each in has.values() for one in each)
            texts = {i: [t for t, one in zip(texts[i], has[i], strict=True) if one] for i in kept}
        splits[name] = Split(kept, texts, part.store)
    counted = Counter(of_image[image_id] for image_id in splits["train"].image_ids)
    chosen = sorted(counted, key=lambda word: (-counted[word], word))[:candidates]
    fingerprint = sha256(f"{data.fingerprint} middle words in {ENDING}".encode())
    middle = replace(data, fingerprint=fingerprint, splits=splits)
    return MiddleWords(middle, of_image, tuple(chosen), left_out)


class WithWord:
    """A store with one more feature column: the token id of the image's middle word."""

    def __init__(self, store: FeatureStore, ids: Mapping[int, int]) -> None:
        self._store, self._ids = store, ids
        self.d_feature = store.d_feature + 1
        self.image_ids = store.image_ids
        self.fingerprint = sha256(f"{store.fingerprint} {sorted(ids.items())}".encode())

    def features(self, image_id: int) -> Features:
        """One image's features, (L, d_feature) float32.

        Raises:
            InputError: the store has no such image, or its features are damaged.
        """
        rows = self._store.features(image_id)
        ids = np.full((len(rows), 1), self._ids[image_id])
        return np.concatenate([rows, ids], 1).astype(np.float32)
