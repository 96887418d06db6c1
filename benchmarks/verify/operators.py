"""The operators that an implementation can be held to: what it takes, gives, and must satisfy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from benchmarks.verify import cases, contracts, properties, strategies
from benchmarks.verify.cases import Cases
from reference import (
    cider,
    expansion,
    metrics,
    primitives,
    transformer,
)

NORMAL_RANGE = ("float64", "float32", "bfloat16")
"""Dtypes that hold Psi's epsilon: in float16 a layer with an expansion has no literal form."""

PSI = "Psi divides each row by its sum plus an epsilon of 1e-9."
"""What the contracts of the expansions have in common."""

ONE = st.just(1)
YES = st.just(True)


@dataclass(frozen=True)
class Property:
    """A named check on a strategy's cases.

    ``needs`` is "torch" or "lengths" where it is of such candidates only, and "limit" where the
    check's first arguments are the error allowed and the dtype.
    """

    name: str
    says: str
    check: Callable[..., None]
    cases: Cases
    needs: str = ""


@dataclass(frozen=True)
class Operator:
    """What a candidate is called with and held to.

    ``oracle`` takes the same arguments. The first ``sequences`` of them gain a leading batch axis
    for a candidate that has a further argument ``lengths``: the number of valid rows of the last of
    these, for every element of the batch. ``dtypes`` are those that it is defined in.
    """

    name: str
    arguments: tuple[str, ...]
    result: str
    about: str
    oracle: Callable[..., Any]
    properties: tuple[Property, ...]
    equations: dict[str, tuple[int, ...]]
    sequences: int = 0
    dtypes: tuple[str, ...] = ("float64", "float32", "bfloat16", "float16")

    @property
    def signature(self) -> str:
        """As a candidate is called."""
        lengths = "[, lengths]" if self.sequences else ""
        return f"{self.name}({', '.join(self.arguments)}{lengths}) -> {self.result}"

    @property
    def cases(self) -> Cases:
        """Ordinary cases: those of the first property."""
        return self.properties[0].cases


def _equal(name: str, says: str, of: Cases) -> Property:
    return Property(name, f"equals the oracle: {says}", properties.equals_oracle, of)


def _own(name: str, check: Callable[..., None], of: Cases, needs: str = "") -> Property:
    """A property that says in its docstring what it is."""
    says = (check.__doc__ or "").strip().rstrip(".")
    return Property(name, says[0].lower() + says[1:], check, of, needs)


def _regimes(of: Callable[[str], Cases], *names: str) -> tuple[Property, ...]:
    return tuple(_equal(name, cases.NUMBERS[name], of(name)) for name in names)


def _gated_huge(of: Callable[[str], Cases]) -> Property:
    """Where a gate nears 0 the output is small, and its rounding is that of what is gated."""
    says = f"equals the oracle to the rounding of its inputs: {cases.NUMBERS['huge']}"
    return Property("huge", says, properties.equals_at_scale, of("huge"))


def _numerics(of: Cases) -> tuple[Property, ...]:
    return (
        _own("gradient", properties.gradient, of, "torch"),
        _own("float32", properties.low_precision, of, "limit"),
    )


def _batched(check: Callable[..., None], of: Cases, sequences: int) -> tuple[Property, ...]:
    garbage = cases.padded(of, sequences, 1000.0)
    return (
        _own("padded_batch", check, cases.padded(of, sequences, 0.0), "lengths"),
        Property("padding_content", "what is in the padding is ignored", check, garbage, "lengths"),
    )


def _static() -> Operator:
    of = cases.static_expansions
    return Operator(
        "static_expansion",
        ("X", "parameters", "groups"),
        "(L, d)",
        "Static or Block Static Expansion as a layer. X: (L, d). parameters: query_vectors and "
        "bias_vectors (N, d); key, value_1, value_2, selector, each .weight (d, d) and .bias (d,). "
        f"groups: sizes that add up to N. {PSI}",
        expansion.static_expansion_layer,
        (
            _equal("equals_oracle", "ordinary numbers", of()),
            _equal("one_token", "a single token", of(tokens=ONE)),
            _equal("one_group", "a single group", of(groups=strategies.groups(1, 4))),
            _equal("block", "several groups", of(groups=cases.GROUPS.filter(lambda G: len(G) > 1))),
            *_regimes(of, "zeros", "one_sign", "tiny"),
            _gated_huge(of),
            _own("token_order", properties.token_order, of()),
            *_numerics(of()),
            *_batched(properties.padded_batch, of(), 1),
        ),
        {"expansionnet_v1": (4, 5, 6, 7, 8, 9), "expansionnet_v2": (2, 3, 4, 5, 6, 7, 8, 9)},
        sequences=1,
    )


