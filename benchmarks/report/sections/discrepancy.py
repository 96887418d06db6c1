"""The section on how far training and inference are apart, by model (ARNet 10-12)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.experiments.discrepancy import ARNET, ROWS, TABLE
from benchmarks.records import Record
from benchmarks.report.document import Block, Cell, Paragraph, Section, Table
from benchmarks.report.sections.evidence import not_run, of, provenance
from benchmarks.report.sections.paired import common, judged
from benchmarks.scores.discrepancy import CENTROID, IMAGES, POINTS, REFERENCES
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
    made = [r for r in of(records, "training") if r["what"]["table"] == TABLE]
    blocks: list[Block] = [
        Paragraph(
            "ARNet's Tables 2 and 4 measure four LSTMs. Here are the papers' other captioners "
            "too: the state that the vocabulary layer reads where a caption's last token is "
            "emitted, of an image's first reference (training) and of the caption that beam "
            "search gives it (inference). d_mc and d_pw are eqs. 11 and 12. Spaces differ between "
            "models, so beside d_pw stands what it is between the first two references of an "
            "image, people's both, and between the references of two images: a d_pw like the "
            "former is the difference of one caption from another, not of inference from "
            "training. Intervals are of 95 %, by bootstrap over images and seeds; d_mc, which is "
            "no mean over images, is linearised in them."
        )
    ]
    if not made:
        how = f"`captionbench reproduce arnet --table {TABLE}` trains and measures it."
        return Section(TITLE, [*blocks, not_run("", how)])
    for n, name in enumerate(dict.fromkeys(r["data"]["name"] for r in made)):
        of_data = [r for r in made if r["data"]["name"] == name]
        first = of_data[0]
        blocks.append(
            Table(
                f"discrepancy-{n + 1}",
                f"{name}, {first['status']}, {first['data']['split']} split, {first['n']} images, "
                f"beam {first['details']['beam_size']}; a change is smaller or larger where its "
                "interval excludes zero",
                COLUMNS,
                _rows(of_data),
            )
        )
    return Section(TITLE, [*blocks, provenance(made)])


def _rows(made: Sequence[Record]) -> list[list[Cell]]:
    by_row: dict[str, dict[int, Record]] = {}
    for record in made:
        by_row.setdefault(record["what"]["row"], {})[record["seeds"][0]] = record
    return [_row(row, by_row) for row in sorted(by_row, key=ROWS.index)]


def _row(row: str, by_row: dict[str, dict[int, Record]]) -> list[Cell]:
    runs, with_arnet = list(by_row[row].values()), list(by_row.get(row + ARNET, {}).values())
    found = [_interval(runs, name) for name in (CENTROID, POINTS)]
    return [
        row,
        len(runs),
        *(f"{i.mean:.3f} ({i.low:.3f} to {i.high:.3f})" for i in found),
        *(_mean(runs, name) for name in (REFERENCES, IMAGES)),
        *(changed(with_arnet, runs, name) or None for name in (CENTROID, POINTS)),
        f"{np.mean([100 * r['details']['validations'][-1]['CIDEr-D'] for r in runs]):.1f}",
    ]


def difference(ours: Sequence[Record], baseline: Sequence[Record], name: str) -> Interval | None:
    """Ours above the baseline in a distance, over the seeds of both; None if there is none."""
    by_seed = [
        {tuple(r["seeds"]): r["details"]["shares"][name] for r in runs} for runs in (ours, baseline)
    ]
    shared = sorted(by_seed[0].keys() & by_seed[1].keys())
    if not shared:
        return None
    return paired_difference(*([of_row[seed] for seed in shared] for of_row in by_seed))


def change(found: Interval) -> str:
    """A change of a distance with its interval."""
    word = ("larger" if found.mean > 0 else "smaller") if found.excludes_zero else "not settled"
    return f"{found.mean:+.3f} ({found.low:+.3f} to {found.high:+.3f}): {word}"


def changed(ours: Sequence[Record], baseline: Sequence[Record], name: str) -> str:
    """Ours above the baseline in a distance, in words; empty without records of equal seeds."""
    ours, baseline = ([r for r in runs if "shares" in r["details"]] for runs in (ours, baseline))
    return judged(difference(ours, baseline, name), common(ours, baseline), change)


def _interval(runs: Sequence[Record], name: str) -> Interval:
    shares = np.array([record["details"]["shares"][name] for record in runs])
    return paired_difference(shares, np.zeros_like(shares))


def _mean(runs: Sequence[Record], name: str) -> str | None:
    values = [r["values"][name] for r in runs if name in r["values"]]
    return f"{np.mean(values):.3f}" if values else None
