"""Captioners of mixers: the expansion models and the Transformers.

``Captioner`` is any pairing of encoder and decoder mixers; the functions below are the papers'
own pairings, and every field of the configuration may be changed by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from torch_impl.common.checks import positive
from torch_impl.common.dropout import Dropout
from torch_impl.common.padding import (
    Lengths,
    check_tokens,
    padding_mask,
    zero_padding,
)
from torch_impl.expansion import (
    DynamicExpansion,
    StaticExpansion,
)
from torch_impl.expansion.functional import check_dropout, choose
from torch_impl.layers.kv_cache import TransformerState
from torch_impl.layers.transformer import Decoder, Encoder, Mixer
from torch_impl.models.common import Fields, check_words, log_probabilities


@dataclass(frozen=True)
class Configuration(Fields):
    """A captioner's sizes and mixers; ``to_dict`` and ``from_dict`` are plain JSON values.

    Raises:
        ValueError: a mixer that cannot be read, a static one in the decoder, a size below 1,
            dropout outside [0, 1) or of something unknown, a special token outside the vocabulary.
    """

    vocabulary_size: int
    d_feature: int
    encoder: str
    decoder: str
    encoder_reduction: str
    decoder_reduction: str
    d_model: int = 512
    d_ff: int = 2048
    num_heads: int = 8
    num_encoder_layers: int = 3
    num_decoder_layers: int = 3
    max_length: int = 74
    dropout: float = 0.1
    dropout_of: str = "values"
    start_id: int = 1
    end_id: int = 2
    pad_id: int = 0

    def __post_init__(self) -> None:
        Mixer.parse(self.encoder)
        Mixer.parse(self.decoder, causal=True)
        sizes = ("vocabulary_size", "d_feature", "d_model", "d_ff", "num_heads")
        for name in (*sizes, "num_encoder_layers", "num_decoder_layers", "max_length"):
            positive(getattr(self, name), name)
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout is {self.dropout}, expected in [0, 1)")
        check_dropout(self.dropout, self.dropout_of)
        self.check_special_tokens()


class Captioner(nn.Module):
    """An encoder of image features and an auto-regressive decoder of words (v1 equation 12).

    Every parameter of more than one dimension starts Xavier uniform.

    Raises:
        ValueError: sizes below 1, d_model not divisible by num_heads, an unknown reduction.
    """

    def __init__(self, configuration: Configuration) -> None:
        super().__init__()
        c = self.configuration = configuration
        self.start_id, self.end_id, self.pad_id = c.start_id, c.end_id, c.pad_id
        self.max_length = c.max_length
        self.input = nn.Linear(c.d_feature, c.d_model)
        self.encoder = Encoder(
            c.d_model,
            Mixer.parse(c.encoder),
            c.num_encoder_layers,
            d_ff=c.d_ff,
            num_heads=c.num_heads,
            reduction=c.encoder_reduction,
            dropout=c.dropout,
        )
        self.embedding = nn.Embedding(c.vocabulary_size, c.d_model)
        self.positions = nn.Embedding(c.max_length, c.d_model)
        self.decoder = Decoder(
            c.d_model,
            Mixer.parse(c.decoder),
            c.num_decoder_layers,
            d_ff=c.d_ff,
            num_heads=c.num_heads,
            reduction=c.decoder_reduction,
            dropout=c.dropout,
        )
        self.vocabulary = nn.Linear(c.d_model, c.vocabulary_size)
        self.dropout = Dropout(c.dropout)
        for module in self.modules():
            if isinstance(module, StaticExpansion | DynamicExpansion):
                module.dropout_of = c.dropout_of
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)

    def implement(self, implementation: str) -> Captioner:
        """Let every module that has several implementations compute by this one; returns itself.

        "literal" is the papers' order of operations, with PyTorch's own dropout.

        Raises:
            ValueError: an unknown implementation.
        """
        choose(implementation)
        for module in self.modules():
            if isinstance(module, StaticExpansion | DynamicExpansion | Dropout):
                module.implementation = implementation
        return self

    def encode(self, features: Tensor, lengths: Lengths | None = None) -> Tensor:
        """Image features (B, L, d_feature) to memory (B, L, d_model).

        Raises:
            ValueError: features are not (B, L, d_feature) or lengths do not fit them.
        """
        check_tokens(features, self.configuration.d_feature, "features")
        mask = padding_mask(lengths, features)
        memory: Tensor = self.encoder(self.input(zero_padding(features, mask)), mask)
        return memory

    def states(
        self, tokens: Tensor, memory: Tensor, memory_lengths: Lengths | None = None
    ) -> Tensor:
        """Words so far (B, T) to what the vocabulary layer reads of each, (B, T, d_model).

        Token ids are checked outside compiled graphs.

        Raises:
            ValueError: tokens are not (B, T) for the memory's B, T above max_length, an id outside
                the vocabulary, memory not (B, L, d_model) or lengths that do not fit it.
        """
        d_model = self.configuration.d_model
        check_tokens(memory, d_model, "memory")
        check_words(tokens, len(memory), self.configuration)
        words = self.dropout(self.embedding(tokens)) * d_model**0.5
        words = words + self.positions.weight[: tokens.shape[1]]
        states: Tensor = self.decoder(words, memory, None, memory_lengths)
        return states

    def decode(
        self, tokens: Tensor, memory: Tensor, memory_lengths: Lengths | None = None
    ) -> Tensor:
        """Words so far (B, T) to log p(next word | words up to t, image), (B, T, V), at every t.

        Log-probabilities are in float32 at least.

        Raises:
            ValueError: as ``states``.
        """
        return self.predict(self.states(tokens, memory, memory_lengths))

    def predict(self, states: Tensor) -> Tensor:
        """States (..., d_model) to the log-probabilities of the next word, (..., V)."""
        return log_probabilities(self.vocabulary(states))

    @property
    def draws(self) -> bool:
        """Whether a pass draws at random: in training mode, with dropout."""
        return self.training and self.configuration.dropout > 0

    def incremental(
        self,
        memory: Tensor,
        memory_lengths: Lengths | None = None,
        copies: int = 1,
        max_length: int | None = None,
    ) -> TransformerState:
        """``decode`` by single steps, ``copies`` hypotheses for each row of the memory.

        Raises:
            ValueError: ``draws``; memory not (B, L, d_model) or lengths that do not fit it;
                max_length above the model's.
        """
        check_tokens(memory, self.configuration.d_model, "memory")
        return TransformerState(self, memory, memory_lengths, copies, max_length)

    def forward(self, features: Tensor, tokens: Tensor, lengths: Lengths | None = None) -> Tensor:
        """``decode`` what ``encode`` makes of the features: (B, T, V)."""
        return self.decode(tokens, self.encode(features, lengths), lengths)


class ExpansionNet(Captioner):
    """ExpansionNet v2 (v2 sections III.B, IV.A): Block Static encoder, Dynamic decoder.

    Keywords other than ``groups`` and ``num_expansions`` are fields of ``Configuration``.
    """

    def __init__(
        self,
        *,
        groups: Sequence[int] = (32, 64, 128, 256, 512),
        num_expansions: int = 16,
        vocabulary_size: int = 10_000,
        d_feature: int = 1536,
        encoder_reduction: str = "linear",
        decoder_reduction: str = "linear",
        **fields: Any,
    ) -> None:
        super().__init__(
            Configuration(
                vocabulary_size=vocabulary_size,
                d_feature=d_feature,
                encoder=str(Mixer("static", tuple(groups))),
                decoder=str(Mixer("dynamic", (num_expansions,))),
                encoder_reduction=encoder_reduction,
                decoder_reduction=decoder_reduction,
                **fields,
            )
        )


def expansionnet_v2(vocabulary_size: int, d_feature: int, **fields: Any) -> ExpansionNet:
    """v2's model: G = {32, 64, 128, 256, 512}, N_E = 16, linear reductions."""
    return ExpansionNet(vocabulary_size=vocabulary_size, d_feature=d_feature, **fields)


