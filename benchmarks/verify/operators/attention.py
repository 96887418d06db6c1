"""Multi-head attention, and Attention on Attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.verify import gradients, properties
from benchmarks.verify.cases import Array, Case
from benchmarks.verify.draw import Draw
from benchmarks.verify.operators.operator import (
    EXACT,
    GRADIENT,
    MIXED,
    TORCH,
    Operator,
    Property,
)
from reference import attention
from reference.primitives import Parameters

WEIGHTS = (
    "Weights of a softmax add up to 1 within the rounding of 1: exp(s - logsumexp(s)) and "
    "exp(log_softmax(s)) have that of the exponent: too large for large scores, also in float64."
)


def parameters(draw: Draw, d: int, aoa: bool = False, prefix: str = "") -> dict[str, Array]:
    """Parameters of multi-head attention, or of Attention on Attention."""
    found: dict[str, Array] = {}
    for name in ("query", "key", "value"):
        found |= draw.linear(f"{prefix}{name}", d)
    for name in ("information", "gate") if aoa else ():
        found |= draw.linear(f"{prefix}{name}", d, 2 * d)
    return found if aoa else found | draw.linear(f"{prefix}out", d)


def heads(draw: Draw, most: int = 3, widest: int = 3) -> tuple[int, int]:
    """(num_heads, d), where num_heads divides d."""
    num_heads = draw.size("num_heads", most, large=(8, 12, 16))
    return num_heads, num_heads * draw.size("d_k", widest, large=(40, 130))


def _cases(aoa: bool) -> Callable[[Draw], Case]:
    def case(draw: Draw) -> Case:
        (num_heads, d), causal = heads(draw), draw.flag("causal")
        X = draw.inputs(draw.size("M", 6, large=(17, 33, 200)), d)
        Y = draw.inputs(draw.size("N", 6, large=(17, 33, 144, 200)), d)
        if draw.regime == "huge" and draw.pins.get("dtype") == "float32":
            # one of them: where queries, keys and values are in the thousands, the terms of a
            # gradient that cancel leave no digits of it
            (X if draw.flag("large_Y") else Y)[...] /= draw.factor("huge")
        # the running maximum of a softmax in tiles rises by much
        Y *= np.linspace(1, draw.choose("rising", (1.0, 16.0)), len(Y))[:, None]
        return X, Y, parameters(draw, d, aoa), num_heads, causal

    return case


def _masked(function: Callable[..., Any]) -> Callable[..., Any]:
    def oracle(X: Array, Y: Array, parameters: Parameters, num_heads: int, causal: bool) -> Array:
        mask = np.tri(len(X), len(Y), dtype=np.bool_) if causal else None
        found: Array = function(X, Y, parameters, num_heads, mask)
        return found

    oracle.__name__ = function.__name__
    return oracle


multi_head_attention = _masked(attention.multi_head_attention)
attention_on_attention = _masked(attention.attention_on_attention)


def _operator(name: str, about: str, oracle: Callable[..., Any], aoa: bool) -> Operator:
    return Operator(
        name,
        ("X", "Y", "parameters", "num_heads", "causal"),
        "(M, d)",
        f"{about} Queries from X: (M, d), keys and values from Y: (N, d). parameters: query, key, "
        f"value, {'information, gate' if aoa else 'out'}, each .weight and .bias. causal: row j of "
        "X sees rows up to j of Y.",
        oracle,
        _cases(aoa),
        {} if aoa else {"expansionnet_v1": (1, 2)},
        conventions=(
            "Head i has the channels from i d/num_heads on; its scores are divided by "
            "sqrt(d/num_heads).",
            "A causal mask is aligned with the first key, also where M and N differ.",
            WEIGHTS,
        ),
        special={
            "one_token": ({"M": 1, "N": 1}, "a single query and key"),
            "one_head": ({"num_heads": 1}, "a single head"),
        },
        regimes=("zeros", "mixed", "huge", "large_scores"),
        extra_properties=(
            Property("causality", properties.causal_keys, pins={"causal": True}),
            Property("broadcast", properties.broadcast, pins=EXACT),
            Property("same_array", properties.same_array, pins=MIXED),
            Property(
                "gradient_same_array",
                gradients.gradient_same_array,
                pins=MIXED,
                needs=(GRADIENT, TORCH),
                settings={"by": (0, 1)},
                large="tiled",
            ),
        ),
        by=("X", "Y", "parameters"),
        sequences=2,
        lengths=("N", "M"),
        rows=False,
        empty=False,
        holes={"causal": False},  # with holes, causal masking is not defined
        gates=("X", "Y") if aoa else None,
        batch=48,
        batches=(
            {"B": 9, "M": 1, "N": 144},
            {"B": 16, "M": 144, "N": 17, "num_heads": 8, "d_k": 64},
        ),
        sizes=(
            {"M": 20, "N": 144, "num_heads": 8, "d_k": 16, "causal": False},
            {"M": 1, "N": 144, "num_heads": 8, "d_k": 16, "causal": False},
            {"M": 144, "N": 144, "num_heads": 8, "d_k": 64, "causal": True},
            {"M": 8, "N": 8, "num_heads": 8, "d_k": 16},  # as many tokens as heads
        ),
    )


OPERATORS = (
    _operator(
        "multi_head_attention", "Multi-head dot-product attention.", multi_head_attention, False
    ),
    _operator(
        "attention_on_attention",
        "I * sigmoid(G), both linear in the attended values and the projected queries, in this "
        "order.",
        attention_on_attention,
        True,
    ),
)
