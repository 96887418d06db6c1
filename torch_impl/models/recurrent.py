"""Recurrent captioners: NIC, with attention, with the read-only unit, and captioners of code.

The decoder's first input x_{-1} comes from the source; the words follow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from torch_impl.common.checks import check_cache, check_step, one_of, positive
from torch_impl.common.padding import (
    Lengths,
    can_check_values,
    check_tokens,
    padding_mask,
    zero_padding,
)
from torch_impl.common.precision import log_probabilities
from torch_impl.models.base import (
    BaseCaptioner,
    BaseConfiguration,
    check_rows,
    check_words,
    flat_rows,
    gather_memory,
)
from torch_impl.recurrent import (
    IMPLEMENTATIONS,
    LSTM,
    READINGS,
    AttentiveLSTM,
    State,
    read_only_inputs,
)
from torch_impl.recurrent.attentive import ProjectedMemory

SOURCES = ("features", "tokens")


@dataclass(frozen=True)
class RecurrentConfiguration(BaseConfiguration):
    """A recurrent captioner's sizes, and the options of its decoder.

    ``source`` is "features", rows of d_feature numbers, or "tokens", ids below d_feature.
    ``bias`` and ``squash`` are of the decoder, both False in the read-only LSTM's paper;
    ``read_only`` is the reading of its eq. 17. ``dropout`` is on the decoder's inputs and outputs
    (Zaremba et al., 2014).

    Raises:
        ValueError: a probability out of range, an unknown source or reading, a read-only unit with
            attention or where d_embedding is not hidden_size; as ``BaseConfiguration``.
    """

    family: ClassVar[str] = "recurrent"

    source: str = "features"
    d_embedding: int = 512
    hidden_size: int = 512
    attentive: bool = False
    read_only: str | None = None
    bias: bool = True
    squash: bool = True
    zoneout_cell: float = 0.0
    zoneout_hidden: float = 0.0
    recurrent_dropout: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of(self.source, "source", SOURCES)
        for name in ("zoneout_cell", "zoneout_hidden"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}, expected in [0, 1]")
        if not 0 <= self.recurrent_dropout < 1:
            raise ValueError(f"recurrent_dropout is {self.recurrent_dropout}, expected in [0, 1)")
        if self.read_only is not None:
            self._check_read_only()

    def _check_read_only(self) -> None:
        if self.read_only not in READINGS:
            raise ValueError(
                f"read_only is {self.read_only!r}, expected None or one of {', '.join(READINGS)}"
            )
        if self.attentive:
            raise ValueError("read_only and attentive: expected one of them at most")
        if self.d_embedding != self.hidden_size:
            raise ValueError(
                f"a memory of hidden_size {self.hidden_size} reads vectors of d_embedding "
                f"{self.d_embedding}, expected as many"
            )

    @property
    def d_memory(self) -> int:
        return self.d_embedding if self.source == "features" else self.hidden_size

    @property
    def is_stochastic(self) -> bool:
        rates = self.dropout, self.recurrent_dropout, self.zoneout_cell, self.zoneout_hidden
        return any(rates)


class RecurrentCaptioner(BaseCaptioner):
    """An encoder of features or of tokens, and an LSTM that reads x_{-1} and then the words.

    For features the memory is W_i f + b_i of every row f, and x_{-1} its mean over the rows: eq. 4
    after average pooling, since the map is affine. For tokens the memory is an LSTM's hidden
    states, and x_{-1} an affine map of the last one (ARNet 3.1).
    """

    configuration: RecurrentConfiguration

    def __init__(self, configuration: RecurrentConfiguration) -> None:
        super().__init__(configuration)
        c = configuration
        if c.source == "features":
            self.input = nn.Linear(c.d_feature, c.d_embedding)
        else:
            self.source_embedding = nn.Embedding(c.d_feature, c.d_embedding)
            self.source = LSTM(c.d_embedding, c.hidden_size)
            self.input = nn.Linear(c.hidden_size, c.d_embedding)
        self.embedding = nn.Embedding(c.vocabulary_size, c.d_embedding)
        options: dict[str, Any] = {
            "bias": c.bias,
            "squash": c.squash,
            "zoneout": (c.zoneout_cell, c.zoneout_hidden),
            "recurrent_dropout": c.recurrent_dropout,
        }
        self.decoder: LSTM | AttentiveLSTM
        if c.attentive:
            self.decoder = AttentiveLSTM(c.d_embedding, c.hidden_size, c.d_memory, **options)
        else:
            read_only = c.read_only is not None
            self.decoder = LSTM(c.d_embedding, c.hidden_size, read_only=read_only, **options)
        self.dropout = nn.Dropout(c.dropout)
        self.vocabulary = nn.Linear(c.hidden_size, c.vocabulary_size, bias=c.bias)

    def implement(self, implementation: str) -> RecurrentCaptioner:
        """Set the implementation of every LSTM; returns itself.

        Raises:
            ValueError: an unknown implementation, or "library" with a decoder that attends.
        """
        one_of(implementation, "implementation", IMPLEMENTATIONS)
        if isinstance(self.decoder, AttentiveLSTM):
            self.decoder.check(implementation)
        for module in self.modules():
            if isinstance(module, LSTM):
                module.implementation = implementation
        return self

    def encode(self, features: Tensor, lengths: Lengths | None = None) -> Tensor:
        """The source, (B, L, d_feature) or ids (B, L), to memory (B, L, d_memory), 0 in padding.

        Raises:
            ValueError: features are not (B, L, d_feature); ids are not (B, L) or out of range; a
                source of tokens is empty; or lengths do not fit.
        """
        c = self.configuration
        if c.source == "features":
            check_tokens(features, c.d_feature, "features")
            mask = padding_mask(lengths, features)
            return zero_padding(self.input(zero_padding(features, mask)), mask)
        if features.dim() != 2 or features.is_floating_point():
            raise ValueError(
                f"features are {features.dtype} of shape {tuple(features.shape)}, "
                "expected token ids (B, L)"
            )
        mask = padding_mask(lengths, features)
        ids = features if mask is None else features.masked_fill(~mask, 0)
        if can_check_values(ids) and ((ids < 0) | (ids >= c.d_feature)).any():
            raise ValueError(f"ids of the source must lie between 0 and {c.d_feature - 1}")
        check_rows(features, mask)
        memory: Tensor = self.source(self.source_embedding(ids), lengths=mask)[0]
        return memory

    def first_input(self, memory: Tensor, memory_lengths: Lengths | None = None) -> Tensor:
        """x_{-1} (B, d_embedding) from a memory (B, L, d_memory); 0 where an image has no rows."""
        mask = padding_mask(memory_lengths, memory)
        if self.configuration.source == "features":
            if mask is None:
                return memory.sum(1) / max(memory.shape[1], 1)
            rows = mask.sum(1, keepdim=True).clamp(min=1)  # (B, 1)
            return zero_padding(memory, mask).sum(1) / rows.to(memory.dtype)
        if mask is None:
            last = memory[:, -1]  # (B, hidden_size)
        else:
            index = torch.arange(mask.shape[1], device=mask.device).where(mask, 0).amax(1)  # (B,)
            last = memory[torch.arange(len(memory), device=mask.device), index]
        out: Tensor = self.input(last)
        return out

    def states(
        self,
        tokens: Tensor,
        memory: Tensor,
        memory_lengths: Lengths | None = None,
        image_index: Tensor | None = None,
    ) -> Tensor:
        memory, memory_lengths = gather_memory(memory, memory_lengths, image_index)
        c = self.configuration
        check_tokens(memory, c.d_memory, "memory")
        check_words(tokens, len(memory), c.vocabulary_size, c.max_length)
        first = self.first_input(memory, memory_lengths)[:, None]  # (B, 1, d_embedding)
        xs = self.dropout(torch.cat([first, self.embedding(tokens)], 1))  # (B, 1 + T, d_embedding)
        if isinstance(self.decoder, AttentiveLSTM):
            hs, _ = self.decoder(xs, memory, memory_lengths)
        else:
            read = None if c.read_only is None else read_only_inputs(xs, c.read_only)
            hs, _ = self.decoder(xs, read=read)
        return hs[:, 1:]  # (B, T, hidden_size)

    def predict(self, states: Tensor) -> Tensor:
        return log_probabilities(self.vocabulary(self.dropout(states)))

    def init_cache(
        self,
        memory: Tensor,
        memory_lengths: Lengths | None = None,
        num_beams: int = 1,
        max_length: int | None = None,
    ) -> RecurrentCache:
        check_tokens(memory, self.configuration.d_memory, "memory")
        return RecurrentCache(self, memory, memory_lengths, num_beams, max_length)


class RecurrentCache:
    """The cache of K hypotheses a source: the LSTM's h and c, and the last input.

    See ``BaseCaptioner.init_cache``.
    """

    @torch.no_grad()
    def __init__(
        self,
        model: RecurrentCaptioner,
        memory: Tensor,
        memory_lengths: Lengths | None,
        num_beams: int,
        max_length: int | None,
    ) -> None:
        self.max_length = check_cache(model.is_stochastic, num_beams, max_length, model.max_length)
        self.model, self.length = model, 0
        decoder, B = model.decoder, len(memory)
        self._shape = B, num_beams
        self._projected: ProjectedMemory | None = None
        lstm = decoder.lstm if isinstance(decoder, AttentiveLSTM) else decoder
        if isinstance(decoder, AttentiveLSTM):
            self._projected = decoder.attention.project(memory, memory_lengths)
        self._rates = lstm.masks(1, 1).at(0)
        first = model.first_input(memory, memory_lengths)  # (B, d_embedding)
        self._image = first.repeat_interleave(num_beams, 0)  # (B K, d_embedding)
        self._last = torch.zeros_like(first)
        state = self._next(first, lstm.zero_state(B), first)
        self._state = State(*(x.repeat_interleave(num_beams, 0) for x in state))  # (B K, .)
        self._last = self._image

    @torch.no_grad()
    def step(self, tokens: Tensor) -> Tensor:
        """The next token of each hypothesis (B, K) to log p of the one after it, (B, K, V).

        Raises:
            ValueError: tokens are not (B, K), or max_length tokens were read already.
            IndexError: a token id outside the vocabulary.
        """
        check_step(tokens, self._shape, self.length, self.max_length)
        words = self.model.embedding(tokens.flatten())  # (B K, d_embedding)
        self._state = self._next(words, self._state, self._image)
        self._last, self.length = words, self.length + 1
        return self.model.predict(self._state.h).unflatten(0, self._shape)

    def reorder(self, beams: Tensor) -> None:
        """Replace hypothesis k of source b by its hypothesis ``beams[b, k]``."""
        rows = flat_rows(beams)
        self._state = State(*(x.index_select(0, rows) for x in self._state))
        self._last = self._last.index_select(0, rows)

    def _next(self, x: Tensor, state: State, image: Tensor) -> State:
        decoder, reading = self.model.decoder, self.model.configuration.read_only
        if isinstance(decoder, AttentiveLSTM):
            assert self._projected is not None
            return decoder.step(x, state, self._projected, self._rates)
        read = {None: None, "image": image, "previous_input": self._last}[reading]
        return decoder.step(x, state, read, self._rates)


def nic(vocabulary_size: int, d_feature: int, **fields: Any) -> RecurrentCaptioner:
    """ARNet's encoder-decoder: NIC (Vinyals et al., 2015), 512 units."""
    return RecurrentCaptioner(RecurrentConfiguration(vocabulary_size, d_feature, **fields))


