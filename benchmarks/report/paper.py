"""A paper's page: summary, claims, errata, every equation, every table and figure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from benchmarks import papers
from benchmarks.equations import notes
from benchmarks.papers.cells import NOT_RUN, beyond
from benchmarks.papers.claim_tests import COMPARED
from benchmarks.papers.claims import Verdict
from benchmarks.records import STATUSES, Record
from benchmarks.report import claims, tables
from benchmarks.report.document import (
    Block,
    Box,
    Figure,
    Page,
    Paragraph,
    Photographs,
    Section,
    Table,
)
from benchmarks.report.drawings import (
    arnet,
    attention,
    expansionnet,
    lstm_readonly,
    middle_out,
)
from benchmarks.report.equations import counted, equations
from reference.equations import PAPERS

Jpegs = Mapping[int, bytes]
Draw = Callable[[Sequence[Record[Any]], Jpegs], Sequence[Block]]


def _plain(draw: Callable[[Sequence[Record[Any]]], Sequence[Block]]) -> Draw:
    return lambda made, _: draw(made)


FIGURES: dict[tuple[str, str], Draw] = {
    ("arnet", "3"): arnet.examples,
    ("arnet", "4"): _plain(arnet.states),
    ("arnet", "5"): _plain(arnet.by_weight),
    ("expansionnet_v1", "6"): attention.of_both,
    ("expansionnet_v2", "4"): attention.of_a_head,
    ("lstm_readonly", "1"): _plain(lstm_readonly.areas),
    ("lstm_readonly", "2"): _plain(lstm_readonly.bars),
    ("lstm_readonly", "7"): _plain(lstm_readonly.loss_curves),
    ("middle_out", "3"): _plain(middle_out.example),
}
"""By paper and figure, what draws it from records; other figures are not drawn."""
BELOW: dict[tuple[str, str], Draw] = {
    ("expansionnet_v1", "1"): _plain(partial(expansionnet.stages, "expansionnet_v1")),
    ("expansionnet_v1", "6"): partial(expansionnet.expansion, "expansionnet_v1"),
    ("expansionnet_v1", "7"): partial(expansionnet.expansion, "expansionnet_v1"),
    ("expansionnet_v2", "I"): expansionnet.ablation,
    ("expansionnet_v2", "VI"): _plain(expansionnet.operations),
    ("expansionnet_v2", "VII"): _plain(partial(expansionnet.stages, "expansionnet_v2")),
    ("expansionnet_v2", "VIII"): partial(expansionnet.expansion, "expansionnet_v2"),
    ("lstm_readonly", "I"): lstm_readonly.examples,
    ("middle_out", "1"): _plain(middle_out.errors),
    ("middle_out", "6"): _plain(middle_out.pairs),
    ("middle_out", "8"): middle_out.examples,
}
"""By paper and table, what is shown below its numbers."""
SHOWN_WITH = {
    ("expansionnet_v1", "7"): "6",
    ("middle_out", "9"): "8",
    ("middle_out", "10"): "6",
}
"""Tables of captions whose captions are shown below another table."""


def page(
    paper: str,
    title: str,
    verdicts: Sequence[Verdict],
    made: Sequence[Record[Any]],
    jpegs: Jpegs,
) -> Page:
    """A paper's page, from the verdicts on its claims and all records."""
    content = papers.load(paper)
    about = PAPERS[paper]
    mine = [r for r in made if r.what.paper == paper]
    return Page(
        paper,
        title,
        f"{about.title} ({about.authors}, {about.year}).",
        [
            Section("What it proposes", [Paragraph(" ".join(content.summary))]),
            Section("Claims", claims.table(paper, verdicts, made)),
            Section("Errata and decisions", list(_notes(paper))),
            Section(
                "Every equation",
                [
                    Paragraph(
                        f"Numbered equations: {counted(paper, made)}. An error is the worst over "
                        "random cases of the operator named beside it, which computes the equation "
                        "with others, relative to the magnitudes that an output is made of; what "
                        "is allowed stands beside it."
                    ),
                    *equations(paper, made),
                ],
            ),
            *(_table(paper, table, verdicts, mine, jpegs) for table in content.tables),
            *(_figure(paper, figure, made, jpegs) for figure in content.figures if figure.data),
            *_more(content, mine),
        ],
    )


