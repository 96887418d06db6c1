"""Middle-Out's decoders by the oracle's names and layout."""

from __future__ import annotations

from collections.abc import Mapping

from tests.parity import Array


def oracle_lstm(W: Array, b: Array) -> dict[str, Array]:
    """W (in, 4 d) and b (4 d,) as the oracle's ``weight`` and ``bias``."""
    return {"weight": W.T, "bias": b}


def oracle_side(weights: Mapping[str, Array]) -> dict[str, Array]:
    """The `Weights` of one side and one lane, by name, as ``reference.middle_out`` has them."""
    lstm = oracle_lstm(weights["W"], weights["b"])
    scores = {name: value for name, value in weights.items() if name.startswith("W_")}
    return {f"lstm.{name}": value for name, value in lstm.items()} | scores
