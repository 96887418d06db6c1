"""Middle-Out's Figure 3, the errors of its Table 1, and captions for its Tables 6 and 8 to 10."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from benchmarks import papers
from benchmarks.figures import Panel, panels, sequences
from benchmarks.kinds import Control, Denoising, Diversity, MiddleOut
from benchmarks.papers.middle_out.captions import FORMS
from benchmarks.papers.middle_out.denoising import PAPER, TABLE
from benchmarks.papers.middle_out.scores import BASELINE, MIDDLE_OUT
from benchmarks.papers.paired import by_row, grouped
from benchmarks.records import Record, of_kind
from benchmarks.report.document import Cell, Figure, Photographs, Table
from benchmarks.report.drawings.examples import of_one_seed, side_by_side

MEASURES = ("MSE", "symmetric MSE")


def errors(records: Sequence[Record]) -> list[Figure]:
    """Test errors over steps, a figure for each length of training."""
    drawn = []
    for steps, of_steps in _by_steps(of_kind(records, Denoising)):
        about = f"Test errors over {steps:,} steps, means and ranges of seeds; dashed: printed"
        draw = partial(_drawing, of_steps)
        narrow = partial(draw, narrow=True)
        drawn.append(Figure(f"denoising-{steps}", about, of_steps, draw, narrow))
    return drawn


def example(records: Sequence[Record]) -> list[Figure]:
    """Figure 3: a noisy sequence, the clean one, and each regressor's error.

    A figure for each length of training whose records have a sequence.
    """
    made = [r for r in of_kind(records, Denoising) if r.details.example]
    drawn = []
    for steps, of_steps in _by_steps(made):
        shown = {r.what.row: found for r in of_steps if (found := r.details.example)}
        first = next(iter(shown.values()))
        x, y = first.x, first.y
        # the same seed has the same sequence
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
        narrow = partial(draw, narrow=True)
        drawn.append(Figure(f"denoising-{steps}-example", about, of_steps, draw, narrow))
    return drawn


def _by_steps(made: Sequence[Record]) -> list[tuple[int, list[Record]]]:
    """The longest training first."""
    return sorted(grouped(made, lambda r: r.details.settings["steps"]).items(), reverse=True)


def _drawing(made: Sequence[Record], *, narrow: bool = False) -> str:
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
    return panels([[panel] for panel in drawn] if narrow else [drawn])


SHOWN = (MIDDLE_OUT, f"{BASELINE} + Self-Attention")
"""The rows of Table 2 whose captions Tables 8 and 9 show."""
CONTROLLED = (BASELINE, "Middle-Out + Self-Attention")
"""The rows of Tables 6 and 10."""


def _by_form(records: Sequence[Record]) -> dict[str, list[Record]]:
    """The paper's records by form, without empty forms."""
    trained = of_kind(records, MiddleOut, Diversity, Control)
    found = {form: [r for r in trained if r.details.form == form] for form in FORMS}
    return {form: made for form, made in found.items() if made}


def pairs(records: Sequence[Record]) -> list[Table]:
    """Tables 6 and 10, for each form: the pairs that all records have."""
    shown = []
    for form, trained in _by_form(records).items():
        runs = by_row([r for r in trained if r.what.table == "6"])
        if not (made := of_one_seed(runs, list(CONTROLLED))):
            continue
        (seed,) = made[CONTROLLED[0]].seeds
        by_images = [
            {tuple(entry.image for entry in pair): pair for pair in record.details.pairs}
            for record in made.values()
        ]
        rows: list[list[Cell]] = []
        shared = [images for images in by_images[0] if all(images in other for other in by_images)]
        for number, images in enumerate(shared, start=1):
            for said in zip(*(held[images] for held in by_images), strict=True):
                captions = [entry.caption for entry in said]
                rows.append([number, said[0].word, said[0].reference, *captions])
        shown.append(
            Table(
                f"middle_out-6-captions-{form}",
                "Tables 6 and 10: the first pairs of the test split of "
                f"{made[CONTROLLED[0]].data.name}, not chosen; captions of both images of a pair "
                f"by the word of each; seed {seed}",
                ("pair", "word", "a reference", *made),
                rows,
                folded=True,
            )
        )
    return shown


def examples(records: Sequence[Record], jpegs: Mapping[int, bytes]) -> list[Photographs]:
    """Tables 8 and 9, of each data set in the form trained longest: captions of the same images by
    both decoders.
    """
    about = (
        "Tables 8 and 9: captions of the middle-out decoder, the word that it began with in "
        "brackets, and of the sequence-to-sequence model; evenly spaced in the split, not chosen"
    )
    shown: dict[str, Photographs] = {}
    for form, trained in _by_form(records).items():
        runs = by_row([r for r in trained if r.what.table == "2"])
        for block in side_by_side(f"middle_out-8-9-{form}", about, runs, SHOWN, jpegs):
            shown[block.records[0].data.name.partition(",")[0]] = block
    return [*shown.values()]
