"""What strangers' candidates do: other sigmoids, masks, imports, warnings."""

import re
import warnings
from contextlib import suppress

import ml_dtypes
import numpy as np
import pytest
import torch

from benchmarks.verify import shrink
from benchmarks.verify.candidate import Candidate, CandidateError, load
from benchmarks.verify.conformance import FAILED, Verdict, clearest, conformance_test
from benchmarks.verify.conversion import from_numpy, to_numpy
from benchmarks.verify.detection import resolve
from benchmarks.verify.frameworks import NotAnArrayError, NumPy, Torch
from benchmarks.verify.operators import OPERATORS
from benchmarks.verify.process import Limits
from benchmarks.verify.shared import Shared
from benchmarks.verify.tolerances import OutOfToleranceError
from tests.support.strangers import failed, verdicts, written


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_arrays_in_any_order_of_memory_go_to_torch(dtype):
    value = np.arange(6, dtype=dtype).reshape(2, 3)
    for view in (value[::-1], value.T, value[:, ::-2], value[0, 0, ...]):
        for layout in ("plain", "strided"):
            there = Torch().from_numpy(view, layout)
            assert there.shape == view.shape
            assert (there.numpy() == view).all()
    value.flags.writeable = False
    there = from_numpy(Torch(), {"of": value})["of"]
    there += 1
    assert value[0, 0] == 0
    assert Torch().from_numpy(value[::-1].astype(ml_dtypes.bfloat16)).dtype == torch.bfloat16


@pytest.mark.parametrize("framework", [NumPy(), Torch()])
def test_layouts_are_what_they_are_called(framework):
    rows = np.broadcast_to(np.arange(3.0), (2, 3))
    strided, expanded = (framework.from_numpy(rows, layout) for layout in ("strided", "broadcast"))
    for given in (strided, expanded):
        assert np.asarray(given).tolist() == rows.tolist()
    assert np.asarray(strided).strides[-1] == 16
    assert np.asarray(expanded).strides[0] == 0


def test_results_are_taken_as_numpy_arrays():
    assert to_numpy(Torch(), {"a": torch.ones(1, dtype=torch.bfloat16)})["a"].dtype == np.float32
    assert isinstance(to_numpy(NumPy(), [torch.ones(1)])[0], np.ndarray)  # by DLPack

    class Lazy(torch.Tensor):
        pass

    for value in (
        torch.ones(2).as_subclass(Lazy),
        torch.ones(2).to_sparse(),
        np.matrix([1]),
        np.zeros(1, [("a", float)]),
        iter(""),
    ):
        with pytest.raises(NotAnArrayError):
            to_numpy(Torch(), value)


STATIC = """
def sigmoid(x): return {sigmoid}
def f(X, parameters, groups):
    def linear(name):
        return X @ parameters[name + ".weight"].T + parameters[name + ".bias"]
    M = parameters["query_vectors"] @ linear("key").T {scaled}
    gate, out, ends = sigmoid(linear("selector")), 0, np.cumsum(groups)
    for P, V, g in ((np.maximum(M, 0), "value_1", gate), (np.maximum(-M, 0), "value_2", 1 - gate)):
        F = psi(P) @ linear(V) + parameters["bias_vectors"]
        for end, size in zip(ends, groups):
            out = out + g * (psi(P[end - size:end].T) @ F[end - size:end]) / len(groups)
    return out
def psi(A):
    total = A.sum(1, keepdims=True)
    return A / {total}
"""
PLAIN = {
    "sigmoid": "1 / (1 + np.exp(-x))",
    "scaled": "/ X.shape[1] ** 0.5",
    "total": "(total + 1e-9)",
}
SIGMOIDS = (
    "1 / (1 + np.exp(-x))",  # which overflows
    "0.5 * (1 + np.tanh(x / 2))",
    "1 / (1 + np.exp(-np.clip(x, -60, 60)))",
)


