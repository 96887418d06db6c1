"""The synthetic de-noising task (Middle-Out 8, section 4.1): its data and its two regressors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reference.checks import requires
from reference.equations import Decision, Erratum, equation, passage
from reference.middle_out import LEFT_FIRST, MiddleOutDecoder, SelfAttention, Side, encode, turns
from reference.primitives import Array, Parameters, linear, select

NOISE = 0.0035
"""The noise is uniform in (-NOISE, NOISE)."""

LENGTHS = (5, 10)
"""The smallest and the largest N; a sequence has 2 N + 1 numbers."""


@equation(
    "middle_out",
    8,
    r"\mathbf{y} = \mu - \frac{N\sigma}{N}, \dots, \mu - \frac{2\sigma}{N}, \mu - \frac{\sigma}{N},"
    r" \mu, \mu - \frac{\sigma}{N}, \mu - \frac{2\sigma}{N}, \dots, \mu - \frac{N\sigma}{N}",
)
def symmetric_sequence(mu: float, N: int) -> Array:
    """y (2 N + 1,), for N >= 1; sigma is mu^2."""
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
        N = int(generator.integers(*LENGTHS, endpoint=True))
        y = symmetric_sequence(mu, N)
        pairs.append((y + generator.uniform(-NOISE, NOISE, len(y)), y))
    return pairs


@passage(
    "middle_out",
    "4.1, Table 1",
    Erratum(
        "the text removes the self-attention, the table's row is named with it",
        "both can be run, and are named",
        "text and table contradict each other",
    ),
)
@passage(
    "middle_out",
    "4.1, classifier",
    Decision(
        "a single linear layer on the final hidden state of a bidirectional LSTM encoder",
        "the encoder of the regressor itself; its initial value is the first one for the "
        "sequence-to-sequence model, mu for the middle-out decoder",
        "no other encoder is described",
    ),
)
@passage(
    "middle_out",
    "4.1, end",
    Decision(
        "numbers have no STOP token",
        "as many values as the input has, half of the others on each side of the middle",
        "the length of the input is known",
    ),
)
@requires(
    lambda x, side_order: len(side_order) == 1 or len(x) % 2 == 1,
    "{x.size} values have no middle, expected an odd number",
)
def denoise(
    x: Array,
    parameters: Parameters,
    *,
    y: Array | None = None,
    self_attention: SelfAttention = "none",
    side_order: Sequence[Side] = LEFT_FIRST,
) -> Array:
    """A regressor of section 4.1, x (n,) to (n,): numbers in place of embedded words, no softmax.

    A linear layer on the encoder's final hidden state predicts the initial value, the decoders the
    rest: outwards from the middle value if ``side_order`` has both sides, from the first value on
    if it is ("right",). With the target y (n,) it is teacher-forced, else it reads its own outputs.
    ``self_attention`` is "none" in the text, "dual" in the table. ``parameters``: ``encoder``, the
    linear map ``initial`` to 1, and for each side a decoder's with the linear map ``output``.
    """
    left = len(x) // 2 if len(side_order) == 2 else 0
    H_e, state = encode(x[:, None], parameters)
    initial = linear(state.h, select(parameters, "initial."))
    values = np.zeros(len(x))
    values[left] = initial[0]
    first = initial if y is None else y[[left]]
    decoder = MiddleOutDecoder(first, H_e, state, parameters, self_attention)
    place = {"left": left, "right": left}
    for side in turns(left, len(x) - 1 - left, side_order):
        value = linear(decoder.advance(side), select(parameters, f"{side}.output."))
        place[side] += 1 if side == "right" else -1
        values[place[side]] = value[0]
        decoder.write(side, value if y is None else y[[place[side]]])
    return values
