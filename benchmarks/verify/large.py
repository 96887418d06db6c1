"""The large cases of a property: which of its sizes are large, and which together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from benchmarks.verify.draw import Draw, Pins
from benchmarks.verify.operators.operator import FLOATS, Operator, Property

TILED = 33
"""A size that is no multiple of tiles of 16 and 32."""

TILE = 16
"""The smallest tile."""

EVEN, ODD, ODDER = 128, 96, 192
"""Sizes that are multiples of tiles: an even one of 32, and odd ones of 32 and of 64."""

POWERS = 8, 32, 64, 256
"""Sizes that kernels are often made for, beside those of tiles."""

BEYOND = 257
"""One more than whole tiles of 16, 32, 64, 128 and 256."""

MOST, WIDEST = 10_001, 131
"""The largest of other sizes than lengths: of single sequences; of batches and gradients."""

TOGETHER = {"B": 10, "num_heads": 9, "d_k": 65, "N_E": 17, "beam_size": 8, "images": 40, "V": MOST}
"""The largest of some sizes where all sizes are large together."""

ROWS = 48
"""The largest batch size if the oracle does not run each sequence separately."""

EVEN_BATCH = 8
"""Size of a padded batch of whole tiles."""

LONG = 144
"""Number of tokens in a large batch: the papers' number of image features."""

MODERATE = 200
"""Maximum of a size in cases where all sizes are large."""


def large_cases(
    prop: Property, operator: Operator, small: Sequence[Draw], many: bool, seed: int
) -> Iterator[Pins]:
    """The pins of a property's large cases; its ``large`` names one of the functions below.

    Args:
        small: draws that have been used; not every name is in every case.
        many: whether there are many small cases; else there are fewer large ones too.
        seed: of the options with which the first case of the first property begins.
    """
    if prop.large != "no":
        sizes = Sizes(prop, operator, small)
        first = seed + [one.name for one in operator.properties].index(prop.name)
        cases = (pins for pins in KINDS[prop.large](sizes, many) if pins)
        for turn, pins in enumerate(cases, first):
            yield {**sizes.options(turn), **sizes.always, **pins}


