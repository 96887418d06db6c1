"""Encoder and decoder layers, their stacks, and the whole captioner (v1, eqs. 10-12; v2, 10-12).

``parameters`` are flat, under the dotted names of the torch modules' ``state_dict``. A mixer is
named by a string: ``attention``, ``aoa``, ``static:64``, ``static:32,64`` (block), ``dynamic:16``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from reference.attention import attention_on_attention, causal_mask, multi_head_attention
from reference.equations import equation
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


def parse_mixer(text: str) -> tuple[str, tuple[int, ...]]:
    """``"static:32,64"`` to ``("static", (32, 64))``; attention and aoa have no coefficients.

    Raises:
        ValueError: an unknown kind, or coefficients that are missing, superfluous or not positive.
    """
    kind, colon, listed = text.partition(":")
    numbers = listed.split(",") if colon else []
    if not all(number.isdecimal() and int(number) > 0 for number in numbers):
        raise ValueError(f"mixer {text!r}: expansion coefficients must be positive integers")
    fits = {
        "attention": not numbers,
        "aoa": not numbers,
        "static": len(numbers) >= 1,
        "dynamic": len(numbers) == 1,
    }
    if not fits.get(kind, False):
        raise ValueError(
            f"unknown mixer {text!r}: expected attention, aoa, static:N,... or dynamic:N"
        )
    return kind, tuple(map(int, numbers))


def mix(X: Array, parameters: Parameters, mixer: str, num_heads: int, causal: bool) -> Array:
    """The part of a layer in which tokens meet: (L, d) to (L, d).

    Raises:
        ValueError: an unknown mixer, or a causal static expansion, which there is not.
    """
    kind, coefficients = parse_mixer(mixer)
    if kind == "static":
        if causal:
            raise ValueError("static expansion cannot be causal, so no decoder can have it")
        return static_expansion_layer(X, parameters, coefficients)
    if kind == "dynamic":
        return dynamic_expansion_layer(X, parameters, causal)
    attention = attention_on_attention if kind == "aoa" else multi_head_attention
    return attention(X, X, parameters, num_heads, causal_mask(len(X)) if causal else None)


@equation("expansionnet_v1", 10)
@equation("expansionnet_v2", 11)
def encoder_layer(X: Array, parameters: Parameters, mixer: str, num_heads: int = 8) -> Array:
    """``E = X + Exp(Norm(X))``, ``X' = E + FF(Norm(E))``; with AoA the first half alone.

    Args:
        X: (L, d).
        parameters: ``norm_1``, ``mixer``, and without AoA ``norm_2``, ``feed_forward``.
        mixer: the mixer's string.
        num_heads: of attention mixers.

    Returns:
        (L, d).
    """
    normed = layer_norm(X, select(parameters, "norm_1."))
    E = X + mix(normed, select(parameters, "mixer."), mixer, num_heads, causal=False)
    return E if parse_mixer(mixer)[0] == "aoa" else _with_feed_forward(E, parameters, "norm_2.")


@equation("expansionnet_v1", 11)
@equation("expansionnet_v2", 12)
def decoder_layer(
    Y: Array, O_enc: Array, parameters: Parameters, mixer: str, num_heads: int = 8
) -> Array:
    """``B = Y + Exp(Norm(Y))``, ``W = B + Attention(Norm(B), O_enc)``, ``Y' = W + FF(Norm(W))``.

    With AoA the last step is left out and the cross-attention has the gate too.

    Args:
        Y: (T, d).
        O_enc: (L, d), the encoder's output.
        parameters: ``norm_1``, ``mixer``, ``norm_2``, ``cross_attention``, and without AoA
            ``norm_3``, ``feed_forward``.
        mixer: the mixer's string.
        num_heads: of every attention.

    Returns:
        (T, d).
    """
    aoa = parse_mixer(mixer)[0] == "aoa"
    normed = layer_norm(Y, select(parameters, "norm_1."))
    B = Y + mix(normed, select(parameters, "mixer."), mixer, num_heads, causal=True)
    attention = attention_on_attention if aoa else multi_head_attention
    normed = layer_norm(B, select(parameters, "norm_2."))
    W = B + attention(normed, O_enc, select(parameters, "cross_attention."), num_heads)
    return W if aoa else _with_feed_forward(W, parameters, "norm_3.")


def _with_feed_forward(X: Array, parameters: Parameters, norm: str) -> Array:
    normed = layer_norm(X, select(parameters, norm))
    return X + feed_forward(normed, select(parameters, "feed_forward."))


def reduce_layers(outputs: Sequence[Array], parameters: Parameters, reduction: str) -> Array:
    """What a stack makes of its layers' outputs x_1 ... x_N.

    Args:
        outputs: N arrays (L, d).
        parameters: ``norm`` and, for "linear", ``reduce`` (N d to d).
        reduction: "linear", ``Norm(x_N + Linear([x_1, ..., x_N]))``: v2's "all layers are summed
            through a linear projection"; "norm", ``Norm(x_N)``; "none", ``x_N`` as v1's eqs. 10
            and 11 print it.

    Returns:
        (L, d).

    Raises:
        ValueError: an unknown reduction.
    """
    last = outputs[-1]
    if reduction == "none":
        return last
    if reduction == "linear":
        last = last + linear(np.concatenate(outputs, axis=1), select(parameters, "reduce."))
    elif reduction != "norm":
        raise ValueError(f"unknown reduction {reduction!r}: expected linear, norm or none")
    return layer_norm(last, select(parameters, "norm."))


def encoder(
    X: Array, parameters: Parameters, mixer: str, num_heads: int = 8, reduction: str = "linear"
) -> Array:
    """All encoder layers, ``layers.0.`` and on, and their reduction: (L, d) to (L, d)."""
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
    """All decoder layers and their reduction: (T, d), given the encoder's (L, d), to (T, d)."""
    outputs = []
    for layer in _layers(parameters):
        Y = decoder_layer(Y, O_enc, layer, mixer, num_heads)
        outputs.append(Y)
    return reduce_layers(outputs, parameters, reduction)


