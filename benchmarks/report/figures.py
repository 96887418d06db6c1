"""Drawings for the report, as deterministic SVG."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams.update(
    {
        "svg.hashsalt": "captionbench",
        "svg.fonttype": "none",
        "font.size": 10,
        "axes.grid": True,
        "grid.alpha": 0.3,
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
)

from matplotlib import pyplot as plt  # noqa: E402  (after the backend is chosen)

# who drew it when says nothing, and would make equal drawings differ
NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))


def _svg(figure: Any) -> str:
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", bbox_inches="tight", metadata=NO_METADATA)
    plt.close(figure)
    return buffer.getvalue()


def dots(rows: Mapping[str, Sequence[float]], label: str, reference: float | None = None) -> str:
    """One line a row: a dot a seed and a bar at their mean; ``reference`` draws a vertical line."""
    figure, axes = plt.subplots(figsize=(7, 0.42 * len(rows) + 1.2))
    names = list(rows)
    for place, name in enumerate(names):
        values = list(rows[name])
        axes.plot(values, [place] * len(values), "o", color="#2457a6", alpha=0.55, markersize=5)
        axes.plot([sum(values) / len(values)], [place], "|", color="#b3261e", markersize=16, mew=2)
    if reference is not None:
        axes.axvline(reference, color="#5d6675", linestyle="--", linewidth=1)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlabel(label)
    return _svg(figure)


def curves(
    lines: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    xlabel: str,
    ylabel: str,
    *,
    log_x: bool = False,
    points: Mapping[str, tuple[Sequence[float], Sequence[float]]] | None = None,
) -> str:
    """Lines over a shared axis, and single points (a paper's numbers, say) as crosses."""
    figure, axes = plt.subplots(figsize=(7, 4))
    for name, (x, y) in lines.items():
        axes.plot(x, y, marker=".", label=name)
    for name, (x, y) in (points or {}).items():
        axes.plot(x, y, "x", markersize=8, mew=2, label=name)
    if log_x:
        axes.set_xscale("log", base=2)
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    axes.legend(frameon=False, fontsize=9)
    return _svg(figure)
