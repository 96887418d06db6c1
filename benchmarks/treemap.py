"""Rectangles whose areas are shares of a whole, as in the read-only LSTM's Figure 1."""

from __future__ import annotations

from collections.abc import Sequence

Rectangle = tuple[float, float, float, float]
"""Left, bottom, width, height."""


def treemap(weights: Sequence[float], within: Rectangle) -> list[Rectangle]:
    """``within`` divided into a rectangle for each weight, of an area in proportion.

    The longer side is cut where the weights before and after come nearest to halves, and so on in
    both parts. Heavy weights first give the squarest rectangles.

    Args:
        weights: all above 0.
        within: the whole.
    """
    if len(weights) == 1:
        return [within]
    total, before = sum(weights), 0.0
    cut, share = 1, weights[0] / total
    for place, weight in enumerate(weights[:-1], start=1):
        before += weight
        if abs(before / total - 0.5) < abs(share - 0.5):
            cut, share = place, before / total
    left, bottom, width, height = within
    if width >= height:
        one = left, bottom, width * share, height
        other = left + width * share, bottom, width * (1 - share), height
    else:
        one = left, bottom + height * (1 - share), width, height * share
        other = left, bottom, width, height * (1 - share)
    return [*treemap(weights[:cut], one), *treemap(weights[cut:], other)]