@pytest.mark.parametrize("sigmoid", SIGMOIDS)
def test_any_accurate_sigmoid_will_do_and_what_overflows_is_not_said(tmp_path, sigmoid):
    text, only = STATIC.format(**PLAIN | {"sigmoid": sigmoid}), ("equals_oracle", "huge")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert not failed(verdicts(tmp_path, "static_expansion", text, 100, only))
    assert not [one for one in said if one.category is RuntimeWarning]


def test_a_candidate_may_import_its_neighbours_while_it_runs_too(tmp_path):
    (tmp_path / "late_neighbour.py").write_text("def f(X): return X * 1\n")
    (tmp_path / "neighbour.py").touch()
    text = "import neighbour\ndef f(X, _):\n    from late_neighbour import f\n    return f(X)\n"
    (tmp_path / "late_stranger.py").write_text(text)
    found = resolve(f"{tmp_path}/late_stranger.py:f", OPERATORS["layer_norm"], None, "cpu")
    assert found(np.ones(2), {}).tolist() == [1, 1]
    assert load(f"{tmp_path}/late_stranger.py:f")(np.ones(1), {}) == [1]


@pytest.mark.parametrize(
    ("slip", "shape"),
    [
        ({"total": "(total + 1e-12)"}, (1, 1)),
        ({"total": "np.maximum(total, 1e-9)"}, (1, 1)),
        ({"scaled": ""}, (1, 2)),  # of one channel the root is 1
    ],
)
def test_the_printed_case_is_as_small_as_the_slip_allows(tmp_path, slip, shape, monkeypatch):
    """What shows plainly only where products are tiny is printed from there."""
    monkeypatch.setattr(shrink, "SECONDS", 60.0)  # however busy the machine is
    text, only = STATIC.format(**PLAIN | slip), ("equals_oracle", "tiny", "float32")
    operator, where = OPERATORS["static_expansion"], f"{written(tmp_path, text)}:f"
    # called here: each failure is confirmed in fresh processes otherwise
    candidate = Candidate(load(where), arguments=operator.arguments)
    candidate.source = where
    found = conformance_test(operator, candidate, examples=24, only=only)
    scope = {}
    with pytest.raises(OutOfToleranceError):
        exec(compile(clearest([v for v in found if v.status == FAILED]).code, "", "exec"), scope)
    assert scope["X"].shape == shape
    assert scope["groups"] == (1,)
    entries = np.concatenate([array.ravel() for array in scope["parameters"].values()])
    assert np.count_nonzero((entries != 0) & (entries != 1)) == 1


def test_of_failed_properties_a_clear_one_is_shown_then_one_of_a_case_alone_then_the_smallest():
    small_but_off = Verdict("a", "", "failed", unclear=2, size=1)
    large, small = (Verdict(str(n), "", "failed", size=n) for n in (9, 4))
    smaller_with_another = Verdict("b", "", "failed", unclear=1, size=2)
    assert clearest([small_but_off, smaller_with_another, large, small]) is small
    assert clearest([small_but_off, smaller_with_another]) is smaller_with_another
    assert clearest([small_but_off]) is small_but_off


def test_a_module_s_case_pastes_in_another_folder(tmp_path, monkeypatch):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "clipping_of_mine.py").write_text(
        "def f(gradients, threshold):\n    return dict(gradients)\n"
    )
    operator = OPERATORS["clip_gradients"]
    monkeypatch.chdir(tmp_path)
    with resolve("clipping_of_mine:f", operator, "numpy") as candidate:
        (found,) = conformance_test(operator, candidate, examples=20, only=("equals_oracle",))
    monkeypatch.chdir(elsewhere)
    with pytest.raises(OutOfToleranceError):
        exec(compile(found.code, "<pasted>", "exec"), {})


def test_arguments_whose_start_ctrl_c_interrupted_are_dropped_in_silence():
    object.__new__(Shared).__del__()


