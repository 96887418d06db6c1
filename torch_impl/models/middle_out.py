"""Sequence-to-sequence with self-attention, and Middle-Out (Mehri and Sigal, 2018), as captioners.

One side reads the start token and generates to the right; two sides read the middle word and
generate outwards. Tokens are in the generated order: the first word, then those of the sides in
turn, with the pad token where a side is finished (`interleave`). So searches and objectives that
work by the next token work on these captioners too.
"""

from __future__ import annotations

from collections.abc import Sequence
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
from torch_impl.middle_out import (
    Weights,
    input_entry,
    run,
    run_by_steps,
    step,
    weight_sizes,
)
from torch_impl.models.base import (
    BaseCaptioner,
    BaseConfiguration,
    check_rows,
    check_words,
    flat_rows,
    gather_memory,
)
from torch_impl.models.recurrent import SequenceClassifier
from torch_impl.recurrent import LSTM, BidirectionalLSTM

_DECODER = "decoder_"
_IMPLEMENTATIONS = ("auto", "literal", "custom_backward")


@dataclass(frozen=True)
class MiddleOutConfiguration(BaseConfiguration):
    """A captioner's sizes, its sides and its self-attention.

    ``middle_out`` means two decoders from a middle word, else one from the start token. The side
    ``first``, "left" as in the paper or "right", has the first turn and the first of the weights.
    ``self_attention`` is one of `middle_out.SELF_ATTENTION`. ``middle_words`` are the ids that the
    middle-word classifier chooses from; without any there is no classifier. ``max_length`` counts
    the tokens of a caption, or of a half with the middle word. ``dropout`` is on features, embedded
    words and states. With ``reads_middle_word`` a one-sided decoder is given a word, whose
    embedding is concatenated to that of every input (Table 5, "(M)"): the word's id is the last
    column of the features, the same in every row.

    Raises:
        ValueError: an odd ``hidden_size``, a middle word outside the vocabulary or special,
            ``reads_middle_word`` with two sides or without further columns of features, a ``first``
            side that the model does not have; as ``BaseConfiguration``.
    """

    family: ClassVar[str] = "middle_out"

    middle_out: bool = True
    first: str = "left"
    self_attention: str = "dual"
    reads_middle_word: bool = False
    middle_words: tuple[int, ...] = ()
    d_embedding: int = 512
    hidden_size: int = 1024

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hidden_size % 2:
            raise ValueError(
                f"hidden_size is {self.hidden_size}, expected even: a half a direction"
            )
        if self.reads_middle_word and self.middle_out:
            raise ValueError("reads_middle_word and middle_out: two sides begin with the word")
        if self.first not in ("left", "right"):
            raise ValueError(f"first is {self.first!r}, expected 'left' or 'right'")
        if self.first == "right" and not self.middle_out:
            raise ValueError("first is 'right', expected two sides (middle_out)")
        positive(self.d_source, "d_feature without the word's column")
        object.__setattr__(self, "middle_words", tuple(self.middle_words))
        for word in self.middle_words:
            check_middle_word(word, self)

    @property
    def sides(self) -> int:
        """P."""
        return 2 if self.middle_out else 1

    @property
    def side_order(self) -> tuple[int, ...]:
        """The sides, 0 left and 1 right, in the order of their turns and of their weights."""
        if not self.middle_out:
            return (1,)
        return (0, 1) if self.first == "left" else (1, 0)

    @property
    def d_source(self) -> int:
        """The width of the encoder's input: the features without the column of the word."""
        return self.d_feature - self.reads_middle_word

    @property
    def d_given(self) -> int:
        """The width of the given word's embedding, which is concatenated to every word's."""
        return self.d_embedding if self.reads_middle_word else 0

    @property
    def d_memory(self) -> int:
        return 3 * self.hidden_size + self.d_given

    @property
    def max_tokens(self) -> int:
        """The most tokens in the generated order."""
        return 1 + self.sides * (self.max_length - 1)


