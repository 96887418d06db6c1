"""``check`` in pytest: functions of any framework, closures too, in a process of their own."""

import importlib.util
import os
import random
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.errors import InputError
from benchmarks.verify import check, conformance
from benchmarks.verify.candidate import Candidate, CandidateError
from benchmarks.verify.conformance import FAILED, NOT_RUN, conformance_test
from benchmarks.verify.detection import resolve
from benchmarks.verify.operators import OPERATORS
from benchmarks.verify.process import Limits
from tests.candidates import odd, recurrent_torch, right, wrong
from tests.candidates.right_torch import layer_norm
from tests.support.strangers import written


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
    with pytest.raises(InputError, match="expected a name of"):
        check(print, "nonsense")
    with pytest.raises(InputError, match="cannot be sent to another process"):
        check(threading.Lock().acquire, "layer_norm")
    with pytest.raises(InputError, match="expected \\(X, parameters\\)"):
        check(lambda X: X, "layer_norm")


@pytest.mark.parametrize("framework", ["numpy", None])
def test_a_hang_ends_by_the_time_limit_and_nothing_else_is_tried(framework, tmp_path):
    """One call, one before it to be compared with that of another process, and one of its case."""

    def sleeps(X, parameters):
        with (tmp_path / "calls").open("a") as file:
            file.write("called\n")
        time.sleep(60)

    began = time.monotonic()
    with pytest.raises(AssertionError, match=r"did not answer within 0\.5 seconds"):
        check(sleeps, "layer_norm", framework=framework, limits=Limits(seconds=0.5))
    assert time.monotonic() - began < 20
    assert (tmp_path / "calls").read_text().count("called") == 4


def test_a_hang_on_tensors_is_no_failure_on_numpy_arrays():
    def sleeps(X, parameters):
        time.sleep(60 * X.relu().numel())

    with pytest.raises(AssertionError, match=r"did not answer within 0\.5 seconds"):
        check(sleeps, "layer_norm", limits=Limits(seconds=0.5))


def test_after_a_failure_and_the_time_the_rest_is_not_run(monkeypatch):
    monkeypatch.setattr(conformance, "PATIENCE", 0.0)
    candidate = Candidate(lambda X, parameters: X, "numpy")
    verdicts = conformance_test(OPERATORS["layer_norm"], candidate, examples=1)
    first, *others = verdicts
    assert first.status == FAILED
    assert {one.status for one in others} == {NOT_RUN}
    own = ("NumPy", "numpy")  # reasons that hold whatever fails
    said = {one.message for one in others if not one.message.startswith(own)}
    assert said == {"more than 0 s after the first failure"}


def test_the_limit_of_memory_ends_the_test_and_the_case_makes_as_many_calls():
    kept = []

    def keeps(X, parameters):
        kept.append(bytes(2**28))
        return layer_norm(X, parameters)

    operator, limits = OPERATORS["layer_norm"], Limits(memory=2**30)
    with resolve(keeps, operator, "torch", limits=limits) as candidate:
        first, *others = conformance_test(operator, candidate, examples=9)
    assert first.message == "raised MemoryError; its limit is 1 GiB of memory"
    assert {verdict.status for verdict in others} == {NOT_RUN}
    scope = {"given": keeps}
    with pytest.raises(CandidateError, match="raised MemoryError"):
        exec(first.code.replace("...", "given", 1), scope)


@pytest.mark.parametrize("function", [odd.leaves, odd.hangs_later, odd.caches])
def test_the_case_of_what_needs_a_process_or_other_calls_fails_too(function):
    limits, only = Limits(seconds=6.0), ("equals_oracle",)
    operator = OPERATORS["layer_norm"]
    with resolve(function, operator, "torch", limits=limits) as candidate:
        (found,) = conformance_test(operator, candidate, examples=50, only=only)
    alone = {"PYTHONPATH": os.pathsep.join(sys.path)}
    script = [sys.executable, "-c", found.code]
    ran = subprocess.run(script, env=os.environ | alone, capture_output=True, text=True)
    assert ran.returncode == 1
    assert "Error: " in ran.stderr.splitlines()[-1], found.code


