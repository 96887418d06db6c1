"""Captions in the order in which Middle-Out generates them, and their middle words."""

from __future__ import annotations

from collections.abc import Sequence


def interleave(first: Sequence[int], middle: int, second: Sequence[int], pad_id: int) -> list[int]:
    """A caption in the generated order: the middle word, then words of both sides in turn.

    Args:
        first: the words of the first side, the paper's left, from the middle outwards, the end
            token last if it ends.
        middle: the middle word.
        second: the words of the other side, likewise.
        pad_id: pads the shorter side.
    """
    tokens = [middle]
    for k in range(max(len(first), len(second))):
        tokens += [half[k] if k < len(half) else pad_id for half in (first, second)]
    return tokens


def split(caption: Sequence[int], middle: int, end_id: int) -> tuple[list[int], list[int]]:
    """A caption's halves from its first ``middle`` outwards, each with the end token last.

    Raises:
        ValueError: the caption does not have the middle word.
    """
    if middle not in caption:
        raise ValueError(f"the caption {list(caption)} does not have the middle word {middle}")
    place = list(caption).index(middle)
    return [*reversed(caption[:place]), end_id], [*caption[place + 1 :], end_id]


def most_common_word(captions: Sequence[Sequence[str]], ending: str = "ing") -> str:
    """The most common word with this ending in an image's captions, the first of equals.

    It is the target of the middle-word classifier (section 4.2).

    Raises:
        ValueError: no caption has such a word.
    """
    words = [word for caption in captions for word in caption if word.endswith(ending)]
    if not words:
        raise ValueError(f"no caption has a word in {ending!r}, expected a candidate")
    return max(words, key=words.count)
