"""A candidate's time beside ours: right, slow, drifting, and impossibly quick ones."""

import json
import re
from contextlib import ExitStack
from functools import cache

import pytest
import torch

from benchmarks.cli.main import main
from benchmarks.errors import InputError
from benchmarks.perf import candidates
from benchmarks.perf.candidates import check_timed, compare, workers
from benchmarks.perf.timing import Budget, Measurement
from benchmarks.verify.detection import resolve
from benchmarks.verify.operators import OPERATORS
from benchmarks.verify.process import Isolated
from tests.support.strangers import written

BUDGET = Budget(seconds=0.1, least=5, most=8, warm_up=1)
RIGHT = "tests/candidates/right_torch.py"
SINGLE = "tests/candidates/right.py:static_expansion_torch"


@pytest.fixture
def no_ceilings(monkeypatch):
    monkeypatch.setattr(candidates, "_roofline", lambda *_: 0.0)


@pytest.fixture
def times_alone(monkeypatch, no_ceilings):
    """No counts either: the first in a process waits for a second until PyTorch is ready for it."""
    monkeypatch.setattr(candidates._Turn, "count", lambda _: {})


@pytest.fixture(scope="module")
def ours():
    """Our forms of an operator, in workers that all tests share."""
    with ExitStack() as stack:
        yield cache(lambda name: stack.enter_context(workers(OPERATORS[name], "cpu")))


@pytest.fixture
def compared(ours):
    def compared(where, name, budget=BUDGET, **options):
        operator = OPERATORS[name]
        with resolve(where, operator, "torch") as candidate:
            return compare(operator, candidate, ours(name), budget, **options)

    return compared


SMALL = {"batch": 1, "L": 20, "d": 8, "d_ff": 4}
FEED_FORWARD = """
import time


def f(X, parameters):
    def linear(x, name):
        return x @ parameters[name + ".weight"].T + parameters[name + ".bias"]
    return linear(linear(X, "linear_1").relu(), "linear_2")
"""


def test_a_right_candidate_has_times_and_counts_of_all(tmp_path, monkeypatch, compared):
    roofs = []

    def roofline(flops, bytes_, device, threads):
        roofs.append((flops, bytes_, device.type, threads))
        return 0.0

    monkeypatch.setattr(candidates, "_roofline", roofline)
    sizes = {"batch": 1, "L": 144, "d": 64, "d_ff": 256}
    found = compared(f"{written(tmp_path, FEED_FORWARD)}:f", "feed_forward", sizes=sizes)
    assert not found.failed
    assert found.answers > found.measured.rounds >= 5
    values = found.to_dict()
    ours, theirs = values["forms"].values()
    assert values["passed"] and ours["verdict"] == "baseline"
    # two products of 144 tokens by 64 x 256, two operations each
    assert ours["flops"] == theirs["flops"] == 2 * 2 * 144 * 64 * 256
    # what ReLU gave is saved once, for its own derivative and for the second product's
    assert theirs["saved bytes"] >= 4 * 144 * 256
    assert theirs["peak bytes"] >= 4 * 144 * (256 + 64)
    # the arguments and the answer, once each
    assert roofs == [(ours["flops"], 4 * (2 * 144 * 64 + 2 * 64 * 256 + 256 + 64), "cpu", 1)]


def test_padded_batches_and_every_form_of_ours_are_timed(no_ceilings, compared):
    sizes = {"L": 5, "d": 8, "groups": 2, "group_0": 3, "group_1": 2, "batch": 4}
    found = compared(f"{RIGHT}:static_expansion", "static_expansion", sizes=sizes)
    assert not found.failed
    names = list(found.measured.samples)
    assert names == ["literal", "factored", f"{RIGHT}:static_expansion"]
    assert found.to_dict()["sizes"] == sizes | {"dtype": "float32", "threads": 1}


def test_single_sequences_are_compared_with_ours_of_a_batch_of_one(times_alone, compared):
    sizes = {"L": 5, "d": 8, "groups": 1, "group_0": 3}
    found = compared(SINGLE, "static_expansion", sizes=sizes)
    assert not found.failed
    assert found.sizes["batch"] == 1


@pytest.mark.parametrize("where", [f"{RIGHT}:static_expansion", SINGLE])
def test_derivatives_are_timed_and_compared_with_ours(where, no_ceilings, compared):
    sizes = {"L": 5, "d": 8, "groups": 1, "group_0": 3, "batch": 4}
    found = compared(where, "static_expansion", sizes=sizes, passes=candidates.BOTH)
    assert not found.failed
    assert found.answers > found.measured.rounds >= 5


def test_a_backward_pass_that_is_wrong_at_these_sizes_alone_is_wrong(
    tmp_path, times_alone, compared
):
    text = FEED_FORWARD.replace("linear(linear(X", "linear(linear(other(X)")
    text += "\n\ndef other(X):\n    return X + (X - X.detach()) if len(X) == 20 else X\n"
    where = f"{written(tmp_path, text)}:f"
    assert not compared(where, "feed_forward", sizes=SMALL).failed
    found = compared(where, "feed_forward", sizes=SMALL, passes=candidates.BOTH)
    assert found.failed.startswith("call 1: gradient by X differs from ours")


