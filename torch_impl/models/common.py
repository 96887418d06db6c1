"""What all captioners share: configurations, the words that they read, log-probabilities."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from torch_impl.common.padding import can_check_values


@dataclass(frozen=True)
class Fields:
    """A configuration: ``to_dict`` and ``from_dict`` are plain JSON values.

    A class other than ``Configuration`` names its ``family``, by which ``models.build`` knows it.
    """

    family: ClassVar[str] = ""

    def to_dict(self) -> dict[str, Any]:
        """Every field by name, and the family."""
        values = dataclasses.asdict(self)
        return values | {"family": self.family} if self.family else values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """What ``to_dict`` wrote.

        Raises:
            ValueError: a field is missing or unknown, or the family is another.
        """
        values = dict(values)
        if values.pop("family", "") != cls.family:
            raise ValueError(f"a configuration of another family than {cls.family!r}")
        fields = dataclasses.fields(cls)
        names = {field.name for field in fields}
        required = {field.name for field in fields if field.default is dataclasses.MISSING}
        if wrong := set(values) - names:
            raise ValueError(f"unknown fields of a configuration: {', '.join(sorted(wrong))}")
        if missing := required - set(values):
            raise ValueError(f"missing fields of a configuration: {', '.join(sorted(missing))}")
        return cls(**values)

    def check_special_tokens(self) -> None:
        """Raise ValueError unless the special tokens are in the vocabulary."""
        values = dataclasses.asdict(self)
        for name in ("start_id", "end_id", "pad_id"):
            if not 0 <= values[name] < values["vocabulary_size"]:
                raise ValueError(
                    f"{name} {values[name]} is outside a vocabulary of "
                    f"{values['vocabulary_size']} words"
                )


def check_words(tokens: Tensor, batch: int, configuration: Any) -> None:
    """Raise ValueError unless tokens are (batch, T), T at most max_length, in the vocabulary.

    Token ids are checked outside compiled graphs.
    """
    if tokens.dim() != 2 or len(tokens) != batch:
        raise ValueError(f"tokens has shape {tuple(tokens.shape)}, expected ({batch}, T)")
    if tokens.shape[1] > configuration.max_length:
        raise ValueError(
            f"{tokens.shape[1]} tokens are more than max_length {configuration.max_length}"
        )
    size = configuration.vocabulary_size
    if can_check_values() and ((tokens < 0) | (tokens >= size)).any():
        raise ValueError(f"token ids must lie between 0 and {size - 1}")


def check_rows(source: Tensor, mask: Tensor | None) -> None:
    """Raise ValueError unless each source (B, L, ...) has a row that the mask (B, L) leaves.

    Masks are checked outside compiled graphs.
    """
    empty = not source.shape[1]
    if mask is not None and can_check_values():
        empty = empty or not bool(mask.any(1).all())
    if empty:
        raise ValueError("a source is empty, expected at least 1 row")


def log_probabilities(logits: Tensor) -> Tensor:
    """Log-probabilities of the next word, in float32 at least."""
    return F.log_softmax(logits, -1, dtype=torch.promote_types(logits.dtype, torch.float32))
