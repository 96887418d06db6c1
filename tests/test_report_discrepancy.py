"""The page of discrepancies: what ARNet changes of a distance, of equal seeds and by the rule."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import records
from benchmarks.kinds import Discrepancy
from benchmarks.papers.arnet.discrepancy import ARNET, REGULARISED, TABLE
from benchmarks.papers.paired import RULE
from benchmarks.report.document import Paragraph, Table
from benchmarks.report.sections import discrepancy as section
from benchmarks.scoring.discrepancy import CENTROID, IMAGES, POINTS
from benchmarks.statistics import SEEDS
from tests.support.records import record as a_record

ROW = REGULARISED[0]
SHARES = st.lists(st.floats(0, 2), min_size=4, max_size=4)


def record(row: str, seed: int, shares: list[float], data: str = "scenes") -> records.Record:
    names = (CENTROID, POINTS, IMAGES)
    return a_record(
        Discrepancy,
        dict.fromkeys(names, float(np.mean(shares))),
        paper="arnet",
        table=TABLE,
        row=row,
        key=f"{row}{seed}{data}",
        n=len(shares),
        seeds=[seed],
        data=records.Data(name=data, fingerprint="f", split="test"),
        shares=dict.fromkeys(names, shares),
        validations=[{"CIDEr-D": 0.1}],
    )


@settings(max_examples=15)
@given(st.lists(SHARES, min_size=1, max_size=4), st.integers(-999, 999), st.data())
def test_a_constant_change_is_said_of_three_seeds(
    base: list[list[float]], thousandths: int, data: st.DataObject
) -> None:
    gap = thousandths / 1000
    made = [
        record(row, seed, [share + shift for share in shares])
        for seed, shares in enumerate(base)
        for row, shift in ((ROW, 0.0), (ROW + ARNET, gap))
    ]
    # a seed of one side alone, and another data set's, change nothing
    made += [record(ROW, 9, [99.0] * 4), record(ROW + ARNET, 0, [99.0] * 4, "other")]
    found = section.discrepancy(data.draw(st.permutations(made)))
    assert isinstance(found.blocks[0], Paragraph)
    assert RULE in found.blocks[0].text
    (table,) = (b for b in found.blocks if isinstance(b, Table) and b.rows[0][0] == ROW)
    rows = {row[0]: row for row in table.rows}
    assert list(rows) == [ROW, ROW + ARNET]
    assert rows[ROW + ARNET][6:8] == [None, None]
    word = "larger" if gap > 0 else "smaller" if gap < 0 else "not settled"
    word = word if len(base) >= SEEDS else "too few seeds"
    for said in rows[ROW][6:8]:
        assert isinstance(said, str)
        assert said.startswith(f"{gap:+.3f} (") and said.endswith(f": {word}")


def test_without_records_the_page_says_how_to_get_them() -> None:
    (_, said) = section.discrepancy([]).blocks
    assert isinstance(said, Paragraph)
    assert "**Not run.**" in said.text and "captionbench reproduce arnet --table" in said.text
