"""Costs of a captioner in closed form, by component and by equation, for one image.

Each form is written once and computed on numbers or on sympy's symbols: the report's cost explorer
prints its JavaScript from them. The conventions:

* **macs** are the multiply-accumulates of matrix products and linear layers, in the papers' order
  of operations. Masked entries are computed, so they count; so do all heads.
* **elementwise** is every other scalar operation that the equations print: an addition,
  subtraction, multiplication, division, negation, maximum, exponential, logarithm or square root is
  one operation. A sum of n numbers is n - 1; a sigmoid is 4 (negate, exp, add, divide), a ReLU 1, a
  softmax over n entries 5n - 2 (maximum, subtract, exp, sum, divide), a log-softmax 5n - 1, a layer
  norm over d entries 7d + 2; a bias, a residual and a position add one an entry. What the papers
  print twice (ReLU of M and of its transpose) counts twice. Copies, transpositions, masks, look-ups
  and dropout (off at inference) count nothing.
* **flops** = 2 macs + elementwise.
* **factored** are the macs of the cheapest exact rewriting in closed form: W = R_bw R_fw first, the
  key projection folded into the expansion queries, the dynamic sums split. Each layer takes the
  cheaper of its forms, so factored never exceeds macs.
* **in_paper** says whether v2's Table VI counts the component's macs (`table_vi`).
* **moved** are the numbers that a component must read or write at least: its parameters once per
  batch, if it multiplies by them, and each layer's input and output once. Intermediate results are
  left out, so that its roofline is a lower bound.

Equation numbers are those of ExpansionNet v2 unless "v1" is written; G are the groups of a Block
Static Expansion, N their sum; M, R_fw, R_bw, F, B, C, S are the paper's symbols.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from torch_impl.layers.transformer import REDUCTIONS, Mixer
from torch_impl.models import Configuration

BATCH = 48

Number = Any
"""An int, a float or an expression of sympy."""


@dataclass(frozen=True)
class Length:
    """The means of a sequence's length, of its square and of its cube, over many sequences.

    Costs are polynomials of the length, so these give the exact mean cost of ragged data.
    """

    mean: Number
    square: Number
    cube: Number

    @classmethod
    def of(cls, lengths: Iterable[int]) -> Length:
        """The means over ``lengths``.

        Raises:
            ValueError: there are none, or one is below 1 or too large for floating point.
        """
        known = list(lengths)
        if not known or min(known) < 1:
            raise ValueError("lengths must be one or more numbers, each at least 1")
        try:
            return cls(*(sum(n**power for n in known) / len(known) for power in (1, 2, 3)))
        except OverflowError:
            raise ValueError("a length is too large to count with") from None


@dataclass(frozen=True)
class Equation:
    """The operations of one printed step, for one image."""

    name: str
    macs: Number
    elementwise: Number


@dataclass(frozen=True)
class Component:
    """One part of a model, all its layers together, for one image."""

    name: str
    equations: tuple[Equation, ...]
    factored: Number
    parameters: Number = 0
    activations: Number = 0
    half: str = ""
    in_paper: bool = True

    @property
    def macs(self) -> Number:
        """Multiply-accumulates in the papers' order of operations."""
        return sum(equation.macs for equation in self.equations)

    @property
    def elementwise(self) -> Number:
        """All other scalar operations."""
        return sum(equation.elementwise for equation in self.equations)

    @property
    def flops(self) -> Number:
        """2 macs + elementwise."""
        return 2 * self.macs + self.elementwise

    def moved(self, batch: Number) -> Number:
        """Least numbers that are read and written for a batch."""
        return batch * self.activations + (self.parameters if self.macs else 0)


def seconds(
    macs: Number, moved: Number, *, width: Number, peak: Number, bandwidth: Number
) -> Number:
    """A component's roofline: max(2 macs / peak, width moved / bandwidth).

    ``moved`` numbers of ``width`` bytes are read and written for a batch.
    """
    return largest(2 * macs / peak, width * moved / bandwidth)


def kv_cache(
    kind: str,
    d: Number,
    N_E: Number,
    features: Number,
    slots: Number,
    tokens: Number,
    width: Number,
) -> Number:
    """Bytes of a decoder layer's KV cache, for one image.

    Attention stores the keys and values of each slot; an expansion stores keys, conditions, two
    values, P and, for both streams, R_fw over the beam's tokens, in float32 at least. Both store
    the keys and values of the image's ``features``, L. ``slots`` are beams times tokens, ``tokens``
    are at most those of a beam, and ``width`` is in bytes per number.
    """
    cross = 2 * features * d * width
    if kind != "dynamic":
        return cross + 2 * slots * d * width
    return cross + 4 * slots * d * width + slots * N_E * (1 + 2 * tokens) * largest(width, 4)


