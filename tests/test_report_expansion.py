"""The page of v2's Table I and v1's Table 3: forms stand apart, differences, the order."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import papers
from benchmarks.kinds import Captions
from benchmarks.papers.expansionnet_v2.ablation import (
    BASELINE,
    BOTH,
    OF_VALUES,
    OF_VECTORS,
    TABLES,
    V1,
    V2,
)
from benchmarks.papers.paired import RULE
from benchmarks.records import Data
from benchmarks.report.sections.expansion import expansion as section
from benchmarks.statistics import SEEDS
from tests.support.pages import files as files_of
from tests.support.records import record as a_record


def record(row, seed, scores, form="reduced", paper=V2):
    return a_record(
        Captions,
        {"CIDEr-D": 100 * float(np.mean(scores))},
        paper=paper,
        table=TABLES[paper],
        row=row,
        status="other data",
        key=f"{paper}{row}{seed}{form}",
        n=len(scores),
        seeds=[seed],
        data=Data(name=f"photographs, {form}", fingerprint="f", split="test"),
        form=form,
        beam_size=3,
        cider_d=list(scores),
    )


def page(made):
    return files_of(section(made, {}))


def printed(paper):
    cells = papers.load(paper).table(TABLES[paper]).cells
    return {cell.row: cell.meant for cell in cells if cell.column == "CIDEr-D"}


@pytest.mark.parametrize(("paper", "reverse"), [(V1, False), (V2, True)])
def test_the_paper_s_own_order_is_found_and_the_reverse_too(paper, reverse):
    noise = np.random.default_rng(0).uniform(0, 1e-3, (SEEDS, 5))
    made = [
        record(row, s, (-value if reverse else value) + noise[s], paper=paper)
        for row, value in printed(paper).items()
        for s in range(SEEDS)
    ]
    text = page(made)["README.md"]
    values = list(printed(paper).values())
    pairs = sum(a != b for i, a in enumerate(values) for b in values[i + 1 :])
    agree = 0 if reverse else pairs
    tau = "-1.00" if reverse else "+1.00"
    assert f"of {pairs} pairs" in text and f"orders {agree} alike (Kendall's tau {tau})" in text
    assert f"{pairs} of them are over at least {SEEDS} seeds, and {pairs} are settled" in text
    assert f"settled: {agree} as in the paper and {pairs - agree} the other way round" in text
    assert RULE in text


@settings(max_examples=5)
@given(st.permutations(list(printed(V2))), st.integers(1, 3))
def test_rows_of_few_seeds_settle_no_order_and_spoil_that_of_no_others(rows, few):
    """However large the differences are."""
    values = printed(V2)
    made = [
        record(row, seed, [values[row]] * 3)
        for row in rows
        for seed in range(SEEDS - 1 if row in rows[:few] else SEEDS)
    ]
    many = [values[row] for row in rows[few:]]
    enough = sum(a != b for i, a in enumerate(many) for b in many[i + 1 :])
    text = page(made)["README.md"]
    assert f"{enough} of them are over at least {SEEDS} seeds, and {enough} are settled" in text


def test_rows_without_records_are_not_run_and_forms_stand_apart():
    made = [record(BASELINE, 0, [1.0, 2.0]), record(BOTH, 0, [2.0, 3.0])]
    made += [record(BASELINE, 0, [3.0, 4.0], "flickr8k")]
    files = page(made)
    table = files["tables/expansionnet_v2-i-reduced.md"].splitlines()
    assert sum("not run" in line for line in table) == len(printed(V2)) - 2
    (line,) = [line for line in table if line.startswith("| static:64 \\| dynamic:16 ")]
    gap = "+100.0 (+100.0 to +100.0): too few seeds"
    assert f"122.2 | +6.4 | 1 | 250.0 | {gap} | other data" in line
    assert "250.0" not in files["tables/expansionnet_v2-i-flickr8k.md"]
    assert not any("expansionnet_v1" in name for name in files)


def test_rows_of_other_seeds_have_no_order():
    files = page([record(BASELINE, 0, [1.0]), record(BOTH, 1, [2.0])])
    assert "Kendall" not in files["README.md"]
    assert ": better" not in files["tables/expansionnet_v2-i-reduced.md"]


@settings(max_examples=10)
@given(st.integers(-9, 9), st.integers(1, 4))
def test_dropout_of_vectors_is_held_against_values(tenths, seeds):
    scores, shift = [1.0, 2.0, 3.0], tenths / 10
    made = [
        record(row, seed, [s + gap for s in scores])
        for seed in range(seeds)
        for row, gap in ((OF_VALUES, 0), (OF_VECTORS, shift))
    ]
    text = page(made)["README.md"]
    assert f"instead of values, {BOTH}: CIDEr-D {100 * shift:+.1f}" in text
    word = "better" if shift > 0 else "worse" if shift < 0 else "not settled"
    assert f": {word if seeds >= SEEDS else 'too few seeds'}." in text


def test_without_records_the_page_says_how_to_get_them():
    assert "captionbench reproduce expansionnet_v2 --table I" in page([])["README.md"]
