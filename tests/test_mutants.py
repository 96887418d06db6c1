"""The table of mutants: large enough, over all operators, each another one and still a program."""

import ast
from collections import Counter

import pytest

from benchmarks.verify.candidate import CandidateError
from benchmarks.verify.conformance import FAILED
from benchmarks.verify.operators import OPERATORS
from tests.mutants.__main__ import main
from tests.mutants.cheats import CHEATS
from tests.mutants.gradient_slips import GRADIENTS
from tests.mutants.mutant import caught
from tests.mutants.slips import SLIPS


def test_the_table_covers_every_operator_and_names_properties_that_it_has():
    assert len(SLIPS) + len(CHEATS) >= 80
    assert len(CHEATS) >= 12
    assert {mutant.operator for mutant in SLIPS} == {*OPERATORS}
    names = Counter(mutant.name for mutant in (*SLIPS, *CHEATS, *GRADIENTS))
    assert max(names.values()) == 1
    for mutant in (*SLIPS, *CHEATS, *GRADIENTS):
        properties = {prop.name for prop in OPERATORS[mutant.operator].properties}
        assert mutant.caught_by in properties, mutant.name


@pytest.mark.parametrize("mutant", [*SLIPS, *CHEATS, *GRADIENTS], ids=lambda mutant: mutant.name)
def test_a_mutant_is_a_program_that_differs(mutant):
    assert ast.parse(mutant.text())
    assert mutant.old != mutant.new


@pytest.mark.parametrize("wrong", [["nosuchname"], ["--right", "1", "nosuch"], ["--every", "0"]])
def test_a_campaign_of_nothing_is_bad_input(wrong, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["mutants", *wrong])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "error: " in capsys.readouterr().err


# one of each kind; `python -m tests.mutants` runs all
@pytest.mark.parametrize(
    ("name", "said"),
    {
        "static_expansion: rows taken to lie apart": "raised RuntimeError",
        "dynamic_expansion: epsilon 1e-8": "error",
        "dynamic_expansion: a token sees the next one": "earlier outputs",
        "multi_head_attention: float16 inside float32": "error",
        "beam_search: hypotheses compete by their score": "hypothesis 1: word 1",
        "layer_norm: is wrong in call 40 alone": "in run 40 of the check, in a fresh process",
        "layer_norm: is wrong in its first call alone": "",
        "layer_norm: is wrong 1 in 10": "not deterministic: failed in",
        "layer_norm: searches the heap for the answer": "",
        "layer_norm: one buffer for all its results": "its last result again",
        "layer_norm: activations kept by shape, which the next call overwrites": "gradient",
        "layer_norm: saves for backward where the next call writes": "",
    }.items(),
)
def test_mutants_are_caught_and_their_cases_paste(name, said, tmp_path):
    (mutant,) = [mutant for mutant in (*SLIPS, *CHEATS, *GRADIENTS) if mutant.name == name]
    verdict = caught(mutant, tmp_path)
    assert verdict.status == FAILED
    assert said in verdict.message
    if mutant in (*SLIPS, *GRADIENTS):
        with pytest.raises((AssertionError, CandidateError)):
            exec(compile(verdict.code, "<pasted>", "exec"), {})
