"""Captioners of token mixers: the expansion models and the Transformers.

``Captioner`` pairs any encoder mixer with any decoder mixer. The functions below build the papers'
models; fields of the configuration are keywords.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from torch_impl.common.dropout import Dropout
from torch_impl.common.padding import (
    Lengths,
    check_tokens,
    padding_mask,
    zero_padding,
)
from torch_impl.common.precision import log_probabilities
from torch_impl.expansion import (
    DynamicExpansion,
    StaticExpansion,
)
from torch_impl.expansion.functional import check_dropout, choose
from torch_impl.layers.kv_cache import TransformerCache
from torch_impl.layers.transformer import Decoder, Encoder, Mixer
from torch_impl.models.base import (
    BaseCaptioner,
    BaseConfiguration,
    check_words,
)


@dataclass(frozen=True)
class Configuration(BaseConfiguration):
    """A captioner's sizes and mixers.

    Raises:
        ValueError: an invalid mixer, a static one in the decoder, an unknown ``dropout_of``; as
            ``BaseConfiguration``.
    """

    encoder: str
    decoder: str
    encoder_reduction: str
    decoder_reduction: str
    d_model: int = 512
    d_ff: int = 2048
    num_heads: int = 8
    num_encoder_layers: int = 3
    num_decoder_layers: int = 3
    dropout: float = field(default=0.1, kw_only=True)
    dropout_of: str = "values"

    def __post_init__(self) -> None:
        Mixer.parse(self.encoder)
        Mixer.parse(self.decoder, causal=True)
        super().__post_init__()
        check_dropout(self.dropout, self.dropout_of)

    @property
    def d_memory(self) -> int:
        return self.d_model


class Captioner(BaseCaptioner):
    """An encoder of image features and an auto-regressive decoder of words (v1 equation 12).

    Every parameter of more than one dimension is initialised Xavier uniform.

    Raises:
        ValueError: d_model not divisible by num_heads, an unknown reduction.
    """

    configuration: Configuration

    def __init__(self, configuration: Configuration) -> None:
        super().__init__(configuration)
        c = configuration
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
        """Set the implementation of every module that has several; returns itself.

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
        check_tokens(features, self.configuration.d_feature, "features")
        mask = padding_mask(lengths, features)
        memory: Tensor = self.encoder(self.input(zero_padding(features, mask)), mask)
        return memory  # (B, L, d)

    def states(
        self,
        tokens: Tensor,
        memory: Tensor,
        memory_lengths: Lengths | None = None,
        image_index: Tensor | None = None,
    ) -> Tensor:
        c, d_model = self.configuration, self.configuration.d_model
        check_tokens(memory, d_model, "memory")
        num_captions = len(memory if image_index is None else image_index)
        check_words(tokens, num_captions, c.vocabulary_size, c.max_length)
        words = self.dropout(self.embedding(tokens)) * d_model**0.5  # (B, T, d)
        words = words + self.positions.weight[: tokens.shape[1]]
        states: Tensor = self.decoder(words, memory, None, memory_lengths, image_index)
        return states

    def predict(self, states: Tensor) -> Tensor:
        return log_probabilities(self.vocabulary(states))

    def init_cache(
        self,
        memory: Tensor,
        memory_lengths: Lengths | None = None,
        num_beams: int = 1,
        max_length: int | None = None,
    ) -> TransformerCache:
        check_tokens(memory, self.configuration.d_model, "memory")
        return TransformerCache(self, memory, memory_lengths, num_beams, max_length)


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
    """v1's ExpansionNet_{64,16}; its final model has linear reductions, its ablations "norm"."""
    defaults: dict[str, Any] = {"groups": (64,), "num_expansions": 16}
    return ExpansionNet(vocabulary_size=vocabulary_size, d_feature=d_feature, **(defaults | fields))


def transformer(vocabulary_size: int, d_feature: int, **fields: Any) -> Captioner:
    """The papers' baseline, pre-norm; v2's has 3 layers each side, v1's "Base" 6."""
    return _baseline("attention", vocabulary_size, d_feature, fields)


def transformer_aoa(vocabulary_size: int, d_feature: int, **fields: Any) -> Captioner:
    """v1's "Base w/ AoA": AoA gates on every attention, no feed-forward."""
    return _baseline("aoa", vocabulary_size, d_feature, fields)


def _baseline(
    mixer: str, vocabulary_size: int, d_feature: int, fields: Mapping[str, Any]
) -> Captioner:
    mixers: dict[str, Any] = {"encoder": mixer, "decoder": mixer}
    reductions = {"encoder_reduction": "norm", "decoder_reduction": "norm"}
    return Captioner(
        Configuration(vocabulary_size, d_feature, **{**mixers, **reductions, **fields})
    )
