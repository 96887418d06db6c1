"""What the operators are tried on: hypothesis strategies of their arguments, in named regimes.

Numbers lie on a grid of sixteenths, of which sums of products are exact in float64: what is zero is
zero in any order of summation, so that no right implementation fails for its rounding at a kink.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from benchmarks.verify import strategies
from reference.primitives import Array

Case = tuple[Any, ...]
Cases = st.SearchStrategy[Case]
Draw = st.DrawFn

NUMBERS = {
    "plain": "ordinary numbers",
    "zeros": "half of all numbers exactly zero",
    "one_sign": "no query meets a key with a positive product: one stream is empty",
    "tiny": "products of queries and keys of the size of epsilon",
    "huge": "inputs in the thousands",
}


class Numbers:
    """Arrays drawn from a seed in one regime of ``NUMBERS``."""

    def __init__(self, seed: int, regime: str = "plain") -> None:
        """``seed`` shrinks to 0."""
        self.random, self.regime = np.random.default_rng(seed), regime

    def array(self, *shape: int) -> Array:
        """Odd sixteenths between -1 and 1: the sum of a few products is seldom zero by chance."""
        values = (2.0 * self.random.integers(-8, 8, shape) + 1) / 16
        if self.regime == "zeros":
            values *= self.random.integers(0, 2, shape)
        return np.abs(values) if self.regime == "one_sign" else values

    def inputs(self, *shape: int) -> Array:
        """Tokens."""
        return self.array(*shape) * (4096.0 if self.regime == "huge" else 1.0)

    def linear(self, name: str, wide: int, narrow: int | None = None) -> dict[str, Array]:
        """The map ``name`` from ``narrow`` channels, or as many as it gives, to ``wide``."""
        scale = 2.0**-31 if self.regime == "tiny" and name.endswith("key") else 1.0
        narrow = wide if narrow is None else narrow
        return {
            f"{name}.weight": scale * self.array(wide, narrow),
            f"{name}.bias": scale * self.array(wide),
        }

    def norm(self, name: str, d: int) -> dict[str, Array]:
        """A layer norm."""
        return {f"{name}weight": self.array(d), f"{name}bias": self.array(d)}

    def expansion(self, N: int, d: int, *maps: str, prefix: str = "") -> dict[str, Array]:
        """Expansion vectors and the linear maps of an expansion layer."""
        sign = -1 if self.regime == "one_sign" else 1
        parameters = {
            f"{prefix}query_vectors": sign * self.array(N, d),
            f"{prefix}bias_vectors": self.array(N, d),
        }
        for name in (*maps, "key", "value_1", "value_2", "selector"):
            parameters |= self.linear(f"{prefix}{name}", d)
        if self.regime == "one_sign" and "condition" in maps:
            parameters |= {
                name: -parameters[name]
                for name in (f"{prefix}condition.weight", f"{prefix}condition.bias")
            }
        return parameters

    def attention(self, d: int, aoa: bool = False, prefix: str = "") -> dict[str, Array]:
        """The linear maps of multi-head attention, or of Attention on Attention."""
        parameters: dict[str, Array] = {}
        for name in ("query", "key", "value"):
            parameters |= self.linear(f"{prefix}{name}", d)
        for name in ("information", "gate") if aoa else ():
            parameters |= self.linear(f"{prefix}{name}", d, 2 * d)
        return parameters if aoa else parameters | self.linear(f"{prefix}out", d)

    def feed_forward(self, d: int, d_ff: int, prefix: str = "") -> dict[str, Array]:
        """The two linear maps of a feed-forward."""
        return self.linear(f"{prefix}linear_1", d_ff, d) | self.linear(f"{prefix}linear_2", d, d_ff)

    def mixer(self, mixer: str, d: int, prefix: str) -> dict[str, Array]:
        """The parameters of any mixer."""
        kind, _, sizes = mixer.partition(":")
        if kind in ("attention", "aoa"):
            return self.attention(d, kind == "aoa", prefix)
        N = sum(map(int, sizes.split(",")))
        maps = ("condition",) if kind == "dynamic" else ()
        return self.expansion(N, d, *maps, prefix=prefix)

    def layer(self, mixer: str, d: int, decodes: bool, prefix: str = "") -> dict[str, Array]:
        """The parameters of an encoder or decoder layer."""
        norms = 2 if decodes else 1
        aoa = mixer == "aoa"
        parameters = self.mixer(mixer, d, f"{prefix}mixer.")
        if decodes:
            parameters |= self.attention(d, aoa, f"{prefix}cross_attention.")
        if not aoa:
            norms += 1
            parameters |= self.feed_forward(d, 3, f"{prefix}feed_forward.")
        for i in range(1, norms + 1):
            parameters |= self.norm(f"{prefix}norm_{i}.", d)
        return parameters

    def stack(
        self, mixer: str, d: int, layers: int, reduction: str, decodes: bool, prefix: str
    ) -> dict[str, Array]:
        """The parameters of an encoder or a decoder."""
        parameters: dict[str, Array] = {}
        for i in range(layers):
            parameters |= self.layer(mixer, d, decodes, f"{prefix}layers.{i}.")
        if reduction == "linear":
            parameters |= self.linear(f"{prefix}reduce", d, layers * d)
        if reduction != "none":
            parameters |= self.norm(f"{prefix}norm.", d)
        return parameters


SEEDS = st.integers(0, 2**32 - 1)
WIDTHS = strategies.widths(6)
TOKENS = strategies.lengths(6)
EITHER = st.booleans()
GROUPS = strategies.groups(3, 4)


@st.composite
def static_expansions(
    draw: Draw,
    regime: str = "plain",
    tokens: st.SearchStrategy[int] = TOKENS,
    groups: st.SearchStrategy[tuple[int, ...]] = GROUPS,
) -> Case:
    """(X, parameters, groups)."""
    d, L, sizes = draw(WIDTHS), draw(tokens), draw(groups)
    numbers = Numbers(draw(SEEDS), regime)
    return numbers.inputs(L, d), numbers.expansion(sum(sizes), d), sizes


@st.composite
def dynamic_expansions(
    draw: Draw,
    regime: str = "plain",
    tokens: st.SearchStrategy[int] = TOKENS,
    causal: st.SearchStrategy[bool] = EITHER,
) -> Case:
    """(X, parameters, causal)."""
    d, L, N_E = draw(WIDTHS), draw(tokens), draw(st.integers(1, 4))
    numbers = Numbers(draw(SEEDS), regime)
    return numbers.inputs(L, d), numbers.expansion(N_E, d, "condition"), draw(causal)


@st.composite
def attentions(
    draw: Draw,
    aoa: bool,
    regime: str = "plain",
    tokens: st.SearchStrategy[int] = TOKENS,
    causal: st.SearchStrategy[bool] = EITHER,
) -> Case:
    """(X, Y, parameters, num_heads, causal)."""
    (num_heads, d), masked = draw(strategies.heads(3, 3)), draw(causal)
    numbers = Numbers(draw(SEEDS), regime)
    X = numbers.inputs(draw(tokens), d)
    Y = numbers.inputs(draw(tokens), d)  # masked or not, of a length of its own
    return X, Y, numbers.attention(d, aoa), num_heads, masked


@st.composite
def layer_norms(draw: Draw, regime: str = "plain") -> Case:
    """(X, parameters)."""
    d, L = draw(WIDTHS), draw(TOKENS)
    numbers = Numbers(draw(SEEDS), regime)
    return numbers.inputs(L, d), numbers.norm("", d)


@st.composite
def feed_forwards(draw: Draw, regime: str = "plain") -> Case:
    """(X, parameters)."""
    d, d_ff, L = draw(WIDTHS), draw(WIDTHS), draw(TOKENS)
    numbers = Numbers(draw(SEEDS), regime)
    return numbers.inputs(L, d), numbers.feed_forward(d, d_ff)


@st.composite
def layers(draw: Draw, decodes: bool, tokens: st.SearchStrategy[int] = TOKENS) -> Case:
    """(X, parameters, mixer, num_heads), or with ``decodes`` (X, memory, parameters, ...)."""
    mixer = draw(strategies.decoder_mixers() if decodes else strategies.encoder_mixers())
    num_heads, d = draw(strategies.heads(2, 3))
    numbers = Numbers(draw(SEEDS))
    sequences = [numbers.inputs(draw(tokens), d) for _ in range(1 + decodes)]
    return *sequences, numbers.layer(mixer, d, decodes), mixer, num_heads


@st.composite
def captioners(draw: Draw) -> Case:
    """(features, tokens, parameters, encoder, decoder, num_heads, both reductions)."""
    encoder, decoder = draw(strategies.encoder_mixers()), draw(strategies.decoder_mixers())
    reductions = draw(strategies.reductions()), draw(strategies.reductions())
    (num_heads, d), layers_ = draw(strategies.heads(2, 3)), draw(st.integers(1, 2))
    V = draw(st.integers(2, 5))
    d_feature, L, T = draw(st.integers(1, 3)), draw(st.integers(1, 4)), draw(st.integers(1, 4))
    numbers = Numbers(draw(SEEDS))
    parameters = (
        numbers.linear("input", d, d_feature)
        | numbers.stack(encoder, d, layers_, reductions[0], False, "encoder.")
        | {"embedding.weight": numbers.array(V, d), "positions.weight": numbers.array(T, d)}
        | numbers.stack(decoder, d, layers_, reductions[1], True, "decoder.")
        | numbers.linear("vocabulary", V, d)
    )
    tokens = numbers.random.integers(0, V, T)
    features = numbers.inputs(L, d_feature)
    return features, tokens, parameters, encoder, decoder, num_heads, *reductions


@st.composite
def padded(draw: Draw, cases: Cases, sequences: int, garbage: float) -> Case:
    """``cases`` as a ragged batch: the last sequence padded with ``garbage``, lengths at the end.

    The neighbours in the batch are made of the case's own tokens, in another order.
    """
    case = draw(cases)
    lengths = draw(st.lists(st.integers(1, len(case[sequences - 1])), min_size=1, max_size=3))
    batch = [
        np.stack([np.roll(array, i, axis=0) * (-1) ** i for i in range(len(lengths))])
        for array in case[:sequences]
    ]
    for i, length in enumerate(lengths):
        batch[-1][i, length:] = garbage
    return *batch, *case[sequences:], np.array(lengths)


@st.composite
def cross_entropies(draw: Draw, padding: bool, smoothing: bool) -> Case:
    """(log_probs, targets, pad_id, label_smoothing); at least one word is no padding."""
    B, T, V = draw(st.integers(1, 3)), draw(st.integers(1, 4)), draw(st.integers(2, 5))
    random = np.random.default_rng(draw(SEEDS))
    pad_id = draw(st.integers(0, V - 1))
    targets = (pad_id + random.integers(1, V, (B, T))) % V
    if padding:
        targets[random.integers(0, 2, (B, T)) == 0] = pad_id
        targets[0, 0] = (pad_id + 1) % V
    log_probs = -random.integers(1, 64, (B, T, V)) / 16
    return log_probs, targets, pad_id, draw(st.sampled_from((0.125, 0.5))) if smoothing else 0.0


@st.composite
def self_criticals(draw: Draw, baseline: str) -> Case:
    """(log_probs, mask, rewards, baseline)."""
    B, K, T = draw(st.integers(1, 3)), draw(st.integers(2, 4)), draw(st.integers(1, 4))
    random = np.random.default_rng(draw(SEEDS))
    log_probs = -random.integers(1, 64, (B, K, T)) / 16
    mask = np.arange(T) < random.integers(1, T + 1, (B, K, 1))
    return log_probs, mask, random.integers(0, 64, (B, K)) / 16, baseline


@dataclass(frozen=True)
class NextLogProbs:
    """A model for decoding: ``table[t, y]`` is about the word after t words, of which y is last."""

    table: Array

    def __call__(self, prefix: Any) -> Array:
        """Log-probabilities (V,), which decoding does not ask to sum to 1."""
        row: Array = self.table[len(prefix) - 1, prefix[-1]]
        return row


@st.composite
def beam_searches(draw: Draw, numbers: str, beams: st.SearchStrategy[int]) -> Case:
    """(next_log_probs, start, end, beam_size, max_length, num_return)."""
    V, max_length, beam_size = draw(st.integers(2, 5)), draw(st.integers(2, 5)), draw(beams)
    random = np.random.default_rng(draw(SEEDS))
    shape = (max_length - 1, V, V)
    if numbers == "ties":
        table = -random.integers(1, 4, shape) / 2
    else:
        table = -random.integers(1, 2**22, shape) / 2**20
    start = draw(st.integers(0, V - 1))
    end = (start + draw(st.integers(1, V - 1))) % V
    if numbers == "impossible":
        table[random.integers(0, 2, shape) == 0] = -np.inf
        table[..., end] = np.maximum(table[..., end], -4)
    num_return = draw(st.integers(1, beam_size))
    return NextLogProbs(table), start, end, beam_size, max_length, num_return


@st.composite
def corpora(
    draw: Draw,
    images: tuple[int, int] = (1, 4),
    words: tuple[int, int] = (1, 7),
    vocabulary: str = "abcde",
) -> Case:
    """(candidates, references): a caption an image, and its references, as lists of words."""

    def captions(vocabulary: str) -> st.SearchStrategy[list[str]]:
        return st.lists(st.sampled_from(vocabulary), min_size=words[0], max_size=words[1])

    of_image = st.lists(captions(vocabulary), min_size=1, max_size=3)
    # no word at all is no corpus: the published CIDEr-D cannot count it
    corpus = st.lists(of_image, min_size=images[0], max_size=images[1])
    references = draw(corpus.filter(lambda corpus: any(any(of_one) for of_one in corpus)))
    unseen = captions(vocabulary + "z")
    return [draw(unseen | st.sampled_from(of_one)) for of_one in references], references
