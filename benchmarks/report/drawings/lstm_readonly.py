"""The read-only LSTM's Figures 1, 2 and 7, and its Table I."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import fmean

from benchmarks import figures
from benchmarks.files import slug
from benchmarks.kinds import Trained, Words
from benchmarks.papers.lstm_readonly.read_only import PAPER, ROWS
from benchmarks.papers.paired import by_row, grouped, shared
from benchmarks.records import Record, of_kind
from benchmarks.report.document import Box, Figure, Photographs
from benchmarks.report.drawings.examples import side_by_side
from benchmarks.report.sentences import of_curves, signed
from benchmarks.statistics import Interval, difference_of_seeds

BARS = 40
PLAIN, *GATED = (*ROWS,)[:2]


def areas(records: Sequence[Record]) -> list[Figure]:
    """Figure 1: every word's occurrences as an area, the most common by name."""
    drawn = []
    for record in of_kind(records, Words):
        commonest = dict(record.details.commonest)
        different, counted = (
            int(record.values[name]) for name in ("different words counted", "words counted")
        )
        rest = f"{different - len(commonest):,} other words", counted - sum(commonest.values())
        shown = f"the {len(commonest)} commonest, and the others together"
        drawn.append(_figure("1", record, shown, partial(figures.areas, commonest, rest)))
    return drawn


def bars(records: Sequence[Record]) -> list[Figure]:
    """Figure 2: the most common words."""
    drawn = []
    for record in of_kind(records, Words):
        commonest = dict(record.details.commonest[:BARS])
        draw = partial(figures.bars, commonest, "occurrences")
        drawn.append(_figure("2", record, f"the {len(commonest)} commonest", draw))
    return drawn


def _figure(number: str, record: Record, shown: str, draw: Callable[[], str]) -> Figure:
    about = f"Figure {number}: words in the captions of {record.data.name}: {shown}."
    return Figure(slug(PAPER, number, record.what.row), about, [record], draw)


def _of(records: Sequence[Record], table: str) -> list[Record]:
    """The records of a table's trainings."""
    of = PAPER, table
    trained = of_kind(records, Trained)
    return [r for r in trained if (r.what.paper, r.what.table) == of and r.what.row in ROWS]


def examples(records: Sequence[Record], jpegs: Mapping[int, bytes]) -> list[Photographs]:
    """Table I: captions of the same images by each model, for each data set."""
    shown = []
    for name, made in grouped(_of(records, "scores"), lambda r: r.data.name).items():
        runs = by_row(made)
        about = (
            f"Table I: test images of {name} captioned by each; evenly spaced in the split, not "
            "chosen"
        )
        shown += side_by_side(slug(PAPER, "I", name), about, runs, tuple(ROWS), jpegs)
    return shown


def loss_curves(records: Sequence[Record]) -> list[Box | Figure]:
    """Figure 7: training losses over steps, a figure for each data set."""
    drawn: list[Box | Figure] = []
    apart: dict[str, Interval] = {}
    every = [r for r in _of(records, "losses") if r.details.losses]
    for name, made in grouped(every, lambda r: r.data.name).items():
        runs = by_row(made)
        lines = {row: _curve(runs[row]) for row in ROWS if row in runs}
        about = (
            f"Figure 7: training loss on {name}, each point the mean of the steps since the one "
            "before, and of the seeds that were trained so long."
        )
        drawing = partial(figures.curves, lines, "steps", "training loss, nats a word", log_y=True)
        narrow = partial(drawing, narrow=True)
        drawn.append(Figure(slug(PAPER, name, "7"), about, made, drawing, narrow))
        pairs = [pair for row in GATED if row in runs for pair in shared(runs[row], runs[PLAIN])]
        if pairs:
            ours, plain = ([_late(record) for record in side] for side in zip(*pairs, strict=True))
            apart[name] = difference_of_seeds(ours, plain)
    if apart:
        said = "; ".join(f"on {name} {signed(found)}" for name, found in apart.items())
        text = f"Mean loss of the second half of the steps, {GATED[0]} above {PLAIN}: {said}."
        drawn.insert(0, Box(of_curves(apart, -1), f"{text} Lower is better.", every))
    return drawn


def _late(record: Record) -> float:
    """The mean loss of the second half of a training's steps."""
    losses = [entry["loss"] for entry in record.details.losses]
    return fmean(losses[len(losses) // 2 :])


def _curve(runs: Sequence[Record]) -> tuple[list[float], list[float]]:
    """Steps and losses, the mean over the seeds that have the step."""
    at: dict[float, list[float]] = {}
    for record in runs:
        for entry in record.details.losses:
            at.setdefault(entry["step"], []).append(entry["loss"])
    steps = sorted(at)
    return steps, [sum(at[step]) / len(at[step]) for step in steps]
