"""The neural image caption generator: an LSTM reads the image's embedding, then the words.

The read-only LSTM's 1, 2, 4, 5 and 11-15 (after Vinyals et al., 2017); its cell is in
``recurrent``. ``parameters`` hold the matrices by their printed names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import numpy as np

from reference.checks import requires
from reference.equations import Decision, Erratum, equation
from reference.primitives import Array, Integers, Parameters, log_softmax, softmax
from reference.recurrent import ReadOnly, State, memory_block, memory_blocks

Image = TypeVar("Image")
Theta = TypeVar("Theta")

START_WORD = Decision(
    "(2) sums from t = 0, the start word, (15) from t = 1",
    "as printed",
    "the image's step has a distribution of S_0, which the loss leaves out: the start word is "
    "given",
    about="start word",
)
WORD_MATRIX = Erratum(
    "the matrix W_l of the text is W_e in the equations; (13) multiplies W_e by the word's row of "
    "the identity matrix from the right",
    "W_e throughout, (words, N_e); the row of the identity stands on its left",
    "a row of W_e is a word; (13) is then (5)",
)
DICTIONARY = Erratum(
    "the number of words in the dictionary is D, and N_d at (13)",
    "one number, of the rows of W_e",
    "two names for the same",
    about="dictionary size",
)


@equation(
    "lstm_readonly",
    1,
    r"\theta^* = \operatorname{arg} \max \sum_{(I,S)} \log p(S|I; \theta)",
    definition="what training is for: an argmax over a list",
)
def most_likely(
    thetas: Sequence[Theta],
    pairs: Iterable[tuple[Image, Sequence[int]]],
    log_p: Callable[[Sequence[int], Image, Theta], float],
) -> Theta:
    """The theta of a finite list under which the captions S of the images I are most likely.

    ``log_p(S, I, theta)`` is equation 2. Ties go to the first.
    """
    pairs = list(pairs)
    sums = [sum(log_p(S, image, theta) for image, S in pairs) for theta in thetas]
    return thetas[int(np.argmax(sums))]


@equation(
    "lstm_readonly",
    2,
    r"\log p(S|I; \theta) = \sum_{t=0}^N \log p(S_t|I, S_0, \dots, S_{t-1}; \theta)",
    notes=[
        START_WORD,
        Erratum(
            "S = {S_0, ..., S_N} has length N, with an index S_i for 0 <= i < N",
            "N + 1 words, S_N included",
            "(2) sums over N + 1 words; S_N is the end word",
            about="text of II",
        ),
    ],
)
def sentence_log_probability(log_p: Array, S: Sequence[int]) -> float:
    """log p(S | I) of the words S_0 ... S_N; row t of log_p (N + 1, V) is for S_t."""
    return float(log_p[range(len(S)), S].sum())


@equation("lstm_readonly", 15, r"L(I, S) = -\sum_{t=1}^N \log p(S_t)", notes=[START_WORD])
def sentence_loss(log_p: Array, S: Sequence[int]) -> float:
    """The loss of the words S_1 ... S_N; row t of log_p (N + 1, V) is for S_t, as in (2)."""
    N = len(S) - 1
    return float(-log_p[range(1, N + 1), S[1:]].sum())


@equation(
    "lstm_readonly",
    4,
    r"x_{-1} = \text{Mixed}_{7c} * W_i + b_i",
    notes=[
        Decision(
            "the layer Mixed_7c",
            "Mixed_7c after average pooling",
            "the text appends the pooling; W_i is of the pooled vector's size",
        )
    ],
)
def image_embedding(mixed_7c: Array, W_i: Array, b_i: Array) -> Array:
    """x_{-1} (N_e,) from features (regions, d_feature), W_i (d_feature, N_e), b_i (N_e,)."""
    x: Array = mixed_7c.mean(axis=0) @ W_i + b_i
    return x


@equation(
    "lstm_readonly",
    12,
    r"x_{-1} = CNN(I)",
    definition="a name for (4) after the network: calls its argument",
)
def image_input(image: Image, backbone: Callable[[Image], Array], parameters: Parameters) -> Array:
    """x_{-1} (N_e,) of an image, from the backbone's features (regions, d_feature)."""
    return image_embedding(backbone(image), parameters["W_i"], parameters["b_i"])


@equation("lstm_readonly", 5, r"x_i = W_e^{S_i}", notes=[WORD_MATRIX, DICTIONARY])
@requires(lambda S_i, W_e: 0 <= S_i < len(W_e), "word id {S_i} in a vocabulary of {W_e.shape[0]}")
def word_embedding(S_i: int, W_e: Array) -> Array:
    """The row (N_e,) of W_e (V, N_e) at the word's index."""
    x: Array = W_e[S_i]
    return x


@equation(
    "lstm_readonly",
    13,
    r"x_t = W_e S_t",
    notes=[WORD_MATRIX, DICTIONARY],
    definition="(5) again, with the word as one-hot row",
)
def one_hot_embedding(S_t: Array, W_e: Array) -> Array:
    """x_t (N_e,) of the word's row S_t (V,) of the identity matrix."""
    x: Array = S_t @ W_e
    return x


@equation("lstm_readonly", 11, r"p_{t+1} = \operatorname{softmax}(W_{pm} * m_t)")
def word_distribution(m: Array, W_pm: Array) -> Array:
    """The next word's distribution (V,) from m_t (N,), W_pm (V, N)."""
    return softmax(W_pm @ m)


@equation(
    "lstm_readonly",
    14,
    r"p_{t+1} = LSTM(x_t)",
    definition="a name for the distribution that (6) to (11) compute",
)
def next_word(
    x: Array, state: State, parameters: Parameters, read: Array | None = None
) -> tuple[Array, State]:
    """p_{t+1} (V,) and the new state; arguments as in ``recurrent.memory_block``."""
    state = memory_block(x, state, parameters, read)
    return word_distribution(state.h, parameters["W_pm"]), state


def word_log_probabilities(
    features: Array, S: Integers | Sequence[int], parameters: Parameters, reading: ReadOnly | None
) -> Array:
    """The unrolled network of section II.B, (T + 1, V): row t the log-probabilities of S_t.

    The image's features (regions, d_feature) are read first, then the T words S_0 ... S_(T-1).
    ``parameters`` are ``W_i``, ``b_i``, ``W_e``, ``W_pm`` and those of ``memory_blocks``, whose
    ``reading`` this is.
    """
    image = image_embedding(features, parameters["W_i"], parameters["b_i"])
    xs = [image, *(word_embedding(word, parameters["W_e"]) for word in S)]
    states = memory_blocks(xs, parameters, reading)
    return np.stack([log_softmax(parameters["W_pm"] @ m) for m, _ in states])
