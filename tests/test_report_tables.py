"""Every number of the report walks to its record or to the paper's file, and one rule judges."""

from __future__ import annotations

import json
import re
import shlex
from decimal import Decimal
from functools import cache
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import papers, records
from benchmarks.equations import notes
from benchmarks.kinds import Captions
from benchmarks.papers import claims
from benchmarks.papers.cells import cells
from benchmarks.report import build, evidence, html, markdown, sentences, tables
from benchmarks.report import claims as claims_page
from benchmarks.report import paper as paper_page
from benchmarks.report.document import (
    Box,
    Equation,
    Figure,
    Page,
    Paragraph,
    Photographs,
    Table,
    Value,
)
from benchmarks.statistics import SEEDS
from reference.equations import PAPERS
from tests.support.records import record
from tests.support.tolerances import HALF, SHOWN, SHOWN_ERROR

BASE, ROW = "attention | attention", "static:16 | attention"
V2 = papers.load("expansionnet_v2").table("I")


@cache
def published() -> list[Page]:
    return build.pages(records.load(records.PUBLISHED))


@cache
def places() -> set[str]:
    """Where records are listed."""
    return {
        f"{page.name}.html#{entry['name']}"
        for page in published()
        for entry in page.data.get("records", ())
    }


def blocks(page: Page, kind: type):
    return [b for section in page.sections for b in section.blocks if isinstance(b, kind)]


def number(text: str) -> tuple[float, float]:
    """A number that is shown, and half a unit of its last digit."""
    scale = {letter: unit for unit, letter in sentences.UNITS}.get(text[-1:], 1.0)
    shown = Decimal(re.sub(r"[^-+.e\d]", "", text))
    return scale * float(shown), scale * 10.0 ** int(shown.as_tuple().exponent) / 2


def test_every_number_of_ours_is_that_of_its_records_and_has_a_place_among_the_evidence() -> None:
    walked = 0
    for page in published():
        for table in blocks(page, Table):
            for row in table.rows:
                for head, cell in zip(table.columns, row, strict=True):
                    if not isinstance(cell, Value):
                        continue
                    assert {evidence.place(r) for r in cell.records} <= places()
                    assert cell.records or not re.search(r"\d", cell.text)
                    if table.name.startswith("table-") and head == "seeds":
                        assert int(cell.text) == len({s for r in cell.records for s in r.seeds})
                        continue
                    column = head.partition(" (")[0]
                    if table.name.startswith("table-") and " above " not in head and cell.records:
                        mean = fmean(r.values[column] for r in cell.records)
                        shown, half = number(cell.text)
                        assert min(abs(mean - x * shown) / x for x in (1, 100)) <= HALF * half
                        walked += 1
    assert walked > 1000


def test_kernels_that_were_only_compiled_are_not_called_measured() -> None:
    entries = [entry for page in published() for entry in page.data.get("records", ())]
    found = {entry["status"] for entry in entries if entry["kind"] == "compiled"}
    (speed,) = [page for page in published() if page.name == "speed"]
    tables_of = [table for table in blocks(speed, Table) if table.name.startswith("compiled")]
    cells_of = [cell for table in tables_of for row in table.rows for cell in row]
    found |= {cell.status for cell in cells_of if isinstance(cell, Value)}
    assert found == {"compiled, not run"}


def test_no_cell_of_a_table_is_blank() -> None:
    """A number, or a word that says why there is none."""
    for page in published():
        for table in blocks(page, Table):
            for row in table.rows:
                for head, cell in zip(table.columns, row, strict=True):
                    shown = cell.text or cell.printed if isinstance(cell, Value) else cell
                    assert shown not in (None, ""), f"{page.name}, {table.name}, {row[0]}, {head}"


def line_of(place: str) -> str:
    """The line of a file that a printed number links to."""
    name, _, number = place.partition(".html#line-")
    (text,) = [page.data["text"] for page in published() if page.name == name]
    return text.splitlines()[int(number) - 1]


