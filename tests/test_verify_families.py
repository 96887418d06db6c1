"""Right candidates of every operator pass, and the slip that some can make is caught."""

import inspect
from functools import partial

import pytest

from benchmarks.verify.candidate import Candidate
from benchmarks.verify.cases import float_arrays
from benchmarks.verify.conformance import FAILED, conformance_test
from benchmarks.verify.draw import Draw
from benchmarks.verify.operators import OPERATORS
from tests.mutants import right

RIGHT = {f"{one.operator}-{one.where}-{one.framework}": one for one in right.candidates()}
SLIPS = {
    name: one for name, one in RIGHT.items() if "slip" in inspect.signature(one.function).parameters
}


def test_every_operator_has_one_and_those_of_arrays_one_of_each_framework():
    assert {one.operator for one in RIGHT.values()} == {*OPERATORS}
    has_both = {one.operator for one in RIGHT.values() if one.framework == "torch"}
    of_arrays = {name for name, of in OPERATORS.items() if float_arrays(of.case(Draw()))}
    assert of_arrays <= has_both
    assert of_arrays <= {one.operator for one in RIGHT.values() if one.framework == "numpy"}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_candidate_passes(name):
    found = RIGHT[name].verdicts(seed=2, examples=2)
    assert not [f"{v.name}: {v.message}" for v in found if v.status == FAILED]


@pytest.mark.parametrize("name", SLIPS)
def test_its_slip_is_caught_on_ordinary_numbers(name):
    one = SLIPS[name]
    wrong = Candidate(partial(one.function, slip=True), one.framework)
    (verdict,) = conformance_test(
        OPERATORS[one.operator], wrong, examples=5, seed=2, only=("equals_oracle",)
    )
    assert verdict.status == FAILED
