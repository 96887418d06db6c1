"""Plots of measured numbers, as deterministic SVG."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import matplotlib

from benchmarks.typeset import SVG, typeset

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

import squarify  # noqa: E402  (after the backend is chosen)
from matplotlib import pyplot as plt  # noqa: E402
from matplotlib.text import Text  # noqa: E402
from matplotlib.ticker import LogLocator, NullLocator  # noqa: E402

Point = tuple[float, float]

# omitted metadata, by which equal plots would differ
NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))


FOREST = {
    "met": "#176b40",
    "missed": "#b3261e",
    "not settled": "#8a6d00",
    "target": "#1c2330",
    "ours": "#176b40",
    "our roofline": "#176b40",
    "plain form": "#2457a6",
    "its roofline": "#2457a6",
}


def _svg(figure: Any, *, tight: bool = False) -> str:
    """The figure as SVG; a ``$`` is a dollar: only powers on logarithmic axes are math."""
    powers = [
        label
        for axes in figure.axes
        for axis in (axes.xaxis, axes.yaxis)
        if axis.get_scale() == "log"
        for label in axis.get_ticklabels(which="both")
    ]
    for text in figure.findobj(Text):
        text.set_parse_math(text in powers)
    if tight:
        figure.tight_layout()
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", bbox_inches="tight", metadata=NO_METADATA)
    plt.close(figure)
    words = r"(?<=>)[^<>]*(?=</(?:text|tspan)>)"
    return re.sub(words, lambda found: typeset(found[0], SVG), buffer.getvalue())


def _legend(axes: Any) -> None:
    """Place the legend below the axes, where it covers no curve."""
    place = {"loc": "upper center", "bbox_to_anchor": (0.5, 0), "borderaxespad": 4.5}
    axes.legend(frameon=False, fontsize=8, **place)


def dots(
    rows: Mapping[str, Sequence[float]],
    label: str,
    reference: float | None = None,
    *,
    narrow: bool = False,
) -> str:
    """A dot plot: for each row a dot a value and a bar at their mean.

    ``reference`` adds a vertical line. Row names are above their rows if ``narrow``, else left.
    """
    size = (4.6, 0.5 * len(rows) + 1) if narrow else (7, 0.42 * len(rows) + 1.2)
    figure, axes = plt.subplots(figsize=size)
    names = list(rows)
    for place, name in enumerate(names):
        values = list(rows[name])
        axes.plot(values, [place] * len(values), "o", color="#2457a6", alpha=0.55, markersize=5)
        axes.plot([sum(values) / len(values)], [place], "|", color="#b3261e", markersize=16, mew=2)
    if reference is not None:
        axes.axvline(reference, color="#5d6675", linestyle="--", linewidth=1)
    axes.set_yticks(range(len(names)), [""] * len(names) if narrow else names)
    for place, name in enumerate(names if narrow else ()):
        axes.text(
            0.01, place - 0.4, name, fontsize=8, va="center", transform=axes.get_yaxis_transform()
        )
    axes.set_ylim(len(names) - 0.5, -0.7)
    axes.set_xlabel(label)
    return _svg(figure)


def forest(
    rows: Mapping[str, Mapping[str, Any]],
    label: str,
    bars: Sequence[str] = (),
    *,
    beside: bool = False,
) -> str:
    """A forest plot on a logarithmic axis.

    Args:
        rows: for each row, by name, numbers or estimates with intervals.
        label: of the axis.
        bars: names that are drawn as bars; others are dots.
        beside: row names to the left, at half the height; else above their rows.
    """
    names = list(dict.fromkeys(name for row in rows.values() for name in row))
    size = (7.0, 0.17 * len(rows) + 0.7) if beside else (5.2, 0.42 * len(rows) + 1)
    figure, axes = plt.subplots(figsize=size)
    for name in names:
        found = [(place, row[name]) for place, row in enumerate(rows.values()) if name in row]
        values = [getattr(of, "value", of) for _, of in found]
        ends = [
            [abs(getattr(of, end, n) - n) for (_, of), n in zip(found, values, strict=True)]
            for end in ("low", "high")
        ]
        style: dict[str, Any] = (
            {"fmt": "|", "ms": 11, "mew": 2} if name in bars else {"fmt": "o", "ms": 5}
        )
        places = [place + 0.2 * (not beside) for place, _ in found]
        axes.errorbar(values, places, xerr=ends, label=name, color=FOREST.get(name), **style)
    above: dict[str, Any] = {"fontsize": 8, "va": "center", "transform": axes.get_yaxis_transform()}
    for place, name in enumerate(() if beside else rows):
        axes.text(0.01, place - 0.2, name, **above)
    _log_axis(axes)
    if beside:
        axes.set_yticks(range(len(rows)), list(rows), fontsize=8)
    else:
        axes.set_yticks([place + 0.5 for place in range(len(rows))], [""] * len(rows))
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlabel(label)
    legend = axes.legend(frameon=False, fontsize=8, ncols=len(names), loc="lower left")
    legend.set_bbox_to_anchor((0, 1))
    return _svg(figure)


def _log_axis(axes: Any) -> None:
    """A logarithmic axis with few plain numbers."""
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 50 * low else (1,)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_locator(NullLocator())


def against_targets(
    rows: Mapping[str, tuple[float, Mapping[str, tuple[str, Any]]]], label: str
) -> str:
    """A line for each target: a bar, and an estimate for each device.

    Args:
        rows: by name, the target and, by device, a verdict, which gives the colour, and an
            estimate with its interval. Each device has a shape.
        label: of the axis.
    """
    devices = list(dict.fromkeys(name for _, found in rows.values() for name in found))
    shapes = dict(zip(devices, "osD^vP*", strict=False))
    figure, axes = plt.subplots(figsize=(5.6, 0.195 * len(rows) + 0.55))
    axes.plot([of for of, _ in rows.values()], range(len(rows)), "|", color=FOREST["target"], ms=12)
    for place, (_, found) in enumerate(rows.values()):
        for name, (verdict, of) in found.items():
            at = place + 0.34 * (devices.index(name) / max(len(devices) - 1, 1) - 0.5)
            ends = [[of.value - of.low], [of.high - of.value]]
            style: dict[str, Any] = {
                "color": FOREST[verdict],
                "fmt": shapes.get(name, "."),
                "ms": 4,
            }
            axes.errorbar([of.value], [at], xerr=ends, **style)
    verdicts = dict.fromkeys(v for _, found in rows.values() for v, _ in found.values())
    axes.plot([], [], "|", color=FOREST["target"], ms=10, label="target")
    for name in devices:
        axes.plot([], [], shapes.get(name, "."), color="#5d6675", ms=4, label=name)
    for verdict in sorted(verdicts):
        axes.plot([], [], "-", color=FOREST[verdict], lw=4, label=verdict)
    _log_axis(axes)
    axes.set_yticks(range(len(rows)), list(rows), fontsize=8)
    axes.tick_params(axis="x", labelsize=8)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlabel(label, fontsize=8)
    legend = axes.legend(frameon=False, fontsize=8, ncols=3, loc="lower right")
    legend.set_bbox_to_anchor((1, 1))
    return _svg(figure)


def curves(
    lines: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    xlabel: str,
    ylabel: str,
    *,
    log_x: bool = False,
    log_y: bool = False,
    narrow: bool = False,
    points: Mapping[str, tuple[Sequence[float], Sequence[float]]] | None = None,
) -> str:
    """Line plot of ``lines``, name -> (x, y); ``points``, such as a paper's, are crosses."""
    figure, axes = plt.subplots(figsize=(4, 3.6) if narrow else (7, 4))
    for name, (x, y) in lines.items():
        axes.plot(x, y, marker=".", label=name)
    for name, (x, y) in (points or {}).items():
        axes.plot(x, y, "x", markersize=8, mew=2, label=name)
    if log_x:
        axes.set_xscale("log", base=2)
    if log_y:
        axes.set_yscale("log")
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    _legend(axes)
    return _svg(figure)