def _notes(paper: str) -> Iterator[Table]:
    about = {
        "erratum": "Errata: the print errs, or contradicts itself or what was run",
        "decision": "Decisions: the print leaves open what is taken, or says it elsewhere",
    }
    columns = ("where", "printed", "taken", "why")
    for kind, caption in about.items():
        found = [note for note in notes() if (note["paper"], note["kind"]) == (paper, kind)]
        rows = [[note[name] for name in columns] for note in found]
        if rows:
            yield Table(f"{kind}-{paper}", caption, columns, rows, folded=kind == "decision")


def title_of(shown: papers.Table | papers.Figure) -> str:
    """The heading of a table's or figure's section; what is only in the text has no number."""
    kind = "Figure" if isinstance(shown, papers.Figure) else "Table"
    name = f"of {shown.name}" if shown.name.islower() else shown.name
    return f"{kind} {name}: {shown.caption.rstrip('.')}"


def captions_of(paper: str, table: papers.Table, made: Sequence[Record[Any]]) -> str:
    """The status of the captions that are shown for a table of captions; empty without any."""
    draw = BELOW.get((paper, SHOWN_WITH.get((paper, table.name), table.name)), _nothing)
    shown = (s for s in STATUSES if draw([r for r in made if r.status == s], {}))
    return next(shown, "")


def _table(
    paper: str,
    table: papers.Table,
    verdicts: Sequence[Verdict],
    made: Sequence[Record[Any]],
    jpegs: Jpegs,
) -> Section:
    blocks = tables.blocks(paper, table, made)
    below = list(BELOW.get((paper, table.name), _nothing)(made, jpegs))
    served = SHOWN_WITH.get((paper, table.name))
    if table.kind == "captions" and (status := captions_of(paper, table, made)):
        where = f" with those of Table {served}" if served else " below"
        text = f"The paper's images are not at hand; ours are shown{where}, not chosen."
        judged = next((one for one in verdicts if one.table == table.name), None)
        shown = Box(status, text)
        if judged is not None:
            shown = claims.box(judged, made)
            shown = replace(shown, text=f"{shown.text} {text}")
        blocks[0] = shown
    if served is None:
        blocks += below
    return Section(title_of(table), blocks)


def _nothing(_: Sequence[Record[Any]], __: Jpegs) -> Sequence[Block]:
    return ()


def _figure(
    paper: str, figure: papers.Figure, made: Sequence[Record[Any]], jpegs: Jpegs
) -> Section:
    """From all records: a figure may show what was trained for another paper."""
    drawn = list(FIGURES.get((paper, figure.name), _nothing)(made, jpegs))
    made = [r for r in made if r.what.paper == paper]
    of_table = [r for r in made if figure.table and r.what.table == figure.table]
    if of_table:
        (table,) = (t for t in beyond(papers.load(paper), of_table) if t.name == figure.table)
        drawn += tables.blocks(paper, table, made)
    if not drawn:
        known = (paper, figure.name) in FIGURES
        how = "`captionbench report` records it on scenes, `captionbench evaluate` on photographs."
        why = f"Nothing is recorded yet: {how}" if known else "The report does not draw it."
        drawn = [Box(NOT_RUN, why)]
    return Section(title_of(figure), [*_drawn_of(drawn), *drawn])


def _drawn_of(drawn: Sequence[Block]) -> Iterator[Box]:
    """What figures show, in a sentence: of which data, and what compares with the print."""
    shown = [block for block in drawn if isinstance(block, Figure | Photographs)]
    made = [r for block in shown for r in block.records]
    if not made or any(isinstance(block, Box) for block in drawn):
        return
    names = " and of ".join(dict.fromkeys(r.data.name for r in made if r.data.name)) or "no data"
    statuses = [s for s in STATUSES if any(r.status == s for r in made)]
    how = "shapes compare with the print, values do not" if set(statuses) & set(COMPARED) else ""
    text = "; ".join(filter(None, (f"Drawn from records of {names}", how)))
    if all(isinstance(block, Photographs) for block in shown):
        text = (
            f"Captions of {names}, to be read: nothing is counted, the paper's images are not ours"
        )
    yield Box(statuses[0], f"{text}.", made)


def _more(content: papers.PaperTables, made: Sequence[Record[Any]]) -> Iterator[Section]:
    """What was measured for no table or figure of the paper."""
    figures = {figure.table for figure in content.figures}
    for table in beyond(content, made):
        if table.name not in figures:
            shown = tables.blocks(content.paper, table, made)
            number, _, what = table.name.partition(", ")
            name = f"{what} of Table {number}" if what else number
            yield Section(f"{name[0].upper()}{name[1:]}, not in the paper", shown)