def _dynamic() -> Operator:
    of = cases.dynamic_expansions
    return Operator(
        "dynamic_expansion",
        ("X", "parameters", "causal"),
        "(L, d)",
        "Dynamic Expansion as a layer. X: (L, d). parameters: query_vectors and bias_vectors "
        "(N_E, d); condition, key, value_1, value_2, selector, each .weight (d, d) and .bias (d,). "
        f"causal: whether token i may depend on tokens up to i only. {PSI}",
        expansion.dynamic_expansion_layer,
        (
            _equal("equals_oracle", "ordinary numbers", of()),
            _equal("one_token", "a single token", of(tokens=ONE)),
            _equal("bidirectional", "not causal", of(causal=st.just(False))),
            _own("causality", properties.causality, of(causal=YES)),
            *_regimes(of, "zeros", "one_sign", "tiny"),
            _gated_huge(of),
            *_numerics(of()),
            *_batched(properties.padded_batch, of(), 1),
        ),
        {"expansionnet_v1": (3, 5, 6, 7, 8, 9), "expansionnet_v2": (1, 2, 3, 4, 5, 6, 7, 8)},
        sequences=1,
    )


def _attention(name: str, about: str, oracle: Callable[..., Any], aoa: bool) -> Operator:
    def of(regime: str = "plain", **options: Any) -> Cases:
        return cases.attentions(aoa, regime, **options)

    return Operator(
        name,
        ("X", "Y", "parameters", "num_heads", "causal"),
        "(M, d)",
        f"{about} Queries from X: (M, d), keys and values from Y: (N, d). parameters: query, key, "
        f"value, {'information, gate' if aoa else 'out'}, each .weight and .bias. causal: row j of "
        "X sees rows up to j of Y.",
        oracle,
        (
            _equal("equals_oracle", "ordinary numbers", of()),
            _equal("one_token", "a single token", of(tokens=ONE)),
            _own("causality", properties.causal_keys, of(causal=YES)),
            *_regimes(of, "zeros"),
            *((_gated_huge(of),) if aoa else _regimes(of, "huge")),
            *_numerics(of()),
            *_batched(properties.padded_keys, of(), 2),
        ),
        {} if aoa else {"expansionnet_v1": (1, 2)},
        sequences=2,
    )


def _layer_norm() -> Operator:
    of = cases.layer_norms
    return Operator(
        "layer_norm",
        ("X", "parameters"),
        "(L, d)",
        "Layer normalisation of each row of X: (L, d). parameters: weight, bias, each (d,). Biased "
        "variance, epsilon 1e-5.",
        primitives.layer_norm,
        (
            _equal("equals_oracle", "ordinary numbers", of()),
            *_regimes(of, "zeros", "huge"),
            *_numerics(of()),
        ),
        {},
    )


def _feed_forward() -> Operator:
    of = cases.feed_forwards
    return Operator(
        "feed_forward",
        ("X", "parameters"),
        "(L, d)",
        "linear_2(relu(linear_1(X))) of X: (L, d). parameters: linear_1.weight (d_ff, d), "
        "linear_1.bias, linear_2.weight (d, d_ff), linear_2.bias.",
        primitives.feed_forward,
        (
            _equal("equals_oracle", "ordinary numbers", of()),
            *_regimes(of, "zeros", "huge"),
            *_numerics(of()),
        ),
        {},
    )


def _layer(decodes: bool) -> Operator:
    of = cases.layers(decodes)
    arguments = ("X", "memory") if decodes else ("X",)
    where = "memory: (L, d), the encoder's output. " if decodes else ""
    return Operator(
        "decoder_layer" if decodes else "encoder_layer",
        (*arguments, "parameters", "mixer", "num_heads"),
        "(T, d)" if decodes else "(L, d)",
        f"A pre-norm layer. X: ({'T' if decodes else 'L'}, d). {where}parameters: named as "
        f"torch_impl.layers.transformer.{'Decoder' if decodes else 'Encoder'}Layer's state_dict. "
        f"mixer: "
        f"attention, aoa, {'' if decodes else 'static:N,..., '}dynamic:N.",
        transformer.decoder_layer if decodes else transformer.encoder_layer,
        (
            _equal("equals_oracle", "ordinary numbers", of),
            *_numerics(of),
            *_batched(
                properties.padded_keys if decodes else properties.padded_batch, of, 1 + decodes
            ),
        ),
        {"expansionnet_v1": (11,), "expansionnet_v2": (12,)}
        if decodes
        else {"expansionnet_v1": (10,), "expansionnet_v2": (11,)},
        sequences=1 + decodes,
        dtypes=NORMAL_RANGE,
    )


