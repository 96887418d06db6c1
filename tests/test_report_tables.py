"""The list of all tables and figures: how much of each there is, and of which data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import kinds, papers, records
from benchmarks.kinds import Captions
from benchmarks.papers.arnet import reconstruction_weight
from benchmarks.papers.expansionnet_v2 import ablation as expansion_experiment
from benchmarks.papers.expansionnet_v2.ablation import BASELINE, BOTH
from benchmarks.papers.lstm_readonly.read_only import ROWS
from benchmarks.papers.middle_out import captions as middle_out_experiment
from benchmarks.records import Record
from benchmarks.report.document import Table
from benchmarks.report.sections import middle_out, tables
from tests.support.records import record as a_record

ARNET = ("Attentive Encoder-Decoder", "Attentive Encoder-Decoder + ARNet")
CAPTIONS: dict[tuple[str, str], tuple[str, Sequence[str], str]] = {
    ("arnet", "Figure 3"): ("1", ARNET, "drawn"),
    ("arnet", "Figure 5"): (
        reconstruction_weight.TABLE,
        tuple(reconstruction_weight.ROWS)[:1],
        "drawn",
    ),
    ("lstm_readonly", "Table I"): ("scores", tuple(ROWS), "shown"),
    ("expansionnet_v2", "Table VIII"): ("I", (BASELINE, BOTH), "shown"),
    ("expansionnet_v1", "Table 6"): ("3", (BASELINE, BOTH), "shown, with Table 7"),
    ("expansionnet_v1", "Table 7"): ("3", (BASELINE, BOTH), "shown, with Table 6"),
    ("middle_out", "Table 9"): ("2", middle_out.SHOWN, "shown, with Table 8"),
    ("middle_out", "Table 10"): ("6", middle_out.CONTROLLED, "shown, with Table 6"),
}
"""By place, the table and rows of records that it is drawn from, and how drawings are counted."""
FORMS = {
    "expansionnet_v1": list(expansion_experiment.FORMS),
    "expansionnet_v2": list(expansion_experiment.FORMS),
    "middle_out": list(middle_out_experiment.FORMS),
}

KINDS = {
    ("middle_out", "6"): kinds.Control,
    "middle_out": kinds.MiddleOut,
    "lstm_readonly": kinds.ReadOnly,
}


def record(paper: str, table: str, row: str, status: str, data: int) -> Record:
    """A record that shows captions of an image, on one of several data sets and in its form."""
    example = {"image": 1, "word": "a", "caption": f"{row} of 1", "reference": "r"}
    shown = {"examples": [example]}
    if (paper, table) == ("middle_out", "6"):
        shown = {"pairs": [[example, {**example, "image": 2}]]}
    return a_record(
        KINDS.get((paper, table), KINDS.get(paper, Captions)),
        {"CIDEr-D": 1.0},
        paper=paper,
        table=table,
        row=row,
        status=status,
        key=f"{row}{data}",
        n=1,
        seeds=[0],
        data=records.Data(name=f"data {data}", fingerprint="f", split="test"),
        form=FORMS[paper][data] if paper in FORMS else None,
        beam_size=3,
        **shown,
    )


def line(place: tuple[str, str], made: list[Record]) -> Sequence[Any]:
    """How much there is of a table or figure, of which data, and why not."""
    blocks = tables.every_table(made).blocks
    (table,) = (b for b in blocks if isinstance(b, Table) and b.name == "tables")
    (found,) = (row for row in table.rows if tuple(row[:2]) == place)
    return found[3:]


@pytest.mark.parametrize("place", CAPTIONS)
@settings(max_examples=4)
@given(
    statuses=st.lists(st.sampled_from(["embedded", "other data"]), min_size=1, max_size=2),
    missing=st.booleans(),
)
def test_the_list_of_tables_says_how_many_drawings_records_give_and_of_which_data(
    place: tuple[str, str], statuses: list[str], missing: bool
) -> None:
    (paper, _), (table, rows, counted) = place, CAPTIONS[place]
    made = [
        record(paper, table, row, status, data)
        for data, status in enumerate(statuses)
        for row in rows[missing:]
    ]
    found = line(place, made)
    if missing:
        assert found[0].startswith("0") and found[1] == "not run" and found[2]
    else:
        assert found == [f"{len(statuses)} {counted}", ", ".join(sorted(set(statuses))), ""]


def test_what_draws_is_of_a_place_that_there_is_and_draws_nothing_of_nothing() -> None:
    for (paper, name), draw in tables.FIGURES.items():
        assert name in {f.name for f in papers.load(paper).figures if f.data}
        assert not list(draw([]))
    for (paper, names), draw in tables.CAPTIONS.items():
        assert all(papers.load(paper).table(name).kind == "captions" for name in names)
        assert not list(draw([]))


def test_tables_that_one_drawing_serves_are_in_one_place() -> None:
    places = [(paper, name) for paper, names in tables.CAPTIONS for name in names]
    assert len(set(places)) == len(places)
