"""The section on the LSTM with a read-only unit: losses, captions, and the words of captions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial

from benchmarks import figures, papers
from benchmarks.files import slug
from benchmarks.kinds import Trained
from benchmarks.papers.lstm_readonly.read_only import PAPER, ROWS
from benchmarks.papers.paired import (
    RULE,
    by_row,
    difference,
    value,
    verdict,
)
from benchmarks.records import Record, of
from benchmarks.report.document import (
    Block,
    Cell,
    Figure,
    Paragraph,
    Photographs,
    Section,
    Table,
)
from benchmarks.report.sections.evidence import not_run, provenance
from benchmarks.report.sections.examples import side_by_side
from benchmarks.report.sections.words import words

TITLE = "The LSTM with a read-only unit"
BASELINE = next(iter(ROWS))
LOSSES = ("training loss", "evaluation loss")


def read_only(records: Sequence[Record], jpegs: Mapping[int, bytes]) -> Section:
    """Losses and captions, each data set by itself, and how often words occur."""
    made = _of(records, "losses")
    if not made:
        none = not_run("", "`captionbench reproduce lstm_readonly --table losses` trains the rows.")
        return Section(TITLE, [none, *words(records)])
    lead = Paragraph(
        "The paper's captioner with the unit, which reads the image's embedding, and without; the "
        "last row has eq. 17 as it is printed, which reads the input before. The paper does not "
        "print its rate of learning, and no one rate is fair to all: each row has that, of those "
        "tried, with the least loss on the validation split with the first seed. Losses are of a "
        "word, in nats; one above that of guessing all words alike is of a training that "
        "**diverged** and tells nothing of the model, nor does a difference from it. The paper's "
        "data are MS-COCO: the sign of a difference compares, "
        f"values do not. {RULE}"
    )
    blocks: list[Block] = [lead]
    for name in dict.fromkeys(r.data.name for r in made):
        of_data = [r for r in _of(records, "losses", "scores") if r.data.name == name]
        blocks += _one(of_data, jpegs)
    return Section(TITLE, [*blocks, *words(records)])


def _of(records: Sequence[Record], *tables: str) -> list[Record]:
    """The records of trainings that stand in some of the tables."""
    return [
        r
        for r in of(records, Trained)
        if r.what.paper == PAPER and r.what.table in tables and r.what.row in ROWS
    ]


def _one(made: Sequence[Record], jpegs: Mapping[int, bytes]) -> list[Block]:
    """What was trained on one data set."""
    lost, scored = _of(made, "losses"), _of(made, "scores")
    return [_losses(lost), *loss_curves(lost), *examples(scored, jpegs), provenance(lost)]


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


def _losses(made: Sequence[Record]) -> Table:
    """Every row's losses beside the paper's, and above those of the plain LSTM."""
    runs, data = by_row(made), made[0].data
    printed = {(c.row, c.column): c.meant for c in papers.load(PAPER).table("losses").cells}
    rows: list[list[Cell]] = []
    for row in ROWS:
        ours, cells = runs.get(row, []), list[Cell]()
        for loss in LOSSES:
            theirs, base = printed.get((row, loss)), printed[BASELINE, loss]
            gap = theirs - base if isinstance(theirs, float) and isinstance(base, float) else None
            cells += [
                "-" if gap is None else f"{theirs:.2f}",
                _ours(ours, loss) if ours else None,
                "" if gap is None or row == BASELINE else f"{gap:+.2f}",
                "" if row == BASELINE else _above(ours, runs.get(BASELINE, []), loss),
            ]
        rates = dict.fromkeys(map(_rate, ours))
        rows.append(
            [
                row,
                len(ours) or None,
                ", ".join(rates),
                *cells,
                ours[0].status if ours else "not run",
            ]
        )
    columns = [
        column
        for loss in LOSSES
        for column in (
            f"paper's {loss}",
            f"our {loss}",
            f"paper: above {BASELINE}",
            f"ours: above {BASELINE} (95 % interval)",
        )
    ]
    return Table(
        slug(PAPER, data.name, "losses"),
        f"{data.name}: losses on the train and on the {data.split} split "
        f"({made[0].n} images), means over seeds, ± half the range",
        ("row", "our seeds", "rate", *columns, "status"),
        rows,
    )


def _ours(runs: Sequence[Record], loss: str) -> str:
    """The mean over seeds, half their range, and how many learned nothing."""
    values = [r.values[loss] for r in runs]
    mean = sum(values) / len(values)
    spread = f" ± {(max(values) - min(values)) / 2:.3f}" if len(values) > 1 else ""
    lost = sum(diverged(r) for r in runs)
    of = f" with {lost} of {len(runs)} seeds" if lost < len(runs) else ""
    return f"{mean:.3f}{spread}{f': diverged{of}' if lost else ''}"


def _rate(run: Record) -> str:
    """The rate that a run had, and whether a better one may lie beyond those tried."""
    rate = run.details.stages[0]["optimisation"]["lr"]
    tried = sorted(map(float, run.details.validation_losses))
    ends = {tried[0]: ", the least tried", tried[-1]: ", the largest tried"}
    return f"{rate:g} of {', '.join(f'{one:g}' for one in tried)}{ends.get(rate, '')}"


def diverged(run: Record) -> bool:
    """Whether a run's captions are no likelier than words drawn alike."""
    guessing = math.log(run.details.configuration["vocabulary_size"])
    return any(run.values[loss] > guessing for loss in LOSSES)


def _above(ours: Sequence[Record], baseline: Sequence[Record], loss: str) -> str:
    """Our loss above the baseline's; a difference from a run that diverged tells nothing."""
    if any(map(diverged, (*ours, *baseline))):
        return ""
    return verdict(difference(ours, baseline, value(loss)), "lower", "higher", digits=3)


def loss_curves(records: Sequence[Record]) -> list[Figure]:
    """Figure 7: training losses over steps, a drawing for each data set."""
    drawn = []
    made = [r for r in _of(records, "losses") if r.details.losses]
    for name in dict.fromkeys(r.data.name for r in made):
        runs = by_row([r for r in made if r.data.name == name])
        lines = {row: _curve(runs[row]) for row in ROWS if row in runs}
        about = (
            f"Figure 7: training loss on {name}, each point the mean of the steps since the one "
            "before, and of all seeds."
        )
        drawing = partial(figures.curves, lines, "steps", "training loss, nats a word", log_y=True)
        drawn.append(Figure(slug(PAPER, name, "7"), about, drawing))
    return drawn


def _curve(runs: Sequence[Record]) -> tuple[list[float], list[float]]:
    """Steps and losses, the mean over the seeds, which all have the same steps."""
    at: dict[float, list[float]] = {}
    for record in runs:
        for entry in record.details.losses:
            at.setdefault(entry["step"], []).append(entry["loss"])
    steps = sorted(at)
    return steps, [sum(at[step]) / len(at[step]) for step in steps]
