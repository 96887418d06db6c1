"""Captions side by side: of images that all models show, of one seed, the search's beam if held."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from benchmarks import records
from benchmarks.kinds import Captions
from benchmarks.report.drawings.examples import side_by_side
from tests.support.records import record as a_record

IMAGES = st.lists(st.integers(0, 5), unique=True, max_size=4)
RUNS = st.dictionaries(st.integers(0, 4), IMAGES, max_size=3)
"""The images that a row's records show, by seed."""


def record(row: str, seed: int, images: list[int]) -> records.Record:
    examples = [
        {"image": i, "caption": f"{row} {seed} of {i}", "reference": f"r {i}"} for i in images
    ]
    of = {"row": row, "key": f"{row}{seed}", "n": 2, "seeds": [seed]}
    return a_record(Captions, {"CIDEr-D": 1.0}, **of, beam_size=5, examples=examples)


@given(st.lists(RUNS, min_size=1, max_size=3))
def test_only_what_all_rows_have_is_shown_and_of_one_seed(each: list[dict[int, list[int]]]) -> None:
    rows = [f"row {i}" for i in range(len(each))]
    runs = {
        row: [record(row, seed, images) for seed, images in of_seeds.items()]
        for row, of_seeds in zip(rows, each, strict=True)
    }
    found = side_by_side("n", "caption", runs, rows[::-1], {})
    seeds = set.intersection(*map(set, each))
    images = set.intersection(*(set(of[min(seeds)]) for of in each)) if seeds else set()
    if not images:
        assert not found
        return
    ((shown,), seed) = found, min(seeds)
    assert shown.caption == f"caption; beam 5, seed {seed}."
    assert all(item.jpeg for item in shown.items)  # scenes are drawn
    assert [record.seeds for record in shown.records] == [[seed]] * len(rows)
    assert {item.name for item in shown.items} == set(map(str, images))
    for item in shown.items:
        said = [f"{row}: **{row} {seed} of {item.name}**" for row in rows[::-1]]
        assert item.lines == [*said, f"A reference: r {item.name}"]
    assert not side_by_side("n", "caption", runs, [*rows, "not run"], {})
