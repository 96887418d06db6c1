"""Smaller cases of the same numbers: a token, a vector or a channel less, wherever it occurs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks.verify.cases import Case
from benchmarks.verify.properties import float_arrays, get, replaced

MAPS = (
    *("condition", "key", "value_1", "value_2", "selector"),
    *("query", "value", "out", "information", "gate"),
)
SQUARE = {f"{name}.weight": "dd" for name in MAPS} | {f"{name}.bias": "d" for name in MAPS}
EXPANSION = SQUARE | {"X": "Ld", "query_vectors": "Nd", "bias_vectors": "Nd"}
ATTENTION = SQUARE | {"X": "Md", "Y": "Ld"}

AXES: dict[str, dict[str, str]] = {
    "static_expansion": EXPANSION,
    "dynamic_expansion": EXPANSION,
    "multi_head_attention": ATTENTION,
    # D: the attended channels and those of the query, one after the other
    "attention_on_attention": ATTENTION | {"information.weight": "dD", "gate.weight": "dD"},
    "layer_norm": {"X": "Ld", "weight": "d", "bias": "d"},
    "feed_forward": {
        "X": "Ld",
        "linear_1.weight": "fd",
        "linear_1.bias": "f",
        "linear_2.weight": "df",
        "linear_2.bias": "d",
    },
}
"""Of each operator's arrays the axes; what has the same letter has the same length."""


def smaller(operator: str, names: Sequence[str], case: Case) -> Iterator[Case]:
    """``case`` without one token, vector, channel, head or sequence of the batch.

    Args:
        operator: its name; of one that is not in ``AXES`` there are no smaller cases.
        names: of the case's arguments.
        case: the arguments.
    """
    if operator not in AXES:
        return
    named = dict(zip(names, case, strict=True))
    batch = "B" if "lengths" in named else ""
    axes = {
        (i, key): AXES[operator][key] if key is not None else batch + AXES[operator][names[i]]
        for i, key in float_arrays(case)
    }
    extents = {
        letter: extent
        for place, letters in axes.items()
        for letter, extent in zip(letters, get(case, place).shape, strict=True)
    }
    for letter in sorted(set(extents) - {"D"}):
        for gone, plain in _parts(letter, extents[letter], named):
            if len(gone) == extents[letter]:
                continue
            found = case
            for place, letters in axes.items():
                array = get(found, place)
                for axis, of in enumerate(letters):
                    if of == letter:
                        array = np.delete(array, gone, axis)
                    elif (of, letter) == ("D", "d"):
                        array = np.delete(array, [*gone, *(i + extents["d"] for i in gone)], axis)
                found = replaced(found, place, array)
            yield tuple(plain.get(name, value) for name, value in zip(names, found, strict=True))


def _parts(
    letter: str, extent: int, named: dict[str, Any]
) -> Iterator[tuple[list[int], dict[str, Any]]]:
    """What can be taken from an axis, and the arguments beside the arrays that change with it."""
    heads = named.get("num_heads", 1) if letter == "d" else 1
    if heads > 1:
        width = extent // heads
        for head in range(heads):
            yield [*range(head * width, (head + 1) * width)], {"num_heads": heads - 1}
        for channel in range(width):
            yield [*range(channel, extent, width)], {}
        return
    lengths: Any = named.get("lengths")
    for i in range(extent):
        if letter == "B":
            yield [i], {"lengths": np.delete(lengths, i)}
        elif letter == "L" and lengths is not None:
            yield [i], {"lengths": np.minimum(lengths, extent - 1)}
        elif letter == "N" and "groups" in named:
            groups = _without(named["groups"], i)
            # of several groups two stay, which is what some properties are about
            if len(groups) > 1 or len(named["groups"]) == 1:
                yield [i], {"groups": groups}
        else:
            yield [i], {}


def _without(groups: Sequence[int], i: int) -> tuple[int, ...]:
    """The sizes of groups without vector ``i``."""
    of = int(np.searchsorted(np.cumsum(groups), i, side="right"))
    return tuple(size - (j == of) for j, size in enumerate(groups) if size - (j == of))