@pytest.mark.parametrize(
    "framework, imports",
    [
        ("torch", "import torch"),
        ("torch", "from torch.autograd import Function"),
        ("numpy", "import math"),
    ],
)
def test_a_function_of_operators_alone_is_of_the_framework_that_its_file_imports(
    tmp_path, framework, imports
):
    path = tmp_path / "operators.py"
    path.write_text(f"{imports}\n\n\ndef f(y_hat, y):\n    return ((y_hat - y) ** 2).mean()\n")
    with resolve(f"{path}:f", OPERATORS["mse"]) as candidate:
        assert candidate.framework == framework


@pytest.mark.parametrize("framework, square", [("torch", "e * e"), ("numpy", "np.square(e)")])
def test_if_it_imports_two_a_function_is_of_the_one_in_which_it_has_a_gradient(
    tmp_path, framework, square
):
    text = f"def f(y_hat, y):\n    e = y_hat - y\n    return ({square}).mean()\n"
    with resolve(f"{written(tmp_path, text)}:f", OPERATORS["mse"]) as candidate:
        assert candidate.framework == framework


def test_a_backward_pass_that_raises_is_a_gradient(tmp_path):
    text = """
class F(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y_hat, y):
        return ((y_hat - y) ** 2).mean()

    @staticmethod
    def backward(ctx, upstream):
        return upstream

def f(y_hat, y):
    found = F.apply(torch.as_tensor(y_hat), torch.as_tensor(y))
    return found.numpy() if isinstance(y, np.ndarray) else found
"""
    found = verdicts(tmp_path, "mse", text, only=["equals_oracle", "gradient"])
    assert failed(found) == ["gradient"] and "number of gradients" in found["gradient"].message


SELDOM = """
import os, threading, time, weakref
from pathlib import Path

def seldom(*calls):
    count = Path(folder, "calls")
    count.open("a").write("x")
    return count.stat().st_size in calls
"""


def with_seldom(tmp_path, text):
    """With a function that says whether this call of all, in any process, is one of those."""
    return f"folder = {str(tmp_path)!r}\n{SELDOM}{text}"


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize(
    "first", ["raise ValueError", "return 2.0", "raise MemoryError", "time.sleep(100)"]
)
def test_first_calls_of_all_that_differ_are_a_failure(tmp_path, first, times):
    text = f"""
def f(y_hat, y):
    if seldom(*range({times + 1})):
        {first}
    return ((y_hat - y) ** 2).mean()
"""
    text, limits = with_seldom(tmp_path, text), Limits(seconds=1)
    found = verdicts(tmp_path, "mse", text, framework="numpy", limits=limits)
    (name,) = failed(found)
    assert found[name].message.startswith("not deterministic"), found[name].message


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize(
    "first", ["raise ValueError('cold')", "return 2 * upstream", "time.sleep(100)"]
)
def test_first_gradients_of_all_that_differ_are_a_failure(tmp_path, first, times):
    text = f"""
class F(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, upstream):
        if seldom(*range({times + 1})):
            {first}
        return upstream

def f(y_hat, y):
    of_numpy, y_hat, y = isinstance(y, np.ndarray), torch.as_tensor(y_hat), torch.as_tensor(y)
    found = F.apply(((y_hat - y) ** 2).mean())
    return found.numpy() if of_numpy else found
"""
    only, text = ["equals_oracle", "gradient"], with_seldom(tmp_path, text)
    found = verdicts(tmp_path, "mse", text, only=only, limits=Limits(seconds=2))
    (name,) = failed(found)
    assert "its first gradient" in found[name].message


def test_two_first_calls_that_raise_are_no_refusal_of_a_framework(tmp_path):
    text = """
def f(y_hat, y):
    if seldom(1, 2):
        raise ValueError("early")
    return ((y_hat - y) ** 2).mean()
"""
    found = verdicts(tmp_path, "mse", with_seldom(tmp_path, text), only=["equals_oracle"])
    said = "its first call with numpy's arrays, in two processes, was different from the next"
    assert f"{said}: raised ValueError: early" in found["equals_oracle"].message