def test_every_number_that_is_called_printed_stands_in_the_paper_s_file() -> None:
    for name in papers.names():
        (page,) = [page for page in published() if page.name == name]
        shown = {table.name: table for table in blocks(page, Table)}
        for content in papers.load(name).tables:
            first = tables.slug("table", name, content.name, "1")
            table = shown.get(first) or shown[tables.slug("table", name, content.name)]
            printed = {
                (cell.row, tables.heading(content, cell.column)): cell.value
                for cell in content.cells
                if cell.value is not None
            }
            found = {
                (row, head): cell.printed
                for row, *line in table.rows
                for head, cell in zip(table.columns[1:], line, strict=True)
                if isinstance(cell, Value) and cell.printed and " above " not in head
            }
            assert len(found) == len(printed)
            names = {tables.label(row): json.dumps(row.name) for row in content.rows}
            for row, *line in table.rows:
                for cell in line:
                    if isinstance(cell, Value) and cell.printed:
                        assert f'"name": {names[row]}' in line_of(cell.source)
            for value, text in zip(printed.values(), found.values(), strict=True):
                if isinstance(value, float):
                    assert number(text.rstrip("*"))[0] == pytest.approx(value, **SHOWN_ERROR)
                else:
                    assert text.rstrip("*") == value


@pytest.mark.parametrize("paper", papers.names())
def test_a_reason_is_said_once_below_its_table_and_marked_where_it_applies(paper) -> None:
    """The rows and cells without a value of ours have the mark of the reason that they have."""
    (page,) = [page for page in published() if page.name == paper]
    made = [r for r in records.load(records.PUBLISHED) if r.what.paper == paper]
    for content in papers.load(paper).tables:
        found = tables.sources([r for r in made if r.what.table == content.name])
        if not found:
            continue
        (section,) = [s for s in page.sections if s.title == paper_page.title_of(content)]
        texts = [block.text for block in section.blocks if isinstance(block, Paragraph)]
        said = dict(t.split(" Not run: ") for t in texts if " Not run: " in t)
        table = next(b for b in section.blocks if isinstance(b, Table))
        rows = {row[0]: row for row in table.rows}
        labels = {row.name: tables.label(row) for row in content.rows}
        further = {b.name: b.rows for b in section.blocks if isinstance(b, Table) and b.folded}
        for cell in cells(paper, found[0].made, content.name):
            if cell.ours is None:
                row = rows[labels[cell.row]]
                if "[below]" in (status := tables.text_of(row[1])):
                    place = status.partition("#")[2].removesuffix(")")
                    assert row[0] in {each[0] for each in further[place]}
                    continue
                (mark,) = [mark for mark, text in said.items() if text == f"{cell.reason}."]
                place = list(table.columns).index(tables.heading(content, cell.column))
                assert row[place].text == f"–{mark}" or mark in status
        assert len(said) == len(set(said.values()))


def test_every_table_figure_and_equation_has_its_place_and_tables_say_what_they_show() -> None:
    for name in papers.names():
        (page,) = [page for page in published() if page.name == name]
        titles = [section.title.partition(":")[0] for section in page.sections]
        content = papers.load(name)
        for table in content.tables:
            (section,) = [s for s in page.sections if s.title == paper_page.title_of(table)]
            assert isinstance(section.blocks[0], Box)
        for figure in content.figures:
            assert (f"Figure {figure.name}" in titles) == figure.data
        assert [e.title.strip("()") for e in blocks(page, Equation)] == [
            str(n) for n in PAPERS[name].numbers
        ]


def test_every_figure_has_a_name_of_its_own_and_the_records_that_it_is_drawn_from() -> None:
    figures = [block for page in published() for block in blocks(page, Figure)]
    assert len(figures) == len({figure.name for figure in figures})
    for figure in figures:
        assert figure.records and {evidence.place(r) for r in figure.records} <= places()


def test_no_two_titles_are_alike() -> None:
    """Of a page's sections, and of what stands in one."""
    for page in published():
        named = [[s.title.partition(":")[0] for s in page.sections]]
        for section in page.sections:
            shown = (b for b in section.blocks if isinstance(b, Table | Figure | Photographs))
            named.append([block.caption for block in shown])
        for names in named:
            assert len(names) == len(set(names)), page.name


