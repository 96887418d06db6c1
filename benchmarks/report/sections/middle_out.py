"""The section on Middle-Out's Tables 2 to 10: each form that was run, the paper beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks import papers
from benchmarks.kinds import Control, Diversity, MiddleOut
from benchmarks.papers.middle_out.captions import FORMS
from benchmarks.papers.middle_out.scores import (
    BASELINE,
    MIDDLE_OUT,
    PAPER,
    WITH_WORD,
)
from benchmarks.papers.paired import (
    RULE,
    Rows,
    by_row,
    difference,
    mean_and_spread,
    percent,
    verdict,
)
from benchmarks.records import Record, of
from benchmarks.report.document import (
    Block,
    Cell,
    Paragraph,
    Photographs,
    Section,
    Table,
)
from benchmarks.report.sections.evidence import not_run, provenance
from benchmarks.report.sections.examples import of_one_seed, side_by_side

TITLE = "Captions from the middle outwards: Middle-Out, Tables 2 to 10"
METRICS = ("METEOR", "CIDEr-D", "ROUGE-L", "B4")
ORACLE = "oracle: "
AGAINST = {
    "2": {
        **dict.fromkeys((f"{BASELINE} + Self-Attention", "Middle-Out + Attention"), BASELINE),
        MIDDLE_OUT: BASELINE,
        ORACLE + MIDDLE_OUT: ORACLE + BASELINE,
    },
    "3": dict.fromkeys(("50 %", "75 %", "100 %"), "classifier"),
    "5": dict.fromkeys((f"{BASELINE} (G)", f"{WITH_WORD} (G)", MIDDLE_OUT), WITH_WORD),
    "7": dict.fromkeys(
        ("Output Embedding Self-Attention", "Hidden Self-Attention"), "Dual Self-Attention"
    ),
}
"""What each row of scores is compared with."""
SHOWN = (MIDDLE_OUT, f"{BASELINE} + Self-Attention")
"""The rows of Table 2 whose captions Tables 8 and 9 show."""
CONTROLLED = (BASELINE, "Middle-Out + Self-Attention")
"""The rows of Tables 6 and 10."""


def middle_out(records: Sequence[Record], jpegs: Mapping[int, bytes]) -> Section:
    """Tables 2 to 10, each form by itself."""
    blocks: list[Block] = []
    for form, made in _by_form(records).items():
        blocks += _one(form, made, jpegs)
    if not blocks:
        how = "`captionbench reproduce middle_out --table 2` and `--table 7` train the rows."
        return Section(TITLE, [not_run("", how)])
    lead = Paragraph(
        "The paper captions the videos of MSVD, of which there are no features here. **Embedded** "
        "are generated moving scenes, **other data** is Flickr8k: the order of rows and the sign "
        "of differences compare with the paper's, values do not. All models of a seed learn the "
        f"same captions, those with a middle word. {RULE}"
    )
    return Section(TITLE, [lead, *blocks])


def _by_form(records: Sequence[Record]) -> dict[str, list[Record]]:
    """The paper's records by the form that they were run in, as far as there are any."""
    trained = of(records, MiddleOut, Diversity, Control)
    found = {form: [r for r in trained if r.details.form == form] for form in FORMS}
    return {form: made for form, made in found.items() if made}


def _one(form: str, made: Sequence[Record], jpegs: Mapping[int, bytes]) -> list[Block]:
    """All tables of one form."""
    blocks: list[Block] = [Paragraph(_about(made))]
    tables = {
        name: by_row([r for r in made if r.what.table == name])
        for name in sorted({r.what.table for r in made})
    }
    for name, runs in tables.items():
        if name in AGAINST:
            blocks.append(_scores(form, name, runs))
        elif name == "4":
            blocks.append(_diversity(form, runs))
        else:
            blocks.append(_control(form, runs))
    blocks += [*pairs(made), *examples(made, jpegs)]
    missing = {m: why for r in made for m, why in r.details.missing.items()}
    blocks += [Paragraph(f"{metric} is not run: {why}") for metric, why in sorted(missing.items())]
    signatures = sorted({r.signature for r in made if r.what.table in AGAINST})
    named = ", ".join(f"`{signature}`" for signature in signatures)
    return [*blocks, *([Paragraph(f"Signature: {named}.")] if named else []), provenance(made)]


def _about(made: Sequence[Record]) -> str:
    """What was captioned, and what was left out of it."""
    first = made[0]
    left_out = dict(first.details.left_out)
    captions = left_out.pop("captions")
    images = ", ".join(f"{count} of {split}" for split, count in left_out.items())
    classified = [r for r in made if r.what.row == "classifier"]
    accuracies = [r.values["accuracy"] for r in sorted(classified, key=lambda r: r.seeds)]
    said = (
        f"**{first.data.name}**, {first.status}, {first.data.split} split, beam "
        f"{first.details.beam_size}. Left out for want of a middle word: {captions} captions "
        f"to learn; images: {images}."
    )
    if not accuracies:
        return said
    each = ", ".join(f"{accuracy:.1f}" for accuracy in accuracies)
    said += f" The classifier's accuracy by seed: {each} % (paper: 31.64 %)"
    # records of older code have none
    shares = [r.details.commonest for r in classified if r.details.commonest is not None]
    return f"{said}; always the commonest word: {100 * shares[0]:.1f} %." if shares else f"{said}."


