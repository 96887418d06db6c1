"""What strangers' candidates do: other sigmoids, masks, imports, warnings."""

import warnings
from functools import partial

import ml_dtypes
import numpy as np
import pytest
import torch

from benchmarks.cli.main import main
from benchmarks.verify.candidate import load, to_torch
from benchmarks.verify.hold import Verdict, clearest, resolve
from benchmarks.verify.operators import OPERATORS
from benchmarks.verify.properties import float_arrays, get
from benchmarks.verify.search import (
    SIMPLIFICATIONS,
    Failure,
    attempt,
    drawn,
    simplify,
)
from benchmarks.verify.smaller import AXES, smaller
from benchmarks.verify.tolerances import OutOfToleranceError
from tests.support.strangers import failed, verdicts


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_arrays_in_any_order_of_memory_go_to_torch(dtype):
    value = np.arange(6, dtype=dtype).reshape(2, 3)
    for view in (value[::-1], value.T, value[:, ::-2], value[0, 0, ...]):
        there = to_torch(view)
        assert there.shape == view.shape
        assert (there.numpy() == view).all()
    value.flags.writeable = False
    there = to_torch({"of": value})["of"]
    there += 1
    assert value[0, 0] == 0
    assert to_torch(value[::-1].astype(ml_dtypes.bfloat16)).dtype == torch.bfloat16


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
SIGMOIDS = {
    "tanh": "0.5 * (1 + np.tanh(x / 2))",
    "clipped": "1 / (1 + np.exp(-np.clip(x, -60, 60)))",
}


@pytest.mark.parametrize("name", SIGMOIDS)
def test_any_accurate_sigmoid_will_do(tmp_path, name):
    text = STATIC.format(**PLAIN | {"sigmoid": SIGMOIDS[name]})
    assert not failed(verdicts(tmp_path, "static_expansion", text, 100))


def test_an_inaccurate_sigmoid_will_not(tmp_path):
    text = STATIC.format(**PLAIN | {"sigmoid": "1 / (1 + np.exp(-np.clip(x, -20, 20)))"})
    assert "huge" in failed(verdicts(tmp_path, "static_expansion", text, 100))


def test_what_overflows_inside_a_candidate_is_not_said(tmp_path):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert not failed(verdicts(tmp_path, "static_expansion", STATIC.format(**PLAIN)))
    assert not said


ATTENTION = """
def f(X, Y, parameters, num_heads, causal):
    def heads(x, name):
        x = x @ parameters[name + ".weight"].T + parameters[name + ".bias"]
        return x.reshape(len(x), num_heads, -1).transpose(1, 0, 2)
    Q, K, V = heads(X, "query"), heads(Y, "key"), heads(Y, "value")
    scores = Q @ K.transpose(0, 2, 1) / Q.shape[-1] ** 0.5
    if causal:
        scores = np.where(np.tri(len(X), len(Y), {k}) > 0, scores, -1e30)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights = weights / weights.sum(-1, keepdims=True)
    A = (weights @ V).transpose(1, 0, 2).reshape(len(X), -1)
    def linear(x, name):
        return x @ parameters[name + ".weight"].T + parameters[name + ".bias"]
    if "out.weight" in parameters:
        return linear(A, "out")
    both = np.concatenate([A, Q.transpose(1, 0, 2).reshape(len(X), -1)], axis=1)
    return linear(both, "information") * (0.5 + 0.5 * np.tanh(linear(both, "gate") / 2))
"""


@pytest.mark.parametrize("operator", ["multi_head_attention", "attention_on_attention"])
def test_a_mask_aligned_with_the_last_key_is_wrong_across_lengths(tmp_path, operator):
    assert not failed(verdicts(tmp_path, operator, ATTENTION.format(k="0"), 100))
    found = verdicts(tmp_path, operator, ATTENTION.format(k="max(0, len(Y) - len(X))"))
    assert "equals_oracle" in failed(found)
    assert "causal = True" in found["equals_oracle"].code


def test_the_contracts_say_psis_epsilon():
    for name in ("static_expansion", "dynamic_expansion"):
        assert "sum plus an epsilon of 1e-9" in OPERATORS[name].about


