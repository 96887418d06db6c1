"""The page of Middle-Out: each table's differences are called something by the rule alone."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import records
from benchmarks.report.document import Paragraph, Table
from benchmarks.report.sections import middle_out as section
from benchmarks.report.sections.middle_out import AGAINST, BASELINE, CONTROLLED, MIDDLE_OUT
from benchmarks.report.sections.paired import RULE
from benchmarks.statistics import SEEDS

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


def record(table: str, row: str, seed: int, numbers: list[float]) -> records.Record:
    mean = 100 * sum(numbers) / len(numbers)
    columns = ("accuracy", "B4", "CIDEr-D", "has the word", "follows the word")
    return records.make(
        "training",
        paper="middle_out",
        table=table,
        row=row,
        values=dict.fromkeys(columns, mean),
        status="embedded",
        key=f"{table}{row}{seed}",
        n=len(numbers),
        seeds=[seed],
        data={"name": "moving scenes", "fingerprint": "f", "split": "test"},
        signature="signature",
        details={
            "form": "scenes",
            "beam_size": 3,
            "missing": {},
            "left_out": {"captions": 0},
            **({"pairs": []} if table == "6" else {}),
            **dict.fromkeys(("cider_d", "self_b4", "follows"), numbers),
        },
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
