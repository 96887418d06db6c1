"""The page of the read-only LSTM: losses, intervals over seeds, curves, captions side by side."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import papers, records
from benchmarks.experiments.read_only import PAPER, ROWS
from benchmarks.report import build, markdown
from benchmarks.report.document import Document, Figure, Photographs, Table
from benchmarks.report.sections import expansion, middle_out, paired, tables
from benchmarks.report.sections import read_only as section
from benchmarks.report.sections.examples import side_by_side
from tests import tolerances

LOSS = st.floats(0.5, 5)
WORDS = 100


def made_of(row, seed, training, evaluation, data="scenes", examples=(), beams=False):
    """Both records of a run."""
    kept = {
        "configuration": {"vocabulary_size": WORDS},
        "stages": [{"recipe": {"lr": 0.5}}],
        "losses": [{"step": 50, "loss": 2 * training}, {"step": 100, "loss": training}],
        "examples": [
            {"image": i, "caption": f"{row} of {i}", "reference": f"a person on {i}"}
            | ({"beam": [f"{row} of {i}", f"second of {i}"]} if beams else {})
            for i in examples
        ],
    }
    losses = {"training loss": training, "evaluation loss": evaluation}
    return [
        records.make(
            "training",
            paper=PAPER,
            table=table,
            row=row,
            values=values,
            status="embedded",
            key=f"{row}{seed}{data}",
            n=4,
            seeds=[seed],
            data={"name": data, "fingerprint": "f", "split": "test"},
            details=kept,
        )
        for table, values in (("losses", losses), ("scores", {"CIDEr-D": 10.0}))
    ]


def blocks(made, kind, jpegs=None):
    report = section.read_only(made, jpegs or {})
    markdown.files(Document("t", "l", (report,)))
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
            elif len(seeds) < paired.SEEDS:
                assert found.endswith(": too few seeds")


@settings(max_examples=10)
@given(st.lists(st.tuples(LOSS, LOSS), min_size=1, max_size=6))
def test_the_difference_is_paired_over_the_seeds_that_both_have(pairs):
    ours, baseline = (
        [made_of(row, seed, *[pair[place]] * 2)[0] for seed, pair in enumerate(pairs)]
        for place, row in enumerate(ROWS, start=0)
        if place < 2
    )
    interval, seeds = section.difference(ours, baseline, "training loss")
    apart = [a - b for a, b in pairs]
    slack = tolerances.FLOAT64 * 10
    assert seeds == len(pairs)
    assert interval.mean == pytest.approx(sum(apart) / len(apart), abs=slack)
    assert interval.low <= interval.mean <= interval.high
    said = section._above(ours, baseline, "training loss")
    if any(max(pair) > math.log(WORDS) for pair in pairs):
        assert said == ""
    elif seeds < paired.SEEDS:
        assert said.endswith(": too few seeds")
    else:
        words = {"lower": interval.high < 0, "higher": interval.low > 0}
        assert said.rpartition(": ")[2] == next((w for w in words if words[w]), "not settled")
    # a seed of one side alone changes nothing
    alone = made_of("LSTM", 99, 1.0, 1.0)[0]
    assert section.difference(ours, [*baseline, alone], "training loss") == (interval, seeds)
    other, _ = section.difference(baseline, ours, "training loss")
    assert other.mean == pytest.approx(-interval.mean, abs=slack)
    assert section.difference(ours, [alone], "training loss") is None


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
    lost = [r for r in made if r["what"]["table"] == "losses" and r["what"]["row"] == "LSTM"]
    assert section._curve(lost) == ([50, 100], [5.0, 2.5])
    # a record without losses over steps draws none
    for record in made:
        record["details"].pop("losses")
    assert not section.loss_curves(made) and len(blocks(made, Table)) == 2
    assert not blocks(made, Figure)


@pytest.mark.parametrize("beams", [False, True])
def test_captions_stand_side_by_side_whether_a_record_has_beams_or_not(beams):
    made = everything(examples=(3, 5), beams=beams)
    (shown,) = blocks(made, Photographs, {5: b"jpeg"})
    assert [item.name for item in shown.items] == ["3", "5"]
    assert [item.jpeg for item in shown.items] == [None, b"jpeg"]
    assert shown.caption.endswith("seed 0.")
    for item, image in zip(shown.items, (3, 5), strict=True):
        *lines, reference = item.lines
        assert reference == f"A person wrote: a person on {image}"
        second = f"; **second of {image}**" if beams else ""
        assert lines == [f"{row}: **{row} of {image}**{second}" for row in ROWS]
    # records that hold no captions leave them out
    assert not blocks(everything(), Photographs)


def test_only_what_all_rows_have_is_shown_and_of_one_seed():
    runs = {
        "a": [made_of(f"seed {seed}", seed, 1.0, 1.0, examples=(1, 2))[1] for seed in (0, 2)],
        "b": [made_of(f"seed {seed}", seed, 1.0, 1.0, examples=(2, 4))[1] for seed in (2, 1)],
    }
    (shown,) = side_by_side("n", "caption", runs, ("b", "a"), {})
    assert shown.caption == "caption; seed 2." and [item.name for item in shown.items] == ["2"]
    assert shown.items[0].lines[:2] == ["b: **seed 2 of 2**", "a: **seed 2 of 2**"]
    assert not side_by_side("n", "caption", runs, ("a", "b", "c"), {})
    assert not side_by_side("n", "caption", {**runs, "b": runs["b"][1:]}, ("a", "b"), {})


def test_the_whole_report_takes_such_records_and_names_no_figure_twice():
    report = build.document(everything(examples=(1,)))
    names = [b.name for s in report.sections for b in s.blocks if isinstance(b, Figure | Table)]
    assert len(set(names)) == len(names)
    page = markdown.files(report)["README.md"]
    assert "LSTM + read-only unit: **LSTM + read-only unit of 1**" in page
    (silent,) = [s for s in build.document([]).sections if s.title == section.TITLE]
    assert "**Not run.**" in silent.blocks[0].text


def shown_of(paper, table, row, details):
    """A record that shows captions of two images."""
    held = [{"image": i, "caption": f"{row} of {i}", "reference": "r"} for i in (1, 2)]
    return records.make(
        "training",
        paper=paper,
        table=table,
        row=row,
        values={"CIDEr-D": 1.0},
        status="embedded",
        key=row,
        n=2,
        seeds=[0],
        data={"name": "scenes", "fingerprint": "f", "split": "test"},
        details={"examples": held, "cider_d": [0.1, 0.2], **details},
    )


PLACES = {
    ("arnet", "Figure 3"): (
        "1",
        ("Attentive Encoder-Decoder", "Attentive Encoder-Decoder + ARNet"),
    ),
    ("lstm_readonly", "Table I"): ("scores", tuple(ROWS)),
    ("expansionnet_v2", "Table VIII"): ("I", (expansion.BASELINE, expansion.BOTH)),
    ("expansionnet_v1", "Table 6"): ("3", (expansion.BASELINE, expansion.BOTH)),
    ("middle_out", "Table 9"): ("2", middle_out.SHOWN),
}


@pytest.mark.parametrize("place", PLACES)
def test_the_list_of_tables_says_what_captions_records_show(place):
    def line(given_):
        (table,) = (
            b for b in tables.every_table(given_).blocks if getattr(b, "name", "") == "tables"
        )
        (found,) = (row for row in table.rows if tuple(row[:2]) == place)
        return found[3:]

    table, rows = PLACES[place]
    made = [shown_of(place[0], table, row, {"form": "reduced"}) for row in rows]
    assert line(made)[1:] == ["drawn" if "Figure" in place[1] else "shown", ""]
    for without in ([], made[1:]):  # a row is missing
        assert line(without)[1] == "not run" and line(without)[2]
    assert all(not list(draw([])) for draw in tables.CAPTIONS.values())
    for paper, name in tables.CAPTIONS:
        assert papers.load(paper).table(name).kind == "captions"