def expansionnet_v1(vocabulary_size: int, d_feature: int, **fields: Any) -> ExpansionNet:
    """v1's ExpansionNet_{64,16} with its final model's linear reductions; its ablations: "norm"."""
    defaults: dict[str, Any] = {"groups": (64,), "num_expansions": 16}
    return ExpansionNet(vocabulary_size=vocabulary_size, d_feature=d_feature, **(defaults | fields))


def transformer(vocabulary_size: int, d_feature: int, **fields: Any) -> Captioner:
    """The papers' baseline, pre-norm; v2's has 3 layers each side, v1's "Base" 6."""
    return _baseline("attention", vocabulary_size, d_feature, fields)


def transformer_aoa(vocabulary_size: int, d_feature: int, **fields: Any) -> Captioner:
    """v1's "Base w/ AoA": every attention gated, no feed-forward."""
    return _baseline("aoa", vocabulary_size, d_feature, fields)


def _baseline(
    mixer: str, vocabulary_size: int, d_feature: int, fields: Mapping[str, Any]
) -> Captioner:
    defaults: dict[str, Any] = {
        "encoder": mixer,
        "decoder": mixer,
        "encoder_reduction": "norm",
        "decoder_reduction": "norm",
    }
    return Captioner(
        Configuration(
            vocabulary_size=vocabulary_size, d_feature=d_feature, **(defaults | dict(fields))
        )
    )
