"""Right candidates of each family of operators pass, and each one's slip is caught."""

import inspect
from functools import partial

import pytest

from benchmarks.verify.candidate import Candidate
from benchmarks.verify.operators import OPERATORS
from benchmarks.verify.properties import UndecidedError
from benchmarks.verify.search import Trial, draws
from tests.candidates import (
    decoding,
    middle_out,
    objectives,
    optimisation,
    recurrent,
    right_words,
)

CANDIDATES = {
    name: function
    for module in (recurrent, middle_out, objectives, optimisation, decoding)
    for name, function in inspect.getmembers(module, inspect.isfunction)
    if name in OPERATORS
}


def failing(name, function, examples=5):
    """The properties that fail of a function of single elements, in this process."""
    operator, found = OPERATORS[name], []
    for prop in operator.properties:
        if prop.needs or prop.settings:
            continue
        trial = Trial(prop.check, {}, operator, Candidate(function))
        for draw in draws(prop, operator, examples, seed=2):
            try:
                failure = trial.attempt(operator.case(draw), draw)
            except UndecidedError:
                continue
            if failure is not None:
                found.append(f"{prop.name}: {failure.message}")
                break
    return found


WORDS = {name: getattr(right_words, name) for name in OPERATORS if hasattr(right_words, name)}


@pytest.mark.parametrize("name", [*CANDIDATES, *WORDS])
def test_a_right_candidate_passes(name):
    assert failing(name, (CANDIDATES | WORDS)[name]) == []


@pytest.mark.parametrize("name", CANDIDATES)
def test_its_slip_is_caught_on_ordinary_numbers(name):
    found = failing(name, partial(CANDIDATES[name], slip=True))
    assert any(failure.startswith("equals_oracle: ") for failure in found), found