@pytest.mark.parametrize("imported", ["import numpy as np", "import torch", ""])
@pytest.mark.parametrize("call", [1, 2, "1, 2", 3, 10])
@pytest.mark.parametrize("once", ["raise MemoryError", "raise ValueError", "time.sleep(100)"])
def test_what_fails_in_one_call_of_all_is_not_deterministic(tmp_path, once, call, imported):
    text = f"""{imported}
{SELDOM}
folder = {str(tmp_path)!r}

def f(y_hat, y):
    if seldom({call}):
        {once}
    return ((y_hat - y) ** 2).mean()
"""
    (tmp_path / "once.py").write_text(text)
    operator, only = OPERATORS["mse"], ("equals_oracle", "float32")
    with resolve(f"{tmp_path}/once.py:f", operator, limits=Limits(seconds=1)) as candidate:
        found = list(conformance_test(operator, candidate, examples=8, only=only))
    (message,) = [verdict.message for verdict in found if verdict.status == FAILED]
    assert message.startswith("not deterministic"), message


@pytest.mark.parametrize(
    ("then", "said"),
    [
        ("return Lazy(found)", "changed the global setting os.getcwd()"),
        (
            "if seldom(12): weakref.finalize(found, os.chdir, '/')",
            "changed the global setting os.getcwd()",
        ),
        ("os.fork()", "returned in a process that it forked, too"),
    ],
)
def test_what_a_call_does_afterwards_is_its_too(tmp_path, then, said):
    text = f"""
class Lazy:
    def __init__(self, value):
        self.value = value

    def __array__(self, dtype=None, copy=None):
        os.chdir("/")
        return np.asarray(self.value)

def f(X, parameters):
    centred = X - X.mean(1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5)
    found = scaled * parameters["weight"] + parameters["bias"]
    {then}
    return found
"""
    text = with_seldom(tmp_path, text)
    found = verdicts(tmp_path, "layer_norm", text, only=["equals_oracle"], framework="numpy")
    assert said in found["equals_oracle"].message


def test_the_case_of_a_full_file_has_the_limit_too(tmp_path):
    text = """
def f(y_hat, y):
    with open(f"{folder}/large", "wb") as file:
        file.truncate(2**31)
    return ((y_hat - y) ** 2).mean()
"""
    found = verdicts(tmp_path, "mse", with_seldom(tmp_path, text), framework="numpy")
    assert "its limit is 1 GiB in a file, or printed in a call" in found["equals_oracle"].message
    with pytest.raises(CandidateError, match="1 GiB"):
        exec(compile(found["equals_oracle"].code, "<pasted>", "exec"), {})


def test_the_case_of_what_starts_processes_has_their_limits_too(tmp_path):
    text = """
import subprocess, sys

def f(y_hat, y):
    subprocess.run([sys.executable, "-c", "bytearray(2**30)"], check=True)
    return ((y_hat - y) ** 2).mean()
"""
    limits = Limits(memory=2**29)
    found = verdicts(
        tmp_path, "mse", text, only=["equals_oracle"], framework="numpy", limits=limits
    )
    with pytest.raises(CandidateError, match="CalledProcessError"):
        exec(compile(found["equals_oracle"].code, "<pasted>", "exec"), {})


def test_what_is_printed_has_no_limit_and_control_characters_are_written_out(tmp_path):
    text = """
def f(y_hat, y):
    print("x" * 2**24)
    if len(y) > 100:
        raise ValueError("\\033[2J")
    return ((y_hat - y) ** 2).mean()
"""
    with resolve(f"{written(tmp_path, text)}:f", OPERATORS["mse"]) as candidate:
        for _ in range(80):
            assert candidate(np.zeros(2), np.ones(2)) == 1
        with pytest.raises(CandidateError, match=r"raised ValueError: \\x1b\[2J"):
            candidate(np.zeros(101), np.ones(101))


CACHED = """
import numpy as np
widths = {}

def f(X, parameters):
    d = widths.setdefault(len(X), X.shape[1])
    if d > X.shape[1]:
        d = X.shape[1]
    centred = X - X[:, :d].mean(1, keepdims=True)
    deviation = np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5)
    return centred / deviation * parameters["weight"] + parameters["bias"]
"""


