"""Static, Block Static and Dynamic Expansion (ExpansionNet v1 and v2)."""

from __future__ import annotations

from benchmarks.verify import properties
from benchmarks.verify.cases import Array, Case
from benchmarks.verify.draw import Draw
from benchmarks.verify.operators.operator import (
    EXACT,
    NORMAL_RANGE,
    UNEVEN,
    Operator,
    Property,
)
from reference import expansion

PSI = "Psi divides each row by its sum plus an epsilon of 1e-9."
STREAMS = "Stream 1 has relu(M) and value_1, stream 2 has relu(-M) and value_2."
SCALE = "M is divided by sqrt(d)."

TOKENS = (17, 33, 144, 200)
"""Large numbers of tokens."""

WIDTHS = (40, 130, 512)
"""Large numbers of channels."""


def parameters(draw: Draw, N: int, d: int, *maps: str, prefix: str = "") -> dict[str, Array]:
    """Parameters of an expansion layer: expansion vectors and linear maps."""
    sign = -1 if draw.regime == "one_sign" else 1
    found = {
        f"{prefix}query_vectors": sign * draw.array(N, d),
        f"{prefix}bias_vectors": draw.array(N, d),
    }
    for name in (*maps, "key", "value_1", "value_2", "selector"):
        found |= draw.linear(f"{prefix}{name}", d)
    if draw.regime == "one_sign" and "condition" in maps:
        for part in ("weight", "bias"):
            found[f"{prefix}condition.{part}"] *= -1
    return found


def groups(draw: Draw) -> tuple[int, ...]:
    """Sizes of one or several groups."""
    count = draw.size("groups", 3, large=(5,))
    large = {0: (65, 992), 1: (65,), 2: (65,)}
    return tuple(draw.size(f"group_{i}", 4, large.get(i, ())) for i in range(count))


def _channels(draw: Draw) -> int:
    """d; with the numbers of "off_grid" at least 2. The rounding error of a key of one channel that
    is almost zero, or of c_j + q_n, cancels in Psi in the papers' order of operations, but not
    where the key projection is folded into the queries, or M split into two products.
    """
    return draw.size("d", 6, large=WIDTHS, least=2 if draw.regime == "off_grid" else 1)


def _static(draw: Draw) -> Case:
    d, L = _channels(draw), draw.size("L", 6, large=TOKENS)
    sizes = groups(draw)
    return draw.inputs(L, d), parameters(draw, sum(sizes), d), sizes


def _dynamic(draw: Draw) -> Case:
    d, L = _channels(draw), draw.size("L", 6, large=TOKENS)
    N_E, causal = draw.size("N_E", 4, large=(17, 33, 65)), draw.flag("causal")
    return draw.inputs(L, d), parameters(draw, N_E, d, "condition"), causal


GROUPS = {f"group_{i}": 32 << i for i in range(5)}
"""The papers' groups: 992 vectors."""

REGIMES = ("zeros", "mixed", "one_sign", "tiny", "huge")

OPERATORS = (
    Operator(
        "static_expansion",
        ("X", "parameters", "groups"),
        "(L, d)",
        "Static or Block Static Expansion as a layer. X: (L, d). parameters: query_vectors and "
        "bias_vectors (N, d); key, value_1, value_2, selector, each .weight (d, d) and .bias (d,). "
        "groups: sizes that add up to N.",
        expansion.static_expansion_layer,
        _static,
        {"expansionnet_v1": (4, 5, 6, 7, 8, 9), "expansionnet_v2": (2, 3, 4, 5, 6, 7, 8, 9)},
        conventions=(
            PSI,
            SCALE,
            STREAMS,
            "In the backward step each group has its own sums; the groups' results are averaged.",
        ),
        special={
            "one_token": ({"L": 1}, "a single token"),
            "one_group": ({"groups": 1}, "a single group"),
            "block": ({"groups": (2, 3)}, "several groups"),
        },
        regimes=REGIMES,
        has_kinks=True,
        extra_properties=(
            Property("token_order", properties.token_order),
            Property("broadcast", properties.broadcast, pins=EXACT),
        ),
        by=("X", "parameters"),
        sequences=1,
        gates=("X",),
        dtypes=NORMAL_RANGE,
        project_dtypes=("float16",),
        sizes=(
            {"L": 33, "d": 40, "group_0": 65, "groups": 1},
            {"L": 144, "d": 130, "group_0": 65, "groups": 2},
            {"L": 144, "d": 512, "group_0": 64, "groups": 1},
            {"L": 17, "d": UNEVEN, "group_0": 65, "groups": 1},
            {"L": 144, "d": 512, "group_0": 992, "groups": 1},
            {"groups": 5, **GROUPS},
        ),
        batch=48,
        batches=(
            {"B": 48, "L": 144, "groups": 5, **GROUPS},
            {"B": 16, "L": 144, "d": 512, "group_0": 8, "groups": 1},
        ),
    ),
    Operator(
        "dynamic_expansion",
        ("X", "parameters", "causal"),
        "(L, d)",
        "Dynamic Expansion as a layer. X: (L, d). parameters: query_vectors and bias_vectors "
        "(N_E, d); condition, key, value_1, value_2, selector, each .weight (d, d) and .bias (d,). "
        "causal: whether token i may depend on tokens up to i only: the vectors of token j gather "
        "from tokens up to j, and token i reads the vectors of tokens up to i.",
        expansion.dynamic_expansion_layer,
        _dynamic,
        {"expansionnet_v1": (3, 5, 6, 7, 8, 9), "expansionnet_v2": (1, 2, 3, 4, 5, 6, 7, 8)},
        conventions=(
            PSI,
            SCALE,
            STREAMS,
            "Query and bias vectors are both broad-summed with the condition: vector n of token j "
            "is c_j + q_n, and c_j + b_n.",
        ),
        special={
            "one_token": ({"L": 1}, "a single token"),
            "bidirectional": ({"causal": False}, "not causal"),
        },
        regimes=REGIMES,
        has_kinks=True,
        extra_properties=(
            Property("causality", properties.causality, pins={"causal": True}),
            Property("broadcast", properties.broadcast, pins=EXACT),
        ),
        by=("X", "parameters"),
        sequences=1,
        gates=("X",),
        dtypes=NORMAL_RANGE,
        project_dtypes=("float16",),
        sizes=(
            {"L": 20, "d": 130, "N_E": 16, "causal": True},
            {"L": 200, "d": 6, "N_E": 33},
            {"L": 33, "d": 512, "N_E": 16, "causal": True},
            {"L": 17, "d": UNEVEN, "N_E": 16, "causal": True},
        ),
        batch=5,
        batches=({"B": 48, "L": 20, "d": 40, "N_E": 2, "causal": True},),
    ),
)
