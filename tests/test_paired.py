"""How sections compare rows: by the seeds that both have, and by one rule."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.kinds import Captions
from benchmarks.papers import paired
from benchmarks.report.drawings.examples import of_one_seed
from benchmarks.statistics import difference_of_seeds, paired_difference
from tests.support.records import record as a_record

IMAGES = 4


def scores_of(row, seed):
    """The seed's and the row's own."""
    return np.random.default_rng([seed, *row.encode()]).uniform(0, 2, IMAGES).tolist()


def record(row, seed, one_number):
    scores = scores_of(row, seed)
    of = {"row": row, "key": f"{row}{seed}", "n": IMAGES, "seeds": [seed]}
    values = {"CIDEr-D": float(np.mean(100 * np.array(scores)))}
    return a_record(Captions, values, **of, cider_d=[] if one_number else scores)


seeds = st.lists(st.integers(0, 6), unique=True, max_size=5)


def runs(row, of, one_number=False):
    return [record(row, seed, one_number) for seed in of]


@given(st.lists(seeds, min_size=1, max_size=4))
def test_records_are_paired_by_the_seeds_that_all_rows_have(each):
    rows = {f"row {i}": runs(f"row {i}", of) for i, of in enumerate(each)}
    found = paired.shared(*rows.values())
    common = sorted(set.intersection(*map(set, each)))
    assert [[r.seeds for r in pair] for pair in found] == [[[s]] * len(each) for s in common]
    assert all([r.what.row for r in pair] == list(rows) for pair in found)
    shown = of_one_seed(rows, list(rows))
    assert list(shown) == (list(rows) if common else [])
    assert all(r.seeds == [common[0]] for r in shown.values())


@given(seeds, seeds, st.booleans())
def test_a_difference_is_that_of_the_shared_seeds_alone(ours, theirs, one_number):
    a, b = runs("a", ours, one_number), runs("b", theirs, one_number)
    found = paired.difference(a, b)
    common = sorted(set(ours) & set(theirs))
    if not common:
        assert found is None
        return
    scores = [[100 * np.array(scores_of(row, seed)) for seed in common] for row in "ab"]
    if one_number:
        expected = difference_of_seeds(*np.mean(scores, axis=2))
    else:
        expected = paired_difference(*scores)
    assert found == expected and found.seeds == len(common)
    # whatever the order of records
    assert paired.difference(a[::-1], b[::-1]) == found
    other = paired.difference(b, a)
    assert other is not None and (other.mean, other.settled) == (-found.mean, found.settled)


def test_a_record_without_the_number_is_of_no_pair():
    a, b = runs("a", [0, 1, 2]), runs("b", [0, 1, 2])
    a[1].values.pop("CIDEr-D")
    found = paired.difference(a, b)
    assert found == paired.difference(a[::2], b)
    assert found is not None and found.seeds == 2
