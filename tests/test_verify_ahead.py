"""While the worker works on a case, the test process prepares the next one."""

import os
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from benchmarks.verify.attempt import Trial
from benchmarks.verify.candidate import CandidateError
from benchmarks.verify.conformance import conformance_test
from benchmarks.verify.detection import resolve
from benchmarks.verify.draw import Draw
from benchmarks.verify.operators import OPERATORS
from benchmarks.verify.process import Limits
from tests.support.strangers import written

SLOW = """
import time

def layer_norm(X, parameters):
    time.sleep(0.002)
    {}
    return torch.nn.functional.layer_norm(X, X.shape[-1:], parameters["weight"], parameters["bias"])
"""

RIGHT, WRONG = "", "X = X.flip(0) if len(X) > 5 else X"

ONLY = ("equals_oracle", "large", "no_state", "gradient", "gradient_of_sum", "gradient_float32")
OF_SHRINKING = {"message": "", "code": "", "size": 0, "worst": 0.0, "bound": 0.0}
"""What depends on how far a case was shrunk in the time for it."""


def compared(verdict):
    """What of a verdict is the same in each run."""
    return replace(verdict, seconds=0.0, **({} if verdict.passed else OF_SHRINKING))


@pytest.mark.parametrize("is_right", [True, False])
def test_what_is_computed_ahead_changes_no_verdict(tmp_path, monkeypatch, is_right):
    of, steps, ahead = OPERATORS["layer_norm"], [], Trial.ahead
    where = f"{written(tmp_path, SLOW.format(RIGHT if is_right else WRONG))}:layer_norm"

    def counted(trial):
        for step in ahead(trial):
            steps.append(trial)
            yield step

    found, how = [], {"examples": 6, "seed": 3, "is_project": True, "only": ONLY}
    for each in (counted, lambda _: iter(())):
        monkeypatch.setattr(Trial, "ahead", each)
        with resolve(where, of) as candidate:
            verdicts = conformance_test(of, candidate, **how)
            found.append([compared(verdict) for verdict in verdicts])
    assert found[0] == found[1]
    assert all(verdict.status != "failed" for verdict in found[0]) == is_right
    assert steps  # else this tests nothing


def test_an_answer_that_came_in_time_is_in_time(tmp_path):
    """However long the test process was at work meanwhile; a hang is one as before."""
    text = "import time\ndef f(X, parameters):\n    time.sleep(len(X) - 1)\n    return X\n"
    of = OPERATORS["layer_norm"]
    short, long = (of.case(Draw(0, L=rows, d=2)) for rows in (1, 3))
    with resolve(f"{written(tmp_path, text)}:f", of, "numpy", limits=Limits(0.5)) as candidate:
        candidate.meanwhile = (time.sleep(1.0) for _ in range(1))
        assert candidate(*short).shape == (1, 2)
        candidate.meanwhile = (time.sleep(0.7) for _ in range(5))
        began = time.monotonic()
        with pytest.raises(CandidateError, match=r"did not answer within 0\.5 seconds"):
            candidate(*long)
        assert time.monotonic() - began < 2  # no further step begins


def test_an_answer_that_waits_to_be_read_is_not_late(tmp_path):
    """The backward pass follows when the output, which is large, has been read."""
    text = """
import time, torch

class Slow(torch.autograd.Function):
    @staticmethod
    def forward(ctx, X):
        return X.clone()

    @staticmethod
    def backward(ctx, dY):
        time.sleep(0.3)
        return dY

def f(X, parameters):
    return Slow.apply(X)
"""
    of = OPERATORS["layer_norm"]
    X, parameters = of.case(Draw(0, L=1000, d=500))
    with resolve(f"{written(tmp_path, text)}:f", of, "torch", limits=Limits(1.0)) as candidate:
        candidate.meanwhile = (time.sleep(seconds) for seconds in (0.1, 2.0))
        (found,), _ = candidate.gradient((X, parameters), X, [(0, None)])
    assert (found == X).all()


@pytest.mark.skipif(sys.platform != "linux", reason="Linux says how long a process has waited")
def test_a_wait_for_a_busy_processor_is_not_counted(tmp_path):
    """Work of 0.8 seconds takes twice as long and more where others use its processor."""
    processor = min(os.sched_getaffinity(0))
    text = f"""
import os, time

def f(X, parameters):
    os.sched_setaffinity(0, [{processor}])
    end = time.process_time() + 0.8
    while time.process_time() < end:
        pass
    return X
"""
    busy = f"import os\nos.sched_setaffinity(0, [{processor}])\nwhile True:\n    pass"
    others, of = [], OPERATORS["layer_norm"]
    case = of.case(Draw(0, L=1, d=2))
    with resolve(f"{written(tmp_path, text)}:f", of, "numpy", limits=Limits(1.0)) as candidate:
        try:
            others += (subprocess.Popen([sys.executable, "-c", busy]) for _ in range(5))
            time.sleep(0.5)
            began = time.monotonic()
            assert candidate(*case).shape == (1, 2)
            assert time.monotonic() - began > 1.0
        finally:
            for other in others:
                other.kill()
                other.wait()
