"""Encoder and decoder layers, their stacks, and the whole captioner (v1, eqs. 10-12; v2, 10-12).

``parameters`` are a flat mapping with the names of the torch modules' ``state_dict``. A ``mixer``
is ``attention``, ``aoa``, ``static:64``, ``static:32,64`` (block) or ``dynamic:16``; ``num_heads``
are for attention; for ``reduction`` see ``reduce_layers``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from reference.attention import attention_on_attention, causal_mask, multi_head_attention
from reference.checks import requires
from reference.equations import Decision, Erratum, equation, passage
from reference.expansion import dynamic_expansion_layer, static_expansion_layer
from reference.primitives import (
    Array,
    Integers,
    Parameters,
    feed_forward,
    layer_norm,
    linear,
    log_softmax,
    select,
    softmax,
    word_vectors,
)

Image = TypeVar("Image")
COEFFICIENT = "0*[1-9][0-9]*"
MIXERS = rf"attention|aoa|static:{COEFFICIENT}(,{COEFFICIENT})*|dynamic:{COEFFICIENT}"


@requires(
    lambda text: re.fullmatch(MIXERS, text),
    "unknown mixer {text!r}: expected attention, aoa, static:N,... or dynamic:N, with N above 0",
)
def parse_mixer(text: str) -> tuple[str, tuple[int, ...]]:
    """``"static:32,64"`` to ``("static", (32, 64))``; attention and aoa have no coefficients."""
    kind, _, listed = text.partition(":")
    return kind, tuple(map(int, listed.split(","))) if listed else ()


@requires(
    lambda mixer, causal: not (causal and parse_mixer(mixer)[0] == "static"),
    "static expansion cannot be causal, so no decoder can have it",
)
def mix(X: Array, parameters: Parameters, mixer: str, num_heads: int, causal: bool) -> Array:
    """The layer's token mixer, attention or an expansion: (L, d) to (L, d)."""
    kind, coefficients = parse_mixer(mixer)
    if kind == "static":
        return static_expansion_layer(X, parameters, coefficients)
    if kind == "dynamic":
        return dynamic_expansion_layer(X, parameters, causal)
    attention = attention_on_attention if kind == "aoa" else multi_head_attention
    return attention(X, X, parameters, num_heads, causal_mask(len(X)) if causal else None)


@equation(
    "expansionnet_v1",
    10,
    r"Y = X + \operatorname{Exp}^{ENC}(\operatorname{Norm}(X))",
    r"O_{enc} = Y + \operatorname{FF}(\operatorname{Norm}(Y))",
)
@equation(
    "expansionnet_v2",
    11,
    r"E_n = X_{n-1} + \operatorname{StaticExp}_n(\operatorname{Norm}_n^{SE}(X_{n-1}))",
    r"X_n = E_n + \operatorname{FF}_n(\operatorname{Norm}_n^{FF}(B_n))",
    notes=[Erratum("FF(Norm(B_n))", "FF(Norm(E_n))", "misprint: B_n is the decoder's, in (12)")],
)
def encoder_layer(X: Array, parameters: Parameters, mixer: str, num_heads: int = 8) -> Array:
    """One encoder layer, (L, d) to (L, d); with AoA, which has no feed-forward, the first line.

    The symbols are v2's: its E_n is v1's Y, its X_n v1's O_enc. ``parameters``: ``norm_1``,
    ``mixer``, ``norm_2``, ``feed_forward``.
    """
    normed = layer_norm(X, select(parameters, "norm_1."))
    E = X + mix(normed, select(parameters, "mixer."), mixer, num_heads, causal=False)
    if mixer == "aoa":
        return E
    normed = layer_norm(E, select(parameters, "norm_2."))
    return E + feed_forward(normed, select(parameters, "feed_forward."))


@equation(
    "expansionnet_v1",
    11,
    r"Z = Y + \operatorname{Exp}^{DEC}(\operatorname{Norm}(Y))",
    r"W = Z + \text{Cross-Attention}(\operatorname{Norm}(Z), O_{enc})",
    r"O_{dec} = W + \operatorname{FF}(\operatorname{Norm}(W))",
)
@equation(
    "expansionnet_v2",
    12,
    r"B_n = Y_{n-1} + \operatorname{DynamicExp}_n(\operatorname{Norm}_n^{DE}(Y_{n-1}))",
    r"W_n = B_n + \operatorname{Attention}_n(\operatorname{Norm}_n^{CA}(B_n), X_{N_{enc}})",
    r"Y_n = W_n + \operatorname{FF}_n(\operatorname{Norm}_n^{FF}(W_n))",
)
def decoder_layer(
    Y: Array, O_enc: Array, parameters: Parameters, mixer: str, num_heads: int = 8
) -> Array:
    """One decoder layer, (T, d) and O_enc (L, d) to (T, d); with AoA the first two lines.

    The symbols are v2's, but O_enc is v1's, X_{N_enc} in v2. B_n is v1's Z, W_n its W, Y_n its
    O_dec. ``parameters``: ``norm_1``, ``mixer``, ``norm_2``, ``cross_attention``, ``norm_3``,
    ``feed_forward``. With AoA the cross-attention is gated too.
    """
    attention = attention_on_attention if mixer == "aoa" else multi_head_attention
    normed = layer_norm(Y, select(parameters, "norm_1."))
    B = Y + mix(normed, select(parameters, "mixer."), mixer, num_heads, causal=True)
    normed = layer_norm(B, select(parameters, "norm_2."))
    W = B + attention(normed, O_enc, select(parameters, "cross_attention."), num_heads)
    if mixer == "aoa":
        return W
    normed = layer_norm(W, select(parameters, "norm_3."))
    return W + feed_forward(normed, select(parameters, "feed_forward."))


