"""Middle-Out's Figure 3, and how the errors of its Table 1 fall while training."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from benchmarks import papers
from benchmarks.figures import Panel, panels, sequences
from benchmarks.kinds import Denoising
from benchmarks.papers.middle_out.denoising import PAPER, TABLE
from benchmarks.records import Record, of_kind
from benchmarks.report.document import Figure

MEASURES = ("MSE", "symmetric MSE")


def errors(records: Sequence[Record]) -> list[Figure]:
    """Test errors over steps, a drawing for each length of training."""
    made = of_kind(records, Denoising)
    drawn = []
    for steps in sorted({r.details.settings["steps"] for r in made}, reverse=True):
        of_steps = [r for r in made if r.details.settings["steps"] == steps]
        about = f"Test errors over {steps:,} steps, means and ranges of seeds; dashed: printed"
        drawn.append(Figure(f"denoising-{steps}", about, of_steps, partial(_drawing, of_steps)))
    return drawn


def example(records: Sequence[Record]) -> list[Figure]:
    """Figure 3: a noisy sequence, the clean one, and what each regressor is off it.

    A drawing for each length of training whose records hold a sequence.
    """
    made = [r for r in of_kind(records, Denoising) if r.details.example]
    drawn = []
    for steps in sorted({r.details.settings["steps"] for r in made}, reverse=True):
        shown = {
            r.what.row: r.details.example
            for r in made
            if r.details.example and r.details.settings["steps"] == steps
        }
        first = next(iter(shown.values()))
        x, y = first.x, first.y
        # of the same seed, and so of the same sequence
        shown = {row: found for row, found in shown.items() if found.y == y}
        off = {"noisy x": x} | {row: found.y_hat for row, found in shown.items()}
        errors = {
            name: [value - clean for value, clean in zip(values, y, strict=True)]
            for name, values in off.items()
        }
        parts = {"noisy": {"noisy x": x}, "clean": {"clean y": y}, "above the clean one": errors}
        about = (
            "Figure 3: a noisy test sequence, the clean one, and how far off it the regressors' "
            f"are after {steps:,} steps; the first seed's first."
        )
        draw = partial(sequences, parts, "position")
        drawn.append(Figure(f"denoising-{steps}-example", about, made, draw))
    return drawn


def _drawing(made: Sequence[Record]) -> str:
    drawn = []
    printed = {(c.row, c.column): c.value for c in papers.load(PAPER).table(TABLE).cells}
    for measure in MEASURES:
        lines, levels = {}, {}
        for record in made:
            row, history = record.what.row, record.details.history
            values = [entry[measure] for entry in history]
            lines[row] = (
                [entry["step"] for entry in history],
                [sum(of_seeds) / len(of_seeds) for of_seeds in values],
                [min(of_seeds) for of_seeds in values],
                [max(of_seeds) for of_seeds in values],
            )
            if isinstance(level := printed.get((row, measure)), float):
                levels[f"{row}, printed"] = level
        drawn.append(Panel(measure, lines, levels, "steps", f"test {measure}"))
    return panels([drawn])
