"""The section on how far training and inference are apart, by model (ARNet 10-12)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.kinds import Discrepancy
from benchmarks.papers.arnet.discrepancy import ARNET, ROWS, TABLE
from benchmarks.papers.paired import (
    RULE,
    Numbers,
    Rows,
    by_row,
    difference,
    verdict,
)
from benchmarks.records import Record, of
from benchmarks.report.document import (
    Block,
    Cell,
    Paragraph,
    Section,
    Table,
)
from benchmarks.report.sections.evidence import not_run, provenance
from benchmarks.scoring.discrepancy import (
    CENTROID,
    IMAGES,
    POINTS,
    REFERENCES,
)
from benchmarks.statistics import Interval, paired_difference

TITLE = "Discrepancy between training and inference"
COLUMNS = (
    "model",
    "seeds",
    "d_mc",
    "d_pw",
    "of two references",
    "of two images",
    "with ARNet: d_mc",
    "with ARNet: d_pw",
    "CIDEr-D, validation",
)


def discrepancy(records: Sequence[Record]) -> Section:
    """ARNet's measures of every captioner, a table for each data set."""
    made = [r for r in of(records, Discrepancy) if r.what.table == TABLE]
    blocks: list[Block] = [
        Paragraph(
            "ARNet's Tables 2 and 4 measure four LSTMs. Here are the papers' other captioners "
            "too, and ARNet's own trained anew, whose numbers differ from its section's where the "
            "code between came to sum in another order: the state that the vocabulary layer reads "
            "where a caption's last token is emitted, of an image's first reference (training) and "
            "of the caption that beam search gives it (inference). d_mc and d_pw are eqs. 11 and "
            "12. Of Middle-Out it is both sides' last states, side by side; it begins in training "
            "with the image's own middle word, in inference with its classifier's. Spaces differ "
            "between models, so beside d_pw stands what it is between the first two references of "
            "an image, people's both, and between the references of two images: a d_pw like the "
            "former is the difference of one caption from another, not of inference from "
            f"training. {RULE} d_mc, which is no mean over images, is linearised in its intervals."
        )
    ]
    if not made:
        how = f"`captionbench reproduce arnet --table {TABLE}` trains and measures it."
        return Section(TITLE, [*blocks, not_run("", how)])
    for n, name in enumerate(dict.fromkeys(r.data.name for r in made)):
        of_data = [r for r in made if r.data.name == name]
        first = of_data[0]
        blocks.append(
            Table(
                f"discrepancy-{n + 1}",
                f"{name}, {first.status}, {first.data.split} split, {first.n} images, "
                f"beam {first.details.beam_size}; means over seeds with 95 % intervals",
                COLUMNS,
                _rows(of_data),
            )
        )
    return Section(TITLE, [*blocks, provenance(made)])


def _rows(made: Sequence[Record]) -> list[list[Cell]]:
    runs = by_row(made)
    return [_row(row, runs) for row in sorted(runs, key=ROWS.index)]


def _row(row: str, by_row: Rows) -> list[Cell]:
    runs, with_arnet = by_row[row], by_row.get(row + ARNET, [])
    found = [_interval(runs, name) for name in (CENTROID, POINTS)]
    return [
        row,
        len(runs),
        *(f"{i.mean:.3f} ({i.low:.3f} to {i.high:.3f})" for i in found),
        *(_mean(runs, name) for name in (REFERENCES, IMAGES)),
        *(changed(with_arnet, runs, name) or None for name in (CENTROID, POINTS)),
        f"{np.mean([100 * r.details.validations[-1]['CIDEr-D'] for r in runs]):.1f}",
    ]


def changed(ours: Sequence[Record], baseline: Sequence[Record], name: str) -> str:
    """Ours above the baseline in a distance, in words; empty without records of equal seeds."""
    return verdict(difference(ours, baseline, _shares(name)), "smaller", "larger", digits=3)


def _shares(name: str) -> Numbers:
    """What each image has in a distance."""
    return lambda record: record.details.shares.get(name)


def _interval(runs: Sequence[Record], name: str) -> Interval:
    shares = np.array([record.details.shares[name] for record in runs])
    return paired_difference(shares, np.zeros_like(shares))


def _mean(runs: Sequence[Record], name: str) -> str | None:
    values = [r.values[name] for r in runs if name in r.values]
    return f"{np.mean(values):.3f}" if values else None