@passage(
    "expansionnet_v2",
    "III-B",
    Decision(
        "all layers are summed through a linear projection",
        "out = LayerNorm(x_N + Linear([x_1, ..., x_N])) in the encoder and in the decoder; the "
        "cross-attention reads the encoder's out, where (12) prints X_{N_enc}",
        "matches the released weights",
    ),
)
@requires(
    lambda reduction: reduction in ("linear", "norm", "none"),
    "unknown reduction {reduction!r}: expected linear, norm or none",
)
def reduce_layers(outputs: Sequence[Array], parameters: Parameters, reduction: str) -> Array:
    """The output (L, d) of a stack from its layers' outputs x_1 ... x_N (L, d).

    ``linear``: ``Norm(x_N + Linear([x_1, ..., x_N]))``, v2's, with the parameters ``reduce`` and
    ``norm``; ``norm``: ``Norm(x_N)``; ``none``: ``x_N``, as v1's (10) and (11) print it.
    """
    x_N = outputs[-1]
    if reduction == "none":
        return x_N
    if reduction == "linear":
        x_N = x_N + linear(np.concatenate(outputs, axis=1), select(parameters, "reduce."))
    return layer_norm(x_N, select(parameters, "norm."))


def encoder(
    X: Array, parameters: Parameters, mixer: str, num_heads: int = 8, reduction: str = "linear"
) -> Array:
    """All encoder layers (``layers.0.``, ...), then the reduction: (L, d) to (L, d)."""
    outputs = []
    for layer in _layers(parameters):
        X = encoder_layer(X, layer, mixer, num_heads)
        outputs.append(X)
    return reduce_layers(outputs, parameters, reduction)


def decoder(
    Y: Array,
    O_enc: Array,
    parameters: Parameters,
    mixer: str,
    num_heads: int = 8,
    reduction: str = "linear",
) -> Array:
    """All decoder layers, then the reduction: (T, d) and O_enc (L, d) to (T, d)."""
    outputs = []
    for layer in _layers(parameters):
        Y = decoder_layer(Y, O_enc, layer, mixer, num_heads)
        outputs.append(Y)
    return reduce_layers(outputs, parameters, reduction)


def _layers(parameters: Parameters) -> list[Parameters]:
    """The parameters of a stack's layers, in order."""
    indices = {int(name.split(".")[1]) for name in parameters if name.startswith("layers.")}
    return [select(parameters, f"layers.{index}.") for index in sorted(indices)]


@equation(
    "expansionnet_v2",
    10,
    r"X_0 = \text{Swin-Transf}(A)",
    definition="a name for what a backbone gives: calls its argument",
)
def visual_features(A: Image, backbone: Callable[[Image], Array]) -> Array:
    """The image's features (L, d_feature) from the given backbone."""
    return backbone(A)


@requires(
    lambda features: features.ndim == 2 and len(features) > 0,
    "features of shape {features.shape}, expected (regions, channels)",
)
def encode(
    features: Array,
    parameters: Parameters,
    mixer: str,
    num_heads: int = 8,
    reduction: str = "linear",
) -> Array:
    """An image's memory: the linear map ``input``, then the encoder: (L, d_feature) to (L, d)."""
    X_0 = linear(features, select(parameters, "input."))
    return encoder(X_0, select(parameters, "encoder."), mixer, num_heads, reduction)


def word_scores(
    tokens: Integers,
    memory: Array,
    parameters: Parameters,
    mixer: str,
    num_heads: int = 8,
    reduction: str = "linear",
) -> Array:
    """The logits (T, V) of the word after each prefix ``tokens[: t + 1]``.

    The tokens (T,) begin with the start token; the memory (L, d) is from ``encode``. Word vectors,
    then the decoder, then the linear map ``vocabulary``.
    """
    Y = word_vectors(tokens, parameters["embedding.weight"], parameters["positions.weight"])
    out = decoder(Y, memory, select(parameters, "decoder."), mixer, num_heads, reduction)
    return linear(out, select(parameters, "vocabulary."))


def decode(
    tokens: Integers,
    memory: Array,
    parameters: Parameters,
    mixer: str,
    num_heads: int = 8,
    reduction: str = "linear",
) -> Array:
    """Log-probabilities (T, V) of the word after each prefix; arguments as in ``word_scores``."""
    return log_softmax(word_scores(tokens, memory, parameters, mixer, num_heads, reduction))


@equation(
    "expansionnet_v1",
    12,
    r"out_t = f_{Net}(y_{1:t-1}, A; \theta)",
    r"p(y_t|y_{1:t-1}, A) = \operatorname{Softmax}(out_t)",
)
def next_word(
    tokens: Integers,
    memory: Array,
    parameters: Parameters,
    mixer: str,
    num_heads: int = 8,
    reduction: str = "linear",
) -> Array:
    """The distribution (V,) of the word after ``tokens``; arguments as in ``word_scores``."""
    out_t = word_scores(tokens, memory, parameters, mixer, num_heads, reduction)[-1]
    return softmax(out_t)
