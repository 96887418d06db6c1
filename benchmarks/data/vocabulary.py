"""Tokenisers and vocabularies as in the papers: lower case, no punctuation, rare words unknown."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

PAD_ID, START_ID, END_ID, UNKNOWN_ID = range(4)
SPECIAL_TOKENS = ("<pad>", "<start>", "<end>", "<unknown>")

_NOT_A_WORD = re.compile(r"[^\w\s]|_")
_CHARACTER = re.compile(r"\w[^\w\s]*|[^\w\s]+")


def tokenise(text: str) -> list[str]:
    """The words of ``text``: lower case, everything but letters, their marks and digits removed.

    Punctuation is removed, not replaced by a space: "t-shirt" is "tshirt", as in the published
    tokens of the Karpathy splits (ExpansionNet v1 section 4, v2 section IV-A).
    """
    return _NOT_A_WORD.sub(_mark, text.lower()).split()


def _mark(match: re.Match[str]) -> str:
    """Keep combining marks (vowel signs, accents, tones), which are not letters to Python."""
    return match[0] if unicodedata.category(match[0])[0] == "M" else ""


def characters(text: str) -> list[str]:
    """The letters of ``text``'s words with their marks, for scripts without spaces."""
    return _CHARACTER.findall("".join(tokenise(text)))


TOKENISERS: dict[str, tuple[Callable[[str], list[str]], str]] = {
    "words": (tokenise, " "),
    "characters": (characters, ""),
}
"""By name, the tokenising function and the separator that joins tokens to a caption."""


@dataclass(frozen=True)
class Vocabulary:
    """The token ids of a captioner: pad 0, start 1, end 2, unknown 3, then ``words`` in order.

    `from_captions` orders words by descending frequency, then alphabetically. With the tokeniser
    "characters", ``words`` are characters. Checkpoints save the fields.

    Raises:
        ValueError: a word occurs twice, or an unknown tokeniser.
    """

    words: tuple[str, ...]
    min_count: int = 1
    tokeniser: str = "words"

    def __post_init__(self) -> None:
        object.__setattr__(self, "words", tuple(self.words))
        if self.tokeniser not in TOKENISERS:
            known = ", ".join(TOKENISERS)
            raise ValueError(f"tokeniser is {self.tokeniser!r}, expected one of {known}")
        if len(self._ids) != len(self.words):
            twice = next(word for word, count in Counter(self.words).items() if count > 1)
            raise ValueError(f"vocabulary: {twice!r} stands twice, expected each word once")

    @classmethod
    def from_captions(
        cls, captions: Iterable[str], min_count: int = 5, tokeniser: str = "words"
    ) -> Vocabulary:
        """The words that occur at least ``min_count`` times in the raw ``captions``.

        Raises:
            ValueError: ``min_count`` is below 1, or an unknown tokeniser.
        """
        if min_count < 1:
            raise ValueError(f"min_count is {min_count}, expected at least 1")
        empty = cls((), min_count, tokeniser)
        counts = Counter(word for caption in captions for word in empty.tokenise(caption))
        kept = [word for word, count in counts.items() if count >= min_count]
        words = tuple(sorted(kept, key=lambda word: (-counts[word], word)))
        return cls(words, min_count, tokeniser)

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {word: i for i, word in enumerate(self.words, start=len(SPECIAL_TOKENS))}

    def __len__(self) -> int:
        """The number of ids, the four special ones included."""
        return len(SPECIAL_TOKENS) + len(self.words)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the words in order, and of the tokeniser if it is not "words"."""
        other = () if self.tokeniser == "words" else (f"by {self.tokeniser}",)
        return hashlib.sha256("\n".join([*other, *self.words]).encode()).hexdigest()

    def tokenise(self, caption: str) -> list[str]:
        """The tokens of a raw caption, in the vocabulary or not."""
        split, _ = TOKENISERS[self.tokeniser]
        return split(caption)

    def unknown(self, captions: Iterable[str]) -> Counter[str]:
        """The tokens of raw ``captions`` that are not in the vocabulary, with their counts."""
        tokens = (token for caption in captions for token in self.tokenise(caption))
        return Counter(token for token in tokens if token not in self._ids)

    def encode(self, tokens: Sequence[str]) -> list[int]:
        """The ids of ``tokens`` between start and end."""
        return [START_ID, *(self._ids.get(token, UNKNOWN_ID) for token in tokens), END_ID]

    def decode(self, ids: Iterable[int]) -> str:
        """The caption up to the first end, without start and pad; unknown tokens become "unk".

        Raises:
            ValueError: an id is outside the vocabulary.
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
        _, between = TOKENISERS[self.tokeniser]
        return between.join(tokens)
