"""The section on cross-entropy followed by self-critical training, and on ensembles."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks import papers
from benchmarks.kinds import Rewards
from benchmarks.papers.expansionnet_v2.ablation import FORMS
from benchmarks.papers.expansionnet_v2.rewards import MODELS, TABLES, Model
from benchmarks.papers.paired import (
    RULE,
    Rows,
    by_row,
    difference,
    mean_and_spread,
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
from benchmarks.scoring.quality import METRICS
from benchmarks.statistics import Interval, paired_difference

TITLE = "Cross-entropy, then self-critical training, on Flickr8k"
BASE = "Base (ours)"


def expansion_rewards(records: Sequence[Record]) -> Section:
    """v1 Tables 2 and 4, v2 Tables II and III, each form that was run by itself."""
    trained = of(records, Rewards)
    blocks: list[Block] = []
    for form in FORMS:
        made = [r for r in trained if r.details.form == form]
        for paper, table in TABLES:
            blocks += _one(paper, table, form, made)
    if not blocks:
        how = " ".join(f"`captionbench reproduce {p} --table {t}`" for p, t in TABLES)
        return Section(TITLE, [not_run("", f"What trains the models: {how}.")])
    lead = Paragraph(
        "**Other data** than the papers': the order of rows and the sign of differences compare, "
        "values do not. XE is after cross-entropy, RL after the self-critical training that goes "
        f"on from there. Differences are of CIDEr-D after RL. {RULE} An ensemble is one, and is "
        "held against the mean of its members: its intervals are over images alone, and what it is "
        "called is said of these models, not of others trained alike."
    )
    return Section(TITLE, [lead, *blocks])


def _one(paper: str, table: str, form: str, made: Sequence[Record]) -> list[Block]:
    """One table in one form; nothing where it was not run."""
    mine = [r for r in made if (r.what.paper, r.what.table) == (paper, table)]
    if not mine:
        return []
    runs = by_row(mine)
    content = papers.load(paper).table(table)
    printed = {(c.row, c.column): c.meant for c in content.cells}
    metrics = [m for m in METRICS if any(f"RL {m}" in r.values for r in mine)]
    rows: list[list[Cell]] = []
    for model in MODELS:
        if (paper, table) not in model.places:
            continue
        ours = runs.get(model.name, [])
        theirs = [printed.get((model.name, f"{stage} CIDEr-D")) for stage in ("XE", "RL")]
        rows.append(
            [
                model.name,
                *(f"{x:.1f}" if isinstance(x, float) else "-" for x in theirs),
                ", ".join(map(str, sorted({s for r in ours for s in r.seeds}))),
                mean_and_spread(ours, "XE CIDEr-D") if ours else None,
                *(mean_and_spread(ours, f"RL {m}") if ours else None for m in metrics),
                verdict(_gain(model, ours)),
                verdict(_above(model, runs, made)),
                ours[0].status if ours else "not run",
            ]
        )
    first = mine[0]
    missing = {m: why for r in mine for m, why in r.details.missing.items()}
    return [
        Table(
            f"{paper}-{table}-{form}".lower(),
            f"{paper}, Table {table}; ours: {first.data.name}, {first.data.split} "
            f"split, {first.n} images, beam {first.details.beam_size}; mean over seeds, "
            "± half the range",
            (
                "model",
                "paper's XE CIDEr-D",
                "paper's RL CIDEr-D",
                "our seeds",
                "XE CIDEr-D",
                *(f"RL {m}" for m in metrics),
                "RL above XE",
                f"above {BASE}, or the mean of its members",
                "status",
            ),
            rows,
        ),
        *(Paragraph(f"{metric} is not run: {why}") for metric, why in sorted(missing.items())),
        Paragraph(f"Signature: `{first.signature}`."),
        provenance(mine),
    ]


def _gain(model: Model, runs: Sequence[Record]) -> Interval | None:
    """What the self-critical training adds."""
    if not runs:
        return None
    after = 100 * np.array([r.details.cider_d for r in runs])
    before = 100 * np.array([r.details.cross_entropy.cider_d for r in runs])
    if model.members > 1:
        return paired_difference(after[0], before[0])
    return paired_difference(after, before)


def _above(model: Model, runs: Rows, made: Sequence[Record]) -> Interval | None:
    """A model above the baseline; an ensemble above the mean of its members."""
    ours = runs.get(model.name, [])
    if model.members == 1:
        return difference(ours, runs.get(BASE, []) if model.name != BASE else [])
    alone = [
        r.details.cider_d
        for r in made
        if r.what.row == model.single.name
        and (r.what.paper, r.what.table) == model.single.places[-1]
        and ours
        and set(r.seeds) <= set(ours[0].seeds)
    ]
    if not alone:
        return None
    together = np.array(ours[0].details.cider_d)
    return paired_difference(100 * together, 100 * np.mean(alone, axis=0))
