"""ARNet's Figures 3, 4 and 5."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from statistics import fmean

from benchmarks import figures, papers
from benchmarks.files import slug
from benchmarks.papers.arnet.captions import ADDED, BASELINES, PAPER
from benchmarks.papers.arnet.hidden_states import MODES
from benchmarks.papers.arnet.hidden_states import ROWS as SHOWN
from benchmarks.papers.arnet.hidden_states import TABLE as STATES
from benchmarks.papers.arnet.reconstruction_weight import ROWS as WEIGHTS
from benchmarks.papers.arnet.reconstruction_weight import TABLE as WEIGHT
from benchmarks.papers.cells import times
from benchmarks.papers.paired import by_row, difference, grouped
from benchmarks.records import Record
from benchmarks.report.document import Box, Figure, Photographs
from benchmarks.report.drawings.examples import side_by_side
from benchmarks.report.sentences import of_curves, signed
from benchmarks.scoring.discrepancy import CENTROID, POINTS
from benchmarks.statistics import Interval

OF_IMAGES = "CIDEr-D"
TAKEN = "lambda = 0.01"
"""The weight that is compared with none."""


def _of(records: Sequence[Record], *tables: str) -> list[Record]:
    """The paper's records of these tables."""
    return [r for r in records if r.what.paper == PAPER and r.what.table in tables]


def _by_data(made: Sequence[Record]) -> list[list[Record]]:
    return list(grouped(made, lambda r: r.data.name).values())


def examples(records: Sequence[Record], jpegs: Mapping[int, bytes]) -> list[Photographs]:
    """Figure 3: captions without and with reconstruction, for each data set."""
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


def by_weight(records: Sequence[Record]) -> list[Box | Figure]:
    """Figure 5: CIDEr-D by lambda, a figure for each data set."""
    drawn: list[Box | Figure] = []
    apart: dict[str, Interval] = {}
    said = []
    unit = times(papers.load(PAPER), WEIGHT, OF_IMAGES)
    for made in _by_data(_of(records, WEIGHT)):
        runs, name = by_row(made), made[0].data.name
        values = {
            row: [r.values[OF_IMAGES] / unit for r in runs[row]] for row in WEIGHTS if row in runs
        }
        plain = values.get(next(iter(WEIGHTS)))
        about = (
            f"Figure 5: CIDEr-D by lambda on {name}, a dot a seed and a bar at the mean"
            f"{'; dashed: the mean without reconstruction' if plain else ''}."
        )
        level = sum(plain) / len(plain) if plain else None
        if found := difference(runs.get(TAKEN, ()), runs.get(next(iter(WEIGHTS)), ()), OF_IMAGES):
            apart[name] = found
            means = {row: fmean(of) for row, of in values.items()}
            best = max(means, key=means.__getitem__)
            said.append(f"on {name} {signed(found, unit)}, the highest mean at {best}")
        draw = partial(figures.dots, values, OF_IMAGES, level)
        drawn.append(Figure(slug(PAPER, "5", name), about, made, draw, partial(draw, narrow=True)))
    if said:
        text = f"CIDEr-D with {TAKEN} above that without reconstruction: {'; '.join(said)}."
        drawn.insert(0, Box(of_curves(apart, 1), text, _of(records, WEIGHT)))
    return drawn


def states(records: Sequence[Record]) -> list[Figure]:
    """Figure 4: last hidden states in training and in inference, a figure for each data set."""
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
        narrow = partial(svg, narrow=True)
        drawn.append(Figure(slug(PAPER, "4", first.data.name), about, made, svg, narrow))
    return drawn