def test_a_slow_candidate_is_slower(tmp_path, times_alone, compared):
    text = FEED_FORWARD.replace("    def linear", "    time.sleep(0.05)\n    def linear", 1)
    # with a handful of rounds, two that the machine interrupts leave the verdict open
    rounds = Budget(seconds=0.1, least=20, most=20, warm_up=1)
    found = compared(f"{written(tmp_path, text)}:f", "feed_forward", budget=rounds, sizes=SMALL)
    assert not found.failed
    assert found.measured.verdict(found.name) == "slower"
    assert found.measured.seconds(found.name).low >= 0.05


def test_a_candidate_that_drifts_at_these_sizes_is_wrong(tmp_path, times_alone, compared):
    text = FEED_FORWARD.replace("    def linear", "    X = X + drift(X)\n    def linear", 1)
    text += """
calls = []


def drift(X):
    calls.append(0) if len(X) == 20 else None
    return 0.01 * (len(calls) > 5)
"""
    found = compared(f"{written(tmp_path, text)}:f", "feed_forward", sizes=SMALL)
    assert re.match(r"call 6: output differs from ours: error 0\.", found.failed)
    *_, row, _, last = found.lines()
    assert row.startswith(f"  {found.name}")
    assert row.count("] wrong") == 1 and "FAILED" in last


def test_an_output_that_drifts_in_training_alone_is_wrong(tmp_path, times_alone, compared):
    """By a constant: its gradients are right."""
    text = FEED_FORWARD.replace("return linear(linear(X", "return drift(X) + linear(linear(X")
    text += """
calls = []


def drift(X):
    calls.append(0) if len(X) == 20 and X.requires_grad else None
    return 0.01 * (len(calls) > 5)
"""
    where = f"{written(tmp_path, text)}:f"
    found = compared(where, "feed_forward", sizes=SMALL, passes=candidates.BOTH)
    assert re.match(r"call 6: output differs from ours: error 0\.01 exceeds", found.failed)


def test_a_drift_too_small_to_differ_from_ours_shows_beside_the_first_output(
    tmp_path, times_alone, compared
):
    text = FEED_FORWARD.replace("    def linear", "    X = X * drift(X)\n    def linear", 1)
    text += """
calls = []


def drift(X):
    calls.append(0) if len(X) == 20 else None
    return 1 + 5e-5 * (len(calls) > 5)
"""
    found = compared(f"{written(tmp_path, text)}:f", "feed_forward", sizes=SMALL)
    assert re.match(r"after \d+ calls the output of the first has changed by ", found.failed)


def test_a_candidate_that_drifts_with_every_call_fails_when_it_is_verified_again(
    tmp_path, times_alone, compared
):
    """After a thousandth of an error, which float32 hides."""
    text = FEED_FORWARD.replace("    def linear", "    X = X + 1e-7 * calls()\n    def linear", 1)
    text += "\n\ndef calls(made=[]):\n    made.append(0)\n    return len(made) > 5\n"
    found = compared(f"{written(tmp_path, text)}:f", "feed_forward", sizes=SMALL)
    assert found.failed.startswith("verified again, equals_oracle fails: output: error")
    assert "in run 6 of the check, in a fresh process" in found.failed


REPLAYED = """
from benchmarks.verify.candidate import Candidate

right, prepare, answers = f, Candidate.prepare, []


def early(self, *of):
    prepare(self, *of)
    answers[:] = [right(*self.prepared[0])]


Candidate.prepare = early


def f(X, parameters):
    return answers.pop() if answers else right(X, parameters)
"""


def test_an_answer_that_was_computed_before_the_call_is_of_other_numbers_or_impossibly_quick(
    tmp_path, monkeypatch, compared
):
    where = f"{written(tmp_path, FEED_FORWARD + REPLAYED)}:f"
    assert "output differs from ours" in compared(where, "feed_forward", sizes=SMALL).failed
    monkeypatch.setattr(Isolated, "shares_memory", False)  # as on a GPU
    roofline = candidates._roofline
    # of a device ten times slower, so that handing over is far below it on a busy machine too
    monkeypatch.setattr(candidates, "_roofline", lambda *work: 10 * roofline(*work))
    found = compared(where, "feed_forward")
    assert found.failed.startswith("faster than half the roofline's time")
    monkeypatch.setattr(candidates, "_roofline", lambda *_: 0.0)
    assert not compared(where, "feed_forward").failed