def test_a_counted_table_of_captions_says_what_its_claim_says() -> None:
    """Not that images are missing alone: Middle-Out's Table 6 counts whose words are followed."""
    (page,) = [page for page in published() if page.name == "middle_out"]
    (section,) = [s for s in page.sections if s.title.startswith("Table 6:")]
    (claim,) = [
        one
        for one in claims.verdicts(records.load(records.PUBLISHED), page.name)
        if one.unit == "follows the word"
    ]
    box = section.blocks[0]
    assert isinstance(box, Box) and box.word == claim.verdict
    assert f"{claim.effect:+.4g}" in box.text and {r.key for r in box.records} == {*claim.records}


def test_the_settled_pairs_of_the_first_page_link_to_the_records_of_every_form() -> None:
    table = papers.load("expansionnet_v2").table("I")
    made = [r for r in records.newest(records.load(records.PUBLISHED)) if r.what.table == "I"]
    found = tables.sources([r for r in made if r.what.paper == "expansionnet_v2"])
    _, pairs = sentences.clear_pairs("expansionnet_v2", table, found)
    cells = [cell for t in blocks(published()[0], Table) for row in t.rows for cell in row]
    (cell,) = [c for c in cells if isinstance(c, Value) and f"of {pairs}, each form" in c.text]
    assert {r.key for r in cell.records} == {r.key for source in found for r in source.made}


def test_a_claim_links_to_records_of_its_own_table_and_rows() -> None:
    """Records of other tables may be of the same training, and have its key."""
    made = records.newest(records.load(records.PUBLISHED))
    for one in claims.verdicts(made):
        shown = claims_page.verdict(one, made)
        decides = next((f for f in one.findings if f.effect == one.effect), None)
        linked = shown.records if isinstance(shown, Value) else ()
        assert bool(linked) == (decides is not None)
        for r in linked:
            assert (r.what.paper, r.what.table) == (one.paper, one.table)
            assert r.what.row in decides.rows and one.unit in r.values
        numbers = shown.text + shown.detail if isinstance(shown, Value) else ""
        if one.measure in ("ratio", "times smaller"):
            assert " times " in numbers and "+" not in numbers
        if one.verdict == "not settled" and linked:
            assert one.reason.partition(" (")[0] in shown.detail


def test_every_erratum_and_decision_stands_on_its_paper_s_page() -> None:
    shown = [
        (page.name, *row)
        for page in published()
        for table in blocks(page, Table)
        if table.name in (f"erratum-{page.name}", f"decision-{page.name}")
        for row in table.rows
    ]
    columns = ("paper", "where", "printed", "taken", "why")
    assert sorted(shown) == sorted(tuple(note[name] for name in columns) for note in notes())


NAMED = sorted({row.name for table in papers.load("expansionnet_v2").tables for row in table.rows})


@given(st.lists(st.sampled_from(NAMED), min_size=1, max_size=4), st.booleans())
def test_a_recorded_command_is_shown_as_a_shell_reads_it(names, last) -> None:
    """Also an older one, whose arguments are joined by spaces alone."""
    others, only = ["--form", "reduced", "--out", "a.jsonl"], ["--only", *names]
    said = ["captionbench", "reproduce", *(others + only if last else only + others)]
    shown = evidence.quoted(" ".join(said), NAMED)
    assert shlex.split(shown) == said
    assert evidence.quoted(shlex.join(said), NAMED) == shlex.join(said)


def trained(row: str, seed: int, scores: list[float], data: str = "photographs") -> records.Record:
    return record(
        Captions,
        {"CIDEr-D": 100 * fmean(scores)},
        row=row,
        key=f"{row}{seed}",
        n=len(scores),
        seeds=[seed],
        status="other data",
        data=records.Data(name=data),
        cider_d=scores,
        stages=[{"patience": 3, "optimisation": {"epochs": 9}}],
        validations=[{"epoch": 2, "metric": "CIDEr-D", "CIDEr-D": 1.0}],
    )


SCORES = st.lists(st.floats(0, 10), min_size=5, max_size=5)