def test_what_depends_on_an_earlier_case_is_printed_with_it(tmp_path):
    """A size kept by another size: no single case fails in a fresh process."""
    operator, where = OPERATORS["layer_norm"], f"{written(tmp_path, CACHED)}:f"
    for seed in range(3):
        with resolve(where, operator) as candidate:
            only = ("equals_oracle",)
            (found,) = conformance_test(operator, candidate, seed=seed, only=only)
        assert "in a fresh process after an earlier case" in found.message
        assert found.code.endswith("check_earlier(case_earlier)\ncheck(case)")
        with pytest.raises(OutOfToleranceError):
            exec(compile(found.code, "<pasted>", "exec"), {})


IN_BACKWARD = """
import torch

def shares(x, kept={}):
    return kept.setdefault(len(x), 1 / x.shape[1])

class Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, X, weight, bias):
        centred = X - X.mean(1, keepdim=True)
        scale = (centred.square().mean(1, keepdim=True) + 1e-5).rsqrt()
        ctx.save_for_backward(centred * scale, scale, weight)
        return centred * scale * weight + bias

    @staticmethod
    def backward(ctx, dY):
        x, scale, weight = ctx.saved_tensors
        g, share = dY * weight, shares(x)
        mean, along = (y.sum(1, keepdim=True) * share for y in (g, g * x))
        return scale * (g - mean - x * along), (dY * x).sum(0), dY.sum(0)

def f(X, parameters):
    return Norm.apply(X, parameters["weight"], parameters["bias"])
"""


def test_what_an_earlier_backward_pass_leaves_behind_is_printed_with_its_case(tmp_path):
    """Of another property, too."""
    operator, where = OPERATORS["layer_norm"], f"{written(tmp_path, IN_BACKWARD)}:f"
    with resolve(where, operator, "torch") as candidate:
        only = ("equals_oracle", "gradient", "gradient_used_twice")
        verdicts = conformance_test(operator, candidate, seed=1, only=only)
        found = [one for one in verdicts if one.status == FAILED]
    assert found
    for one in found:
        assert "in a fresh process after an earlier case" in one.message
        with pytest.raises(OutOfToleranceError):
            exec(compile(one.code, "<pasted>", "exec"), {})


FIRST_FLAG = """
import numpy as np
flags = []

def f(X, parameters):
    flags.append(len(X) > 1)
    if len(flags) > 20 and flags[0] != flags[-1]:
        return X
    centred = X - X.mean(1, keepdims=True)
    deviation = np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5)
    return centred / deviation * parameters["weight"] + parameters["bias"]
"""


def test_what_depends_on_many_earlier_cases_is_printed_with_them(tmp_path):
    operator, where = OPERATORS["layer_norm"], f"{written(tmp_path, FIRST_FLAG)}:f"
    with resolve(where, operator) as candidate:
        (found,) = conformance_test(operator, candidate, seed=3, only=("equals_oracle",))
    assert re.search(r"in a fresh process after \d+ earlier cases", found.message)
    with pytest.raises(OutOfToleranceError):
        exec(compile(found.code, "<pasted>", "exec"), {})


BY_IDENTITY = """
import torch
kept = {}

def f(X, parameters):
    w = parameters["weight"]
    key = id(w), w._version, w.shape, w.dtype
    if key not in kept:
        kept[key] = w.detach().clone()
    return torch.nn.functional.layer_norm(X, X.shape[-1:], kept[key], parameters["bias"])
"""


def test_a_cache_by_an_identity_that_memory_gives_again_is_printed_among_other_calls(tmp_path):
    operator, where = OPERATORS["layer_norm"], f"{written(tmp_path, BY_IDENTITY)}:f"
    with resolve(where, operator, "torch") as candidate:
        (found,) = conformance_test(operator, candidate, seed=3, only=("equals_oracle",))
    assert found.status == FAILED

    def fails():
        with suppress(OutOfToleranceError):
            exec(compile(found.code, "<pasted>", "exec"), {})
            return False
        return True

    assert any(fails() for _ in range(5))  # where memory lies is chance
