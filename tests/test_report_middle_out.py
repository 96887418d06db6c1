"""The page of Middle-Out: forms by themselves, differences by the rule, captions side by side."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import records
from benchmarks.kinds import Control, Diversity, MiddleOut
from benchmarks.papers.paired import RULE
from benchmarks.report import pictures
from benchmarks.report.document import (
    Paragraph,
    Photographs,
    Table,
)
from benchmarks.report.sections import middle_out as section
from benchmarks.report.sections.middle_out import (
    AGAINST,
    BASELINE,
    CONTROLLED,
    MIDDLE_OUT,
    SHOWN,
)
from benchmarks.statistics import SEEDS
from tests.support.pages import files as files_of
from tests.support.records import record as a_record

PAIRS = {
    **{table: next(iter(pairs.items())) for table, pairs in AGAINST.items()},
    "4": (MIDDLE_OUT, BASELINE),
    "6": CONTROLLED[::-1],
}
"""By table, a row and the one that it is compared with."""
COLUMN = {"4": "self B4 above the baseline (95 % interval)"} | {
    "6": "follows above the baseline (95 % interval)"
}
WORDS = {"4": ("less alike", "more alike"), "6": ("less", "more")}

KINDS = {"4": (Diversity, "self_b4"), "6": (Control, "follows")}
"""By table, the kind of its records and where that has a number of each image."""


def record(
    table: str, row: str, seed: int, numbers: list[float], form: str = "scenes", **details: Any
) -> records.Record:
    mean = 100 * sum(numbers) / len(numbers)
    columns = ("accuracy", "B4", "CIDEr-D", "has the word", "follows the word")
    kind, own = KINDS.get(table, (MiddleOut, "cider_d"))
    return a_record(
        kind,
        dict.fromkeys(columns, mean),
        paper="middle_out",
        table=table,
        row=row,
        key=f"{table}{row}{seed}",
        n=len(numbers),
        seeds=[seed],
        signature="signature",
        form=form,
        beam_size=3,
        missing={"METEOR": "needs Java"},
        left_out={"captions": 7, "test": 1},
        **{own: numbers},
        **details,
    )


@pytest.mark.parametrize("name", PAIRS)
@settings(max_examples=8)
@given(gap=st.integers(-9, 9), seeds=st.integers(1, 4))
def test_a_constant_gap_is_said_of_three_seeds(name: str, gap: int, seeds: int) -> None:
    row, against = PAIRS[name]
    made = [
        record(name, each, seed, [1.0 + shift, 2.0 + shift])
        for seed in range(seeds)
        for each, shift in ((row, gap / 10), (against, 0.0))
    ]
    # a seed of one side alone changes nothing
    made.append(record(name, row, 9, [99.0, 99.0]))
    found = section.middle_out(made, {})
    assert isinstance(found.blocks[0], Paragraph)
    assert RULE in found.blocks[0].text
    pages = (
        b for b in found.blocks if isinstance(b, Table) and b.name == f"middle_out-{name}-scenes"
    )
    (table,) = pages
    place = list(table.columns).index(COLUMN.get(name, "ours: CIDEr-D above (95 % interval)"))
    said = {line[0]: line[place] for line in table.rows}
    below, above = WORDS.get(name, ("worse", "better"))
    word = above if gap > 0 else below if gap < 0 else "not settled"
    word = word if seeds >= SEEDS else "too few seeds"
    assert said[row] == f"{10 * gap:+.1f} ({10 * gap:+.1f} to {10 * gap:+.1f}): {word}"
    assert said[against] == ""


def page(made: list[records.Record]) -> dict[str, str]:
    return files_of(section.middle_out(made, {}))


def test_each_form_is_by_itself_and_the_page_silent_without_records() -> None:
    made = [record(table, row, 0, [1.0]) for table, pair in PAIRS.items() for row in pair]
    files = page(made)
    assert "7 captions to learn" in files["README.md"] and "METEOR is not run" in files["README.md"]
    table = files["tables/middle_out-2-scenes.md"]
    assert "LSTM-YT" not in table and f"| oracle: {MIDDLE_OUT} | 40.9 | 124.4 |" in table
    both = page([*made, record("2", MIDDLE_OUT, 0, [2.0], "reduced")])
    assert both["tables/middle_out-2-scenes.md"] == table
    assert "not run" in both["tables/middle_out-2-reduced.md"]
    assert "**Not run.**" in page([])["README.md"]


@given(st.lists(st.sets(st.integers(0, 6), max_size=5), min_size=2, max_size=2))
def test_captions_are_of_the_images_and_pairs_that_both_rows_have(held: list[set[int]]) -> None:
    def said(row: str, image: int) -> dict[str, Any]:
        begun = {"word": f"w{image}"} if row in (MIDDLE_OUT, CONTROLLED[1]) else {}
        return {"image": image, "caption": f"{row} of {image}", "reference": "r", **begun}

    made = [
        record("2", row, 0, [1.0], examples=[said(row, i) for i in sorted(images)])
        for row, images in zip(SHOWN, held, strict=True)
    ]
    made += [
        record(
            "6",
            row,
            0,
            [1.0],
            pairs=[[{**said(row, j), "word": f"w{j}"} for j in (i, 9)] for i in sorted(images)],
        )
        for row, images in zip(CONTROLLED, held, strict=True)
    ]
    both, shared = set.union(*held), sorted(set.intersection(*held))
    found = section.middle_out(made, {}).blocks
    captions = [b for b in found if isinstance(b, Photographs)]
    assert [item.name for b in captions for item in b.items] == list(map(str, shared))
    for item in (item for b in captions for item in b.items):
        begun, other, _ = item.lines
        assert begun == f"{SHOWN[0]} (w{item.name}): **{SHOWN[0]} of {item.name}**"
        assert other == f"{SHOWN[1]}: **{SHOWN[1]} of {item.name}**"
    (pairs,) = (b for b in found if isinstance(b, Table) and "6-captions" in b.name)
    assert pairs.rows == [
        [number, f"w{j}", "r", *(f"{row} of {j}" for row in CONTROLLED)]
        for number, i in enumerate(shared, start=1)
        for j in (i, 9)
    ]
    # photographs are asked for where the data have some
    photographed = [records.replace(r, status="other data") for r in made]
    assert pictures.shown(photographed) == both and not pictures.shown(made)
