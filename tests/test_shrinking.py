"""Failing cases are shrunk to the smallest that fail, and say how often they do."""

import dataclasses
import operator
import random
from pathlib import Path

import numpy as np
import pytest

from benchmarks.verify import search, shrink
from benchmarks.verify.attempt import Attempt, Failure
from benchmarks.verify.candidate import Candidate
from benchmarks.verify.cases import float_arrays, get
from benchmarks.verify.draw import Draw
from benchmarks.verify.operators import OPERATORS, Property
from benchmarks.verify.properties import UndecidedError
from benchmarks.verify.tolerances import OutOfToleranceError
from tests.candidates import right_words
from tests.support.strangers import failed, verdicts


@pytest.mark.parametrize("name", OPERATORS)
def test_simpler_choices_give_cases_too(name):
    operator = OPERATORS[name]
    for seed in range(5):
        draw = Draw(seed)
        operator.case(draw)
        for chosen in draw.simpler():
            simpler = Draw(seed, **chosen)
            operator.oracle(*operator.case(simpler))
            assert simpler.chosen != draw.chosen


def everywhere(name):
    """An attempt at a check that always fails."""

    def check(candidate, oracle, case):
        raise AssertionError

    return Attempt(Property("", check), OPERATORS[name], Candidate(print))


@pytest.mark.parametrize("name", ["static_expansion", "multi_head_attention", "captioner"])
def test_what_fails_everywhere_fails_on_the_smallest_case_there_is(name):
    attempt = everywhere(name)
    for seed in range(5):
        draw = Draw(seed)
        case = attempt.operator.case(draw)
        least = shrink.shrink(attempt, Failure(case, "wrong", "", draw))
        assert least.case[0].shape == (1, 1)
        assert all(
            np.isin(get(least.case, place), (0, 1)).all() for place in float_arrays(least.case)
        )


def test_a_failure_whose_case_is_undecided_afterwards_is_a_failure():
    outcomes = iter([AssertionError("wrong")])

    def check(candidate, oracle, case):
        raise next(outcomes, UndecidedError())

    candidate = Candidate(lambda X, parameters: X)
    attempt = Attempt(Property("", check), OPERATORS["layer_norm"], candidate)
    found = search.search(attempt, iter([Draw(0)])).failure
    said = "not deterministic, or dependent on many earlier calls: failed once, and not again"
    assert found.message == f"{said}: wrong"


@pytest.mark.parametrize("rate", [0.5, 0.1, 0.02])
@pytest.mark.parametrize("seed", range(5))
def test_a_failure_that_does_not_always_come_again_says_how_often_it_did(rate, seed):
    coins, outcomes, first = random.Random(seed), [], []

    def check(candidate, oracle, case):
        failed = not outcomes or coins.random() < rate
        if not first or all(map(operator.is_, case, first)):
            first[:] = case
            outcomes.append(failed)
        assert not failed

    attempt = dataclasses.replace(everywhere("layer_norm"), prop=Property("", check))
    attempt = dataclasses.replace(attempt, candidate=Candidate(lambda X, parameters: X))
    found = search.search(attempt, iter([Draw(0)])).failure
    again, said = (
        sum(outcomes[1:]),
        "not deterministic, or dependent on many earlier calls: failed ",
    )
    if again:
        said = f"not deterministic: failed in {again} of {len(outcomes) - 1} further runs"
    assert found.message.startswith(said), found.message
    assert len(outcomes) > search.REPEATS


def test_shrinking_keeps_to_its_budget():
    calls = []

    def check(candidate, oracle, case):
        calls.append(case)
        raise AssertionError

    attempt = dataclasses.replace(everywhere("layer_norm"), prop=Property("", check))
    draw = Draw(0, L=200, d=512)
    shrink.shrink(attempt, Failure(attempt.operator.case(draw), "wrong", "", draw))
    assert len(calls) <= shrink.ATTEMPTS


def test_a_failure_at_a_large_size_is_shrunk_to_the_smallest_that_fails(tmp_path):
    text = """
def f(X, parameters):
    X = X - X.mean(-1, keepdims=True)
    Y = X / np.sqrt((X * X).mean(-1, keepdims=True) + 1e-5) * parameters["weight"]
    Y = Y + parameters["bias"]
    Y[16:] = 0
    return Y
"""
    found = verdicts(tmp_path, "layer_norm", text, only=("equals_oracle", "large"))
    assert "equals_oracle" not in failed(found)
    scope = {}
    with pytest.raises(OutOfToleranceError):
        exec(compile(found["large"].code, "<pasted>", "exec"), scope)
    assert scope["X"].shape == (17, 1)


def test_a_failure_of_two_large_sizes_is_shrunk_to_both():
    def check(candidate, oracle, case):
        assert min(case[0].shape) <= 32

    attempt = dataclasses.replace(everywhere("layer_norm"), prop=Property("", check))
    draw = Draw(0, L=200, d=512)
    least = shrink.shrink(attempt, Failure(attempt.operator.case(draw), "wrong", "", draw))
    assert least.case[0].shape == (33, 33)


def test_the_tail_of_a_vocabulary_is_shrunk_to_its_first_word(tmp_path, monkeypatch):
    monkeypatch.setattr(shrink, "SECONDS", 120.0)  # on a busy machine too
    text = """
def f(log_probs, words):
    is_whole = (words < 4096) | (log_probs.shape[1] <= 4096)
    return log_probs[np.arange(len(words)), words][is_whole].sum()
"""
    found = verdicts(tmp_path, "sentence_log_probability", text, only=("large",))
    scope = {}
    with pytest.raises(OutOfToleranceError):
        exec(compile(found["large"].code, "<pasted>", "exec"), scope)
    assert scope["log_probs"].shape == (1, 4097)


def test_a_failure_of_long_captions_is_shrunk_to_one_caption(tmp_path, monkeypatch):
    monkeypatch.setattr(shrink, "SECONDS", 60.0)  # on a busy machine, too
    text = Path(right_words.__file__).read_text()
    text += "\n\ndef f(candidates, references):\n"
    text += "    return rouge_l([words[:32] for words in candidates], references)\n"
    found = verdicts(tmp_path, "rouge_l", text, only=("equals_oracle", "large"))
    assert "equals_oracle" not in failed(found)
    scope = {}
    with pytest.raises(OutOfToleranceError):
        exec(compile(found["large"].code, "<pasted>", "exec"), scope)
    ((words,), (of,)) = scope["candidates"], scope["references"]
    assert len(words) == 33
    assert [len(reference) for reference in of] == [1]
