"""Words and their ids, by the papers' pipeline: lower case, no punctuation, rare words unknown."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

PAD_ID, START_ID, END_ID, UNKNOWN_ID = range(4)
SPECIAL_TOKENS = ("<pad>", "<start>", "<end>", "<unknown>")

_NOT_A_WORD = re.compile(r"[^\w\s]|_")


def tokenise(text: str) -> list[str]:
    """The words of ``text``: lower case, everything but letters and digits removed.

    Punctuation is removed, not replaced by a space: "t-shirt" is "tshirt", as in the published
    tokens of the Karpathy splits (ExpansionNet v1 section 4, v2 section IV-A).
    """
    return _NOT_A_WORD.sub("", text.lower()).split()


@dataclass(frozen=True)
class Vocabulary:
    """The ids of the words that models read and write.

    Ids: pad 0, start 1, end 2, unknown 3, then ``words`` in order. Make one from captions with
    `from_captions`, which orders by falling frequency, then by alphabet; ``words`` and
    ``min_count`` are what a checkpoint keeps.

    Raises:
        ValueError: a word stands twice.
    """

    words: tuple[str, ...]
    min_count: int = 1

    def __post_init__(self) -> None:
        """Freeze the words and refuse duplicates."""
        object.__setattr__(self, "words", tuple(self.words))
        if len(self._ids) != len(self.words):
            twice = next(word for word, count in Counter(self.words).items() if count > 1)
            raise ValueError(f"vocabulary: {twice!r} stands twice, expected each word once")

    @classmethod
    def from_captions(cls, captions: Iterable[str], min_count: int = 5) -> Vocabulary:
        """The words that occur at least ``min_count`` times in the raw ``captions``.

        Raises:
            ValueError: ``min_count`` is below 1.
        """
        if min_count < 1:
            raise ValueError(f"min_count is {min_count}, expected at least 1")
        counts = Counter(word for caption in captions for word in tokenise(caption))
        kept = [word for word, count in counts.items() if count >= min_count]
        return cls(tuple(sorted(kept, key=lambda word: (-counts[word], word))), min_count)

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {word: i for i, word in enumerate(self.words, start=len(SPECIAL_TOKENS))}

    def __len__(self) -> int:
        """How many ids there are, the four special ones included."""
        return len(SPECIAL_TOKENS) + len(self.words)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the words in their order: equal for the same ids."""
        return hashlib.sha256("\n".join(self.words).encode()).hexdigest()

    def encode(self, tokens: Sequence[str]) -> list[int]:
        """The ids of ``tokens`` between start and end."""
        return [START_ID, *(self._ids.get(token, UNKNOWN_ID) for token in tokens), END_ID]

    def decode(self, ids: Iterable[int]) -> str:
        """The caption up to the first end; start and pad are silent, unknown reads "unk".

        Raises:
            ValueError: an id outside the vocabulary.
        """
        tokens = []
        for i in ids:
            if not 0 <= i < len(self):
                raise ValueError(f"token id {i} is outside the vocabulary of {len(self)}")
            if i == END_ID:
                break
            if i == UNKNOWN_ID:
                tokens.append("unk")
            elif i >= len(SPECIAL_TOKENS):
                tokens.append(self.words[i - len(SPECIAL_TOKENS)])
        return " ".join(tokens)
