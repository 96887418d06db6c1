"""The first page: what is checked, a verdict per paper, what was not run, headline results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks import papers
from benchmarks.files import slug
from benchmarks.kinds import DenoisingRatio, Measured, Operations, Released, Verification
from benchmarks.papers.cells import NOT_RUN
from benchmarks.papers.claim_tests import NOT_SETTLED
from benchmarks.papers.claims import Verdict
from benchmarks.perf.targets import evaluate_targets
from benchmarks.records import MEASURED, STATUSES, Record, of_kind
from benchmarks.report import claims, sentences, sources, tables
from benchmarks.report import paper as of_paper
from benchmarks.report.document import Box, Cell, Page, Paragraph, Section, Table, Value
from benchmarks.report.equations import counted
from benchmarks.report.sections import headline
from reference.equations import PAPERS

LEAD = (
    "captionbench checks five papers on image captioning: every equation in NumPy, every PyTorch "
    "form tested against it, every table beside our numbers. Of {total} claims: "
    "[{counts}](claims.html). **same data**: the paper's own; **other data**: another data set "
    "(signs compare, values do not); **embedded**: generated scenes; **measured**: our code, timed "
    "or counted; **predicted**: computed."
)
STEP = "training step, batch 16"
"""The speed target among the headlines."""


def page(
    title: str,
    titles: Mapping[str, str],
    verdicts: Mapping[str, Sequence[Verdict]],
    made: Sequence[Record[Any]],
) -> Page:
    """The page, from all records.

    Args:
        title: its own.
        titles: of the papers' pages, by paper.
        verdicts: on the papers' claims.
        made: the records.
    """
    boxes = {paper: list(_boxes(paper, made)) for paper in titles}
    every = [verdict for of_paper in verdicts.values() for verdict in of_paper]
    return Page(
        "index",
        title,
        LEAD.format(total=len(every), counts=claims.counts(every)),
        [
            Section("Five papers", [_matrix(titles, boxes, verdicts, made)]),
            Section("Headline results", [_headlines(made, boxes)]),
            Section("Speed on a CPU", list(headline.headline(made))),
            Section("Not settled, not run", [*_unsettled(every), *_not_run(titles, boxes, made)]),
        ],
    )


def _boxes(paper: str, made: Sequence[Record[Any]]) -> Iterable[tuple[papers.Table, Box, str]]:
    """Each table, with its sentence and the status of its first source."""
    mine = [r for r in made if r.what.paper == paper]
    for table in papers.load(paper).tables:
        found = tables.sources([r for r in mine if r.what.table == table.name])
        box = sentences.sentence(paper, table, found)
        shown = of_paper.captions_of(paper, table, mine) if table.kind == "captions" else ""
        yield table, box, shown or (found[0].status if found else NOT_RUN)


def _matrix(
    titles: Mapping[str, str],
    boxes: Mapping[str, Sequence[tuple[papers.Table, Box, str]]],
    verdicts: Mapping[str, Sequence[Verdict]],
    made: Sequence[Record[Any]],
) -> Table:
    rows: list[list[Cell]] = []
    for paper, title in titles.items():
        statuses = Counter(status for _, _, status in boxes[paper])
        shown = ", ".join(f"{statuses[s]} {s}" for s in (*STATUSES, NOT_RUN) if statuses[s])
        main = verdicts[paper][0]
        rows.append(
            [
                f"[{title}]({paper}.html)",
                f"[{counted(paper, made)}]({paper}.html#every-equation)",
                _error(paper, made),
                f"[{shown}]({paper}.html#{_place(boxes[paper][0][0])})",
                f"[{main.claim}]({paper}.html#claims)",
                claims.verdict(main, made),
            ]
        )
    columns = ("paper", "equations", "worst error", "tables")
    about = "Equations with an oracle, the worst float64 error of our forms, tables by their data"
    return Table("papers", about, (*columns, "main claim", "verdict"), rows)


def _unsettled(every: Sequence[Verdict]) -> Iterable[Paragraph]:
    """The commonest reason why claims are not settled."""
    open_ = [verdict for verdict in every if verdict.verdict == NOT_SETTLED]
    for reason, n in Counter(v.reason for v in open_ if v.reason).most_common(1):
        yield Paragraph(f"**{len(open_)} of {len(every)} claims not settled**; {n}: {reason}.")


def _error(paper: str, made: Sequence[Record[Any]]) -> Cell:
    """The worst float64 output error of our forms of the paper's equations, on a CPU."""
    found = [
        (row.worst, record)
        for record in of_kind(made, Verification)
        if record.device.kind == "cpu"
        for row in record.details.rows
        if paper in row.equations and row.dtype == "float64" and row.what == "output" and row.worst
    ]
    if not found:
        return "not recorded"
    worst, record = max(found, key=lambda pair: pair[0])
    return Value(f"{worst:.0e}", (record,), "pass" if record.details.rows else "")


