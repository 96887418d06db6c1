"""Drawings for the report, as deterministic SVG."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Panel:
    """One drawing of several: curves with intervals, and levels that are the same at every x.

    Args:
        title: above it.
        lines: name -> (x, y, low, high); names keep their colour in all panels.
        levels: name -> y.
        xlabel: below it.
        ylabel: beside it.
    """

    title: str
    lines: Mapping[str, tuple[Sequence[float], ...]]
    levels: Mapping[str, float]
    xlabel: str
    ylabel: str


def panels(rows: Sequence[Sequence[Panel]]) -> str:
    """Panels in rows and columns, all of log-log axes."""
    columns = max(len(row) for row in rows)
    size = (5 * columns, 3.6 * len(rows))
    figure, grid = plt.subplots(len(rows), columns, figsize=size, squeeze=False)
    names = dict.fromkeys(
        name for row in rows for panel in row for name in (*panel.lines, *panel.levels)
    )
    colours = {name: f"C{place % 10}" for place, name in enumerate(names)}
    for row, drawn in zip(rows, grid, strict=True):
        for axes in drawn[len(row) :]:
            axes.set_visible(False)
        for panel, axes in zip(row, drawn, strict=False):
            for name, (x, y, low, high) in panel.lines.items():
                axes.plot(x, y, marker=".", label=name, color=colours[name])
                axes.fill_between(x, low, high, alpha=0.2, color=colours[name], linewidth=0)
            for name, level in panel.levels.items():
                axes.axhline(level, linestyle="--", linewidth=1, label=name, color=colours[name])
            axes.set_xscale("log", base=2)
            axes.set_yscale("log")
            axes.set_title(panel.title, fontsize=9)
            axes.set_xlabel(panel.xlabel)
            axes.set_ylabel(panel.ylabel)
            axes.legend(frameon=False, fontsize=8)
    figure.tight_layout()
    return _svg(figure)