def check_middle_word(word: int, configuration: MiddleOutConfiguration) -> None:
    """Raise ValueError unless a caption can begin with ``word``."""
    c = configuration
    if not 0 <= word < c.vocabulary_size:
        raise ValueError(f"middle word {word} is outside a vocabulary of {c.vocabulary_size} words")
    if word in (c.pad_id, c.end_id):
        raise ValueError(f"middle word {word} is a special token, expected a word")


class MiddleOutCaptioner(BaseCaptioner):
    """A bidirectional LSTM encoder, and one or two LSTM decoders with attention (1)-(7).

    Each direction of the encoder has half of ``hidden_size``, so that a decoder can start from its
    final state. A row of the memory is [h_i, h_n, c_n]: the state attended to, then the final
    state, the same in every row, and the embedding of the given word if there is one.

    Every decoder weight is initialised uniformly in +-1 / sqrt(hidden_size).
    """

    predicts_by_position = True
    configuration: MiddleOutConfiguration

    def __init__(self, configuration: MiddleOutConfiguration) -> None:
        super().__init__(configuration)
        c = configuration
        d, P, V = c.hidden_size, c.sides, c.vocabulary_size
        self.encoder = BidirectionalLSTM(c.d_source, d // 2)
        self.embedding = nn.Embedding(V, c.d_embedding)
        sizes = weight_sizes(P, d, d, c.d_embedding + c.d_given, c.self_attention)
        self._names = tuple(sizes)
        for name, shape in sizes.items():
            self.register_parameter(_DECODER + name, _uniform(shape, d))
        self.vocabulary_W, self.vocabulary_b = _uniform((P, V, d), d), _uniform((P, V), d)
        self.classifier: SequenceClassifier | None = None
        if c.middle_words:
            self.classifier = SequenceClassifier(c.d_source, d, len(c.middle_words))
        self.dropout = nn.Dropout(c.dropout)
        self.implementation = "auto"

    def implement(self, implementation: str) -> MiddleOutCaptioner:
        """Set the implementation of the decoders and of every LSTM; returns itself.

        For the decoders "literal" is a loop of `step` under autograd, the others are `run`.

        Raises:
            ValueError: an unknown implementation.
        """
        self.implementation = one_of(implementation, "implementation", _IMPLEMENTATIONS)
        for module in self.modules():
            if isinstance(module, LSTM):
                module.implementation = implementation
        return self

    def encode(self, features: Tensor, lengths: Lengths | None = None) -> Tensor:
        """Features (B, L, d_feature) to memory (B, L, 3 hidden_size + d_given), 0 in padding.

        Raises:
            ValueError: features are not (B, L, d_feature), lengths do not fit them, a source has
                no rows, or a given word is outside the vocabulary.
        """
        c, mask = self.configuration, self._check_source(features, lengths)
        source = zero_padding(features, mask)
        # (B, L, hidden_size), and h_n and c_n (B, hidden_size) each
        h, final = self.encoder(self.dropout(source[..., : c.d_source]), mask)
        if c.reads_middle_word:
            words = _first_row(source, mask)[:, -1].long()  # (B,)
            if can_check_values(words) and ((words < 0) | (words >= c.vocabulary_size)).any():
                raise ValueError(f"middle words must lie between 0 and {c.vocabulary_size - 1}")
            final = (*final, self.dropout(self.embedding(words)))
        rows = [x.unsqueeze(1).expand(-1, h.shape[1], -1) for x in final]  # (B, L, .) each
        return zero_padding(torch.cat([h, *rows], -1), mask)

    def middle_words(self, features: Tensor, lengths: Lengths | None = None) -> Tensor:
        """The classifier's log-probabilities of the middle words, (B, number of candidates).

        Raises:
            ValueError: there are no candidates; or as ``encode``.
        """
        if self.classifier is None:
            raise ValueError("middle_words is empty, expected candidates to classify")
        mask = self._check_source(features, lengths)
        source = zero_padding(features, mask)[..., : self.configuration.d_source]
        found: Tensor = self.classifier(source, mask)
        return found

    def _check_source(self, features: Tensor, lengths: Lengths | None) -> Tensor | None:
        check_tokens(features, self.configuration.d_feature, "features")
        mask = padding_mask(lengths, features)
        check_rows(features, mask)
        return mask

    def split_memory(self, memory: Tensor, lengths: Lengths | None) -> tuple[Tensor, ...]:
        """The memory's parts: states to attend to (B, L, d), h and c (B, d), the given word."""
        d, d_given = self.configuration.hidden_size, self.configuration.d_given
        check_tokens(memory, self.configuration.d_memory, "memory")
        # the final state and the given word are the same in every valid row
        first = _first_row(memory, padding_mask(lengths, memory))
        return memory[..., :d], *first[:, d:].split([d, d, d_given], 1)

    def weights(self) -> Weights:
        """The decoders' weights, with a lane axis of 1."""
        return Weights(**{n: getattr(self, _DECODER + n).unsqueeze(1) for n in self._names})

    def states(
        self,
        tokens: Tensor,
        memory: Tensor,
        memory_lengths: Lengths | None = None,
        image_index: Tensor | None = None,
    ) -> Tensor:
        """Tokens (B, T) in the generated order to the state after each, (B, T, hidden_size).

        Raises:
            ValueError: tokens are not (B, T) for the memory's B, T above ``max_tokens``, an id
                outside the vocabulary, memory that is not ``encode``'s or lengths that do not fit.
        """
        memory, memory_lengths = gather_memory(memory, memory_lengths, image_index)
        rows, h, cell, given = self.split_memory(memory, memory_lengths)
        c = self.configuration
        check_words(tokens, len(memory), c.vocabulary_size, c.max_tokens)
        mask, attend_mask = padding_mask(memory_lengths, memory), None
        if c.middle_out:
            # a finished side writes pad tokens; what follows the last token is not attended to
            attend_mask = torch.ones_like(tokens, dtype=torch.bool)
            attend_mask[:, :-1] = tokens[:, 1:] != self.pad_id
        inputs = _with_given(self.dropout(self.embedding(tokens)), given)  # (B, T, e + d_given)
        decode = run_by_steps if self.implementation == "literal" else run
        found, _ = decode(
            self.weights(),
            (h.unsqueeze(0), cell.unsqueeze(0)),
            inputs.unsqueeze(0),
            rows.unsqueeze(0),
            None if mask is None else mask.unsqueeze(0),
            None if attend_mask is None else attend_mask.unsqueeze(0),
        )
        return found.squeeze(0)  # (B, T, hidden_size)

    def predict(self, states: Tensor, first: int = 0) -> Tensor:
        """States (B, T, hidden_size), from step ``first`` on, to log p (B, T, V) of the next token.

        Each side has its own vocabulary layer.
        """
        P, states = self.configuration.sides, self.dropout(states)
        logits = states.new_empty(*states.shape[:2], self.vocabulary_b.shape[1])
        for t in range(min(P, states.shape[1])):
            p = (first + t) % P
            logits[:, t::P] = states[:, t::P] @ self.vocabulary_W[p].T + self.vocabulary_b[p]
        return log_probabilities(logits)

    def init_cache(
        self,
        memory: Tensor,
        memory_lengths: Lengths | None = None,
        num_beams: int = 1,
        max_length: int | None = None,
    ) -> MiddleOutCache:
        return MiddleOutCache(self, memory, memory_lengths, num_beams, max_length)


class MiddleOutCache:
    """The cache of K hypotheses a source: each side's h and c, all embedded outputs and states.

    See ``BaseCaptioner.init_cache``; ``max_length`` is ``max_tokens`` if None.
    """

    @torch.no_grad()
    def __init__(
        self,
        model: MiddleOutCaptioner,
        memory: Tensor,
        memory_lengths: Lengths | None,
        num_beams: int,
        max_length: int | None,
    ) -> None:
        most, K = model.configuration.max_tokens, num_beams
        self.max_length = check_cache(model.is_stochastic, K, max_length, most)
        self.model, self.length = model, 0
        self._shape = len(memory), K
        mask = padding_mask(memory_lengths, memory)
        self._mask = None if mask is None else mask.repeat_interleave(K, 0).unsqueeze(0)
        parts = (x.repeat_interleave(K, 0) for x in model.split_memory(memory, memory_lengths))
        rows, h, c, self._given = parts
        self._rows, self._weights = rows.unsqueeze(0), model.weights()
        h, c = h.unsqueeze(0), c.unsqueeze(0)
        self._sides = [(h, c)] * model.configuration.sides
        width = model.configuration.d_embedding + model.configuration.d_given
        self._outputs = h.new_empty(1, len(h[0]), 0, width)
        self._states = h.unsqueeze(2)[:, :, :0]
        self._attend_mask = torch.empty(self._states.shape[:3], dtype=torch.bool, device=h.device)

    @torch.no_grad()
    def step(self, tokens: Tensor, attend_mask: Tensor | None = None) -> Tensor:
        """The next token of each hypothesis (B, K) to log p of the one after it, (B, K, V).

        Args:
            tokens: (B, K).
            attend_mask: (B, K), False where the token's side was finished before; by default where
                the token is the pad token.

        Raises:
            ValueError: tokens are not (B, K), or max_length tokens were read already.
            IndexError: a token id outside the vocabulary.
        """
        check_step(tokens, self._shape, self.length, self.max_length)
        t, P = self.length, self._weights.sides
        if t:
            new = tokens != self.model.pad_id if attend_mask is None else attend_mask
            self._attend_mask = torch.cat([self._attend_mask, new.view(1, -1, 1)], 2)
        words = self.model.embedding(tokens.flatten().unsqueeze(1))  # (B K, 1, e)
        e = _with_given(words, self._given).unsqueeze(0)  # (1, B K, 1, e + d_given)
        self._outputs = torch.cat([self._outputs, e], 2)  # (1, B K, t + 1, e + d_given)
        h, c = step(
            self._weights.side(t % P),
            self._sides[t % P],
            self._outputs[:, :, input_entry(t, P)],
            self._rows,
            self._mask,
            self._outputs,
            self._states,
            self._attend_mask if self.model.configuration.middle_out else None,
        )
        self._sides[t % P] = h, c
        self._states = torch.cat([self._states, h.unsqueeze(2)], 2)  # (1, B K, t + 1, d)
        self.length = t + 1
        return self.model.predict(h.movedim(0, 1), first=t).squeeze(1).unflatten(0, self._shape)

    def reorder(self, beams: Tensor) -> None:
        """Replace hypothesis k of source b by its hypothesis ``beams[b, k]``."""
        rows = flat_rows(beams)
        self._sides = [(h[:, rows], c[:, rows]) for h, c in self._sides]
        self._outputs, self._states = self._outputs[:, rows], self._states[:, rows]
        self._attend_mask = self._attend_mask[:, rows]


def _first_row(x: Tensor, mask: Tensor | None) -> Tensor:
    """The first valid row of each source of x (B, L, d), (B, d)."""
    return (
        x[:, 0] if mask is None else x[torch.arange(len(x), device=x.device), mask.long().argmax(1)]
    )


def _with_given(words: Tensor, given: Tensor) -> Tensor:
    """Embedded words (B, T, e), each concatenated with the given word's embedding (B, d_given)."""
    return torch.cat([words, given.unsqueeze(1).expand(-1, words.shape[1], -1)], -1)


def _uniform(shape: Sequence[int], d: int) -> nn.Parameter:
    return nn.Parameter(torch.empty(tuple(shape)).uniform_(-(d**-0.5), d**-0.5))


def middle_out_captioner(vocabulary_size: int, d_feature: int, **fields: Any) -> MiddleOutCaptioner:
    """Section 4.2's model, 1,024 units: dual self-attention, or none as the "vanilla" model."""
    return MiddleOutCaptioner(MiddleOutConfiguration(vocabulary_size, d_feature, **fields))


def sequence_to_sequence(vocabulary_size: int, d_feature: int, **fields: Any) -> MiddleOutCaptioner:
    """Section 3.1's baseline; ``self_attention`` "output", "hidden" or "dual" for section 3.2."""
    options = {"middle_out": False, "self_attention": "none", **fields}
    return middle_out_captioner(vocabulary_size, d_feature, **options)
