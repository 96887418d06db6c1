"""Checks of arguments, with errors that name them."""

from __future__ import annotations

import operator
from collections.abc import Sequence

from torch import Tensor


def positive(value: int, what: str) -> int:
    """``value`` as an int above 0, else ValueError naming ``what``."""
    number = operator.index(value)
    if number < 1:
        raise ValueError(f"{what} must be at least 1, not {number}")
    return number


def one_of(value: str, what: str, known: Sequence[str]) -> str:
    """``value`` if it is one of ``known``, else ValueError naming ``what``."""
    if value not in known:
        raise ValueError(f"{what} is {value!r}, expected one of {', '.join(known)}")
    return value


def check_cache(is_stochastic: bool, num_beams: int, max_length: int | None, most: int) -> int:
    """The tokens that a `DecoderCache` can hold: ``max_length``, or ``most`` if None.

    Raises:
        ValueError: the model is stochastic, num_beams or max_length below 1, or max_length above
            ``most``.
    """
    if is_stochastic:
        raise ValueError("incremental decoding has no dropout, expected model.eval()")
    positive(num_beams, "num_beams")
    length = positive(most if max_length is None else max_length, "max_length")
    if length > most:
        raise ValueError(f"max_length is {length}, the model's is {most}")
    return length


def check_step(tokens: Tensor, shape: Sequence[int], length: int, max_length: int) -> None:
    """Raise ValueError unless a `DecoderCache` of this shape can read tokens after ``length``."""
    if tokens.shape != shape:
        raise ValueError(f"tokens has shape {tuple(tokens.shape)}, expected {tuple(shape)}")
    if length == max_length:
        raise ValueError(f"{length} tokens were read, as many as max_length")