@settings(max_examples=30)
@given(SCORES, st.sampled_from([1.0, -1.0]), st.integers(1, SEEDS + 1))
def test_a_table_agrees_or_opposes_only_where_enough_seeds_settle_it(scores, shift, seeds) -> None:
    """The paper prints the row above the baseline."""
    made = [
        trained(row, seed, [score + gap for score in scores])
        for seed in range(seeds)
        for row, gap in ((BASE, 0.0), (ROW, shift))
    ]
    box = sentences.sentence("expansionnet_v2", V2, tables.sources(made))
    settled = "agrees" if shift > 0 else "opposes"
    assert box.word == (settled if seeds >= SEEDS else "not settled")
    layout = next(b for b in tables.blocks("expansionnet_v2", V2, made) if isinstance(b, Table))
    (line,) = [row for row in layout.rows if row[0] == ROW]
    (above,) = [cell for cell in line if isinstance(cell, Value) and "seeds" in cell.detail] or [
        cell for cell in line if isinstance(cell, Value) and cell.printed == "+2"
    ]
    word = ("better" if shift > 0 else "worse") if seeds >= SEEDS else "too few seeds"
    assert above.detail.endswith(word)


def test_rows_of_other_seeds_data_or_images_are_not_compared() -> None:
    for made in (
        [trained(BASE, seed, [1.0, 2.0]) for seed in range(3)]
        + [trained(ROW, seed, [3.0, 4.0, 5.0]) for seed in range(3)],
        [trained(BASE, seed, [1.0, 2.0]) for seed in range(3)]
        + [trained(ROW, seed, [3.0, 4.0]) for seed in range(3, 6)],
        [trained(BASE, seed, [1.0, 2.0], "these") for seed in range(3)]
        + [trained(ROW, seed, [3.0, 4.0], "those") for seed in range(3)],
    ):
        assert sentences.sentence("expansionnet_v2", V2, tables.sources(made)).word == "not settled"
        assert tables.blocks("expansionnet_v2", V2, made)
        judged = claims.verdicts(made, "expansionnet_v2")
        assert {v.verdict for v in judged} <= {"not settled", "cannot be tested here"}


@given(st.floats(1e-6, 1e14), st.one_of(st.none(), st.integers(0, 4)))
def test_a_number_keeps_its_digits(value, decimals) -> None:
    shown, _ = number(sentences.quantity(value, decimals))
    close = 0.5 * 10.0 ** -(decimals if decimals is not None else 99)
    assert shown == pytest.approx(value, **SHOWN, abs=close if decimals is not None else 0)


RAW = re.compile(r"\S*(?:\^|_\{|(?<![\w./])[A-Za-z]_\w)\S*")
CODE = re.compile(r"<(code|pre|math|script|style|option)\b.*?</\1>|<[^>]*>", re.DOTALL)
FENCED = re.compile(r"\$\$.*?\$\$|`[^`\n]*`|\]\([^)]*\)", re.DOTALL)


def test_no_page_shows_an_index_or_a_power_as_it_is_typed() -> None:
    for name, text in html.texts(published(), evidence.link).items():
        if name.endswith(".html"):
            assert not (found := RAW.search(CODE.sub(" ", text))), f"{name}: {found}"
    for name, text in markdown.texts(published()).items():
        words = re.sub(r"</?su[bp]>", " ", FENCED.sub(" ", text))
        assert not (found := RAW.search(words)), f"{name}: {found}"


@given(st.sampled_from("xyTW"), st.sampled_from(["t", "t-1", "I,J", "10"]))
def test_indices_and_powers_are_set_and_names_and_code_are_left(base, script) -> None:
    assert html.inline(f"{base}_{{{script}}} is") == f"{base}<sub>{script}</sub> is"
    assert html.inline(f"{base}^{{{script}}} is") == f"{base}<sup>{script}</sup> is"
    kept = f"static_expansion, sm_80, a/b_c.py, torch.b_c, `{base}_{{{script}}}`"
    assert "sub>" not in html.inline(kept)
    nested = html.inline("R^(L x d_m)")
    assert nested == "R<sup>(L x d<sub>m</sub>)</sup>"