def _captioner() -> Operator:
    of = cases.captioners()
    return Operator(
        "captioner",
        (
            "features",
            "tokens",
            "parameters",
            "encoder",
            "decoder",
            "num_heads",
            "encoder_reduction",
            "decoder_reduction",
        ),
        "(T, V)",
        "Log-probabilities of the word after each of tokens: (T,), given features: (L, d_feature). "
        "parameters: named as torch_impl.models.Captioner's state_dict. encoder, decoder: mixers. "
        "Reductions: linear, norm, none.",
        contracts.captioner,
        (
            _equal("equals_oracle", "ordinary numbers", of),
            *_numerics(of),
        ),
        {"expansionnet_v1": (12,)},
        dtypes=NORMAL_RANGE,
    )


def _cross_entropy() -> Operator:
    of = cases.cross_entropies
    return Operator(
        "cross_entropy",
        ("log_probs", "targets", "pad_id", "label_smoothing"),
        "a number",
        "The mean over all targets: (B, T) that are not pad_id of the cross-entropy of log_probs: "
        "(B, T, V); the smoothed target is 1 - e on the word and e / (V - 1) on each other.",
        contracts.cross_entropy,
        (
            _equal("equals_oracle", "no padding, no smoothing", of(False, False)),
            _equal("padding", "words that do not count", of(True, False)),
            _equal("label_smoothing", "smoothed labels", of(True, True)),
            *_numerics(of(True, True)),
        ),
        {"expansionnet_v1": (13,), "expansionnet_v2": (13,)},
        dtypes=("float64", "float32"),
    )


def _self_critical() -> Operator:
    of = cases.self_criticals
    return Operator(
        "self_critical",
        ("log_probs", "mask", "rewards", "baseline"),
        "a number",
        "The mean over K samples of B images of -(r - b) times the sum of log_probs: (B, K, T) "
        "where mask: (B, K, T). rewards: (B, K). baseline: leave_one_out, the mean reward of the "
        "image's other samples, or printed, their sum over K.",
        contracts.self_critical,
        (
            _equal("equals_oracle", "leave_one_out", of("leave_one_out")),
            _equal("printed", "the baseline as v1's equation 15 prints it", of("printed")),
        ),
        {"expansionnet_v1": (14, 15), "expansionnet_v2": (14,)},
        dtypes=("float64", "float32"),
    )


def _beam_search() -> Operator:
    def of(name: str, says: str, numbers: str, beams: st.SearchStrategy[int]) -> Property:
        return Property(
            name,
            f"the oracle's hypotheses and scores: {says}",
            properties.same_hypotheses,
            cases.beam_searches(numbers, beams),
        )

    return Operator(
        "beam_search",
        ("next_log_probs", "start", "end", "beam_size", "max_length", "num_return"),
        "[(tokens, score), ...]",
        "next_log_probs(tokens) -> (V,) gives the log-probabilities of the word after a tuple of "
        "tokens. max_length counts the start token. A finished hypothesis stays in the beam with "
        "its sum unchanged; hypotheses compete by their sum, ties go to the earlier hypothesis, "
        "then to the lower token; the score is the sum over the number of tokens, start included. "
        "Tokens come with start, and end where reached; best score first.",
        contracts.beam_search,
        (
            of("equals_oracle", "distinct sums", "plain", st.integers(1, 4)),
            of("greedy", "a beam of one", "plain", ONE),
            of("impossible_words", "words of probability zero", "impossible", st.integers(1, 4)),
            of("ties", "equal sums", "ties", st.integers(1, 4)),
        ),
        {},
        dtypes=("float64",),
    )


def _metric(name: str, oracle: Callable[..., Any], result: str, about: str) -> Operator:
    of = cases.corpora
    return Operator(
        name,
        ("candidates", "references"),
        result,
        f"{about} candidates: one list of words an image; references: lists of such lists.",
        oracle,
        (
            _equal("equals_oracle", "a small corpus", of()),
            _equal("one_image", "a corpus of one image", of(images=(1, 1))),
            _equal("repeated_words", "two words, over and over", of(vocabulary="ab")),
            _equal("empty_captions", "captions without words among others", of(words=(0, 4))),
        ),
        {},
        dtypes=("float64",),
    )


OPERATORS: dict[str, Operator] = {
    operator.name: operator
    for operator in (
        _static(),
        _dynamic(),
        _attention(
            "multi_head_attention",
            "Multi-head dot-product attention.",
            contracts.multi_head_attention,
            False,
        ),
        _attention(
            "attention_on_attention",
            "I * sigmoid(G), both linear in the attended values and the projected queries.",
            contracts.attention_on_attention,
            True,
        ),
        _layer_norm(),
        _feed_forward(),
        _layer(decodes=False),
        _layer(decodes=True),
        _captioner(),
        _cross_entropy(),
        _self_critical(),
        _beam_search(),
        _metric("cider_d", cider.cider_d, "(images,)", "CIDEr-D of each image, 0 to 10."),
        _metric("bleu", metrics.bleu, "(4,)", "BLEU-1 to BLEU-4 of the corpus, 0 to 1."),
        _metric("rouge_l", metrics.rouge_l, "(images,)", "ROUGE-L of each image, 0 to 1."),
    )
}
