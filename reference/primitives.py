"""Building blocks of every model: softmax, sigmoid, ReLU, layer norm, linear maps, word vectors.

Every function keeps the dtype of its input, so the oracle runs in float32 too, in the paper's own
order of operations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from reference.checks import requires

Array = npt.NDArray[np.floating[Any]]
Integers = npt.NDArray[np.integer[Any]]
Mask = npt.NDArray[np.bool_]
Parameters = Mapping[str, Array]


def select(parameters: Parameters, prefix: str) -> dict[str, Array]:
    """The parameters whose dotted name begins with ``prefix``, with the prefix removed.

    Raises:
        ValueError: no name begins with ``prefix``.
    """
    chosen = {
        name.removeprefix(prefix): value
        for name, value in parameters.items()
        if name.startswith(prefix)
    }
    if not chosen:
        raise ValueError(f"no parameter begins with {prefix!r}")
    return chosen


def relu(x: Array) -> Array:
    """``max(x, 0)``, element by element."""
    return np.maximum(x, 0)


def sigmoid(x: Array) -> Array:
    """``1 / (1 + exp(-x))``, element by element: 0 where exp(-x) overflows."""
    with np.errstate(over="ignore"):
        s: Array = 1 / (1 + np.exp(-x))
    return s


def softmax(x: Array, axis: int = -1) -> Array:
    """``exp(x) / sum(exp(x))`` along ``axis``; entries of minus infinity get weight zero."""
    e: Array = np.exp(x - x.max(axis=axis, keepdims=True))
    weights: Array = e / e.sum(axis=axis, keepdims=True)
    return weights


def log_softmax(x: Array, axis: int = -1) -> Array:
    """The logarithm of ``softmax(x)``, finite wherever ``x`` is."""
    shifted: Array = x - x.max(axis=axis, keepdims=True)
    normaliser: Array = np.log(np.exp(shifted).sum(axis=axis, keepdims=True))
    return shifted - normaliser


def layer_norm(X: Array, parameters: Parameters, epsilon: float = 1e-5) -> Array:
    """Layer normalisation (Ba et al., 2016) of X (..., d) over its last axis, biased variance.

    ``parameters`` are ``weight`` and ``bias`` (d,).
    """
    centred: Array = X - X.mean(axis=-1, keepdims=True)
    variance: Array = (centred * centred).mean(axis=-1, keepdims=True)
    normed: Array = centred / np.sqrt(variance + epsilon)
    return normed * parameters["weight"] + parameters["bias"]


def linear(X: Array, parameters: Parameters) -> Array:
    """``X W^T + b``, (..., in) to (..., out): ``weight`` is (out, in), ``bias`` (out,)."""
    projected: Array = X @ parameters["weight"].T
    return projected + parameters["bias"]


def feed_forward(X: Array, parameters: Parameters) -> Array:
    """A layer's feed-forward network, ``linear_2(relu(linear_1(X)))``: (L, d) to (L, d)."""
    return linear(relu(linear(X, select(parameters, "linear_1."))), select(parameters, "linear_2."))


@requires(
    lambda tokens, embedding: np.isin(tokens, range(len(embedding))).all(),
    "word ids {tokens} in a vocabulary of {embedding.shape[0]}",
)
@requires(
    lambda tokens, positions: len(tokens) <= len(positions),
    "{tokens.size} words but {positions.shape[0]} positions",
)
def word_vectors(tokens: Integers, embedding: Array, positions: Array) -> Array:
    """The decoder's input ``E[y_t] sqrt(d) + positions[t]`` for T words: (T, d).

    The embedding E is (V, d), the learned positions (max_length, d).
    """
    return embedding[tokens] * math.sqrt(embedding.shape[1]) + positions[: len(tokens)]
