"""Base classes of all captioners and of their configurations; checks of inputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from torch_impl.common.checks import positive
from torch_impl.common.padding import Lengths, can_check_values
from torch_impl.common.protocols import DecoderCache


@dataclass(frozen=True)
class BaseConfiguration:
    """A captioner's sizes and options; ``to_dict`` and ``from_dict`` convert to plain JSON values.

    Every class but ``Configuration`` has a ``family``, by which ``models.configuration`` finds it.

    Raises:
        ValueError: a size below 1, dropout outside [0, 1), a special token outside the vocabulary.
    """

    family: ClassVar[str] = ""

    vocabulary_size: int
    d_feature: int
    _: KW_ONLY
    max_length: int = 74
    dropout: float = 0.0
    start_id: int = 1
    end_id: int = 2
    pad_id: int = 0

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name in ("start_id", "end_id", "pad_id"):
                if not 0 <= value < self.vocabulary_size:
                    words = f"a vocabulary of {self.vocabulary_size} words"
                    raise ValueError(f"{field.name} {value} is outside {words}")
            elif field.type == "int":
                positive(value, field.name)
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout is {self.dropout}, expected in [0, 1)")

    @property
    def d_memory(self) -> int:
        """The width of the memory."""
        raise NotImplementedError

    @property
    def is_stochastic(self) -> bool:
        """Whether a forward pass in training mode draws random numbers."""
        return self.dropout > 0

    def to_dict(self) -> dict[str, Any]:
        """Every field by name, and the family."""
        values = dataclasses.asdict(self)
        return values | {"family": self.family} if self.family else values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The inverse of ``to_dict``.

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


class BaseCaptioner(nn.Module):
    """A model of p(caption | image): an encoder, and a decoder in two halves.

    ``states`` reads the words, ``predict`` turns a state into the next word's log-probabilities.
    """

    predicts_by_position: ClassVar[bool] = False
    """Whether ``predict`` depends on the position, and so takes only whole sequences of states."""
    configuration: BaseConfiguration

    def __init__(self, configuration: BaseConfiguration) -> None:
        super().__init__()
        c = self.configuration = configuration
        self.start_id, self.end_id, self.pad_id = c.start_id, c.end_id, c.pad_id
        self.max_length = c.max_length

    def encode(self, features: Tensor, lengths: Lengths | None = None) -> Tensor:
        """Features (B, L, d_feature) to memory (B, L, d_memory).

        Raises:
            ValueError: features of another shape, or lengths that do not fit them.
        """
        raise NotImplementedError

    def states(
        self,
        tokens: Tensor,
        memory: Tensor,
        memory_lengths: Lengths | None = None,
        image_index: Tensor | None = None,
    ) -> Tensor:
        """Words so far (B, T) to the decoder's state after each, (B, T, d).

        ``image_index`` (B,) is the row of a shared memory that each caption describes; its own if
        None. Token ids are checked where ``can_check_values``.

        Raises:
            ValueError: tokens are not (B, T) for the memory's B, T above max_length, an id outside
                the vocabulary, memory not (B, L, d_memory) or lengths that do not fit it.
        """
        raise NotImplementedError

    def predict(self, states: Tensor) -> Tensor:
        """States (..., d) to the log-probabilities of the next word (..., V), at least float32."""
        raise NotImplementedError

    def init_cache(
        self,
        memory: Tensor,
        memory_lengths: Lengths | None = None,
        num_beams: int = 1,
        max_length: int | None = None,
    ) -> DecoderCache:
        """The cache of ``num_beams`` empty hypotheses for each row of the memory.

        Its ``step`` returns what ``decode`` returns for the last token, without gradients.

        Args:
            memory: (B, L, d_memory), from ``encode``.
            memory_lengths: (B,) valid rows, or (B, L) True where valid; all if None.
            num_beams: K, hypotheses of each image.
            max_length: tokens of a hypothesis at most; the model's if None.

        Raises:
            ValueError: the model is stochastic; memory of another shape, or lengths that do not fit
                it; num_beams or max_length below 1, or max_length above the model's.
        """
        raise NotImplementedError

    @property
    def is_stochastic(self) -> bool:
        """Whether a forward pass draws random numbers: in training mode, with dropout."""
        return self.training and self.configuration.is_stochastic

    def decode(
        self, tokens: Tensor, memory: Tensor, memory_lengths: Lengths | None = None
    ) -> Tensor:
        """Words so far (B, T) to log p(next word | words up to t, image), (B, T, V), at every t.

        Raises:
            ValueError: as ``states``.
        """
        return self.predict(self.states(tokens, memory, memory_lengths))

    def forward(self, features: Tensor, tokens: Tensor, lengths: Lengths | None = None) -> Tensor:
        """``decode`` the memory of the features: (B, T, V)."""
        return self.decode(tokens, self.encode(features, lengths), lengths)


def check_words(tokens: Tensor, batch: int, vocabulary_size: int, max_length: int) -> None:
    """Raise ValueError unless tokens are (batch, T), T at most max_length, in the vocabulary.

    Token ids are checked where ``can_check_values``.
    """
    if tokens.dim() != 2 or len(tokens) != batch:
        raise ValueError(f"tokens has shape {tuple(tokens.shape)}, expected ({batch}, T)")
    if tokens.shape[1] > max_length:
        raise ValueError(f"{tokens.shape[1]} tokens are more than max_length {max_length}")
    if can_check_values(tokens) and ((tokens < 0) | (tokens >= vocabulary_size)).any():
        raise ValueError(f"token ids must lie between 0 and {vocabulary_size - 1}")


def gather_memory(
    memory: Tensor, lengths: Lengths | None, image_index: Tensor | None
) -> tuple[Tensor, Lengths | None]:
    """The memory and lengths that each caption reads, see ``BaseCaptioner.states``."""
    if image_index is None:
        return memory, lengths
    if lengths is not None:
        lengths = torch.as_tensor(lengths, device=image_index.device).index_select(0, image_index)
    # not memory[image_index], whose gradient adds in no fixed order on several threads
    return memory.index_select(0, image_index), lengths


def check_rows(source: Tensor, mask: Tensor | None) -> None:
    """Raise ValueError unless each source (B, L, ...) has a row that is True in the mask (B, L).

    Masks are checked where ``can_check_values``.
    """
    empty = not source.shape[1]
    if mask is not None and can_check_values(mask):
        empty = empty or not bool(mask.any(1).all())
    if empty:
        raise ValueError("a source is empty, expected at least 1 row")


def flat_rows(beams: Tensor) -> Tensor:
    """``beams`` (B, K), indices within each image, as indices (B K,) into hypotheses (B K, ...)."""
    B, K = beams.shape
    return (beams + torch.arange(B, device=beams.device)[:, None] * K).flatten()