def least(*values: Number) -> Number:
    """The minimum of numbers, or sympy's expression of it for symbols."""
    return _of_numbers(*values, function=min, name="Min")


def largest(*values: Number) -> Number:
    """The maximum of numbers, or sympy's expression of it for symbols."""
    return _of_numbers(*values, function=max, name="Max")


def _of_numbers(*values: Number, function: Any, name: str) -> Number:
    if any(hasattr(value, "free_symbols") for value in values):
        import sympy

        return getattr(sympy, name)(*values, evaluate=False)
    return function(*values)


def static_literal(length: Length, d: Number, N: Number) -> Number:
    """Macs of equations 2 to 7 as printed: 5 N L d."""
    return 5 * N * length.mean * d


def static_reassociated(length: Length, d: Number, N: Number) -> Number:
    """Macs of equations 2 to 7 with W = R_bw R_fw, L x L: 3 N L d + 2 N L^2 + 2 L^2 d.

    B = R_bw (R_fw V + E_B) = W V + R_bw E_B; fewer than printed when 1/L > 1/N + 1/d.
    """
    return 3 * N * length.mean * d + 2 * N * length.square + 2 * length.square * d


def projected_keys(length: Length, d: Number) -> Number:
    """Macs of the key projection of every token: L d^2."""
    return length.mean * d**2


def folded_keys(d: Number, N: Number, batch: Number) -> Number:
    """Macs per image of E_Q [W_K, b_K], computed once per batch: N d (d + 1) / B.

    It replaces `projected_keys`, and is cheaper when B > N (d + 1) / (L d).
    """
    return N * d * (d + 1) / batch


def dynamic_literal(length: Length, d: Number, N_E: Number) -> Number:
    """Macs of equations 1 to 7 as printed: 5 L^2 N_E d."""
    return 5 * length.square * N_E * d


def dynamic_split(length: Length, d: Number, N_E: Number) -> Number:
    """Macs of equations 1 to 7 with the sums split: 5 L^2 d + 3 L N_E d + 2 L^3 N_E.

    M = (C K^T)_j + (E_Q K^T)_n, R_bw (C + E_B) = (sum_n R_bw) C + (sum_j R_bw) E_B, W = R_bw R_fw:
    no tensor has the size L N_E x d.
    """
    return 5 * length.square * d + 3 * length.mean * N_E * d + 2 * length.cube * N_E


def _normalised(entries: Number) -> Number:
    # one stream of equations 3, 4 and 6: ReLU, row sum with epsilon, division
    return 3 * entries


def _selected(entries: Number) -> Number:
    # equation 8: a sigmoid, its complement, two products, a sum
    return 8 * entries


def _softmax(rows: Number, entries: Number) -> Number:
    return 5 * entries - 2 * rows


def static_expansion(length: Length, d: Number, N: Number, groups: int, batch: Number) -> Component:
    """One layer of Static Expansion of N vectors, Block Static if there are several groups."""
    L = length.mean
    averaged = 2 * N * L if groups > 1 else 0
    equations = (
        Equation("projections K, V_1, V_2, S", 4 * projected_keys(length, d), 4 * L * d),
        Equation("(2) M", N * L * d, N * L),
        Equation("(3)-(4) R_fw", 0, 2 * _normalised(N * L) + N * L),
        Equation("(5) F", 2 * N * L * d, 2 * N * d),
        Equation("(6) R_bw", 0, 2 * _normalised(N * L) + N * L + averaged),
        Equation("(7) B", 2 * N * L * d, 0),
        Equation("(8) out", 0, _selected(L * d)),
    )
    keys = least(projected_keys(length, d), folded_keys(d, N, batch))
    core = least(static_literal(length, d, N), static_reassociated(length, d, N))
    return Component(
        "block static expansion" if groups > 1 else "static expansion",
        equations,
        3 * projected_keys(length, d) + keys + core,
        parameters=4 * _linear(d, d) + 2 * N * d,
        activations=2 * L * d,
    )