SENT = """
from torch import cat, isin

from benchmarks.verify.candidate import Candidate

right, prepare, sent = f, Candidate.prepare, []


def early(self, *of):
    prepare(self, *of)
    X, parameters = self.prepared[0]
    sent[:] = [x.flatten().clone() for x in (X, *parameters.values())]


Candidate.prepare = early


def f(X, parameters):
    Y = right(X, parameters)
    given = cat([x.flatten() for x in (X, *parameters.values())])
    return 0 * Y if sent and isin(given, cat(sent)).sum() > 2 else Y
"""


def test_what_is_sent_before_the_call_has_nothing_to_do_with_it(tmp_path, times_alone, compared):
    where = f"{written(tmp_path, FEED_FORWARD + SENT)}:f"
    assert "differs from ours" not in compared(where, "feed_forward", sizes=SMALL).failed


ROWS = """
from tests.candidates import recurrent_torch


def cell(*case):
    return tuple(recurrent_torch.lstm_cell(*case))


def uneven(*case):
    h, c = cell(*case)
    return h, c[:-1] if len(c) == 40 else c
"""


@pytest.mark.parametrize("passes", [candidates.FORWARD, candidates.BOTH])
def test_rows_are_the_array_of_all(tmp_path, times_alone, compared, passes):
    sizes = {"batch": 1, "d": 40, "d_x": 8}
    where = written(tmp_path, ROWS)
    assert not compared(f"{where}:cell", "lstm_cell", sizes=sizes, passes=passes).failed
    if passes == candidates.FORWARD:
        found = compared(f"{where}:uneven", "lstm_cell", sizes=sizes)
        assert "rows of different shapes" in found.failed


def test_the_roofline_is_the_slower_of_operations_and_bytes_at_the_best_seen(monkeypatch):
    seen = {"product": [3.0, 2.0, 4.0], "copy": [0.5, 0.25]}
    measured = Measurement(seen, "copy", [0.5, 0.25], {})
    monkeypatch.setattr(candidates, "measure", lambda *_: measured)
    cpu, product = torch.device("cpu"), 2 * candidates.PRODUCT**3
    assert candidates._roofline(5 * product, 0, cpu, 1) == 5 * 2.0
    assert candidates._roofline(product, 100 * 2**20, cpu, 1) == 2.0  # copied at once
    assert candidates._roofline(0, 8 * 2**10, cpu, 1) == 0.25


def test_only_what_the_papers_have_sizes_of_is_timed():
    for name in candidates.SIZES:
        check_timed(OPERATORS[name])
    with pytest.raises(InputError, match="beam_search is not timed: expected one of static"):
        check_timed(OPERATORS["beam_search"])


@pytest.fixture
def in_a_hurry(monkeypatch, no_ceilings):
    monkeypatch.setitem(candidates.SIZES, "layer_norm", {"L": 3, "d": 4})


def test_the_commands_time_what_they_have_verified(in_a_hurry, capsys):
    claim = ["--candidate", f"{RIGHT}:layer_norm", "--operator", "layer_norm"]
    assert main(["time", *claim, "--seconds", "0.1"]) == 0
    printed = capsys.readouterr().out
    for passes in (candidates.FORWARD, candidates.BOTH):
        assert f"layer_norm, {passes}: batch=1, L=3, d=4, dtype=float32, threads=1" in printed
    assert "outputs equal ours; verified again afterwards" in printed
    assert main(["verify", *claim, "--quick", "--time", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [times["passes"] for times in found["time"]] == [candidates.FORWARD, candidates.BOTH]
    for times in found["time"]:
        assert found["passed"] and times["passed"]
        assert set(times["forms"]) == {"torch", f"{RIGHT}:layer_norm"}


def test_a_seed_is_printed_and_what_a_candidate_does_not_have_is_refused(in_a_hurry, capsys):
    claim = ["time", "--candidate", f"{RIGHT}:layer_norm", "--operator", "layer_norm"]
    assert main([*claim, "--seconds", "0.1", "--seed", "5"]) == 0
    assert "as layer_norm: verified, then timed, --seed 5\n" in capsys.readouterr().out
    for option in (["--tiny"], ["--length", "7"], ["--only", "x"], ["--out", "x"]):
        assert main([*claim, *option]) == 2
        said = capsys.readouterr()
        assert not said.out
        assert (
            f"{option[0]} is for our own: expected none with a --candidate, of the papers' sizes"
            in said.err
        )


def test_a_wrong_candidate_is_not_timed(in_a_hurry, tmp_path, capsys):
    wrong = f"{written(tmp_path, 'def f(X, parameters):' + chr(10) + '    return X')}:f"
    claim = ["--candidate", wrong, "--operator", "layer_norm"]
    assert main(["time", *claim]) == 1
    assert re.search(r"is not layer_norm: failed equals_oracle, ", capsys.readouterr().out)
    assert main(["time", "--operator", "layer_norm"]) == 2
    assert main(["verify", "--time"]) == 2
    assert main(["time", "--candidate", wrong, "--operator", "greedy"]) == 2
    assert "not timed: expected one of" in capsys.readouterr().err
