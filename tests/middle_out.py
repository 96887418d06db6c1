"""Middle-Out's decoders by the oracle's names and layout."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tests.parity import Array


def oracle_lstm(W: Array, b: Array) -> dict[str, Array]:
    """W (in, 4 d) and b (4 d,), gates i, f, g, o, as the oracle's ``weight`` and ``bias``."""
    i, f, g, o = np.split(np.concatenate([W, b[None]]), 4, -1)
    both = np.concatenate([i, f, o, g], -1)
    return {"weight": both[:-1].T, "bias": both[-1]}


def oracle_side(weights: Mapping[str, Array]) -> dict[str, Array]:
    """The `Weights` of one side and one lane, by name, as ``reference.middle_out`` has them."""
    lstm = oracle_lstm(weights["W"], weights["b"])
    scores = {name: value for name, value in weights.items() if name.startswith("W_")}
    return {f"lstm.{name}": value for name, value in lstm.items()} | scores
