"""Operators of the conformance kit, and the properties that all of them have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from benchmarks.verify import gradients, properties
from benchmarks.verify.cases import MODELS, Case, float_arrays, rounded
from benchmarks.verify.draw import REGIMES, Draw, Pins
from benchmarks.verify.properties import Function, batched_oracle
from reference.equations import Number

FLOATS = ("float64", "float32")

ALL = (*FLOATS, "bfloat16", "float16")

MIXED = {"dtype": FLOATS}
"""Pins of cases in both float64 and float32."""

EXACT = {"dtype": "float64"}
"""Pins of cases in which float32's rounding errors would add up, such as sums of equal numbers."""

NORMAL_RANGE = (*FLOATS, "bfloat16")
"""Dtypes that can represent Psi's epsilon; in float16 it is 0, so there is no literal form."""

SAME = "new numbers in the same padded batch give a new result"

STATE = "no state is carried from one padded batch to the next"

LOW = "in low precision the error is at most twice the literal form's, plus 2 roundings"

TWICE = (
    "two calls before a backward pass, the second with twice the weight, give three times the "
    "derivatives, a second pass the same"
)

SAME_GRADIENT = (
    "gradient_of_some",
    "gradient_of_parts",
    "gradient_of_sum",
    "gradient_strided",
    "gradient_after_other",
    "gradient_scaled",
)
"""Properties that compare a candidate's gradient with its own."""

EXTREME = ("huge", "large_scores")
"""Regimes in which exponentials overflow."""

PADDED_TOO = (
    *("strided", "same_array", "gradient_same_array", "gradient_used_twice", "inference"),
    "inference_state",
    *(f"gradient_{name}" for name in EXTREME),
    *SAME_GRADIENT,
)
"""Properties of single sequences that padded batches have too."""

GRADIENT_TOO = ("zeros", "tiny", "unlikely_words", "shifted")
"""Other regimes and special cases whose gradients are compared with differences."""

PADDING = (0.0, 1000.0, np.nan, np.inf)
"""Values in padded rows."""

TORCH, GRADIENT, BATCHES = "torch", "gradient", "batches"
HOLES, PROJECT, WRITABLE = "holes", "project", "writable"
"""Requirements of properties on a candidate."""


UNEVEN = 600
"""A width beyond tiles of 512, and no multiple of 16."""


@dataclass(frozen=True)
class Property:
    """A named check on an operator's cases.

    Attributes:
        name: identifies it on the command line.
        check: a function in ``properties``: ``check(candidate, oracle, case)``.
        meaning: a description; default: the first line of the check's docstring.
        pins: fixed sizes and choices of its cases, by name, see ``Draw``.
        needs: requirements on the candidate or its framework: TORCH, GRADIENT and so on.
        settings: keyword arguments of the check.
        large: which large cases, see ``large``; "all" has no small ones, "no" no large ones.
    """

    name: str
    check: Callable[..., None]
    meaning: str = ""
    pins: Pins = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    large: str = "some"

    @property
    def is_batched(self) -> bool:
        """Whether its cases are padded batches."""
        return bool({BATCHES, HOLES} & {*self.needs})

    @property
    def dtype(self) -> str:
        """The dtype of its cases in tables: float64 for cases in both."""
        dtype = self.settings.get("dtype") or self.pins.get("dtype")
        return dtype if isinstance(dtype, str) else "float64"

    @property
    def description(self) -> str:
        """The description, for ``--list`` and the verdict."""
        line = (self.check.__doc__ or "").strip().partition("\n")[0].rstrip(".")
        return self.meaning or line[0].lower() + line[1:]