def attentive_nic(vocabulary_size: int, d_feature: int, **fields: Any) -> RecurrentCaptioner:
    """ARNet's attentive encoder-decoder (ARNet 3, 4)."""
    return nic(vocabulary_size, d_feature, **{"attentive": True, **fields})


def code_captioner(vocabulary_size: int, d_feature: int, **fields: Any) -> RecurrentCaptioner:
    """ARNet 5.2's encoder-decoder for code, 256 units; ``attentive=True`` for the attentive one."""
    return nic(vocabulary_size, d_feature, **{"source": "tokens", "hidden_size": 256, **fields})


def read_only_nic(
    vocabulary_size: int, d_feature: int, reading: str | None = "image", **fields: Any
) -> RecurrentCaptioner:
    """NIC with the read-only LSTM, as printed; the paper's plain LSTM if ``reading`` is None."""
    printed = {"bias": False, "squash": False, "read_only": reading}
    return nic(vocabulary_size, d_feature, **{**printed, **fields})


class SequenceClassifier(nn.Module):
    """Classifies a sequence by an LSTM's last state (ARNet 5.3).

    Args:
        options: of the ``LSTM``.

    Raises:
        ValueError: a size below 1, or as ``LSTM``.
    """

    def __init__(self, input_size: int, hidden_size: int, num_classes: int, **options: Any) -> None:
        super().__init__()
        self.lstm = LSTM(input_size, hidden_size, **options)
        self.classes = nn.Linear(hidden_size, positive(num_classes, "num_classes"))

    def states(self, xs: Tensor, lengths: Lengths | None = None) -> tuple[Tensor, Tensor]:
        """xs (B, T, input_size) to the hidden states (B, T, d) and the last of each, (B, d)."""
        hs, last = self.lstm(xs, lengths=lengths)
        return hs, last.h

    def predict(self, last: Tensor) -> Tensor:
        """Last states (B, d) to the log-probabilities of the classes (B, num_classes)."""
        return log_probabilities(self.classes(last))

    def forward(self, xs: Tensor, lengths: Lengths | None = None) -> Tensor:
        """xs (B, T, input_size) to the log-probabilities of the classes (B, num_classes)."""
        return self.predict(self.states(xs, lengths)[1])
