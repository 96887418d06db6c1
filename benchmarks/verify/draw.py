"""Random cases: named sizes and choices, and numbers on a grid.

An operator's case is a function of a ``Draw``. All its choices have names, so that a property can
pin them (``L=1``), a large case can set one size (``L=200``), and a failing case can be shrunk by
trying smaller sizes and earlier options.

Numbers are multiples of 1/16, whose sums of products are exact in float64: a zero is zero in any
order of summation, so that no correct implementation fails by rounding at a kink of ReLU. Rates,
lambda and other options are numbers that float32 would round, such as multiples of 1/65.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from math import log2
from typing import Any

import numpy as np

from benchmarks.verify.cases import Array
from reference.primitives import Integers

FEW_WORDS = 5
"""Number of words that may be special: padding, start, end, unknown."""

STARTING = 1
"""Seed of the case by which a candidate is started."""

REGIMES = {
    "plain": "ordinary numbers",
    "zeros": "half of all numbers exactly zero, and whole rows",
    "one_sign": "all products of queries and keys have one sign, so one stream is empty",
    "tiny": "products of queries and keys of the size of epsilon",
    "huge": "inputs, or the arguments of gates, in the thousands",
    "large_scores": "scores of a softmax in the thousands, whose exponentials overflow",
    "mixed": "numbers from a millionth to a thousand side by side",
    "off_grid": "uniform numbers, seldom near a kink",
    "initial": "biases of zero and norms of one, as before any training",
    "remembers": "a memory cell that grows over many steps, then falls",
}

Pins = Mapping[str, Any]
"""By a choice's name, its value, or a tuple of options."""