def _headlines(
    made: Sequence[Record[Any]], boxes: Mapping[str, Sequence[tuple[papers.Table, Box, str]]]
) -> Table:
    rows = [*_operations(made), *_released(made)]
    rows += _denoised(made)
    ((table, _, status),) = [of for of in boxes["expansionnet_v2"] if of[0].name == "I"]
    found = tables.sources([r for r in made if _is_of(r, table)])
    clear, pairs = sentences.clear_pairs("expansionnet_v2", table, found)
    if pairs:
        about = f"[v2's Table I: pairs that are settled](expansionnet_v2.html#{_place(table)})"
        judged = [record for source in found for record in source.made]
        said = Value(f"{clear or 'none'} of {pairs}, each form by Holm", judged)
        rows.append([about, "prints no intervals", said, status])
    rows += _speed(made)
    columns = ("result", "status", "paper", "here")
    rows = [[about, word, theirs, here] for about, theirs, here, word in rows]
    return Table("headlines", "What a paper prints, what was found, on what", columns, rows)


def _is_of(record: Record[Any], table: papers.Table) -> bool:
    return (record.what.paper, record.what.table) == ("expansionnet_v2", table.name)


def _place(table: papers.Table) -> str:
    """The anchor of a table on its paper's page."""
    return slug(of_paper.title_of(table))


def _operations(made: Sequence[Record[Any]]) -> list[list[Cell]]:
    table = papers.load("expansionnet_v2").table("VI")
    counted_rows = {r.what.row: r for r in of_kind(made, Operations)}
    off = [
        (abs(100 * (counted_rows[c.row].values["FLOPs"] / c.meant - 1)), counted_rows[c.row])
        for c in table.cells
        if c.row in counted_rows and isinstance(c.meant, float)
    ]
    if not off:
        return []
    worst, record = max(off, key=lambda pair: pair[0])
    about = f"[v2's Table VI, operations](expansionnet_v2.html#{_place(table)})"
    said = Value(f"all {len(off)} rows within {worst:.3f} %", (record,), record.status)
    meant = [cell.meant for cell in table.cells if isinstance(cell.meant, float)]
    theirs = f"{sentences.quantity(min(meant))} to {sentences.quantity(max(meant))}"
    printed = _printed(theirs, "expansionnet_v2", "VI", table.rows[0].name)
    return [[about, printed, said, record.status]]


def _printed(text: str, paper: str, table: str, row: str) -> Value:
    """What a paper prints, with its place in the paper's file."""
    return Value(printed=text, source=sources.printed(paper, table, row))


def _released(made: Sequence[Record[Any]]) -> list[list[Cell]]:
    rows: list[list[Cell]] = []
    column = "RL CIDEr-D"
    for record in of_kind(made, Released):
        paper, row = record.what.paper, record.what.row
        table = papers.load(paper).table(record.what.table)
        if column in record.values:
            about = f"[{row}, released: CIDEr-D]({paper}.html#{_place(table)})"
            said = Value(sentences.quantity(record.values[column], 2), (record,), record.status)
            theirs = sentences.printed(table.cell(row, column).meant)
            printed = _printed(theirs, paper, table.name, row)
            rows.append([about, printed, said, record.status])
    return rows