def dynamic_expansion(length: Length, d: Number, N_E: Number) -> Component:
    """One layer of Dynamic Expansion; the causal mask hides entries but saves no product."""
    L, pairs = length.mean, length.square * N_E
    equations = (
        Equation("projections C, K, V_1, V_2, S", 5 * L * d**2, 5 * L * d),
        Equation("(1) BroadSum", 0, 2 * L * N_E * d),
        Equation("(2) M", pairs * d, pairs),
        Equation("(3)-(4) R_fw", 0, 2 * _normalised(pairs) + pairs),
        Equation("(5) F", 2 * pairs * d, 2 * L * N_E * d),
        Equation("(6) R_bw", 0, 2 * _normalised(pairs) + pairs),
        Equation("(7) B", 2 * pairs * d, 0),
        Equation("(8) out", 0, _selected(L * d)),
    )
    core = least(dynamic_literal(length, d, N_E), dynamic_split(length, d, N_E))
    return Component(
        "dynamic expansion",
        equations,
        5 * L * d**2 + core,
        parameters=5 * _linear(d, d) + 2 * N_E * d,
        activations=2 * L * d,
    )


def _linear(inputs: Number, outputs: Number) -> Number:
    # the parameters of a linear layer
    return (inputs + 1) * outputs


def attention(
    queries: Length,
    keys: Length,
    pairs: Number,
    d: Number,
    heads: Number,
    gated: bool,
    *,
    cross: bool = False,
) -> Component:
    """One layer of multi-head attention, with the gate of Attention on Attention if ``gated``.

    ``pairs`` is the mean number of (query, key) pairs; ``cross`` attention also reads the tokens of
    its keys.
    """
    T, L = queries.mean, keys.mean
    equations = [
        Equation("projections Q, K, V", (T + 2 * L) * d**2, (T + 2 * L) * d),
        Equation("v1 (2) scores", pairs * d, heads * pairs),
        Equation("v1 (2) softmax", 0, _softmax(heads * T, heads * pairs)),
        Equation("v1 (2) context", pairs * d, 0),
    ]
    if gated:
        equations.append(Equation("information and gate", 4 * T * d**2, 2 * T * d))
        equations.append(Equation("information * sigmoid(gate)", 0, 5 * T * d))
    else:
        equations.append(Equation("v1 (2) out", T * d**2, T * d))
    outputs = 2 * _linear(2 * d, d) if gated else _linear(d, d)
    return _as_printed(
        "cross-attention" if cross else "attention on attention" if gated else "attention",
        *equations,
        parameters=3 * _linear(d, d) + outputs,
        activations=(2 * T + L) * d if cross else 2 * T * d,
    )


def feed_forward(length: Length, d: Number, ff: Number) -> Component:
    """One position-wise feed-forward layer."""
    n = length.mean
    return _as_printed(
        "feed-forward",
        Equation("linear_1 and ReLU", n * d * ff, 2 * n * ff),
        Equation("linear_2", n * d * ff, n * d),
        parameters=_linear(d, ff) + _linear(ff, d),
        activations=2 * n * d,
    )


def norms(length: Length, d: Number, count: int, residuals: int) -> Component:
    """Layer norms and residual sums."""
    n = length.mean
    return _as_printed(
        "norms and residuals",
        Equation("layer norms", 0, count * n * (7 * d + 2)),
        Equation("residual sums", 0, residuals * n * d),
        parameters=2 * count * d,
        activations=2 * count * n * d,
    )


def components(
    configuration: Configuration, features: Length, captions: Length, batch: int = BATCH
) -> tuple[Component, ...]:
    """Every part of a `torch_impl.models.Captioner`: an encoder and a teacher-forced decoder pass.

    Args:
        configuration: the model's sizes, mixers and reductions.
        features: L, the feature vectors of an image.
        captions: T, the tokens that the decoder reads, start and end included.
        batch: images that share the folded key projection (``factored`` only).

    Raises:
        ValueError: a size below 1, or d_model not divisible by num_heads.
    """
    c, d = configuration, configuration.d_model
    for name in ("d_model", "d_ff", "num_heads", "num_encoder_layers", "num_decoder_layers"):
        if getattr(c, name) < 1:
            raise ValueError(f"{name} must be at least 1, not {getattr(c, name)}")
    if d % c.num_heads:
        raise ValueError(f"d_model {d} is not divisible by num_heads {c.num_heads}")
    for reduction in (c.encoder_reduction, c.decoder_reduction):
        if reduction not in REDUCTIONS:
            known = ", ".join(REDUCTIONS)
            raise ValueError(f"unknown reduction {reduction!r}, expected one of {known}")
    if batch < 1:
        raise ValueError(f"batch must be at least 1, not {batch}")
    encoder, decoder = Mixer.parse(c.encoder), Mixer.parse(c.decoder, causal=True)
    return (
        *encoder_components(Mixing.of(encoder), features, c, batch),
        *decoder_components(Mixing.of(decoder), captions, features, c, batch),
    )