def _scores(form: str, name: str, runs: Rows) -> Table:
    table = papers.load(PAPER).table(name)
    printed = {(cell.row, cell.column): cell.meant for cell in table.cells}
    rows: list[list[Cell]] = []
    for row in table.rows:
        ours, against = runs.get(row.name, []), AGAINST[name].get(row.name)
        theirs = [printed[row.name, metric] for metric in METRICS]
        if not ours and row.group == "Previous Work":
            continue
        baseline = runs.get(against, []) if against else []
        rows.append(
            [
                row.name,
                *(f"{value:.1f}" if isinstance(value, float) else "-" for value in theirs),
                len(ours) or None,
                *(mean_and_spread(ours, metric) if ours else None for metric in METRICS),
                _above(printed, row.name, against) if against else "",
                verdict(difference(ours, baseline)),
                ours[0].status if ours else "not run",
            ]
        )
    compared = sorted(set(AGAINST[name].values()))
    return Table(
        f"middle_out-{name}-{form}",
        f"Table {name}: {table.caption} CIDEr-D above {' or '.join(compared)}",
        (
            "row",
            *(f"paper's {metric}" for metric in METRICS),
            "our seeds",
            *METRICS,
            "paper: CIDEr-D above",
            "ours: CIDEr-D above (95 % interval)",
            "status",
        ),
        rows,
    )


def _above(printed: dict[tuple[str, str], papers.Value], row: str, against: str) -> str:
    ours, base = (printed[name, "CIDEr-D"] for name in (row, against))
    return f"{ours - base:+.1f}" if isinstance(ours, float) and isinstance(base, float) else ""


def _diversity(form: str, runs: Rows) -> Table:
    table = papers.load(PAPER).table("4")
    columns = [column.name for column in table.columns]
    found = difference(runs.get(MIDDLE_OUT, []), runs.get(BASELINE, []), percent("self_b4"))
    rows: list[list[Cell]] = [
        [
            row.name,
            *row.values,
            len(runs.get(row.name, [])) or None,
            *(mean_and_spread(runs[row.name], c) if row.name in runs else None for c in columns),
            verdict(found, "less alike", "more alike") if row.name == MIDDLE_OUT else "",
            runs[row.name][0].status if row.name in runs else "not run",
        ]
        for row in table.rows
    ]
    return Table(
        f"middle_out-4-{form}",
        f"Table 4: {table.caption} Less is more diverse",
        (
            "row",
            *(f"paper's {name}" for name in columns),
            "our seeds",
            *columns,
            "self B4 above the baseline (95 % interval)",
            "status",
        ),
        rows,
    )


def _control(form: str, runs: Rows) -> Table:
    """Table 6 in numbers: what the paper shows by example is measured."""
    columns = ("has the word", "follows the word")
    baseline, ours = CONTROLLED
    found = difference(runs.get(ours, []), runs.get(baseline, []), percent("follows"))
    rows: list[list[Cell]] = [
        [
            name,
            len(runs[name]),
            *(mean_and_spread(runs[name], column) for column in columns),
            verdict(found, "less", "more") if name == ours else "",
            runs[name][0].status,
        ]
        for name in CONTROLLED
        if name in runs
    ]
    return Table(
        f"middle_out-6-{form}",
        "Table 6 in numbers: captions of two images in a row by the middle word of each, in "
        "percent: those that have the word, and those that agree more, by CIDEr-D, with the "
        "image whose word it is (50 is chance). The paper gives examples alone",
        ("row", "our seeds", *columns, "follows above the baseline (95 % interval)", "status"),
        rows,
    )


def pairs(records: Sequence[Record]) -> list[Table]:
    """Tables 6 and 10 themselves, of each form: the pairs that all records have."""
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
                "Tables 6 and 10: the first pairs of the test split, not chosen; captions of both "
                "images of a pair by the word of each; "
                f"seed {seed}",
                ("pair", "word", "a reference", *made),
                rows,
                folded=True,
            )
        )
    return shown


def examples(records: Sequence[Record], jpegs: Mapping[int, bytes]) -> list[Photographs]:
    """Tables 8 and 9, of each form: captions of the same images from the middle and the left."""
    about = (
        "Tables 8 and 9: captions of the middle-out decoder, the word that it began with in "
        "brackets, and of the sequence-to-sequence model; evenly spaced in the split, not chosen"
    )
    shown = []
    for form, trained in _by_form(records).items():
        runs = by_row([r for r in trained if r.what.table == "2"])
        shown += side_by_side(f"middle_out-8-9-{form}", about, runs, SHOWN, jpegs)
    return shown
