"""The section on the expansion papers' ablations, trained on photographs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from benchmarks import figures, papers
from benchmarks.files import slug
from benchmarks.kinds import Captions
from benchmarks.papers.expansionnet_v2.ablation import (
    BASELINE,
    BOTH,
    FORMS,
    OF_VALUES,
    OF_VECTORS,
    TABLES,
    V1,
    V2,
)
from benchmarks.papers.paired import (
    RULE,
    Rows,
    by_row,
    difference,
    mean,
    mean_and_spread,
    measured,
    ordered_pairs,
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
from benchmarks.scoring.quality import METRICS
from benchmarks.statistics import SEEDS, kendall_tau

TITLE = "The expansion papers' ablations on Flickr8k"
METRIC = "CIDEr-D"
SHOWN = {V1: "Tables 6 and 7", V2: "Table VIII"}
"""Each paper's tables of captions."""


def expansion(records: Sequence[Record], jpegs: Mapping[int, bytes]) -> Section:
    """v2 Table I and v1 Table 3, each form that was run by itself, and captions."""
    blocks: list[Block] = []
    for paper, table in TABLES.items():
        for form, made in _by_form(paper, records).items():
            blocks += [*_one(paper, table, form, made), *examples(paper, made, jpegs)]
    if not blocks:
        how = " and ".join(f"`captionbench reproduce {p} --table {t}`" for p, t in TABLES.items())
        return Section(TITLE, [not_run("", f"{how} train the rows.")])
    lead = Paragraph(
        "**Other data** than the papers': the order of rows and the sign of differences compare, "
        f"values do not. {RULE} A reduced form has small models and a short training: it says "
        "nothing of the full one."
    )
    return Section(TITLE, [lead, *blocks])


def _by_form(paper: str, records: Sequence[Record]) -> dict[str, list[Record]]:
    """The records of the paper's ablation by the form that they were run in."""
    place = paper, TABLES[paper]
    trained = [r for r in of(records, Captions) if (r.what.paper, r.what.table) == place]
    found = {form: [r for r in trained if r.details.form == form] for form in FORMS}
    return {form: made for form, made in found.items() if made}


def examples(
    paper: str, records: Sequence[Record], jpegs: Mapping[int, bytes]
) -> list[Photographs]:
    """The paper's tables of captions, of each form: the baseline and an ExpansionNet."""
    shown = []
    for form, made in _by_form(paper, records).items():
        about = (
            f"{paper}, {SHOWN[paper]}: test images of {made[0].data.name} captioned by the "
            "baseline and by an ExpansionNet; evenly spaced in the split, not chosen"
        )
        name = slug(paper, "captions", form)
        shown += side_by_side(name, about, by_row(made), (BASELINE, BOTH), jpegs)
    return shown


def _one(paper: str, table: str, form: str, made: Sequence[Record]) -> list[Block]:
    """One table in one form."""
    runs = by_row(made)
    printed = {
        cell.row: cell.meant
        for cell in papers.load(paper).table(table).cells
        if cell.column == METRIC
    }
    names = [*printed, *(name for name in runs if name not in printed)]
    metrics = [m for m in METRICS if any(m in r.values for r in made)]
    of_baseline, baseline = printed[BASELINE], runs.get(BASELINE, [])
    rows: list[list[Cell]] = []
    for name in names:
        theirs, ours = printed.get(name), runs.get(name, [])
        compared = name != BASELINE
        rows.append(
            [
                name,
                f"{theirs:.1f}" if isinstance(theirs, float) else "-",
                f"{theirs - of_baseline:+.1f}"
                if compared and isinstance(theirs, float) and isinstance(of_baseline, float)
                else "",
                len(ours) or None,
                *(mean_and_spread(ours, m) if ours else None for m in metrics),
                verdict(difference(ours, baseline)) if compared else "",
                ours[0].status if ours else "not run",
            ]
        )
    first = made[0]
    name = f"{paper}-{table}-{form}".lower()
    blocks: list[Block] = [
        Table(
            name,
            f"{paper}, Table {table}; ours: {first.data.name}, {first.data.split} "
            f"split, {first.n} images, beam {first.details.beam_size}; mean over seeds, "
            "± half the range",
            (
                "encoder | decoder",
                f"paper's {METRIC}",
                "above its baseline",
                "our seeds",
                *metrics,
                f"our {METRIC} above our baseline (95 % interval)",
                "status",
            ),
            rows,
        ),
        Figure(
            name,
            f"Our {METRIC}: a dot a seed, a bar at the mean, the baseline's mean dashed.",
            partial(
                figures.dots,
                {n: [r.values[METRIC] for r in runs[n]] for n in names if n in runs},
                f"{METRIC} (x 100)",
                mean(baseline, METRIC) if baseline else None,
            ),
        ),
        *_order({n: value for n, value in printed.items() if isinstance(value, float)}, runs, name),
    ]
    dropped = difference(runs.get(OF_VECTORS, []), runs.get(OF_VALUES, []))
    if dropped:
        blocks.append(
            Paragraph(
                f"Dropout of whole expanded vectors instead of values, {BOTH}: {METRIC} "
                f"{verdict(dropped)}."
            )
        )
    missing = {m: why for r in made for m, why in r.details.missing.items()}
    blocks += [Paragraph(f"{metric} is not run: {why}") for metric, why in sorted(missing.items())]
    return [*blocks, Paragraph(f"Signature: `{first.signature}`."), provenance(made)]


def _order(printed: dict[str, float], runs: Rows, name: str) -> list[Block]:
    """Whether the paper's order holds: how many pairs of rows stand as they do there."""
    pairs = ordered_pairs(runs, printed)
    if not pairs:
        return []
    settled = [pair for pair in pairs if pair.found.settled]
    alike, settled_alike = sum(p.agrees for p in pairs), sum(p.agrees for p in settled)
    enough = sum(p.found.enough for p in pairs)
    text = (
        f"The order: of {len(pairs)} pairs of rows that the paper's {METRIC} orders, ours orders "
        f"{alike} alike (Kendall's tau {kendall_tau(pairs):+.2f}). {enough} of them are over at "
        f"least {SEEDS} seeds, and {len(settled)} are settled: {settled_alike} as in the paper and "
        f"{len(settled) - settled_alike} the other way round. Of {enough} pairs of equal models "
        f"about {enough / 20:.0f} would be settled by chance."
    )
    rows: list[list[Cell]] = [
        [
            pair.first,
            pair.second,
            f"{pair.expected:+.1f}",
            measured(pair.found),
            "the same" if pair.agrees else "the other way round",
        ]
        for pair in settled
    ]
    columns = ("row", "above", "in the paper", "here (95 % interval)", "order")
    table = Table(f"{name}-order", "Pairs whose order is settled", columns, rows, folded=True)
    return [Paragraph(text), *([table] if rows else [])]
