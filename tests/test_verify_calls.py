"""What any one call of all returns is looked at."""

import functools
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.verify import conformance, search
from benchmarks.verify.candidate import Candidate
from benchmarks.verify.conformance import FAILED, conformance_test
from benchmarks.verify.operators import OPERATORS
from tests.candidates import recurrent, recurrent_torch, right_torch
from tests.support.strangers import failed, verdicts


class Wrong:
    """A function whose result is far off in one call of all; it counts its calls."""

    def __init__(self, function, at):
        self.function, self.at, self.calls = function, at, 0
        functools.update_wrapper(self, function)

    def __call__(self, *arguments):
        result = self.function(*arguments)
        self.calls += 1
        return 3 * result + 1000 if self.calls == self.at else result


def fails(operator, framework, function, seed):
    """Whether a property fails, all of whose cases are small or of a few tiles."""
    of = OPERATORS[operator]
    candidate = Candidate(function, framework, arguments=of.arguments)
    found = conformance_test(of, candidate, examples=4, seed=seed)
    return any(verdict.status == FAILED for verdict in found)


@pytest.mark.parametrize(
    ("operator", "framework", "function"),
    [
        ("layer_norm", "torch", right_torch.layer_norm),
        ("cross_entropy", "torch", right_torch.cross_entropy),
        ("lstm_cell", "torch", recurrent_torch.lstm_cell),
        ("lstm_cell", "numpy", recurrent.lstm_cell),
    ],
)
def test_a_wrong_result_of_any_one_call_is_seen(operator, framework, function, monkeypatch):
    monkeypatch.setattr(search, "_confirmed", lambda attempt, first, tested: first)
    monkeypatch.setattr(conformance, "snippet", lambda *_: "")
    right = Wrong(function, 0)
    assert not fails(operator, framework, right, seed=0)

    @settings(max_examples=8)
    @given(st.integers(1, right.calls))
    def in_call(n):
        wrong = Wrong(function, n)
        assert fails(operator, framework, wrong, seed=0) or wrong.calls < n

    in_call()


@pytest.mark.parametrize("when", ["converted", "freed"])
@pytest.mark.parametrize("seed", ["random.seed", "np.random.seed", "torch.manual_seed"])
def test_a_seed_that_is_set_when_a_result_is_read_is_seen(tmp_path, when, seed):
    text = f"""
import random, weakref

class Seeds:
    def __init__(self, value):
        self.value = value

    def __array__(self, *_, **__):
        {seed}(0)
        return self.value

def f(y_hat, y):
    result = np.array(((y_hat - y) ** 2).mean())
    if {when == "converted"}:
        return Seeds(result)
    weakref.finalize(result, {seed}, 0)
    return result
"""
    found = verdicts(tmp_path, "mse", text, only=("equals_oracle",), framework="numpy")
    assert "changed the global setting" in found["equals_oracle"].message


def test_words_are_whole_numbers_and_outputs_those_of_the_operator(tmp_path):
    text = """
from tests.candidates.decoding import greedy

def f(*case):
    return [([word + 0.5 for word in words], score) for words, score in greedy(*case)]
"""
    assert failed(verdicts(tmp_path, "greedy", text, only=("equals_oracle",)))
    text = """
from tests.candidates.optimisation import clip_gradients

def f(*case):
    return clip_gradients(*case) | {"more": np.zeros(2)}
"""
    found = verdicts(tmp_path, "clip_gradients", text, only=("equals_oracle",))
    assert "an output 'more', expected 'weight', 'bias'" in found["equals_oracle"].message


OF_EVERYBODY = """
import builtins, sys
import benchmarks.verify.worker
of = {n: vars(m) for n, m in sys.modules.items() if n.startswith("benchmarks.verify.")}
print(len(of), *(n for n, names in of.items() if names["__builtins__"] is vars(builtins)))
"""


def test_where_a_candidate_runs_no_module_of_the_kit_has_the_builtins_that_it_can_replace():
    command = [sys.executable, "-c", OF_EVERYBODY]
    number, *shared = subprocess.run(command, capture_output=True, text=True).stdout.split()
    assert int(number) > 10 and not shared
