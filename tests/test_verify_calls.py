"""What any one call of all returns is looked at."""

import functools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.verify import conformance, search
from benchmarks.verify.candidate import Candidate
from benchmarks.verify.conformance import FAILED, conformance_test
from benchmarks.verify.operators import OPERATORS
from tests.candidates import recurrent, recurrent_torch, right_torch


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
