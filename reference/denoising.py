"""The synthetic de-noising task (Middle-Out 8, section 4.1): its data and its two regressors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reference.equations import equation
from reference.middle_out import (
    LEFT_FIRST,
    MiddleOutDecoder,
    SelfAttention,
    Side,
    encode,
    turns,
)
from reference.primitives import (
    Array,
    Parameters,
    linear,
    select,
)

NOISE = 0.0035
"""The noise is uniform between its negative and this."""

LENGTHS = (5, 10)
"""The least and the largest N; a sequence has 2 N + 1 numbers."""


@equation("middle_out", 8)
def symmetric_sequence(mu: float, N: int) -> Array:
    """``y = mu - N s/N, ..., mu - 2 s/N, mu - s/N, mu, mu - s/N, mu - 2 s/N, ..., mu - N s/N``.

    s, the paper's sigma, is mu^2.

    Args:
        mu: the middle.
        N: the length of each half, at least 1.

    Returns:
        (2 N + 1,).
    """
    sigma = mu**2
    half = [mu - i * sigma / N for i in range(1, N + 1)]
    return np.array([*reversed(half), mu, *half])


def denoising_data(generator: np.random.Generator, size: int) -> list[tuple[Array, Array]]:
    """``size`` pairs (x, y) of a noisy input and its target, each (2 N + 1,).

    mu is uniform in (-1, 1), N one of 5 ... 10, and the noise of each number uniform.
    """
    pairs: list[tuple[Array, Array]] = []
    for _ in range(size):
        mu = generator.uniform(-1, 1)
        N = int(generator.integers(LENGTHS[0], LENGTHS[1], endpoint=True))
        y = symmetric_sequence(mu, N)
        pairs.append((y + generator.uniform(-NOISE, NOISE, len(y)), y))
    return pairs


def denoise(
    x: Array,
    parameters: Parameters,
    *,
    y: Array | None = None,
    self_attention: SelfAttention = "none",
    order: Sequence[Side] = LEFT_FIRST,
) -> Array:
    """A regressor of section 4.1: numbers in the place of embedded words, no softmax.

    A linear layer on the encoder's final hidden state gives the initial value, the decoders the
    rest, as many as there are inputs.

    Args:
        x: (n,), the noisy sequence.
        parameters: ``encoder``, the linear map ``initial`` to 1, and for each side of ``order``
            the parameters of ``decoder_step`` and the linear map ``output`` to 1.
        y: (n,), the target, for teacher forcing: each value follows the true ones before it.
            Without it each follows the model's own.
        self_attention: "none" is the text's, "dual" the table's.
        order: ("left", "right"), from the middle outwards; ("right",), from the first value on.

    Returns:
        (n,), the values in the order of the sequence.

    Raises:
        ValueError: two halves of a sequence of even length.
    """
    left = (len(x) - 1) // 2 if len(order) == 2 else 0
    right = len(x) - 1 - left
    if len(order) == 2 and left != right:
        raise ValueError(f"{len(x)} values have no middle, expected an odd number")
    H_e, state = encode(x[:, None], parameters)
    initial = linear(state.h, select(parameters, "initial."))
    values = np.zeros(len(x))
    values[left] = initial[0]
    first = initial if y is None else y[[left]]
    decoder = MiddleOutDecoder(first, H_e, state, parameters, self_attention)
    place = {"left": left, "right": left}
    for side in turns(left, right, order):
        value = linear(decoder.advance(side), select(parameters, f"{side}.output."))
        place[side] += 1 if side == "right" else -1
        values[place[side]] = value[0]
        decoder.write(side, value if y is None else y[[place[side]]])
    return values