def test_a_candidate_may_import_its_neighbours_while_it_runs(tmp_path):
    (tmp_path / "late_neighbour.py").write_text("def f(X): return X * 1\n")
    text = "def f(X, parameters):\n    from late_neighbour import f\n    return f(X)\n"
    (tmp_path / "late_stranger.py").write_text(text)
    found = resolve(f"{tmp_path}/late_stranger.py:f", OPERATORS["layer_norm"], None, "cpu")
    assert found(np.ones(2), {}).tolist() == [1, 1]
    assert load(f"{tmp_path}/late_stranger.py:f").like(found.function)(np.ones(1), {}) == [1]


@pytest.mark.parametrize(
    ("slip", "shape"),
    [
        ({"total": "(total + 1e-12)"}, (1, 1)),
        ({"total": "np.maximum(total, 1e-9)"}, (1, 1)),
        ({"scaled": ""}, (1, 2)),  # of one channel the root is 1
    ],
)
def test_the_printed_case_is_as_small_as_the_slip_allows(tmp_path, capsys, slip, shape):
    """What shows plainly only where products are tiny is printed from there."""
    path = tmp_path / "stranger.py"
    path.write_text("import numpy as np\n" + STATIC.format(**PLAIN | slip))
    assert main(["verify", "--candidate", f"{path}:f", "--operator", "static_expansion"]) == 1
    printed = capsys.readouterr().out
    assert "the smallest case found on which tiny fails" in printed
    code = printed.split("for a test:\n\n")[1].rsplit("\n\n", 1)[0]
    scope = {}
    with pytest.raises(OutOfToleranceError):
        exec(compile(code, "<pasted>", "exec"), scope)
    assert scope["X"].shape == shape
    assert scope["groups"] == (1,)
    entries = np.concatenate([array.ravel() for array in scope["parameters"].values()])
    assert np.count_nonzero((entries != 0) & (entries != 1)) == 1


def test_of_failed_properties_a_plain_one_is_shown_then_the_smallest():
    small_but_off = Verdict("a", "", False, plain=False, numbers=1)
    large, small = (Verdict(str(n), "", False, plain=True, numbers=n) for n in (9, 4))
    assert clearest([small_but_off, large, small]) is small
    assert clearest([small_but_off]) is small_but_off


@pytest.mark.parametrize("name", OPERATORS)
def test_smaller_cases_are_cases_too(name):
    operator = OPERATORS[name]
    for prop in operator.properties:
        names = [*operator.arguments, *(["lengths"] if prop.needs == "lengths" else [])]
        for case in drawn(prop.cases, 10):
            for less in smaller(name, names, case):
                assert Failure(less, "", "").numbers < Failure(case, "", "").numbers
                assert len(less) == len(case)
                if prop.needs == "":
                    assert attempt(prop.check, operator.oracle, operator.oracle, less) is None
                elif prop.needs == "lengths":
                    *sequences, lengths = less
                    assert len(lengths) == len(sequences[0])
                    assert lengths.max() <= sequences[operator.sequences - 1].shape[1]
                    alone = [array[0] for array in sequences[: operator.sequences]]
                    operator.oracle(*alone, *sequences[operator.sequences :])


@pytest.mark.parametrize("name", AXES)
def test_what_fails_everywhere_fails_on_the_smallest_case_there_is(name):
    operator = OPERATORS[name]
    for case in drawn(operator.cases, 5):
        least = simplify(case, lambda case: True, partial(smaller, name, operator.arguments))
        assert least[0].shape == (1, 1)
        assert all(np.isin(get(least, place), (0, 1)).all() for place in float_arrays(least))
        if name == "static_expansion":
            assert least[2] in ((1,), (1, 1))


def test_simplifying_keeps_to_its_budget():
    (case,) = drawn(OPERATORS["layer_norm"].cases, 1)
    calls = []

    def fails(case):
        calls.append(case)
        return True

    simplify(case, fails, lambda case: [case])
    assert len(calls) == SIMPLIFICATIONS
