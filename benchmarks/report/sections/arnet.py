"""The section on ARNet: what each regulariser does to scores and to the discrepancy.

Its Tables 1 to 5 as the paper argues by them: every regulariser against its own baseline.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from benchmarks import figures, papers
from benchmarks.files import slug
from benchmarks.papers.arnet.captions import (
    ADDED,
    BASELINES,
    PAPER,
    ROWS,
)
from benchmarks.papers.arnet.digits import PLAIN
from benchmarks.papers.arnet.digits import ROWS as DIGITS
from benchmarks.papers.arnet.hidden_states import MODES
from benchmarks.papers.arnet.hidden_states import ROWS as SHOWN
from benchmarks.papers.arnet.hidden_states import TABLE as STATES
from benchmarks.papers.arnet.reconstruction_weight import ROWS as WEIGHTS
from benchmarks.papers.arnet.reconstruction_weight import TABLE as WEIGHT
from benchmarks.papers.paired import (
    RULE,
    Rows,
    by_row,
    difference,
    mean,
    mean_and_spread,
    shared,
    value,
    verdict,
)
from benchmarks.records import Record
from benchmarks.report.document import (
    Block,
    Cell,
    Figure,
    Paragraph,
    Photographs,
    Section,
    Table,
)
from benchmarks.report.sections import discrepancy
from benchmarks.report.sections.evidence import not_run, provenance
from benchmarks.report.sections.examples import side_by_side
from benchmarks.scoring.discrepancy import CENTROID, POINTS
from benchmarks.scoring.quality import METRICS

TITLE = "ARNet: scores, and training against inference"
OF_IMAGES, OF_CODE = "CIDEr-D", "B4"
CAPTIONS = {("1", "2"): OF_IMAGES, ("3", "4"): OF_CODE}
"""Tables of scores and of distances, and the metric that the paper judges by."""
ACCURACY = "test accuracy"


def arnet(records: Sequence[Record], jpegs: Mapping[int, bytes]) -> Section:
    """Tables 1 to 5 and Figures 3 to 5, each data set by itself."""
    blocks: list[Block] = []
    for tables, metric in CAPTIONS.items():
        for made in _by_data(_of(records, *tables)):
            blocks += _captions(tables, metric, made)
    blocks += examples(records, jpegs)
    for made in _by_data(_of(records, WEIGHT)):
        blocks += [_weights(made), *by_weight(made), provenance(made)]
    if drawn := states(records):
        blocks += [*drawn, provenance(_of(records, STATES))]
    for made in _by_data(_of(records, "5")):
        blocks += [_digits(made), provenance(made)]
    if not blocks:
        how = "`captionbench reproduce arnet` trains the rows."
        return Section(TITLE, [not_run("", how)])
    lead = Paragraph(
        "Each regulariser against its own baseline, in print and here: its score, and how far "
        "training and inference are apart (d_mc and d_pw, eqs. 11 and 12; smaller is better). "
        "Scores are times 100. On **other data** than the paper's and on **embedded** ones the "
        f"signs compare, values do not. {RULE}"
    )
    return Section(TITLE, [lead, *blocks])


def _of(records: Sequence[Record], *tables: str) -> list[Record]:
    """The records that stand in some of the tables."""
    return [r for r in records if r.what.paper == PAPER and r.what.table in tables]


def _by_data(made: Sequence[Record]) -> list[list[Record]]:
    names = dict.fromkeys(r.data.name for r in made)
    return [[r for r in made if r.data.name == name] for name in names]


def _captions(tables: tuple[str, str], metric: str, made: Sequence[Record]) -> list[Block]:
    """What captioners of one data set score, and how far they are apart."""
    scores, distances = (by_row(_of(made, table)) for table in tables)
    first = made[0]
    about = f"{first.data.name} ({first.status}), {first.n} of its test split"
    name = slug(PAPER, first.data.name, *tables)
    rows: list[list[Cell]] = [
        [
            baseline,
            added.removeprefix(" + "),
            _seeds(scores, distances, baseline + added, baseline),
            _paper_s(tables[0], metric, baseline, added),
            _above(metric, scores, baseline + added, baseline),
            *(
                cell
                for distance in (CENTROID, POINTS)
                for cell in (
                    _paper_s(tables[1], distance, baseline, added),
                    discrepancy.changed(
                        distances.get(baseline + added, []), distances.get(baseline, []), distance
                    ),
                )
            ),
        ]
        for baseline in BASELINES
        for added in ADDED[1:]
        if baseline + added in scores and baseline in scores
    ]
    columns = ("baseline", "with", "seeds", *_both(metric), *_both(CENTROID), *_both(POINTS))
    differences = Table(
        name,
        f"Tables {' and '.join(tables)}, what a regulariser changes; ours: {about}",
        columns,
        rows,
    )
    blocks: list[Block] = [differences] if rows else []
    blocks.append(_values(f"{name}-values", tables, about, scores, distances))
    return [*blocks, *_constant(scores), *_sampled(scores), provenance(made)]


def _constant(scores: Rows) -> list[Paragraph]:
    """Which rows' captioners do not read their source, as far as the examples show."""

    def constant(run: Record) -> bool:
        captions = [example.caption for example in run.details.examples]
        return len(captions) > 1 and len(set(captions)) == 1

    rows = [row for row, runs in scores.items() if all(map(constant, runs))]
    if not rows:
        return []
    return [
        Paragraph(
            "In every seed one caption stands for all of a record's examples, so that, as far as "
            f"these show, what is scored is a constant: {', '.join(rows)}."
        )
    ]


