"""What a captioner costs, in closed form, by component and by equation, for one image.

The conventions, and what each is for:

* **macs** are the multiply-accumulates of matrix products and linear layers, in the papers' order
  of operations. Masked entries are computed and thrown away, so they count; so do all heads.
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

Equation numbers are those of ExpansionNet v2 unless "v1" is written; G are the groups of a Block
Static Expansion, N their sum; M, R_fw, R_bw, F, B, C, S are the paper's symbols.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from torch_impl.layers.transformer import REDUCTIONS, Mixer
from torch_impl.models import Configuration

BATCH = 48


@dataclass(frozen=True)
class Length:
    """The means of a sequence's length, of its square and of its cube, over many sequences.

    Costs are polynomials of the length, so these three give the exact mean cost of ragged data.
    """

    mean: float
    square: float
    cube: float

    @classmethod
    def of(cls, lengths: Iterable[int]) -> Length:
        """The means over ``lengths``.

        Raises:
            ValueError: there are none, or one is below 1 or beyond floating point.
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
    macs: float
    elementwise: float


@dataclass(frozen=True)
class Component:
    """One part of a model, all its layers together, for one image."""

    name: str
    equations: tuple[Equation, ...]
    factored: float
    half: str = ""
    in_paper: bool = True

    @property
    def macs(self) -> float:
        """Multiply-accumulates in the papers' order of operations."""
        return sum(equation.macs for equation in self.equations)

    @property
    def elementwise(self) -> float:
        """All other scalar operations."""
        return sum(equation.elementwise for equation in self.equations)

    @property
    def flops(self) -> float:
        """Floating-point operations: two a multiply-accumulate, and the elementwise ones."""
        return 2 * self.macs + self.elementwise


def static_literal(length: Length, d: int, N: int) -> float:
    """Macs of equations 2 to 7 as printed: 5 N L d."""
    return 5 * N * length.mean * d


def static_reassociated(length: Length, d: int, N: int) -> float:
    """Macs of equations 2 to 7 with W = R_bw R_fw, L x L: 3 N L d + 2 N L^2 + 2 L^2 d.

    B = R_bw (R_fw V + E_B) = W V + R_bw E_B; fewer than printed when 1/L > 1/N + 1/d.
    """
    return 3 * N * length.mean * d + 2 * N * length.square + 2 * length.square * d


def projected_keys(length: Length, d: int) -> float:
    """Macs of the key projection of every token: L d^2."""
    return length.mean * d**2


def folded_keys(d: int, N: int, batch: int) -> float:
    """Macs an image of E_Q [W_K, b_K], once a batch, in place of `projected_keys`: N d (d + 1) / B.

    Pays when B > N (d + 1) / (L d).
    """
    return N * d * (d + 1) / batch


def dynamic_literal(length: Length, d: int, N_E: int) -> float:
    """Macs of equations 1 to 7 as printed: 5 L^2 N_E d."""
    return 5 * length.square * N_E * d


def dynamic_split(length: Length, d: int, N_E: int) -> float:
    """Macs of equations 1 to 7 with the sums split: 5 L^2 d + 3 L N_E d + 2 L^3 N_E.

    M = (C K^T)_j + (E_Q K^T)_n, R_bw (C + E_B) = (sum_n R_bw) C + (sum_j R_bw) E_B, W = R_bw R_fw:
    nothing of size L N_E x d is made.
    """
    return 5 * length.square * d + 3 * length.mean * N_E * d + 2 * length.cube * N_E


def _normalised(entries: float) -> float:
    # one stream of equations 3, 4 and 6: ReLU, row sum with epsilon, division
    return 3 * entries


def _selected(entries: float) -> float:
    # equation 8: a sigmoid, its complement, two products, a sum
    return 8 * entries


def _softmax(rows: float, entries: float) -> float:
    return 5 * entries - 2 * rows


def static_expansion(length: Length, d: int, groups: tuple[int, ...], batch: int) -> Component:
    """One layer of Static Expansion, a Block of them where there are several groups."""
    L, N = length.mean, sum(groups)
    averaged = 2 * N * L if len(groups) > 1 else 0
    equations = (
        Equation("projections K, V_1, V_2, S", 4 * projected_keys(length, d), 4 * L * d),
        Equation("(2) M", N * L * d, N * L),
        Equation("(3)-(4) R_fw", 0, 2 * _normalised(N * L) + N * L),
        Equation("(5) F", 2 * N * L * d, 2 * N * d),
        Equation("(6) R_bw", 0, 2 * _normalised(N * L) + N * L + averaged),
        Equation("(7) B", 2 * N * L * d, 0),
        Equation("(8) out", 0, _selected(L * d)),
    )
    keys = min(projected_keys(length, d), folded_keys(d, N, batch))
    core = min(static_literal(length, d, N), static_reassociated(length, d, N))
    name = "block static expansion" if len(groups) > 1 else "static expansion"
    return Component(name, equations, 3 * projected_keys(length, d) + keys + core)