class Sizes:
    """The sizes of a property's cases that can be large, and groups of them.

    Attributes:
        values: the large values by name.
        most: the largest of each.
        small_most: the largest of each in small cases.
        whole: the largest power of two of each, so that all tiles are whole.
        choices: the options of each choice that is neither a size nor a flag.
    """

    def __init__(self, prop: Property, operator: Operator, small: Sequence[Draw]) -> None:
        """See ``large_cases``."""
        self.prop, self.operator, self.small = prop, operator, small
        found: dict[str, set[int]] = {}
        for one in small:
            for name, values in one.large.items():
                if values and name not in prop.pins:
                    found.setdefault(name, set()).update(values)
        self.values = {name: sorted(values) for name, values in sorted(found.items())}
        self.most = {name: values[-1] for name, values in self.values.items()}
        options = {name: of for one in small for name, of in one.options.items()}
        self.small_most = {name: options[name][-1] for name in self.most}
        self.whole = {name: 1 << x.bit_length() - 1 for name, x in self.most.items() if x >= TILED}
        for name, x in self.whole.items():  # lengths: an odd number of whole tiles too
            odd = {x for x in (ODD, ODDER) if name in operator.lengths and x < self.most[name]}
            beyond = {BEYOND} if self.most[name] >= LONG else set()
            self.values[name] = sorted({*self.values[name], x, *odd, *beyond})
        of_length = self.values.get(operator.lengths[0], [])
        self.longest = max((x for x in of_length if x <= MODERATE), default=1)
        flags = small[0].flags - {"empty", "holes", *prop.pins}
        self.choices = {
            name: of
            for one in small
            for name, of in one.options.items()
            if isinstance(of, tuple) and of != (False, True) and name not in prop.pins
        }
        self.off, self.on = dict.fromkeys(flags, False), dict.fromkeys(flags, True)

    @property
    def always(self) -> Pins:
        """The pins of all cases."""
        prop = self.prop
        if prop.large in ("all", "batch"):
            return {}
        # on the grid, large cases have exact zeros, which are kinks, and inputs without rounding
        exact = "regime" in prop.pins or not prop.settings
        pins: dict[str, Any] = {} if exact else {"regime": "off_grid"}
        # infinite padding: in a product it cannot be hidden
        return pins | ({"padding": np.inf} if isinstance(prop.pins.get("padding"), tuple) else {})

    def options(self, turn: int) -> Pins:
        """An option of each choice: all in turn, those of several choices in all combinations."""
        found, at = dict[str, Any](), turn
        for name, of in self.choices.items():
            found[name] = of[at % len(of)]
            at = turn + at // len(of)
        return found

    @cached_property
    def tiled(self) -> dict[str, int]:
        """Sizes of more than one tile together; not the batch size."""
        return {name: TILED for name, x in self.most.items() if x > TILED and name != "B"}

    @cached_property
    def few(self) -> dict[str, int]:
        """The others together: those with smaller maxima, such as heads, and the batch size."""
        return {name: min(x, TILED) for name, x in self.most.items() if name not in self.tiled}

    def together(self, length: int, width: int) -> Pins:
        """All sizes large together, at most of this ``length`` and ``width``, with flags off."""
        most = {**dict.fromkeys(self.operator.lengths, length), **TOGETHER}
        if not self.prop.is_batched:
            most["B"] = ROWS
        if "beam_size" in self.most:  # the oracle is slow
            most["V"] = width = min(width, BEYOND)
        return {**self.off, **{n: min(x, most.get(n, width)) for n, x in self.most.items()}}

    @cached_property
    def even(self) -> dict[str, int]:
        """Multiples of tiles together."""
        sizes = {name: EVEN if x >= EVEN else TILE for name, x in self.whole.items()}
        return {name: x for name, x in sizes.items() if name != "B" or x == EVEN}

    def powers(self, most: int) -> Iterator[Pins]:
        """All sizes at each power of two that they reach, together."""
        sizes = [(name, x) for name, x in self.most.items() if name != "B"]
        for x in (x for x in POWERS if x <= most):
            yield {name: x for name, largest in sizes if largest > x}

    @cached_property
    def least(self) -> dict[str, int]:
        """Every size at its least large value together, up to ``MODERATE``."""
        return {name: x[0] for name, x in self.values.items() if x[0] <= MODERATE}

    def lengths(self, x: int) -> dict[str, int]:
        """All lengths that reach x at x: a causal mask hides the end of a single long one."""
        return {name: x for name in self.operator.lengths if x in self.values.get(name, [])}

    def dtype(self, name: str) -> Pins:
        """The pin of a dtype, if the property's cases have several."""
        return {"dtype": name} if isinstance(self.prop.pins.get("dtype"), tuple) else {}

    def batch(self, B: int, length: int, **kinds: Any) -> Pins:
        """A batch of long sequences."""
        lengths = dict.fromkeys(self.operator.lengths, min(length, self.longest))
        return {"B": B, **lengths, **kinds}

    def long_batches(self) -> list[Pins]:
        """Two batches of long sequences, with all flags on and off."""
        float64, float32 = map(self.dtype, FLOATS)
        if not self.prop.is_batched:
            return []
        on = self.batch(self.operator.batch, EVEN, **self.on, **float32)
        return [on, self.batch(9, self.longest, **self.off, **float64)]

    def even_batch(self, most: int, dtype: str = "float32") -> Pins:
        """A batch of sequences of whole tiles, in all sizes up to ``most``, with all flags on."""
        sizes = {name: min(x, most) for name, x in self.even.items()}
        few = {"T": TILE} if "T" in sizes else {}  # steps of an LSTM are slow
        return {**self.on, **sizes, **few, "B": EVEN_BATCH, **self.dtype(dtype)}

    def having(self, name: str) -> Pins:
        """The choices of a small case that has the size ``name``; none if all have it."""
        having = [one for one in self.small if name in one.chosen]
        return {} if len(having) == len(self.small) else having[0].chosen


def _all(of: Sizes, many: bool) -> Iterator[Pins]:
    """Every group, every size at each large value, large batches, and real sizes.

    With few cases each size at its largest, a batch of several tiles, and one of the real sizes.
    """
    yield from (of.tiled, of.few, of.even, *map(of.lengths, (BEYOND, ODD) if many else ()))
    if many:  # the oracle runs each sequence of a batch separately
        most = (TILED + 1, WIDEST) if of.prop.is_batched else (LONG + 1, MOST)
        yield of.together(*most)
        yield from of.powers(TILED if of.prop.is_batched else BEYOND)
    real = [*of.operator.sizes]
    if of.prop.is_batched:
        for flags in (of.off, of.on) if many else ():
            yield of.batch(9, LONG, **flags)
            yield {**of.tiled, "B": 9, **flags}
        if not many:
            yield {**of.tiled, "B": 9}
        yield of.batch(of.most["B"], LONG if many else TILED)
    if of.prop.is_batched or not of.operator.sequences:
        real += of.operator.batches
    tested = of.values.items() if many else ((name, [x]) for name, x in of.most.items())
    each = sorted((x, name) for name, values in tested for x in values)
    for x, name in each:  # at a size of 1 little is seen: a softmax of one vector has no scores
        others = of.small_most if x == of.most[name] else {}
        yield {**of.having(name), **others, name: x}
    yield from real if many or not real else [real[of.small[0].seed % len(real)]]


