"""Hypothesis strategies for what the papers' operators take: NumPy arrays, masks, coefficients.

Sizes and kinds are drawn, so they shrink; the numbers come from a drawn seed. A ``*Case`` is a
padded batch whose ``sequence(b)`` gives sequence b without its padding, by the oracle's names.

For tests of modules, this project's and others'; needs the package ``hypothesis``. The kit's own
properties draw from ``draw``, and run on this project's implementations too
(``tests/test_conformance.py``): what they cannot say has tests with these strategies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

Array = npt.NDArray[Any]

SEEDS = st.integers(0, 2**32 - 1)
"""Of NumPy's generators and of PyTorch's."""
Case = TypeVar("Case", bound="OperatorCase")

MODERATE = ("normal", "zeros", "nothing")
"""Kinds of values that every precision holds."""

KINDS = (*MODERATE, "large", "tiny", "mixed")
"""``zeros``: half exact zeros; ``nothing``: all zero; ``mixed``: 1e-6 to 1e3 side by side."""

FILLINGS = (0.0, 1.0, -1e4, np.inf, np.nan)
"""What padded rows may hold; the last two are for layers, operators ask for finite padding."""


def fill(generator: np.random.Generator, shape: Sequence[int], kind: str = "normal") -> Array:
    """A float64 array of one of the ``KINDS``."""
    x = generator.standard_normal(tuple(shape))
    if kind == "normal":
        return x
    if kind == "zeros":
        return x * (generator.random(x.shape) < 0.5)
    if kind == "nothing":
        return np.zeros_like(x)
    if kind == "mixed":
        return x * 10.0 ** generator.uniform(-6, 3, x.shape)
    return x * {"large": 1e3, "tiny": 1e-5}[kind]


def generators() -> st.SearchStrategy[np.random.Generator]:
    """NumPy generators, from a seed that shrinks."""
    return SEEDS.map(np.random.default_rng)


@st.composite
def arrays(draw: st.DrawFn, *shape: int, kinds: Sequence[str] = KINDS) -> Array:
    """Float64 arrays of a drawn kind."""
    return fill(draw(generators()), shape, draw(st.sampled_from(kinds)))


def lengths(max_length: int = 7) -> st.SearchStrategy[int]:
    """Sequence lengths from 1, powers of two or not."""
    return st.integers(1, max_length)


def widths(max_width: int = 9) -> st.SearchStrategy[int]:
    """Model widths d from 1, powers of two or not."""
    return st.integers(1, max_width)


def groups(max_groups: int = 4, max_size: int = 6) -> st.SearchStrategy[tuple[int, ...]]:
    """Expansion coefficients G: one group or many, equal or not, of one vector or more."""
    size = st.integers(1, max_size)
    equal = st.tuples(size, st.integers(1, max_groups)).map(lambda pair: (pair[0],) * pair[1])
    return st.one_of(equal, st.lists(size, min_size=1, max_size=max_groups).map(tuple))


@st.composite
def heads(draw: st.DrawFn, max_heads: int = 3, max_width: int = 4) -> tuple[int, int]:
    """(num_heads, d_model), the first a divisor of the second."""
    num_heads = draw(st.integers(1, max_heads))
    return num_heads, num_heads * draw(st.integers(1, max_width))


@st.composite
def masks(
    draw: st.DrawFn, max_batch: int = 3, max_length: int = 7, empty: bool = False
) -> npt.NDArray[np.bool_]:
    """(B, L) booleans, True for valid: ragged lengths, or holes anywhere.

    Some batches are padded beyond their longest sequence. With ``empty`` a sequence may have no
    valid token.
    """
    batch, length = draw(st.integers(1, max_batch)), draw(lengths(max_length))
    if draw(st.booleans()):
        sizes = st.integers(0 if empty else 1, length)
        ragged = draw(st.lists(sizes, min_size=batch, max_size=batch))
        return np.arange(length) < np.array(ragged)[:, None]
    row = st.lists(st.booleans(), min_size=length, max_size=length)
    mask = np.array(draw(st.lists(row, min_size=batch, max_size=batch)), dtype=np.bool_)
    if not empty:
        mask[~mask.any(axis=1), draw(st.integers(0, length - 1))] = True
    return mask


@dataclass(frozen=True)
class Tokens:
    """A padded batch of tokens: ``x`` (B, L, d), ``mask`` (B, L), the output's gradient ``dO``."""

    x: Array
    mask: npt.NDArray[np.bool_]
    dO: Array

    def filled(self, value: float) -> Array:
        """``x`` with every padded row set to ``value``."""
        return np.where(self.mask[..., None], self.x, value)


@st.composite
def tokens(
    draw: st.DrawFn, width: int, *, kinds: Sequence[str] = KINDS, empty: bool = False
) -> Tokens:
    """Padded batches of the given width, ``dO`` zero in padded rows."""
    mask = draw(masks(empty=empty))
    shape = (*mask.shape, width)
    dO = fill(draw(generators()), shape) * mask[..., None]
    return Tokens(draw(arrays(*shape, kinds=kinds)), mask, dO)


