"""The page of the read-only LSTM: losses, intervals over seeds, curves, captions side by side."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import papers, records
from benchmarks.kinds import Losses, ReadOnly
from benchmarks.papers import paired
from benchmarks.papers.lstm_readonly.read_only import PAPER, ROWS
from benchmarks.report import build, markdown
from benchmarks.report.document import (
    Figure,
    Photographs,
    Table,
)
from benchmarks.report.sections import read_only as section
from benchmarks.statistics import SEEDS, difference_of_seeds
from tests.support.pages import files as files_of
from tests.support.records import altered, record

LOSS = st.floats(0.5, 5)
WORDS = 100


def made_of(row, seed, training, evaluation, data="scenes", examples=(), beams=False):
    """Both records of a run."""
    of = {
        "paper": PAPER,
        "row": row,
        "key": f"{row}{seed}{data}",
        "n": 4,
        "seeds": [seed],
        "data": records.Data(name=data, fingerprint="f", split="test"),
        "beam_size": 3,
        "configuration": {"vocabulary_size": WORDS},
        "stages": [{"optimisation": {"lr": 0.5}}],
        "validation_losses": {"2": 1.5, "0.25": 1.5, "0.5": 1.5},
        "losses": [{"step": 50, "loss": 2 * training}, {"step": 100, "loss": training}],
    }
    shown = [
        {"image": i, "caption": f"{row} of {i}", "reference": f"a person on {i}"}
        | ({"beam": [f"{row} of {i}", f"second of {i}"]} if beams else {})
        for i in examples
    ]
    losses = {"training loss": training, "evaluation loss": evaluation}
    return [
        record(Losses, losses, table="losses", **of),
        record(ReadOnly, {"CIDEr-D": 10.0}, table="scores", **of, examples=shown),
    ]


def blocks(made, kind, jpegs=None):
    report = section.read_only(made, jpegs or {})
    assert paired.RULE in report.blocks[0].text
    files_of(report)
    return [block for block in report.blocks if isinstance(block, kind)]


@settings(max_examples=12)
@given(st.lists(st.tuples(*[st.tuples(LOSS, LOSS)] * 3), min_size=1, max_size=5), st.data())
def test_losses_stand_beside_the_paper_s_and_are_called_lower_only_of_several_seeds(seeds, data):
    made = [
        record
        for seed, of_seed in enumerate(seeds)
        for row, losses in zip(ROWS, of_seed, strict=True)
        for record in made_of(row, seed, *losses)[:1]
    ]
    table = section._losses(data.draw(st.permutations(made)))
    # no better than guessing
    lost = {
        row: sum(max(of_seed[number]) > math.log(WORDS) for of_seed in seeds)
        for number, row in enumerate(ROWS)
    }
    assert [row[0] for row in table.rows] == list(ROWS)
    place = {name: i for i, name in enumerate(table.columns)}
    printed = papers.load(PAPER).table("losses")
    for number, row in enumerate(table.rows):
        for which, loss in enumerate(section.LOSSES):
            paper = row[place[f"paper's {loss}"]]
            if row[0] == "LSTM + read-only unit, previous input":
                assert paper == "-"
            else:
                assert float(paper) == printed.cell(row[0], loss).value
            of_row = [of_seed[number][which] for of_seed in seeds]
            ours, mean = row[place[f"our {loss}"]], sum(of_row) / len(of_row)
            assert ours.startswith(f"{mean:.3f}")
            of = f" with {lost[row[0]]} of {len(seeds)} seeds" if lost[row[0]] < len(seeds) else ""
            assert (": diverged" in ours) == bool(lost[row[0]])
            assert not lost[row[0]] or ours.endswith(f": diverged{of}")
            found = row[place[f"ours: above {section.BASELINE} (95 % interval)"]]
            if number == 0 or lost[row[0]] or lost[section.BASELINE]:
                assert found == ""
            elif len(seeds) < SEEDS:
                assert found.endswith(": too few seeds")


@settings(max_examples=10)
@given(st.lists(st.tuples(LOSS, LOSS), min_size=1, max_size=6))
def test_a_difference_is_said_of_the_seeds_that_both_have_unless_one_diverged(pairs):
    ours, baseline = (
        [made_of(row, seed, *[pair[place]] * 2)[0] for seed, pair in enumerate(pairs)]
        for place, row in enumerate(list(ROWS)[:2])
    )
    said = section._above(ours, baseline, "training loss")
    found = difference_of_seeds(*zip(*pairs, strict=True))
    if any(max(pair) > math.log(WORDS) for pair in pairs):
        assert said == ""
    else:
        assert said == paired.verdict(found, "lower", "higher", digits=3)
        # a seed of one side alone changes nothing
        alone = made_of("LSTM", 99, 1.0, 1.0)[0]
        assert section._above(ours, [*baseline, alone], "training loss") == said
        assert section._above(ours, [alone], "training loss") == ""


@pytest.mark.parametrize(
    ("rate", "end"), [(0.25, ", the least tried"), (0.5, ""), (2.0, ", the largest tried")]
)
def test_a_rate_at_an_end_of_those_tried_is_said_to_be(rate, end):
    run = made_of("LSTM", 0, 1.0, 1.0)[0]
    run.details.stages[0]["optimisation"]["lr"] = rate
    (said,) = {row[2] for row in section._losses([run]).rows if row[0] == "LSTM"}
    assert said == f"{rate:g} of 0.25, 0.5, 2{end}"


def everything(**given_):
    return [
        record
        for seed in (1, 0)
        for row in ROWS
        for record in made_of(row, seed, 2.0 + seed, 1.0, **given_)
    ]


def test_curves_are_means_over_seeds_one_drawing_a_data_set():
    made = [*everything(), *everything(data="flickr8k, reduced")]
    drawn = section.loss_curves(made)
    assert len({figure.name for figure in drawn}) == len(drawn) == 2
    assert all(f">{row}<" in drawn[0].svg for row in ROWS)
    lost = [r for r in made if r.what.table == "losses" and r.what.row == "LSTM"]
    assert section._curve(lost) == ([50, 100], [5.0, 2.5])
    # a record without losses over steps draws none
    made = [altered(each, losses=[]) for each in made]
    assert not section.loss_curves(made) and len(blocks(made, Table)) == 2
    assert not blocks(made, Figure)


@pytest.mark.parametrize("beams", [False, True])
def test_captions_stand_side_by_side_whether_a_record_has_beams_or_not(beams):
    made = everything(examples=(3, 5), beams=beams)
    (shown,) = blocks(made, Photographs, {5: b"jpeg"})
    assert [item.name for item in shown.items] == ["3", "5"]
    assert [item.jpeg for item in shown.items] == [None, b"jpeg"]
    assert shown.caption.endswith("; beam 3, seed 0.")
    for item, image in zip(shown.items, (3, 5), strict=True):
        *lines, reference = item.lines
        assert reference == f"A reference: a person on {image}"
        second = f"; **second of {image}**" if beams else ""
        assert lines == [f"{row}: **{row} of {image}**{second}" for row in ROWS]
    # records that hold no captions leave them out
    assert not blocks(everything(), Photographs)


def test_the_whole_report_takes_such_records_and_names_no_figure_twice():
    pages = build.pages(everything(examples=(1,)))
    blocks = [block for page in pages for s in page.sections for block in s.blocks]
    names = [block.name for block in blocks if isinstance(block, Figure | Table)]
    assert len(set(names)) == len(names)
    page = markdown.texts(pages)["lstm_readonly.md"]
    assert "LSTM + read-only unit: **LSTM + read-only unit of 1**" in page
    (silent,) = [s for page in build.pages([]) for s in page.sections if s.title == section.TITLE]
    assert "**Not run.**" in silent.blocks[0].text