def _sampled(scores: Rows) -> list[Paragraph]:
    """How often scheduled sampling sampled: in few epochs, seldom."""
    made = next((runs[0] for row, runs in scores.items() if row.endswith("Sampling")), None)
    if made is None:
        return []
    first, second = (
        min(stage["sampling"] * (stage["optimisation"]["epochs"] - 1), stage["most_sampling"])
        for stage in made.details.stages
    )
    return [
        Paragraph(
            "Scheduled sampling begins each stage without; in its last epoch a word that is read "
            f"was sampled with probability {first:.0%} in the first stage and {second:.0%} in the "
            "second."
        )
    ]


def _both(column: str) -> tuple[str, str]:
    return f"{column} in the paper", f"{column} here (95 % interval)"


def _paper_s(table: str, column: str, baseline: str, added: str) -> str | None:
    """A column's change from the baseline in print."""
    one, other = (_printed(table, row, column) for row in (baseline + added, baseline))
    digits = 3 if column in (CENTROID, POINTS) else 1
    return None if one is None or other is None else f"{one - other:+.{digits}f}"


def _above(metric: str, runs: Rows, row: str, baseline: str) -> str:
    """A row above its baseline; only CIDEr-D is judged by its number of each image."""
    pair = runs.get(row, []), runs.get(baseline, [])
    if metric == OF_IMAGES:
        return verdict(difference(*pair))
    return verdict(difference(*pair, value(metric)))


def _seeds(scores: Rows, distances: Rows, row: str, baseline: str) -> int:
    """How many seeds both have, of scores or of distances."""
    found = (shared(runs.get(row, []), runs.get(baseline, [])) for runs in (scores, distances))
    return max(map(len, found))


def _printed(table: str, row: str, column: str) -> float | None:
    """The paper's value in our unit; None where its table has no such cell."""
    printed = papers.load(PAPER).table(table)
    for cell in printed.cells:
        if (cell.row, cell.column) == (row, column) and isinstance(cell.meant, float):
            return printed.times * cell.meant
    return None


def _values(name: str, tables: tuple[str, str], about: str, scores: Rows, distances: Rows) -> Table:
    """Every row's scores and distances."""
    metrics = [m for m in METRICS if any(m in r.values for of in scores.values() for r in of)]
    rows: list[list[Cell]] = []
    for row in ROWS:
        runs, apart = scores.get(row, []), distances.get(row, [])
        if runs:
            rows.append(
                [
                    row,
                    len(runs),
                    *(mean_and_spread(runs, m) for m in metrics),
                    *(f"{mean(apart, d):.3f}" if apart else None for d in (CENTROID, POINTS)),
                ]
            )
    return Table(
        name,
        f"Tables {' and '.join(tables)}, our values; {about}, means over seeds, ± half the range",
        ("row", "seeds", *metrics, CENTROID, POINTS),
        rows,
        folded=True,
    )


def _weights(made: Sequence[Record]) -> Table:
    """Figure 5 in numbers."""
    runs, first = by_row(made), made[0]
    rows: list[list[Cell]] = [
        [
            row,
            len(runs[row]),
            mean_and_spread(runs[row], OF_IMAGES),
            _above(OF_IMAGES, runs, row, next(iter(WEIGHTS))) if WEIGHTS[row] else "",
            f"{_validated(runs[row]):.1f}",
        ]
        for row in WEIGHTS
        if row in runs
    ]
    return Table(
        slug(PAPER, first.data.name, WEIGHT),
        f"Figure 5, by the weight of the reconstruction; {first.data.name} "
        f"({first.status}), {first.n} images of its test split",
        ("attentive encoder-decoder", "seeds", OF_IMAGES, "above lambda = 0", "on validation"),
        rows,
    )


