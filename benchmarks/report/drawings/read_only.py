"""The read-only LSTM's Table I and Figure 7."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from benchmarks import figures
from benchmarks.files import slug
from benchmarks.kinds import Trained
from benchmarks.papers.lstm_readonly.read_only import PAPER, ROWS
from benchmarks.papers.paired import by_row
from benchmarks.records import Record, of_kind
from benchmarks.report.document import Figure, Photographs
from benchmarks.report.drawings.examples import side_by_side


def _of(records: Sequence[Record], *tables: str) -> list[Record]:
    """The records of trainings that stand in some of the tables."""
    return [
        r
        for r in of_kind(records, Trained)
        if r.what.paper == PAPER and r.what.table in tables and r.what.row in ROWS
    ]


def examples(records: Sequence[Record], jpegs: Mapping[int, bytes]) -> list[Photographs]:
    """Table I: captions of the same images by each, of each data set."""
    shown, made = [], _of(records, "scores")
    for name in dict.fromkeys(r.data.name for r in made):
        runs = by_row([r for r in made if r.data.name == name])
        about = (
            f"Table I: test images of {name} captioned by each; evenly spaced in the split, not "
            "chosen"
        )
        shown += side_by_side(slug(PAPER, "I", name), about, runs, tuple(ROWS), jpegs)
    return shown


def loss_curves(records: Sequence[Record]) -> list[Figure]:
    """Figure 7: training losses over steps, a drawing for each data set."""
    drawn = []
    made = [r for r in _of(records, "losses") if r.details.losses]
    for name in dict.fromkeys(r.data.name for r in made):
        runs = by_row([r for r in made if r.data.name == name])
        lines = {row: _curve(runs[row]) for row in ROWS if row in runs}
        about = (
            f"Figure 7: training loss on {name}, each point the mean of the steps since the one "
            "before, and of the seeds that were trained so long."
        )
        drawing = partial(figures.curves, lines, "steps", "training loss, nats a word", log_y=True)
        drawn.append(Figure(slug(PAPER, name, "7"), about, made, drawing))
    return drawn


def _curve(runs: Sequence[Record]) -> tuple[list[float], list[float]]:
    """Steps and losses, the mean over the seeds that have the step."""
    at: dict[float, list[float]] = {}
    for record in runs:
        for entry in record.details.losses:
            at.setdefault(entry["step"], []).append(entry["loss"])
    steps = sorted(at)
    return steps, [sum(at[step]) / len(at[step]) for step in steps]
