"""The plot of ``captionbench flops``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from benchmarks.errors import InputError
from benchmarks.figures import NO_METADATA
from benchmarks.files import write_atomically
from benchmarks.perf.flops.closed_forms import Length
from benchmarks.perf.flops.table_vi import Line, sweep
from torch_impl.layers.transformer import Mixer
from torch_impl.models import Configuration

PLOT_FORMATS = ("svg", "png", "pdf")
MOST_VECTORS = 10**9
"""The largest coefficient that is accepted, against typing errors."""


def draw(
    path: Path, length: Length, model: Configuration, table: Sequence[Line], **work: int
) -> None:
    """Plot `sweep` in the paper's convention, as printed and factored, and the points of ``table``.

    Raises:
        InputError: the suffix of ``path`` is not in `PLOT_FORMATS`, its folder is missing, or it
            cannot be written.
    """
    suffix = path.suffix.removeprefix(".").lower()
    if suffix not in PLOT_FORMATS:
        raise InputError(f"{path}: unknown picture format, expected .{', .'.join(PLOT_FORMATS)}")
    if not path.parent.is_dir():
        raise InputError(f"{path.parent}: no such folder, expected one for {path.name} (--plot)")
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot(xlabel="expansion coefficient", ylabel="10^12 multiply-accumulates")
    for form, style in (("paper", "-"), ("paper_factored", "--")):
        label = "as printed" if form == "paper" else "factored (closed form)"
        lines = sweep(length, model, form, **work)
        for colour, (name, (x, y)) in enumerate(lines.items()):
            axes.plot(x, [v / 1e12 for v in y], style, color=f"C{colour}", label=f"{name}, {label}")
    points = [
        (sum(mixer.coefficients), line.paper / 1e12)
        for line in table
        for mixer in (Mixer.parse(line.encoder), Mixer.parse(line.decoder))
        if "attention" in (line.encoder, line.decoder) and mixer.coefficients
    ]
    if points:
        axes.plot(*zip(*points, strict=True), "kx", label="v2, Table VI")
    axes.set_xscale("log", base=2)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=9)
    with write_atomically(path, "wb") as file:
        figure.savefig(file, format=suffix, metadata=NO_METADATA if suffix == "svg" else None)