def _validated(runs: Sequence[Record]) -> float:
    """CIDEr-D x 100 by which the paper would have one choose lambda, the mean over seeds."""
    best = [r.details.validations[-1][OF_IMAGES] for r in runs]
    return 100 * sum(best) / len(best)


def examples(records: Sequence[Record], jpegs: Mapping[int, bytes]) -> list[Photographs]:
    """Figure 3: captions without reconstruction and with it, of each data set."""
    rows = BASELINES[-1], BASELINES[-1] + ADDED[-1]
    shown = []
    for made in _by_data(_of(records, "1")):
        name = made[0].data.name
        about = (
            f"Figure 3: test images of {name} captioned without reconstruction and with it; evenly "
            "spaced in the split, not chosen"
        )
        shown += side_by_side(slug(PAPER, "3", name), about, by_row(made), rows, jpegs)
    return shown


def by_weight(records: Sequence[Record]) -> list[Figure]:
    """Figure 5: CIDEr-D by lambda, a drawing for each data set."""
    drawn = []
    for made in _by_data(_of(records, WEIGHT)):
        runs, name = by_row(made), made[0].data.name
        values = {row: [r.values[OF_IMAGES] for r in runs[row]] for row in WEIGHTS if row in runs}
        plain = values.get(next(iter(WEIGHTS)))
        about = (
            f"Figure 5: CIDEr-D by lambda on {name}, a dot a seed and a bar at the mean"
            f"{'; dashed: the mean without reconstruction' if plain else ''}."
        )
        level = sum(plain) / len(plain) if plain else None
        drawn.append(
            Figure(
                slug(PAPER, "5", name),
                about,
                partial(figures.dots, values, "CIDEr-D (x 100)", level),
            )
        )
    return drawn


def states(records: Sequence[Record]) -> list[Figure]:
    """Figure 4: last hidden states in training and in inference, a drawing for each data set."""
    drawn = []
    for made in _by_data(_of(records, STATES)):
        first = made[0]
        seed = min(r.seeds for r in made)
        of_seed = {r.what.row: r for r in made if r.seeds == seed}
        panels = {
            f"{row}\nd_mc {r.values[CENTROID]:.3f}, d_pw {r.values[POINTS]:.3f}": [
                r.details.points[mode] for mode in MODES
            ]
            for row in SHOWN
            if (r := of_seed.get(row))
        }
        about = (
            f"Figure 4: last hidden states of {first.n} images of the {first.data.split} "
            f"split of {first.data.name}, filled in training, open in inference, seed "
            f"{seed[0]}; each model's by itself, by t-SNE (perplexity "
            f"{first.details.perplexity:g}), in which neither directions nor distances far "
            "apart mean anything. The distances above are those of the states themselves."
        )
        svg = partial(figures.scatter, panels, MODES)
        drawn.append(Figure(slug(PAPER, "4", first.data.name), about, svg))
    return drawn


def _digits(made: Sequence[Record]) -> Table:
    """Table 5: digits read pixel by pixel."""
    runs, first = by_row(made), made[0]
    rows: list[list[Cell]] = []
    for row in DIGITS:
        printed, base = (_printed("5", r, ACCURACY) for r in (row, PLAIN))
        ours = runs.get(row, [])
        above = None if printed is None or base is None else f"{printed - base:+.1f}"
        rows.append(
            [
                row,
                None if printed is None else f"{printed:.1f}",
                "" if row == PLAIN else above,
                len(ours) or None,
                mean_and_spread(ours, ACCURACY) if ours else None,
                "" if row == PLAIN else _above(ACCURACY, runs, row, PLAIN),
                ours[0].status if ours else "not run",
            ]
        )
    histories = [r.details.history for r in made]
    rising = sum(max(of, key=lambda epoch: epoch["val"]) is of[-1] for of in histories)
    return Table(
        slug(PAPER, first.data.name, "5"),
        f"Table 5, test accuracy in %; ours: {first.data.name}, {first.n} digits, mean "
        f"over seeds, ± half the range. Of {len(made)} trainings of "
        f"{sum(first.details.epochs)} epochs the last epoch validates best in {rising}, "
        "which would have gone on learning",
        (
            "row",
            "in the paper",
            f"above {PLAIN}",
            "our seeds",
            "ours",
            f"above {PLAIN} (95 % interval over seeds)",
            "status",
        ),
        rows,
    )