def dynamic_expansion(length: Length, d: int, N_E: int) -> Component:
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
    core = min(dynamic_literal(length, d, N_E), dynamic_split(length, d, N_E))
    return Component("dynamic expansion", equations, 5 * L * d**2 + core)


def attention(
    queries: Length, keys: Length, pairs: float, d: int, heads: int, gated: bool
) -> Component:
    """One layer of multi-head attention, with the gate of Attention on Attention if ``gated``.

    ``pairs`` is the mean number of (query, key) pairs.
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
    name = "attention on attention" if gated else "attention"
    return _as_printed(name, *equations)


def feed_forward(length: Length, d: int, ff: int) -> Component:
    """One position-wise feed-forward layer."""
    n = length.mean
    inner = Equation("linear_1 and ReLU", n * d * ff, 2 * n * ff)
    return _as_printed("feed-forward", inner, Equation("linear_2", n * d * ff, n * d))


def norms(length: Length, d: int, count: int, residuals: int) -> Component:
    """Layer norms and residual sums."""
    n = length.mean
    return _as_printed(
        "norms and residuals",
        Equation("layer norms", 0, count * n * (7 * d + 2)),
        Equation("residual sums", 0, residuals * n * d),
    )


def components(
    configuration: Configuration, features: Length, captions: Length, batch: int = BATCH
) -> tuple[Component, ...]:
    """Every part of a `torch_impl.models.Captioner`, one pass of each half, words teacher-forced.

    Args:
        configuration: the model's sizes, mixers and reductions.
        features: how many feature vectors an image has, L.
        captions: how many tokens the decoder reads, T, start and end included.
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
    L, T, V = features.mean, captions.mean, c.vocabulary_size

    projection = Equation("input projection", L * c.d_feature * d, L * d)
    encoder_mixer, decoder_mixer = Mixer.parse(c.encoder), Mixer.parse(c.decoder, causal=True)
    encoder = _half("encoder", encoder_mixer, features, None, c, c.num_encoder_layers, batch)
    embedding = Equation("scale and positions", 0, 2 * T * d)
    decoder = _half("decoder", decoder_mixer, captions, features, c, c.num_decoder_layers, batch)
    words = Equation("linear", T * d * V, T * V)
    log_softmax = Equation("log-softmax", 0, T * (5 * V - 1))
    return (
        replace(_as_printed("input projection", projection), half="encoder", in_paper=False),
        *encoder,
        replace(_as_printed("embedding", embedding), half="decoder"),
        *decoder,
        replace(_as_printed("vocabulary", words, log_softmax), half="decoder"),
    )


def _half(
    half: str,
    mixer: Mixer,
    length: Length,
    memory: Length | None,
    c: Configuration,
    layers: int,
    batch: int,
) -> list[Component]:
    """The layers of an encoder or, where there is a ``memory`` to read, a decoder."""
    d, gated = c.d_model, mixer.kind == "aoa"
    if mixer.kind == "static":
        mixing = static_expansion(length, d, mixer.coefficients, batch)
    elif mixer.kind == "dynamic":
        mixing = dynamic_expansion(length, d, *mixer.coefficients)
    else:
        mixing = attention(length, length, length.square, d, c.num_heads, gated)
    parts = [mixing]
    if memory:
        pairs = length.mean * memory.mean
        cross = attention(length, memory, pairs, d, c.num_heads, gated)
        parts.append(replace(cross, name="cross-attention"))
    if not gated:
        parts.append(feed_forward(length, d, c.d_ff))
    parts.append(norms(length, d, count=len(parts), residuals=len(parts)))
    parts = [_times(part, layers) for part in parts]
    reduction = c.encoder_reduction if half == "encoder" else c.decoder_reduction
    closing = _reduction(reduction, length, d, layers)
    return [replace(part, half=half) for part in [*parts, *closing]]


def _reduction(kind: str, length: Length, d: int, layers: int) -> list[Component]:
    """How a stack ends: see `torch_impl.layers.transformer.Stack`."""
    n = length.mean
    linear = Equation("linear over all layers", layers * n * d**2, n * d)
    closing = norms(length, d, count=1, residuals=int(kind == "linear")).equations
    if kind == "none":
        return []
    equations = (linear, *closing) if kind == "linear" else closing
    return [_as_printed("reduction", *equations)]


def _as_printed(name: str, *equations: Equation) -> Component:
    """A component that has no cheaper form."""
    return Component(name, equations, sum(equation.macs for equation in equations))


def _times(component: Component, layers: int) -> Component:
    equations = tuple(
        Equation(e.name, layers * e.macs, layers * e.elementwise) for e in component.equations
    )
    return replace(component, equations=equations, factored=layers * component.factored)
