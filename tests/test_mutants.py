"""The table of mutants: large enough, over all operators, each another one and still a program."""

import ast
from collections import Counter

import pytest

from benchmarks.verify.operators import OPERATORS
from tests.mutants.cheats import CHEATS
from tests.mutants.mutant import caught
from tests.mutants.slips import SLIPS


def test_the_table_covers_every_operator_and_names_properties_that_it_has():
    assert len(SLIPS) + len(CHEATS) >= 80
    assert len(CHEATS) >= 12
    names = Counter(mutant.name for mutant in (*SLIPS, *CHEATS))
    assert max(names.values()) == 1
    for mutant in (*SLIPS, *CHEATS):
        properties = {prop.name for prop in OPERATORS[mutant.operator].properties}
        assert mutant.caught_by in properties, mutant.name


@pytest.mark.parametrize("mutant", [*SLIPS, *CHEATS], ids=lambda mutant: mutant.name)
def test_a_mutant_is_a_program_that_differs(mutant):
    assert ast.parse(mutant.text())
    assert mutant.old != mutant.new


# one of each kind; `python -m tests.mutants` runs all
@pytest.mark.parametrize(
    "name",
    [
        "static_expansion: rows taken to lie apart",
        "layer_norm: is wrong in call 40 alone",
        "layer_norm: is wrong 1 in 10",
        "layer_norm: searches the heap for the answer",
        "layer_norm: saves for backward where the next call writes",
    ],
)
def test_mutants_are_caught(name, tmp_path):
    (mutant,) = [mutant for mutant in (*SLIPS, *CHEATS) if mutant.name == name]
    message = caught(mutant, tmp_path).message
    assert message
    assert ("in call 40 of a fresh process" in message) == ("call 40" in name)
    assert ("not deterministic: failed in" in message) == ("1 in 10" in name)