def bars(values: Mapping[str, float], label: str) -> str:
    """Horizontal bar chart, the first name at the top."""
    figure, axes = plt.subplots(figsize=(7, 0.22 * len(values) + 0.8))
    axes.barh(list(values), list(values.values()), color="#2457a6")
    axes.invert_yaxis()
    axes.margins(y=0.01)
    axes.grid(visible=False, axis="y")
    axes.tick_params(labelsize=8)
    axes.set_xlabel(label)
    return _svg(figure)


def areas(weights: Mapping[str, float], rest: tuple[str, float]) -> str:
    """A treemap of the weights, with ``rest`` in grey; names that do not fit are omitted."""
    width, height = 9.0, 5.0
    figure, axes = plt.subplots(figsize=(width, height))
    axes.set_axis_off()
    shares = dict(sorted([*weights.items(), rest], key=lambda share: -share[1]))
    sizes = squarify.normalize_sizes([*shares.values()], width, height)
    drawn = squarify.squarify(sizes, 0, 0, width, height)
    for place, (name, box) in enumerate(zip(shares, drawn, strict=True)):
        left, bottom, wide, high = (box[of] for of in ("x", "y", "dx", "dy"))
        colour = plt.colormaps["viridis"](0.45 + 0.5 * place / len(shares))
        axes.add_patch(
            plt.Rectangle(
                (left, bottom),
                wide,
                high,
                facecolor="#d9dee6" if name == rest[0] else colour,
                edgecolor="white",
            )
        )
        size = min(14.0, 40 * high, 78 * wide / len(name))
        if size >= 4:
            axes.text(
                left + wide / 2, bottom + high / 2, name, ha="center", va="center", fontsize=size
            )
    axes.set_xlim(0, width)
    axes.set_ylim(0, height)
    return _svg(figure)


