"""Our layers, captioners and objectives as candidates."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.verify.project.modules import call, call_beside, read_by_steps
from torch_impl.expansion import DynamicExpansion, StaticExpansion
from torch_impl.layers.attention import AttentionOnAttention, MultiHeadAttention
from torch_impl.layers.transformer import DecoderLayer, EncoderLayer, FeedForward, Mixer
from torch_impl.models import Captioner, Configuration
from torch_impl.training import objectives

Parameters = Mapping[str, Tensor]

cross_entropy, self_critical = objectives.cross_entropy, objectives.self_critical


def static_expansion(
    X: Tensor, parameters: Parameters, groups: Any, mask: Tensor, *, implementation: str
) -> Tensor:
    """``torch_impl.expansion.StaticExpansion``."""
    d = X.shape[-1]
    module = partial(StaticExpansion, d, groups, implementation=implementation)
    return call(module, parameters, X, mask)


def dynamic_expansion(
    X: Tensor, parameters: Parameters, causal: bool, mask: Tensor, *, implementation: str
) -> Tensor:
    """``torch_impl.expansion.DynamicExpansion``."""
    N_E, d = parameters["query_vectors"].shape
    module = partial(DynamicExpansion, d, N_E, causal=causal, implementation=implementation)
    return call(module, parameters, X, mask)


def multi_head_attention(
    X: Tensor,
    Y: Tensor,
    parameters: Parameters,
    num_heads: int,
    causal: bool,
    mask: Tensor,
    *,
    by_index: bool = False,
) -> Tensor:
    """``torch_impl.layers.attention.MultiHeadAttention``, or with images in another order."""
    module = partial(MultiHeadAttention, X.shape[-1], num_heads)
    if not by_index:
        return call(module, parameters, X, Y, mask, causal)
    index = torch.arange(len(X), device=X.device).flip(0)
    return call(module, parameters, X, Y.flip(0), mask.flip(0), causal, index)


def attention_on_attention(
    X: Tensor, Y: Tensor, parameters: Parameters, num_heads: int, causal: bool, mask: Tensor
) -> Tensor:
    """``torch_impl.layers.attention.AttentionOnAttention``."""
    module = partial(AttentionOnAttention, X.shape[-1], num_heads)
    return call(module, parameters, X, Y, mask, causal)


def layer_norm(X: Tensor, parameters: Parameters) -> Tensor:
    """``torch.nn.LayerNorm``, as in ``torch_impl.layers.transformer``."""
    return call(partial(nn.LayerNorm, X.shape[-1]), parameters, X)


def feed_forward(X: Tensor, parameters: Parameters) -> Tensor:
    """``torch_impl.layers.transformer.FeedForward``."""
    d_ff, d = parameters["linear_1.weight"].shape
    return call(partial(FeedForward, d, d_ff), parameters, X)


def _d_ff(parameters: Parameters) -> int:
    # with AoA there is no feed-forward, and the width does not matter
    weights = [w for name, w in parameters.items() if name.endswith("feed_forward.linear_1.weight")]
    return len(weights[0]) if weights else 1


def encoder_layer(
    X: Tensor, parameters: Parameters, mixer: str, num_heads: int, mask: Tensor
) -> Tensor:
    """``torch_impl.layers.transformer.EncoderLayer``."""
    sizes = {"d_ff": _d_ff(parameters), "num_heads": num_heads}
    module = partial(EncoderLayer, X.shape[-1], Mixer.parse(mixer), **sizes)
    return call(module, parameters, X, mask)


def decoder_layer(
    X: Tensor, memory: Tensor, parameters: Parameters, mixer: str, num_heads: int, mask: Tensor
) -> Tensor:
    """``torch_impl.layers.transformer.DecoderLayer``."""
    sizes = {"d_ff": _d_ff(parameters), "num_heads": num_heads}
    module = partial(DecoderLayer, X.shape[-1], Mixer.parse(mixer, causal=True), **sizes)
    return call(module, parameters, X, memory, None, mask)


def captioner(
    features: Tensor,
    tokens: Tensor,
    parameters: Parameters,
    encoder: str,
    decoder: str,
    num_heads: int,
    encoder_reduction: str,
    decoder_reduction: str,
    *,
    by_steps: bool = False,
    masked: bool = False,
) -> Tensor:
    """``torch_impl.models.Captioner``, or its ``init_cache``, which is without gradients.

    The cache is that of samples under shared masks if ``masked``.
    """

    def layers(side: str) -> int:
        return len({name.split(".")[2] for name in parameters if name.startswith(f"{side}.layers")})

    vocabulary_size, d_model = parameters["embedding.weight"].shape
    configuration = Configuration(
        vocabulary_size=vocabulary_size,
        d_feature=features.shape[-1],
        encoder=encoder,
        decoder=decoder,
        encoder_reduction=encoder_reduction,
        decoder_reduction=decoder_reduction,
        d_model=d_model,
        d_ff=_d_ff(parameters),
        num_heads=num_heads,
        num_encoder_layers=layers("encoder"),
        num_decoder_layers=layers("decoder"),
        max_length=len(parameters["positions.weight"]),
        dropout=0.0,
        start_id=0,
        end_id=1,
        pad_id=0,
    )
    module = partial(Captioner, configuration)
    if by_steps:
        return read_by_steps(module, parameters, features, tokens, masked)
    return call_beside(module, parameters, features, tokens)


def sentence_log_probability(log_probs: Tensor, words: Tensor) -> Tensor:
    """Minus the sum of ``torch_impl.training.objectives.cross_entropy``."""
    return -objectives.cross_entropy(log_probs, words, pad_id=-1) * len(words)


def negative_log_likelihood(log_probs: Tensor, words: Tensor) -> Tensor:
    """The sum of ``torch_impl.training.objectives.cross_entropy``."""
    return objectives.cross_entropy(log_probs, words[1:], pad_id=-1) * len(log_probs)