def test_the_case_of_what_depends_on_hashes_fails_by_any():
    operator, only = OPERATORS["cider_d"], ("equals_oracle",)
    with resolve(odd.by_order, operator, "numpy") as candidate:
        candidate.once = ""  # so that it is tested on
        (found,) = conformance_test(operator, candidate, examples=50, only=only)
    assert found.status == FAILED
    for seed in range(3):
        of = {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": str(seed)}
        script = [sys.executable, "-c", found.code]
        ran = subprocess.run(script, env=os.environ | of, capture_output=True, text=True)
        assert ran.returncode == 1
        assert "Error: " in ran.stderr.splitlines()[-1], found.code


def test_a_first_gradient_that_another_process_orders_otherwise_differs():
    with resolve(odd.gradient_by_order, OPERATORS["layer_norm"], "torch") as candidate:
        assert candidate.once.startswith("its first gradient with torch's arrays was different")


def test_state_of_the_tests_process_is_left_alone(monkeypatch):
    """A candidate's seeds, dtypes, threads and directory are those of its own process."""
    monkeypatch.setattr(conformance, "PATIENCE", 1.0)

    def meddles(X, parameters):
        torch.manual_seed(1)
        random.seed(1)
        os.environ["MEDDLED"] = "1"
        os.chdir("/")
        return layer_norm(X, parameters)

    before = torch.get_rng_state(), random.getstate(), Path.cwd()
    said = r"changed the global setting os.getcwd\(\), torch.initial_seed\(\)"
    with pytest.raises(AssertionError, match=said):
        check(meddles, "layer_norm", examples=3)
    assert torch.equal(before[0], torch.get_rng_state())
    assert (random.getstate(), Path.cwd()) == before[1:]
    assert "MEDDLED" not in os.environ


def test_a_candidate_may_draw_warn_and_recurse_as_libraries_do():
    """What draws from global generators, and what PyTorch's compiler and an import do, is right."""

    def draws(X, parameters):
        np.random.standard_normal(3)  # noqa: NPY002
        random.random()
        warnings.simplefilter("always", np.exceptions.RankWarning)
        sys.setrecursionlimit(max(sys.getrecursionlimit(), 2000))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return layer_norm(X, parameters)

    operator, only = OPERATORS["layer_norm"], ("equals_oracle", "no_state")
    with resolve(draws, operator, "torch") as candidate:
        found = list(conformance_test(operator, candidate, examples=5, only=only))
    assert [verdict.name for verdict in found if verdict.passed] == [*only]


@pytest.mark.parametrize(
    "function", [odd.NAMELESS, partial(odd.of_one, 1), odd.Sums(), odd.Sums().method]
)
def test_the_case_of_what_has_no_name_to_import_has_a_copy_of_it(function, monkeypatch):
    monkeypatch.setattr(conformance, "PATIENCE", 0.0)
    with pytest.raises(AssertionError) as caught:
        check(function, "layer_norm", framework="numpy", examples=2)
    text = str(caught.value).partition("\n\n")[2]
    assert "a copy of yours, which cannot be imported by name" in text
    with pytest.raises(AssertionError, match="output"):
        exec(text, {})


def test_the_case_of_a_test_file_s_function_runs_in_any_folder(tmp_path):
    """As pytest imports it: a module in a folder that is on nobody else's path."""
    (tmp_path / "test_of_a_stranger.py").write_text(
        "from benchmarks.verify import check\n\n"
        "def add(X, parameters):\n    return X + 1\n\n"
        "def test_add():\n    check(add, 'layer_norm', framework='numpy', examples=2)\n"
    )
    alone = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    ran = subprocess.run([sys.executable, *words], env=alone, capture_output=True, text=True)
    lines = [line.removeprefix("E") for line in ran.stdout.splitlines() if line.startswith("E")]
    code = textwrap.dedent("\n".join(lines)).partition("\n\n")[2]
    assert "from test_of_a_stranger import add" in code, ran.stdout
    script = [sys.executable, "-c", code]
    ran = subprocess.run(script, env=alone, cwd="/", capture_output=True, text=True)
    assert "OutOfToleranceError: output" in ran.stderr.splitlines()[-1]


def test_an_answer_may_be_wider_than_its_arguments():
    def wide(X, parameters):
        return layer_norm(X.double(), {name: x.double() for name, x in parameters.items()})

    with resolve(wide, OPERATORS["layer_norm"], "torch") as candidate:
        run = partial(conformance_test, OPERATORS["layer_norm"], candidate, examples=5)
        assert all(verdict.passed for verdict in run(only=("equals_oracle", "float32", "gradient")))


def test_a_device_that_is_unavailable_is_no_fault_of_the_function():
    with pytest.raises(InputError, match="device 'nonsense': PyTorch cannot use it"):
        check(layer_norm, "layer_norm", device="nonsense")


def test_a_list_of_numbers_has_no_gradient_and_is_said_to_be_a_list():
    def lists(X, parameters):
        return layer_norm(X, parameters).tolist()

    with resolve(lists, OPERATORS["layer_norm"], "torch") as candidate:
        run = partial(conformance_test, OPERATORS["layer_norm"], candidate, examples=1)
        (found,) = run(only=("gradient",))
    assert found.message == "returned a list, expected an array"


def test_a_result_of_many_numbers_in_lists_is_read_in_time():
    def lists(X, parameters):
        return layer_norm(
            torch.tensor(X), {k: torch.tensor(x) for k, x in parameters.items()}
        ).tolist()

    limits = Limits(seconds=10)
    with resolve(lists, OPERATORS["layer_norm"], "numpy", limits=limits) as candidate:
        (found,) = conformance_test(OPERATORS["layer_norm"], candidate, only=("large",))
    assert found.passed


def test_a_pair_of_tensors_is_the_tensor_of_both():
    def pair(x, h, c, parameters):
        return recurrent_torch.lstm_cell(x, h, c, parameters).unbind()

    with resolve(pair, OPERATORS["lstm_cell"], "torch") as candidate:
        run = partial(conformance_test, OPERATORS["lstm_cell"], candidate, examples=5)
        found = list(run(only=("equals_oracle", "gradient", "gradient_used_twice")))
    assert all(verdict.passed for verdict in found)


class Released(torch.autograd.Function):
    """A product whose backward pass runs once."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.factors = [x, y]
        return x * y

    @staticmethod
    def backward(ctx, dz):
        if not ctx.factors:
            raise RuntimeError("a second backward pass, and what it needs is released")
        x, y = ctx.factors
        ctx.factors.clear()
        return dz * y, (dz * x).sum(0)


def test_a_second_backward_pass_is_not_asked_for():
    def once(X, parameters):
        ones = {name: torch.ones_like(array) for name, array in parameters.items()}
        plain = layer_norm(X, ones | {"bias": 0 * parameters["bias"]})
        return Released.apply(plain, parameters["weight"]) + parameters["bias"]

    operator = OPERATORS["layer_norm"]
    with resolve(once, operator, "torch") as candidate:
        assert all(verdict.passed for verdict in conformance_test(operator, candidate, examples=5))


IMPORTS_A_COMPILER = """
import torch

def sgd(theta, gradients, alpha):
    p = torch.nn.Parameter(theta.detach().clone())
    p.grad = gradients.detach().mean(0)
    torch.optim.SGD([p], lr=alpha).step()
    return p.detach()
"""


def test_what_pytorch_replaces_itself_when_its_compiler_is_imported_is_not_the_candidates(tmp_path):
    operator = OPERATORS["gradient_descent"]
    with resolve(f"{written(tmp_path, IMPORTS_A_COMPILER)}:sgd", operator, "torch") as candidate:
        assert all(verdict.passed for verdict in conformance_test(operator, candidate, examples=5))


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="JAX is not installed")
def test_jax_by_its_own_differentiation():
    def in_jax(X, parameters):
        import jax.numpy as jnp

        Y = X - jnp.mean(X, -1, keepdims=True)
        Y = Y / jnp.sqrt(jnp.mean(Y * Y, -1, keepdims=True) + 1e-5)
        return Y * parameters["weight"] + parameters["bias"]

    only = ("equals_oracle", "no_state", "float32", "gradient", "gradient_of_some")
    operator = OPERATORS["layer_norm"]
    with resolve(in_jax, operator) as candidate:
        assert candidate.framework == "jax"  # which its answer to NumPy's arrays tells
        found = list(conformance_test(operator, candidate, examples=2, only=only))
    assert [verdict.name for verdict in found if verdict.passed] == [*only]
