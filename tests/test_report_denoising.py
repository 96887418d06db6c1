"""The page of de-noising: rows beside the paper's, errors over steps, one sequence as example."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import records
from benchmarks.kinds import Denoising, DenoisingRatio, Details
from benchmarks.papers.middle_out.denoising import MODELS, RATIOS, TABLE
from benchmarks.report.document import Figure, Table
from benchmarks.report.sections.denoising import MEASURES, denoising, example
from tests.support.records import record as a_record

ROWS = [row for row, _ in MODELS.values()]
ROW = MODELS["seq2seq"][0]
SEQUENCE = st.lists(st.floats(-2, 2), min_size=3, max_size=3)


def record(row: str, value: float, steps: int = 4, **details: Any) -> records.Record:
    kind: type[Details] = Denoising
    if row in RATIOS:
        kind = DenoisingRatio
    else:
        details["history"] = [
            {"step": s, **{m: [2 * value, value] for m in MEASURES}} for s in (1, steps)
        ]
    return a_record(
        kind,
        dict.fromkeys(MEASURES, value),
        paper="middle_out",
        table=TABLE,
        row=row,
        key=f"{row}{steps}",
        n=3,
        seeds=[0, 1],
        settings={"steps": steps},
        interval={m: [value / 2, 2 * value] for m in MEASURES},
        **details,
    )


@settings(max_examples=3)
@given(st.floats(1e-4, 1), st.permutations([*ROWS, *RATIOS]))
def test_every_row_stands_beside_the_paper_s_with_its_interval(
    value: float, order: list[str]
) -> None:
    section = denoising([record(row, value) for row in order])
    (table,) = (block for block in section.blocks if isinstance(block, Table))
    assert [row[0] for row in table.rows] == [*ROWS, *RATIOS]
    printed = {row[0]: (row[1], row[3]) for row in table.rows}
    assert printed[ROW] == ("0.00152", "0.078") and printed["Times smaller"] == (None, None)
    ours = f"{value:.3g} [{value / 2:.3g}, {2 * value:.3g}]"
    assert all(row[2] == row[4] == ours for row in table.rows)
    (errors,) = (block for block in section.blocks if isinstance(block, Figure))
    assert f"{ROW}, printed" in errors.svg
    assert "4.33 and 591" in str(section.blocks[0])


def test_without_records_the_page_says_so_and_lengths_of_training_stand_apart() -> None:
    assert "No regressor was trained" in str(denoising([]).blocks[-1])
    found = denoising([record(ROW, 0.1), record(ROW, 0.2, steps=8)]).blocks
    names = [block.name for block in found if isinstance(block, Table)]
    assert names == ["denoising-8", "denoising-4"]


@settings(max_examples=4)
@given(SEQUENCE, SEQUENCE, st.booleans())
def test_an_example_is_drawn_of_the_records_that_hold_the_same_sequence(
    x: list[float], y: list[float], other: bool
) -> None:
    first, second = ROWS[:2]
    clean = [value + 1 for value in y] if other else y
    made = [
        record(first, 0.1, example={"x": x, "y": y, "y_hat": y}),
        record(second, 0.1, example={"x": x, "y": clean, "y_hat": x}),
    ]
    (figure,) = example(made)
    assert first in figure.svg and (second in figure.svg) == (not other)
    assert example([record(first, 0.1)]) == []