@dataclass(frozen=True, eq=False)
class Operator:
    """The interface of a function under test, its oracle, and its random cases.

    Attributes:
        name: of the operator, on the command line.
        arguments: names of the positional arguments, in order.
        result: description of the result's shape.
        about: what it computes, shapes of the arguments, units.
        oracle: the reference implementation, with the same arguments.
        case: a function of a ``Draw`` that returns the arguments; every size and choice has a name.
        equations: paper and numbers.
        conventions: what an implementer must know besides the equations, one sentence each.
        special: further properties that compare with the oracle: name -> (pins, description).
        regimes: of ``draw.REGIMES``, besides "plain".
        extra_properties: of this operator only.
        compare: the check against the oracle; a special one if results are not arrays.
        by: the arguments by which it is differentiated; empty for no gradient.
        sequences: how many leading arguments have a batch axis in a padded batch; 0 for none.
        rows: whether the output has a row for each row of the last of these.
        empty: whether the oracle is defined for an empty sequence; else any finite output passes.
        holes: pins of cases whose mask has holes; None if holes are not allowed.
        gates: the arguments whose values a sigmoid gates, besides a tanh; None without gates.
        dtypes: the dtypes in which it is defined, float64 and float32 first.
        project_dtypes: further dtypes for this project's implementations only.
        sizes: pins of large cases with several large sizes, as in the papers.
        batch: size of a batch of long sequences.
        batches: pins of further large batches, for outputs; the last for gradients, too.
        has_kinks: whether a ReLU is at its kink where inputs are zero.
        lengths: names of the sizes that are long in large batches, that of the padded argument
            first.
    """

    name: str
    arguments: tuple[str, ...]
    result: str
    about: str
    oracle: Function
    case: Callable[[Draw], Case]
    equations: Mapping[str, tuple[Number, ...]] = field(default_factory=dict)
    conventions: tuple[str, ...] = ()
    special: Mapping[str, tuple[Pins, str]] = field(default_factory=dict)
    regimes: tuple[str, ...] = ()
    extra_properties: tuple[Property, ...] = ()
    compare: Callable[..., None] = properties.equals_oracle
    by: tuple[str, ...] = ()
    sequences: int = 0
    rows: bool = True
    empty: bool = True
    holes: Pins | None = field(default_factory=dict)
    gates: tuple[str, ...] | None = None
    dtypes: tuple[str, ...] = ALL
    project_dtypes: tuple[str, ...] = ()
    sizes: tuple[Pins, ...] = ()
    batch: int = 16
    batches: tuple[Pins, ...] = ()
    has_kinks: bool = False
    lengths: tuple[str, ...] = ("L",)

    @property
    def signature(self) -> str:
        """The signature of a candidate."""
        lengths = "[, lengths or mask]" if self.sequences else ""
        return f"{self.name}({', '.join(self.arguments)}{lengths}) -> {self.result}"

    @cached_property
    def properties(self) -> tuple[Property, ...]:
        """All properties, the most basic first."""
        return tuple(self._properties())

    def _properties(self) -> Iterator[Property]:
        by = {"by": tuple(self.arguments.index(name) for name in self.by)}
        single = [*self._single(by)]
        yield from single
        if self.sequences:
            yield from self._batched(by)
            yield from self._padded_too(single)

    @property
    def _every_mode(self) -> Callable[..., None]:
        """The check against the oracle, in PyTorch's modes without gradients too."""
        same = self.compare is properties.equals_oracle
        return properties.every_mode if same and self.by else self.compare

    def _single(self, by: Mapping[str, Any]) -> Iterator[Property]:
        """The properties of arguments without padding."""
        same, compare = "equals the oracle", self._every_mode
        has_floats = bool(float_arrays(self.case(Draw())))
        both = MIXED if has_floats and self.compare is properties.equals_oracle else {}
        yield Property("equals_oracle", self.compare, f"{same}: ordinary numbers", large="no")
        for name, (pins, words) in self.special.items():
            large = "tiled" if both else "no"
            yield Property(name, compare, f"{same}: {words}", {**pins, **both}, large=large)
        initial = ("initial",) if "parameters" in self.arguments else ()
        for name in (*self.regimes, *initial):
            yield self._regime(name, f"{same}: {REGIMES[name]}")
        words = "large sizes, multiples of kernel tiles and others"
        yield Property("large", compare, f"{same}: {words}", large="all")
        yield from self.extra_properties
        if not has_floats:
            if any(isinstance(value, (list, *MODELS)) for value in self.case(Draw())):
                settings = {"compare": self.compare}
                yield Property("same_objects", properties.same_lists, settings=settings, large="no")
            elif len(self.arguments) > 1:
                exact = {"limit": 1.0}
                yield Property("no_state", properties.no_state, settings=exact, large="no")
            return
        yield Property("strided", properties.strided, pins=MIXED)
        yield Property("no_state", properties.no_state, pins=MIXED, large="few")
        objects = Property("same_objects", properties.same_objects, pins=MIXED, needs=(WRITABLE,))
        of_modules = {"of_modules": bool(self.by)}
        yield replace(objects, large="few", settings=of_modules)
        for dtype in (*self.dtypes[1:], *self.project_dtypes):
            other = PROJECT if dtype in self.project_dtypes else TORCH
            needs = () if dtype == "float32" else (other,)
            pins = {"dtype": dtype}
            one = Property(dtype, properties.every_layout, LOW, pins, needs, of_modules)
            if dtype == "float32":
                one = replace(one, check=properties.equals_oracle, settings={}, large="one")
                state = Property("precision_state", properties.precision_state, needs=needs)
                yield replace(state, large="no", settings={"dtype": dtype})
            yield one
        if self.by:
            once = Property("gradient", gradients.gradient, needs=(GRADIENT,), settings=by)
            yield replace(once, large="one")
            twice, mixed = {**by, "uses": 2}, replace(once, pins=MIXED)
            yield replace(mixed, name="gradient_used_twice", meaning=TWICE, settings=twice)
            modes = (GRADIENT, TORCH)
            yield Property("inference", properties.inference, pins=MIXED, needs=modes)
            state = Property("inference_state", gradients.inference_state, needs=modes)
            yield replace(state, settings=by, large="no")
            several = len([at for at in float_arrays(self.case(Draw())) if at[0] in by["by"]]) > 1
            for name in SAME_GRADIENT if several else SAME_GRADIENT[1:]:
                check = getattr(gradients, name)
                yield Property(name, check, "", MIXED, (GRADIENT,), by, "tiled")
            for name in (*EXTREME, *GRADIENT_TOO):
                if name in self.regimes and not (name == "zeros" and self.has_kinks):
                    pins, what = {"regime": name}, REGIMES[name]
                elif name in self.special:
                    pins, what = self.special[name]
                else:
                    continue
                words = f"the gradient is finite, and correct: {what}"
                check, settings = gradients.gradient_in_regime, {**by, **self._gates(name)}
                one = Property(f"gradient_{name}", check, words, pins, (GRADIENT,), settings, "no")
                yield one
                if name in EXTREME:
                    one = replace(one, settings=by)
                    pins, check = {**pins, "dtype": "float32"}, gradients.finite_in_float32
                    words = f"in float32 output and gradient are finite: {what}"
                    yield replace(
                        one, name=f"{name}_float32", check=check, meaning=words, pins=pins
                    )
            in_float32, check = {**by, "dtype": "float32"}, gradients.gradient_float32
            one = Property("gradient_float32", check, needs=(GRADIENT,), settings=in_float32)
            yield replace(one, large="one")

    def _gates(self, regime: str) -> dict[str, Any]:
        """The setting of checks in a regime in which gates suppress values; empty in others."""
        if regime not in ("huge", "mixed") or self.gates is None:
            return {}
        return {"gates": tuple(self.arguments.index(name) for name in self.gates)}

    def _regime(self, name: str, words: str) -> Property:
        """The property that compares with the oracle in a regime."""
        pins = {"regime": name}
        if gates := self._gates(name):
            return Property(name, properties.gated, words, pins, settings=gates)
        mixed = MIXED if name == "large_scores" else {}
        return Property(name, self._every_mode, words, {"regime": name, **mixed})

    def _batched(self, by: Mapping[str, Any]) -> Iterator[Property]:
        alone = "a padded batch gives each sequence the same output as on its own"
        full, compare = {"empty": False, "padding": 0.0}, self._every_mode
        needs = (BATCHES,)
        yield Property("padded_batch", self.compare, alone, full, needs, large="no")
        for name in self.regimes:
            if name not in EXTREME:
                continue
            one = self._regime(name, f"{alone}: {REGIMES[name]}")
            pins = {**full, **one.pins}
            yield replace(one, name=f"padded_{name}", pins=pins, needs=needs, large="no")
        if self.holes is not None:
            anywhere = f"{alone}: valid rows anywhere, also between NaN and Inf"
            pins = {"empty": False, "padding": PADDING, **self.holes, **MIXED, "holes": True}
            yield Property("holes", compare, anywhere, pins, (HOLES,))
            if self.by:
                words, many = "the gradient of a batch with valid rows anywhere", (GRADIENT, HOLES)
                yield Property("holes_gradient", gradients.gradient, words, pins, many, by)
        content = "values in padded rows, including NaN and Inf, are ignored"
        pins = {"empty": False, "padding": PADDING[1:], **MIXED}
        yield Property("padding_content", compare, content, pins, needs)
        words = f"{alone}: large batches"
        yield Property("large_batch", compare, words, full, needs, large="all")
        yield Property("empty_sequence", properties.finite, "", {"empty": True, **MIXED}, needs)
        one = Property("padded_no_state", properties.no_state, STATE, {**full, **MIXED}, needs)
        yield replace(one, large="few")
        pins = {**full, **MIXED}
        one = Property("padded_same_objects", properties.same_objects, SAME, pins, needs)
        one = replace(one, settings={"of_modules": bool(self.by)})
        yield replace(one, needs=(*needs, WRITABLE), large="few")
        for dtype in self.dtypes[1:]:
            words, pins = f"{alone}, in {dtype}", {"empty": False, "dtype": dtype}
            one = Property(f"padded_{dtype}", properties.equals_oracle, words, pins, needs)
            if dtype == "float32":
                yield one
                continue
            one = replace(one, check=properties.low_batch, large="batch")
            pins = {**pins, "empty": (False, True)}
            yield replace(one, pins=pins, needs=(*needs, TORCH))
            if self.holes is not None:
                pins = {**pins, **self.holes, "padding": PADDING, "holes": True}
                words = f"valid rows anywhere, in {dtype}"
                yield replace(
                    one, name=f"holes_{dtype}", meaning=words, pins=pins, needs=(HOLES, TORCH)
                )
        if self.by:
            words = "the gradient of a padded batch is the sum of its sequences'"
            both = (GRADIENT, BATCHES)
            one = Property("padded_gradient", gradients.gradient, words, MIXED, both, by)
            yield replace(one, large="real")

    def _padded_too(self, single: Iterable[Property]) -> Iterator[Property]:
        """Those of ``PADDED_TOO`` among ``single``, of padded batches."""
        for one in single:
            if one.name in PADDED_TOO:
                yield replace(
                    one,
                    name=f"padded_{one.name}",
                    meaning=f"of a padded batch: {one.description}",
                    pins={"empty": False, "padding": 1000.0, **one.pins},
                    needs=(*one.needs, BATCHES),
                    large="no" if "uses" in one.settings or one.large == "no" else "tiled",
                )

    def sample_case(self, draw: Draw) -> Case:
        """The case, rounded to a chosen dtype if ``draw`` has a pin for it.

        Mappings are in one order or the reverse, so that nothing depends on it.
        """
        case = self.case(draw)
        if any(isinstance(value, Mapping) for value in case) and draw.flag("reversed_order"):
            case = tuple(
                _in_reverse(value) if isinstance(value, Mapping) else value for value in case
            )
        return rounded(case, draw.choose("dtype", FLOATS)) if "dtype" in draw.pins else case

    def batched(self, padding: str = "lengths") -> Operator:
        """The operator on padded batches; its last argument is ``lengths`` or ``mask``."""
        return replace(
            self,
            arguments=(*self.arguments, padding),
            oracle=batched_oracle(self.oracle, self.sequences, self.rows, self.empty),
            case=partial(self._padded, padding),
        )

    def _padded(self, name: str, draw: Draw) -> Case:
        """A padded batch: the last sequence argument is padded; ends with ``lengths`` or ``mask``.

        In half of them the last sequence is not padded.

        Each sequence of the batch has the case's own tokens, rolled and with alternating signs.
        """
        case = self.case(draw)
        B = draw.size("B", 3, large=(9, 48, 65))
        padding = draw.choose("padding", PADDING)
        empty, holes = draw.flag("empty"), draw.choose("holes", (False,))
        batch = [
            np.stack([np.roll(array, i, axis=0) * (-1) ** i for i in range(B)])
            for array in case[: self.sequences]
        ]
        L = batch[-1].shape[1]
        lengths = draw.random.integers(1, L + 1, B)
        if draw.random.integers(2):
            lengths[-1] = L
        if empty:
            lengths[draw.random.integers(B)] = 0
        mask = np.arange(L) < lengths[:, None]
        if holes:
            scattered = draw.random.permuted(mask, axis=1)
            # every other sequence in one piece anywhere, or in two around a hole
            for i, shift in enumerate(draw.random.integers(0, L, B)):
                mask[i] = scattered[i] if i % 2 else np.roll(mask[i], shift)
            if draw.random.integers(2):  # a hole in all of them, which leaves both ends
                start = draw.random.integers(L // 4 + 1)
                hole = (np.arange(L) >= start) & (np.arange(L) < start + 3 * L // 4)
                mask = np.where((mask & ~hole).any(1, keepdims=True), mask & ~hole, mask)
        batch[-1][~mask] = padding
        return *batch, *case[self.sequences :], mask if name == "mask" else lengths


def _in_reverse(values: Mapping[str, Any]) -> dict[str, Any]:
    return dict([*values.items()][::-1])
