"""Other arrays in the place of a candidate's arguments."""

from copy import deepcopy

import numpy as np
import pytest
import torch

from benchmarks.verify.conversion import FRAMEWORKS, from_numpy, refill, to_numpy
from benchmarks.verify.moves import move
from benchmarks.verify.same import same

CASE = np.arange(6.0).reshape(2, 3), {"weight": np.arange(3.0), "bias": np.ones(3)}
OTHER = CASE[0] + 1, {"weight": CASE[1]["weight"] + 1, "bias": np.ones(3)}


def moved(name, layout, last=None):
    """Arguments before, as addresses, and after they were refilled."""
    framework = FRAMEWORKS[name]("cpu")
    given = [from_numpy(framework, value, layout, copy=False) for value in deepcopy(CASE)]
    before = [(id(x), framework.memory(x)) for x in (given[0], *given[1].values())]
    move(framework, given, OTHER, layout, last)
    refill(framework, given, OTHER, False, layout)
    assert all(same(to_numpy(framework, now), was) for now, was in zip(given, OTHER, strict=True))
    after = [given[0], *given[1].values()]
    return before, [(id(x), framework.memory(x)) for x in after], after


@pytest.mark.parametrize("name", ["numpy", "torch"])
def test_renewed_arrays_are_in_the_memory_of_those_before(name):
    before, after, arrays = moved(name, "renewed")
    assert [memory for _, memory in after] == [memory for _, memory in before]
    assert before[2] == after[2]  # with the same numbers it is the same
    if name == "torch":
        assert before == after
        assert [x._version for x in arrays] == [0, 0, 0]


@pytest.mark.parametrize("name", ["numpy", "torch"])
def test_slices_are_other_parts_of_one_array(name):
    before, after, arrays = moved(name, "slices")
    assert before[2] == after[2]
    if name == "torch":
        assert [x.storage_offset() for x in arrays] == [6, 3, 0]
        assert [x._version for x in arrays] == [0, 0, 0]
    else:
        assert [x.base.shape for x in arrays[:2]] == [(8, 2, 3), (8, 3)]
        sizes = [now[0] - was[0] for (_, was), (_, now) in zip(before, after, strict=True)]
        assert sizes == [48, 24, 0]


@pytest.mark.parametrize("name", ["numpy", "torch"])
def test_a_result_or_its_rows_are_arguments(name):
    library = {"numpy": np, "torch": torch}[name]
    framework = FRAMEWORKS[name]("cpu")
    for shape in ((2, 3), (4, 2, 3)):
        result = library.zeros(shape, dtype=library.float64)
        _, after, _ = moved(name, "returned", result)
        start, end = framework.memory(result)
        assert start <= after[0][1][0] < end
        assert (to_numpy(framework, result).reshape(-1, 2, 3)[0] == OTHER[0]).all()
    fits_not = library.zeros((2, 3), dtype=library.float32)
    before, after, _ = moved(name, "returned", fits_not)
    assert before == after