@dataclass(frozen=True)
class Mixing:
    """What costs depend on in a `Mixer`: its kind, its vectors (N or N_E), and their groups."""

    kind: str
    vectors: Number = 0
    groups: int = 1

    @classmethod
    def of(cls, mixer: Mixer) -> Mixing:
        return cls(mixer.kind, sum(mixer.coefficients), len(mixer.coefficients))


def encoder_components(
    mixing: Mixing, features: Length, c: Any, batch: Number
) -> tuple[Component, ...]:
    """The encoder's part of `components`; ``c`` has a `Configuration`'s fields or symbols."""
    L, d = features.mean, c.d_model
    projection = _as_printed(
        "input projection",
        Equation("input projection", L * c.d_feature * d, L * d),
        parameters=_linear(c.d_feature, d),
        activations=L * (c.d_feature + d),
    )
    layers = _half("encoder", mixing, features, None, c, c.num_encoder_layers, batch)
    return replace(projection, half="encoder", in_paper=False), *layers


def decoder_components(
    mixing: Mixing, captions: Length, features: Length, c: Any, batch: Number
) -> tuple[Component, ...]:
    """The decoder's part of `components`; ``c`` has a `Configuration`'s fields or symbols."""
    T, d, V = captions.mean, c.d_model, c.vocabulary_size
    embedding = _as_printed(
        "embedding",
        Equation("scale and positions", 0, 2 * T * d),
        parameters=(V + c.max_length) * d,
        activations=2 * T * d,
    )
    words = _as_printed(
        "vocabulary",
        Equation("linear", T * d * V, T * V),
        Equation("log-softmax", 0, T * (5 * V - 1)),
        parameters=_linear(d, V),
        activations=T * (d + V),
    )
    layers = _half("decoder", mixing, captions, features, c, c.num_decoder_layers, batch)
    return replace(embedding, half="decoder"), *layers, replace(words, half="decoder")


def _half(
    half: str,
    mixer: Mixing,
    length: Length,
    memory: Length | None,
    c: Any,
    layers: Number,
    batch: Number,
) -> list[Component]:
    """The layers of an encoder or, with a ``memory``, of a decoder."""
    d, gated = c.d_model, mixer.kind == "aoa"
    if mixer.kind == "static":
        mixing = static_expansion(length, d, mixer.vectors, mixer.groups, batch)
    elif mixer.kind == "dynamic":
        mixing = dynamic_expansion(length, d, mixer.vectors)
    else:
        mixing = attention(length, length, length.square, d, c.num_heads, gated)
    parts = [mixing]
    if memory:
        pairs = length.mean * memory.mean
        parts.append(attention(length, memory, pairs, d, c.num_heads, gated, cross=True))
    if not gated:
        parts.append(feed_forward(length, d, c.d_ff))
    parts.append(norms(length, d, count=len(parts), residuals=len(parts)))
    parts = [_times(part, layers) for part in parts]
    reduction = c.encoder_reduction if half == "encoder" else c.decoder_reduction
    closing = _reduction(reduction, length, d, layers)
    return [replace(part, half=half) for part in [*parts, *closing]]


def _reduction(kind: str, length: Length, d: Number, layers: Number) -> list[Component]:
    """The end of a stack, see `torch_impl.layers.transformer.Stack`."""
    n = length.mean
    closing = norms(length, d, count=1, residuals=int(kind == "linear"))
    if kind == "none":
        return []
    if kind == "norm":
        return [replace(closing, name="reduction")]
    return [
        _as_printed(
            "reduction",
            Equation("linear over all layers", layers * n * d**2, n * d),
            *closing.equations,
            parameters=_linear(layers * d, d) + closing.parameters,
            activations=(layers + 1) * n * d + closing.activations,
        )
    ]


def _as_printed(name: str, *equations: Equation, **other: Number) -> Component:
    """A component that has no cheaper form."""
    return Component(name, equations, sum(equation.macs for equation in equations), **other)


def _times(component: Component, layers: Number) -> Component:
    equations = tuple(
        Equation(e.name, layers * e.macs, layers * e.elementwise) for e in component.equations
    )
    return replace(
        component,
        equations=equations,
        factored=layers * component.factored,
        parameters=layers * component.parameters,
        activations=layers * component.activations,
    )