class Draw:
    """The random choices of one case, determined by the seed and the ``pins``.

    Attributes:
        chosen: the choices by name.
        large: the large values of each size, by name.
        options: those that each was chosen from, by name.
    """

    def __init__(self, seed: int = 0, **pins: Any) -> None:
        self.seed, self.pins = seed, pins
        self.random = np.random.default_rng([seed, 0])
        self._sizes = np.random.default_rng([seed, 1])
        self.regime: str = pins.get("regime", "plain")
        self.chosen: dict[str, Any] = {}
        self.large: dict[str, Sequence[Any]] = {}
        self.options: dict[str, Sequence[Any]] = {}

    def again(self) -> Draw:
        """A draw of the same case: this one's random numbers are used up."""
        return Draw(self.seed, **{**self.pins, **self.chosen})

    def choose(self, name: str, options: Sequence[Any], large: Sequence[Any] = ()) -> Any:
        """Choose one of ``options``, the simplest first; ``large`` are for large cases."""
        # also for pinned choices, so that the others do not change
        at = int(self._sizes.integers(2**31))
        pinned = self.pins.get(name)
        if isinstance(pinned, tuple):
            options = pinned
        is_pinned = name in self.pins and options is not pinned
        self.chosen[name] = pinned if is_pinned else options[at % len(options)]
        self.options[name], self.large[name] = options, large
        return self.chosen[name]

    def size(self, name: str, most: int, large: Sequence[int] = (), least: int = 1) -> int:
        """Choose an integer from ``least`` to ``most``."""
        return int(self.choose(name, range(least, most + 1), large))

    def flag(self, name: str) -> bool:
        """Choose False or True."""
        return bool(self.choose(name, (False, True)))

    @property
    def flags(self) -> set[str]:
        """The names of choices between False and True."""
        return {name for name, of in self.options.items() if tuple(of) == (False, True)}

    @property
    def beyond(self) -> list[str]:
        """The names of sizes that are larger than those of small cases."""
        sizes = [name for name in self.chosen if isinstance(self.options[name], range)]
        return [name for name in sizes if self.chosen[name] > self.options[name][-1]]

    def simpler(self) -> Iterator[dict[str, Any]]:
        """Candidates for shrinking: pins with one or two of several large sizes, the others small;
        then with one smaller size, of the largest first, or one earlier option.
        """
        sizes = [name for name in self.chosen if isinstance(self.options[name], range)]
        sizes.sort(key=lambda name: -self.chosen[name])
        large, every = self.beyond, {**self.pins, **self.chosen}
        for few in range(1, min(len(large), 3)):
            for kept in map(set, combinations(large, few)):
                yield {name: x for name, x in every.items() if name not in {*large} - kept}
        # bisection finds the smallest failing sizes in few steps, small cases first; each size is
        # halved before one is changed by less
        gaps = {
            name: [self.chosen[name] - self.options[name][0] >> k for k in range(20)]
            for name in sizes
        }
        for name in sizes:
            smaller = sorted({0, *gaps[name]} - {gaps[name][0]})
            yield from ({**every, name: self.options[name][0] + gap} for gap in smaller)
        for name in (name for name in self.chosen if name not in sizes):
            options, value = self.options[name], self.chosen[name]
            at = options.index(value) if value in options else len(options)
            yield from ({**every, name: other} for other in dict.fromkeys(options[:at]))
        for name in sizes:
            fewer = sorted({*gaps[name][1:]} - {0}, reverse=True)
            yield from ({**every, name: self.chosen[name] - gap} for gap in fewer)

    # numbers

    def array(self, *shape: int) -> Array:
        """Odd multiples of 1/16 between -1 and 1, whose sums of products are seldom zero."""
        if self.regime == "off_grid":  # as on the grid, no vector is almost zero
            return self.random.uniform(1 / 16, 1, shape) * self.random.choice((-1.0, 1.0), shape)
        values = self._nonzero(*shape)
        if self.regime == "zeros":
            values *= self.random.integers(0, 2, shape)
            if len(shape) > 1:
                values *= self.random.integers(0, 4, (*shape[:-1], 1)) > 0
        if self.regime == "mixed":
            values *= 10.0 ** self.random.uniform(-6, 3, shape)
        return np.abs(values) if self.regime == "one_sign" else values

    def _nonzero(self, *shape: int) -> Array:
        return (2.0 * self.random.integers(-8, 8, shape) + 1) / 16

    def words(self, V: int, *shape: int) -> Integers:
        """Numbers below V: two of five are among the first few, special words, one is V - 1."""
        few, every = (self.random.integers(0, most, shape) for most in (min(V, FEW_WORDS), V))
        kind = self.random.integers(0, 5, shape)
        return np.where(kind == 0, V - 1, np.where(kind < 3, few, every))

    def factor(self, regime: str) -> float:
        """The factor of what is in the thousands in a regime; 1 in others."""
        return 4096.0 if self.regime == regime else 1.0

    @property
    def scores_are_far(self) -> bool:
        """Whether large scores also differ by hundreds, so that exponentials underflow: in half."""
        return self.regime == "large_scores" and self.seed % 2 == 0

    def inputs(self, *shape: int) -> Array:
        """Input tokens, of large magnitude in the regime "huge"."""
        return self.array(*shape) * self.factor("huge")

    def linear(self, name: str, wide: int, narrow: int | None = None) -> dict[str, Array]:
        """Parameters of the linear map ``name`` from ``narrow`` (default: ``wide``) to ``wide``."""
        narrow = wide if narrow is None else narrow
        scale = 2.0 ** -max(round(log2(narrow) / 2) - 1, 0)  # keeps the magnitude of the inputs
        if self.regime == "tiny" and name.endswith("key"):
            scale = 2.0**-31
        weight, bias = scale * self.array(wide, narrow), scale * self.array(wide)
        if self.regime == "zeros" and self.seed % 2:  # at a row of zeros ReLU has no kink
            bias = scale * self._nonzero(wide)
        if self.scores_are_far and name.endswith("key"):
            weight *= 2.0**10
        elif self.regime == "large_scores" and name.endswith(("key", "vocabulary")):
            bias *= 2.0**14  # a key's bias b adds the same to all scores of a query q: q b
        if self.regime == "initial":
            bias[:] = 0
        return {f"{name}.weight": weight, f"{name}.bias": bias}

    def norm(self, name: str, d: int) -> dict[str, Array]:
        """Parameters of a layer norm; ``name`` ends with a dot, or is empty."""
        weight, bias = self.array(d), self.array(d)
        if self.regime == "initial":
            weight[:], bias[:] = 1, 0
        return {f"{name}weight": weight, f"{name}bias": bias}