def _denoised(made: Sequence[Record[Any]]) -> list[list[Cell]]:
    """Middle-Out's Table 1: how many times smaller the symmetric error is."""
    table, column = papers.load("middle_out").table("1"), "symmetric MSE"
    theirs = {row.name: table.cell(row.name, column).meant for row in table.rows}
    rows: list[list[Cell]] = []
    for record in of_kind(made, DenoisingRatio):
        one, other = (theirs.get(row) for row in (record.details.of, record.details.over))
        if isinstance(one, float) and isinstance(other, float):
            low, high = record.details.interval[column]
            text = f"{record.values[column]:.0f} times smaller symmetric error"
            beyond = "" if low <= one / other <= high else "; the paper's ratio lies outside"
            word = "differs" if beyond else record.status
            said = Value(text, (record,), word, detail=f"[{low:.0f}, {high:.0f}]{beyond}")
            about = f"[De-noising from the middle](middle_out.html#{_place(table)})"
            note = table.cell(record.details.over, column).note or f"{one / other:.0f} times"
            row = record.details.over
            printed = _printed(note.partition(",")[0], "middle_out", table.name, row)
            rows.append([about, printed, said, record.status])
    return rows


def _speed(made: Sequence[Record[Any]]) -> list[list[Cell]]:
    """A training step's target on one thread of each processor, and how many targets are met."""
    outcomes = evaluate_targets(made)
    counts = Counter(outcome.verdict for outcome in outcomes if outcome.measured)
    steps = [o for o in headline.one_thread(outcomes) if o.target.what == STEP]
    if not steps:
        return []
    said = Value(
        "; ".join(f"{step.measured} on {headline.processor(step.device)}" for step in steps),
        [record for step in steps for record in step.evidence],
        MEASURED,
        detail=(
            "times as fast as the paper's order, one thread; all targets: "
            f"{counts['met']} met, {counts['missed']} missed"
        ),
    )
    about = "[v2's training step, batch 16](speed.html#speed-targets)"
    target = Value(printed=f"our target: {steps[0].target.bound:g}", source=sources.targets("cpu"))
    return [[about, target, said, MEASURED]]


def _named(left: tuple[str, Sequence[str]]) -> str:
    title, names = left
    return f"{title} Table{'s' * (len(names) > 1)} {' and '.join(names)}"


def _not_run(
    titles: Mapping[str, str],
    boxes: Mapping[str, Sequence[tuple[papers.Table, Box, str]]],
    made: Sequence[Record[Any]],
) -> Iterable[Paragraph]:
    """What was not run: tables by reason, rows, speed targets, the GPU."""
    why: dict[str, dict[str, list[str]]] = {}
    for paper, found in boxes.items():
        for table, box, status in found:
            if status == NOT_RUN:
                why.setdefault(box.text, {}).setdefault(titles[paper], []).append(table.name)
    total = sum(len(names) for left in why.values() for names in left.values())
    tables_of = sum(len(papers.load(paper).tables) for paper in PAPERS)
    lines = [f"{', '.join(map(_named, left.items()))}: {reason}" for reason, left in why.items()]
    yield Paragraph(f"**{total} of {tables_of} tables**: {' '.join(lines)}")
    run = {(r.what.paper, r.what.table, r.what.row) for r in made}
    rows = [
        (paper, table.name, row.name) in run
        for paper, found in boxes.items()
        for table, _, status in found
        if status != NOT_RUN and table.kind == "numbers"
        for row in table.rows
    ]
    yield Paragraph(
        f"**{rows.count(False)} of {len(rows)} rows of the other tables**: each table says why."
    )
    outcomes = evaluate_targets(made)
    left = [o.target for o in outcomes if not o.measured]
    on_cpu = [target.what for target in left if target.device == "cpu"]
    if on_cpu:
        last = max((r.time for r in of_kind(made, Measured)), default="")[:10]
        late = all(target.date > last for target in left if target.device == "cpu")
        since = f", which were set after the last timing of {last}" if last and late else ""
        named = f"{len(on_cpu)} speed target{'s' * (len(on_cpu) > 1)} of a CPU"
        yield Paragraph(f"**{named}**{since}: {', '.join(on_cpu)}.")
    on_gpu = [target.what for target in left if target.device == "cuda"]
    judged = [o.verdict for o in outcomes if o.evidence and o.target.device == "cuda"]
    if judged:
        met = f"{judged.count('met')} of {len(judged)} speed targets met"
        rest = f"; not run: {', '.join(on_gpu)}" if on_gpu else ""
        yield Paragraph(f"**[On a GPU](speed.html)**: {met}{rest}.")
    elif on_gpu:
        yield Paragraph(
            f"**Everything on a GPU**: {len(on_gpu)} speed targets and the Triton kernels, which "
            "equal the oracle on Triton's interpreter; no GPU was at hand."
        )