def _row(count: int, height: float, narrow: bool) -> tuple[Any, Any]:
    """A figure of ``count`` axes side by side; below one another if ``narrow``."""
    lines, columns = (count, 1) if narrow else (1, count)
    size = (4.5 * columns, height * lines)
    figure, grid = plt.subplots(lines, columns, figsize=size, squeeze=False)
    return figure, grid.flat


def sequences(
    panels: Mapping[str, Mapping[str, Sequence[float]]], xlabel: str, *, narrow: bool = False
) -> str:
    """Sequences over their positions, a panel a title; a name has one colour in all panels."""
    figure, grid = _row(len(panels), 3.4, narrow)
    names = list(dict.fromkeys(name for drawn in panels.values() for name in drawn))
    for axes, (title, drawn) in zip(grid, panels.items(), strict=True):
        for name, values in drawn.items():
            axes.plot(values, marker=".", label=name, color=f"C{names.index(name) % 10}")
        axes.set_title(title, fontsize=9)
        axes.set_xlabel(xlabel)
        _legend(axes)
    return _svg(figure, tight=True)


def scatter(
    panels: Mapping[str, Sequence[Sequence[Point]]], names: Sequence[str], *, narrow: bool = False
) -> str:
    """Scatter plots side by side, each of two kinds of points: filled and open."""
    figure, grid = _row(len(panels), 4.2, narrow)
    for axes, (title, kinds) in zip(grid, panels.items(), strict=True):
        styles = ({"color": "#2457a6"}, {"facecolors": "none", "edgecolors": "#b3261e"})
        for name, points, style in zip(names, kinds, styles, strict=True):
            axes.scatter(*zip(*points, strict=True), s=18, label=name, linewidths=1, **style)
        axes.set_title(title, fontsize=9)
        axes.set_xticks([])
        axes.set_yticks([])
        axes.set_aspect("equal", adjustable="datalim")
        _legend(axes)
    return _svg(figure, tight=True)


def overlays(picture: Any, rows: Mapping[str, Sequence[tuple[str, Any]]]) -> str:
    """A picture with a heat map for each word, a line for each of ``rows``.

    Args:
        picture: (height, width, 3) uint8.
        rows: by name, words with heat maps (height, width), coloured from 0 to their maximum.
    """
    columns = 1 + max(len(words) for words in rows.values())
    size = (1.15 * columns, 1.5 * len(rows))
    figure, grid = plt.subplots(len(rows), columns, figsize=size, squeeze=False)
    for drawn, (name, words) in zip(grid, rows.items(), strict=True):
        for axes in drawn:
            axes.set_axis_off()
        drawn[0].imshow(picture)
        drawn[0].set_title(name, fontsize=7)
        for axes, (word, heat) in zip(drawn[1:], words, strict=False):
            axes.imshow(picture)
            axes.imshow(heat, cmap="inferno", alpha=0.65, vmin=0)
            axes.set_title(word, fontsize=8)
    return _svg(figure, tight=True)


@dataclass(frozen=True)
class Panel:
    """A plot of curves with intervals, and constant levels."""

    title: str
    # name -> (x, y, low, high); a name has one colour in all panels
    lines: Mapping[str, tuple[Sequence[float], ...]]
    levels: Mapping[str, float]  # name -> y
    xlabel: str
    ylabel: str
    # name -> its text in the legend, if not the name
    labels: Mapping[str, str] = field(default_factory=dict)
    dotted: Mapping[str, Sequence[float]] = field(default_factory=dict)  # name -> y, at its x


def panels(rows: Sequence[Sequence[Panel]]) -> str:
    """A grid of panels with log-log axes."""
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
                label = panel.labels.get(name, name)
                axes.plot(x, y, marker=".", label=label, color=colours[name])
                if name in panel.dotted:
                    axes.plot(x, panel.dotted[name], ":", linewidth=1, color=colours[name])
                axes.fill_between(x, low, high, alpha=0.2, color=colours[name], linewidth=0)
            for name, level in panel.levels.items():
                axes.axhline(level, linestyle="--", linewidth=1, label=name, color=colours[name])
            axes.set_xscale("log", base=2)
            axes.set_yscale("log")
            axes.set_title(panel.title, fontsize=9)
            axes.set_xlabel(panel.xlabel)
            axes.set_ylabel(panel.ylabel)
            _legend(axes)
    return _svg(figure, tight=True)