def _layers(parameters: Parameters) -> list[Parameters]:
    """The parameters of each layer of a stack, in their order."""
    indices = {int(name.split(".")[1]) for name in parameters if name.startswith("layers.")}
    return [select(parameters, f"layers.{index}.") for index in sorted(indices)]


@equation("expansionnet_v2", 10)
def visual_features(A: Image, backbone: Callable[[Image], Array]) -> Array:
    """``X_0 = backbone(A)``: the image's features (L, d_feature), by whatever network there is.

    Raises:
        ValueError: the backbone gives something other than a matrix with a row for each region.
    """
    X_0 = backbone(A)
    if X_0.ndim != 2 or not len(X_0):
        raise ValueError(f"features of shape {X_0.shape}, expected (regions, channels)")
    return X_0


def encode(
    features: Array,
    parameters: Parameters,
    mixer: str,
    num_heads: int = 8,
    reduction: str = "linear",
) -> Array:
    """An image's memory: the linear map ``input``, then the encoder.

    Args:
        features: (L, d_feature).
        parameters: the whole captioner's.
        mixer, num_heads, reduction: the encoder's.

    Returns:
        (L, d).
    """
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
    """The scores of the word after each prefix: word vectors, the decoder, the map ``vocabulary``.

    Args:
        tokens: (T,) word ids, from the start token on.
        memory: (L, d) from ``encode``.
        parameters: the whole captioner's.
        mixer, num_heads, reduction: the decoder's.

    Returns:
        (T, V): row t scores the word that follows ``tokens[: t + 1]``.
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


@equation("expansionnet_v1", 12)
def next_word(
    tokens: Integers,
    memory: Array,
    parameters: Parameters,
    mixer: str,
    num_heads: int = 8,
    reduction: str = "linear",
) -> Array:
    """``p(y_t | y_{1:t-1}, A) = Softmax(out_t)``: (V,), given the words so far and the memory of A.

    Arguments as in ``word_scores``.
    """
    out_t = word_scores(tokens, memory, parameters, mixer, num_heads, reduction)[-1]
    return softmax(out_t)