@dataclass(frozen=True)
class OperatorCase:
    """What the two expansion operators have in common, by the oracle's names; padding is finite."""

    E_Q: Array
    E_B: Array
    K: Array
    V_1: Array
    V_2: Array
    S: Array
    dO: Array
    mask: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.mask)

    @property
    def arrays(self) -> dict[str, Array]:
        """Every floating-point array by name, batched as it is."""
        named = {field.name: getattr(self, field.name) for field in fields(self)}
        return {
            name: value
            for name, value in named.items()
            if isinstance(value, np.ndarray) and value.dtype != np.bool_
        }

    def sequence(self, b: int) -> dict[str, Array]:
        """The arrays of sequence ``b`` without padding; E_Q and E_B belong to every sequence."""
        valid = self.mask[b]
        return {
            name: value if name in ("E_Q", "E_B") else value[b][valid]
            for name, value in self.arrays.items()
        }

    def astype(self: Case, dtype: npt.DTypeLike) -> Case:
        """The case with its arrays rounded to ``dtype``."""
        return replace(self, **{name: x.astype(dtype) for name, x in self.arrays.items()})


@dataclass(frozen=True)
class StaticCase(OperatorCase):
    """Arguments of the static operator: E_Q and E_B (N, d), the others (B, L, d)."""

    groups: tuple[int, ...]


@dataclass(frozen=True)
class DynamicCase(OperatorCase):
    """Arguments of the dynamic operator: E_Q and E_B (N_E, d), the others (B, L, d)."""

    C: Array
    causal: bool


@st.composite
def _operator(
    draw: st.DrawFn, num_vectors: int, kinds: Sequence[str], empty: bool, max_length: int = 7
) -> dict[str, Array]:
    mask, width = draw(masks(max_length=max_length, empty=empty)), draw(widths())
    batched, learned = (*mask.shape, width), (num_vectors, width)
    case = {name: draw(arrays(*learned, kinds=kinds)) for name in ("E_Q", "E_B")}
    case |= {name: draw(arrays(*batched, kinds=kinds)) for name in ("K", "V_1", "V_2", "C")}
    case["S"] = draw(arrays(*batched, kinds=MODERATE))
    case["dO"] = fill(draw(generators()), batched) * mask[..., None]
    sign = draw(st.sampled_from((None, 1, -1)))
    if sign is not None:
        # every entry of M has one sign: in one of the streams no row has a positive entry
        case |= {name: np.abs(case[name]) for name in ("K", "C")}
        case["C"], case["E_Q"] = sign * case["C"], sign * np.abs(case["E_Q"])
    return {**case, "mask": mask}


@st.composite
def static_cases(
    draw: st.DrawFn, *, kinds: Sequence[str] = KINDS, empty: bool = False, many: bool = False
) -> StaticCase:
    """Padded batches for the static operator, one group or several; ``many`` vectors a token."""
    sizes = draw(groups(max_size=16).filter(lambda G: sum(G) >= 16) if many else groups())
    case = draw(_operator(sum(sizes), kinds, empty, 3 if many else 7))
    del case["C"]
    return StaticCase(**case, groups=sizes)


@st.composite
def dynamic_cases(
    draw: st.DrawFn, *, kinds: Sequence[str] = KINDS, empty: bool = False
) -> DynamicCase:
    """Padded batches for the dynamic operator, causal or bidirectional."""
    case = draw(_operator(draw(st.integers(1, 5)), kinds, empty))
    return DynamicCase(**case, causal=draw(st.booleans()))


def encoder_mixers() -> st.SearchStrategy[str]:
    """Everything that may mix tokens in an encoder, as text."""
    static = groups().map(lambda sizes: "static:" + ",".join(map(str, sizes)))
    return st.one_of(decoder_mixers(), static)


def decoder_mixers() -> st.SearchStrategy[str]:
    """Everything that may mix tokens in a decoder, as text."""
    dynamic = st.integers(1, 4).map(lambda size: f"dynamic:{size}")
    return st.one_of(st.sampled_from(("attention", "aoa")), dynamic)


def reductions() -> st.SearchStrategy[str]:
    """How a stack may end."""
    return st.sampled_from(("linear", "norm", "none"))


@st.composite
def configurations(draw: st.DrawFn) -> dict[str, Any]:
    """Small captioners of every kind, as the fields of a configuration."""
    num_heads, d_model = draw(heads())
    vocabulary_size = draw(st.integers(3, 11))
    return {
        "vocabulary_size": vocabulary_size,
        "d_feature": draw(widths(6)),
        "encoder": draw(encoder_mixers()),
        "decoder": draw(decoder_mixers()),
        "encoder_reduction": draw(reductions()),
        "decoder_reduction": draw(reductions()),
        "d_model": d_model,
        "d_ff": draw(widths()),
        "num_heads": num_heads,
        "num_encoder_layers": draw(st.integers(1, 3)),
        "num_decoder_layers": draw(st.integers(1, 3)),
        "max_length": draw(st.integers(6, 9)),
        "dropout": 0.0,
    }


@st.composite
def words(
    draw: st.DrawFn, batch: int, vocabulary_size: int, max_length: int
) -> npt.NDArray[np.int64]:
    """(B, T) word ids, T from 1 to ``max_length``."""
    shape = (batch, draw(lengths(max_length)))
    return draw(generators()).integers(0, vocabulary_size, shape)
