"""``check`` in pytest: functions of any framework, closures too, in a process of their own."""

import importlib.util
import os
import random
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.errors import InputError
from benchmarks.verify import check
from benchmarks.verify.conformance import NOT_RUN, conformance_test, resolve
from benchmarks.verify.operators import OPERATORS
from benchmarks.verify.process import Limits
from tests.candidates import right, wrong


def test_a_right_function_passes_and_what_was_not_run_is_listed():
    found = check(right.static_expansion_torch, "static_expansion", examples=3)
    not_run = {verdict.name for verdict in found if verdict.status == NOT_RUN}
    assert "padded_batch" in not_run
    assert "gradient" not in not_run


def test_a_wrong_function_raises_with_its_case():
    with pytest.raises(AssertionError, match="static_expansion is not static_expansion") as caught:
        check(wrong.static_expansion, "static_expansion", examples=20, seed=0)
    text = str(caught.value)
    assert "groups = (1, 1)" in text
    assert "from tests.candidates.wrong import static_expansion" in text
    with pytest.raises(AssertionError, match="error"):
        exec(text[text.index("\n\n") :], {})


def test_a_closure_is_tested_too():
    epsilon = 1e-5

    def layer_norm(X, parameters):
        Y = X - X.mean(-1, keepdims=True)
        Y = Y / np.sqrt((Y * Y).mean(-1, keepdims=True) + epsilon)
        return Y * parameters["weight"] + parameters["bias"]

    check(layer_norm, "layer_norm", examples=5)
    epsilon = 1e-6
    with pytest.raises(AssertionError):
        check(layer_norm, "layer_norm", examples=5)


def test_bad_input_is_said():
    with pytest.raises(InputError, match="expected one of"):
        check(print, "nonsense")
    with pytest.raises(InputError, match="cannot be sent to another process"):
        check(threading.Lock().acquire, "layer_norm")
    with pytest.raises(InputError, match="expected \\(X, parameters\\)"):
        check(lambda X: X, "layer_norm")


def test_a_hang_ends_by_the_time_limit_and_nothing_else_is_tried():
    def sleeps(X, parameters):
        time.sleep(60)

    began = time.monotonic()
    with pytest.raises(AssertionError, match=r"did not answer within 0\.5 seconds"):
        check(sleeps, "layer_norm", framework="numpy", limits=Limits(seconds=0.5))
    assert time.monotonic() - began < 20


def layer_norm(X, parameters):
    return torch.nn.functional.layer_norm(
        X, X.shape[-1:], parameters["weight"], parameters["bias"], 1e-5
    )


def test_state_of_the_tests_process_is_left_alone():
    """A candidate's seeds, dtypes, threads and directory are those of its own process."""

    def meddles(X, parameters):
        torch.manual_seed(1)
        random.seed(1)
        os.environ["MEDDLED"] = "1"
        os.chdir("/")
        return layer_norm(X, parameters)

    before = torch.get_rng_state(), random.getstate(), Path.cwd()
    check(meddles, "layer_norm", examples=3)
    assert torch.equal(before[0], torch.get_rng_state())
    assert (random.getstate(), Path.cwd()) == before[1:]
    assert "MEDDLED" not in os.environ


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="JAX is not installed")
def test_jax_by_its_own_differentiation():
    def in_jax(X, parameters):
        import jax.numpy as jnp

        Y = X - jnp.mean(X, -1, keepdims=True)
        Y = Y / jnp.sqrt(jnp.mean(Y * Y, -1, keepdims=True) + 1e-5)
        return Y * parameters["weight"] + parameters["bias"]

    only = ("equals_oracle", "no_state", "float32", "gradient", "gradient_of_some")
    operator = OPERATORS["layer_norm"]
    with resolve(in_jax, operator, "jax") as candidate:
        found = list(conformance_test(operator, candidate, examples=2, only=only))
    assert [verdict.name for verdict in found if verdict.passed] == [*only]
