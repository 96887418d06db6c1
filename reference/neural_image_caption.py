"""The neural image caption generator: an image's embedding, then its words, into an LSTM.

The read-only LSTM's 1, 2, 4, 5 and 11-14 (after Vinyals et al., 2017); its cell is in
``recurrent``, its loss in ``objectives``. ``parameters`` hold the matrices by their printed names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import numpy as np

from reference.equations import equation
from reference.primitives import (
    Array,
    Integers,
    Parameters,
    log_softmax,
    softmax,
)
from reference.recurrent import (
    ReadOnly,
    State,
    memory_block,
    memory_blocks,
)

Image = TypeVar("Image")
Theta = TypeVar("Theta")


@equation("lstm_readonly", 1)
def most_likely(
    thetas: Sequence[Theta],
    pairs: Iterable[tuple[Image, Sequence[int]]],
    log_p: Callable[[Sequence[int], Image, Theta], float],
) -> Theta:
    """``theta* = argmax sum_{(I, S)} log p(S | I; theta)`` among finitely many, the first at a tie.

    Args:
        thetas: the parameters to choose from.
        pairs: images I with their captions S.
        log_p: eq. 2, of (S, I, theta).
    """
    pairs = list(pairs)
    sums = [sum(log_p(S, image, theta) for image, S in pairs) for theta in thetas]
    return thetas[int(np.argmax(sums))]


@equation("lstm_readonly", 2)
def sentence_log_probability(log_p: Array, S: Sequence[int]) -> float:
    """``log p(S | I) = sum_{t=0}^N log p(S_t | I, S_0, ..., S_{t-1})``.

    Args:
        log_p: (N + 1, V), row t the log-probabilities of S_t.
        S: the N + 1 words S_0 ... S_N, the start word and the end word among them.
    """
    return float(sum(log_p[t, word] for t, word in enumerate(S)))


@equation("lstm_readonly", 4)
def image_embedding(mixed_7c: Array, W_i: Array, b_i: Array) -> Array:
    """``x_{-1} = Mixed_7c W_i + b_i``, of the layer's outputs after average pooling: (N_e,).

    Args:
        mixed_7c: (regions, d_feature).
        W_i: (d_feature, N_e) and ``b_i`` (N_e,).
    """
    x: Array = mixed_7c.mean(axis=0) @ W_i + b_i
    return x


@equation("lstm_readonly", 12)
def image_input(image: Image, backbone: Callable[[Image], Array], parameters: Parameters) -> Array:
    """``x_{-1} = CNN(I)``: the network's features (regions, d_feature), embedded: (N_e,)."""
    return image_embedding(backbone(image), parameters["W_i"], parameters["b_i"])


@equation("lstm_readonly", 5)
def word_embedding(S_i: int, W_e: Array) -> Array:
    """``x_i = W_e^{S_i}``: the row of W_e (V, N_e) at the word's index.

    Raises:
        ValueError: a word id outside the vocabulary.
    """
    if not 0 <= S_i < len(W_e):
        raise ValueError(f"word id {S_i} in a vocabulary of {len(W_e)}")
    row: Array = W_e[S_i]
    return row


@equation("lstm_readonly", 13)
def one_hot_embedding(S_t: Array, W_e: Array) -> Array:
    """``x_t = W_e S_t``, where S_t (V,) is the word's row of the identity matrix: (N_e,)."""
    x: Array = S_t @ W_e
    return x


@equation("lstm_readonly", 11)
def word_distribution(m: Array, W_pm: Array) -> Array:
    """``p_{t+1} = softmax(W_pm m_t)``: (V,), with W_pm (V, N)."""
    return softmax(W_pm @ m)


@equation("lstm_readonly", 14)
def next_word(
    x: Array, state: State, parameters: Parameters, read: Array | None = None
) -> tuple[Array, State]:
    """``p_{t+1} = LSTM(x_t)``: the distribution (V,) after one input, and the new state.

    Arguments as in ``recurrent.memory_block``, with ``W_pm``.
    """
    state = memory_block(x, state, parameters, read)
    return word_distribution(state.h, parameters["W_pm"]), state


def word_log_probabilities(
    features: Array, S: Integers | Sequence[int], parameters: Parameters, reading: ReadOnly | None
) -> Array:
    """The unrolled network of section II.B: the image first, then the given words.

    Args:
        features: (regions, d_feature) of the image.
        S: T words, S_0 first.
        parameters: ``W_i``, ``b_i``, ``W_e``, ``W_pm``, and those of ``recurrent.memory_block``.
        reading: of eq. 17, or None for the LSTM without a read-only unit.

    Returns:
        (T + 1, V): row t the log-probabilities of S_t, row 0 from the image alone.
    """
    image = image_embedding(features, parameters["W_i"], parameters["b_i"])
    xs = [image, *(word_embedding(word, parameters["W_e"]) for word in S)]
    states = memory_blocks(xs, parameters, reading)
    return np.array([log_softmax(parameters["W_pm"] @ m) for m, _ in states])
