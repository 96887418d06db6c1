"""A captioning data set: splits of images, their references, and a store of features."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from benchmarks.data.vocabulary import Vocabulary
from benchmarks.errors import InputError

Features = npt.NDArray[np.float32]
"""Of one image, (L, d_feature)."""
Ids = npt.NDArray[np.int64]
"""Token ids (L,) of one text to caption."""


class FeatureStore(Protocol):
    """The features of a set of images or texts; the number of rows L may vary."""

    @property
    def d_feature(self) -> int:
        """The width of a feature row; for token ids, how many ids there are."""

    @property
    def fingerprint(self) -> str:
        """A hash of the features and of how they were extracted."""

    @property
    def image_ids(self) -> Sequence[int]:
        """The images in the store, in its order."""

    def features(self, image_id: int) -> Features | Ids:
        """One image's features.

        Raises:
            InputError: the store has no such image, or its features are damaged.
        """


@dataclass(frozen=True)
class Split:
    """The images of a train, validation or test set; references are raw text."""

    image_ids: list[int]
    references: dict[int, list[str]]
    store: FeatureStore
    targets: Mapping[int, list[list[int]]] | None = None
    """The token ids to predict for each image; None: those of its references in order."""
    truncated: Mapping[str, int] = field(default_factory=dict)
    """How many "captions" and "sources" were cut to their maximum length."""

    def first(self, count: int | None) -> Split:
        """The first ``count`` images; all if None."""
        image_ids = self.image_ids[:count]
        return replace(
            self, image_ids=image_ids, references={i: self.references[i] for i in image_ids}
        )


@dataclass(frozen=True)
class CaptionData:
    """A data set: ``splits`` by name ("train", "val", "test"), vocabulary of the train split."""

    name: str
    fingerprint: str
    vocabulary: Vocabulary
    splits: dict[str, Split]
    backbone: Mapping[str, str] = field(default_factory=dict)
    """The signature of the backbone that extracted the features; empty if none did."""

    def split(self, name: str) -> Split:
        """The images of one split.

        Raises:
            InputError: there is no such split, or it has no images.
        """
        if name not in self.splits:
            raise InputError(f"{self.name}: no split {name!r}, expected {', '.join(self.splits)}")
        if not self.splits[name].image_ids:
            raise InputError(f"{self.name}: the split {name!r} has no images")
        return self.splits[name]

    def check_tokens(self, vocabulary: Vocabulary, checkpoint: Path) -> None:
        """Check that a run's vocabulary has the data's kind of tokens.

        Raises:
            InputError: one has words, the other characters.
        """
        if vocabulary.tokeniser != self.vocabulary.tokeniser:
            raise InputError(
                f"{checkpoint}: a vocabulary of {vocabulary.tokeniser}, "
                f"but {self.name} is captioned in {self.vocabulary.tokeniser}"
            )

    def with_words_of(self, vocabulary: Vocabulary, checkpoint: Path) -> CaptionData:
        """The data with a run's vocabulary; a line on stderr counts the words it does not know.

        Raises:
            InputError: its tokens are of another kind, or it knows none of the data's words.
        """
        self.check_tokens(vocabulary, checkpoint)
        texts = [text for texts in self.splits["train"].references.values() for text in texts]
        total = sum(len(vocabulary.tokenise(text)) for text in texts)
        unknown = vocabulary.unknown(texts)
        if unknown.total() == total:
            raise InputError(f"{checkpoint}: its vocabulary has none of the words of {self.name}")
        if unknown:
            often = ", ".join(word for word, _ in unknown.most_common(5))
            print(
                f"captionbench: {checkpoint} does not know {unknown.total():,} of {total:,} words "
                f"to train on, {len(unknown):,} different, most often {often}",
                file=sys.stderr,
            )
        return replace(self, vocabulary=vocabulary)