def _some(of: Sizes, many: bool) -> Iterator[Pins]:
    """Sizes together; with many cases each at its largest, lengths together, and long batches."""
    yield of.tiled
    yield {name: x for name, x in of.few.items() if name != "B"}
    if "B" in of.few:  # the oracle runs each sequence separately: not with many heads
        yield {"B": of.few["B"]}
    if many:
        yield of.least
        lengths = {name: x for name, x in of.most.items() if name in of.operator.lengths}
        single = ({name: x} for name, x in of.most.items() if name not in lengths)
        yield from ({**of.on, **sizes} for sizes in (lengths, *single) if sizes)
        if lengths and of.on:
            yield {**of.off, **lengths}
        yield from of.long_batches()
        # of many scores one is at a kink of ReLU; small gradients are lost among others in float32
        is_gradient = "by" in of.prop.settings
        if of.prop.is_batched and is_gradient:
            yield from (of.even_batch(TILE, dtype) for dtype in FLOATS)
        elif of.prop.is_batched:
            yield of.even_batch(EVEN // 2)
        elif is_gradient:
            yield dict.fromkeys(of.even, TILE)


def _real(of: Sizes, many: bool) -> Iterator[Pins]:
    """As ``_some``, with a real batch of two seeds too."""
    yield from _some(of, many)
    if many:
        yield {**of.together(TILED + 1, WIDEST), **of.dtype("float64")}
        # twice: of many scores one may be at a kink of ReLU
        for batch in of.operator.batches[-1:] * 2:
            yield {**of.off, "empty": False, **batch, **of.dtype("float64")}


def _one(of: Sizes, many: bool) -> Iterator[Pins]:
    """As ``_some``, with multiples of tiles and real sizes too; always one size at its largest."""
    yield from _some(of, many)
    if many:
        yield from (of.even, *of.powers(EVEN), *of.operator.sizes)
        is_plain = {"dtype", "uses"}.isdisjoint(of.prop.settings) and "by" in of.prop.settings
        if is_plain and "layers" not in of.most:  # a whole captioner takes too long
            for _ in range(1 + of.operator.has_kinks):  # one may be at a kink
                yield {**of.together(2 * TILED, WIDEST), **of.dtype("float64")}
        whole = (pair for pair in of.whole.items() if pair not in of.most.items())
        yield from ({name: x} for name, x in whole if x > EVEN)
        if beyond := of.lengths(BEYOND):  # a part that is small in float32
            wide = {name: TILE for name in of.even if name.startswith("d")}
            yield {**wide, **beyond, **of.dtype("float64")}
    elif of.most:
        name = [*of.most][of.small[0].seed % len(of.most)]
        having = next(one for one in of.small if name in one.chosen)
        yield {**having.chosen, name: of.most[name]}


def _few(of: Sizes, many: bool) -> Iterator[Pins]:
    """Several tiles; with many cases also long batches, the largest real sizes, or whole tiles."""
    yield of.tiled
    if many:
        largest = sorted(of.operator.sizes, key=_product)[-1:]
        yield from of.long_batches() or largest or [of.even or of.few]


def _tiled(of: Sizes, many: bool) -> Iterator[Pins]:
    """With many cases, several tiles and real sizes, or one padded batch of several tiles."""
    if not many:
        return
    # of a gradient the oracle gives the shape alone
    is_gradient = "by" in of.prop.settings
    steps = {"T": TILED} if "T" in of.even else {}  # of an LSTM: slow
    if of.prop.is_batched:
        batch = of.batch(min(9, of.operator.batch), EVEN)
        even = {**of.even_batch(TILE), **batch, **steps}
        yield even if is_gradient else {**of.tiled, "B": 9}
        return
    yield of.tiled
    if is_gradient:
        yield of.even | steps
    else:
        first = (pair for sizes in of.operator.sizes[:1] for pair in sizes.items())
        real = {name: x for name, x in first if name not in of.prop.pins}
        yield {**of.tiled, **real, **of.dtype("float32")}


def _batch(of: Sizes, many: bool) -> Iterator[Pins]:
    """With many cases, several batches: in 16 bits Psi is seldom decided for many tokens."""
    if many:
        yield from (of.batch(9, TILED, **flags) for flags in (of.off, of.on))
        yield from [{"B": 9}] * 4


KINDS = {
    "all": _all,
    "some": _some,
    "real": _real,
    "one": _one,
    "few": _few,
    "tiled": _tiled,
    "batch": _batch,
}
"""By a property's ``large``."""


def _product(sizes: Pins) -> int:
    return prod(x for x in sizes.values() if isinstance(x, int))
