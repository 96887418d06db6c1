"""``captionbench verify`` of this project's own implementations, and how errors are measured."""

import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from benchmarks.cli.main import main
from benchmarks.verify import (
    chance,
    conformance,
    derivatives,
    differentiation,
    properties,
    shrink,
    table,
    tolerances,
)
from benchmarks.verify.candidate import Candidate
from benchmarks.verify.cases import rounded
from benchmarks.verify.detection import resolve
from benchmarks.verify.draw import Draw
from benchmarks.verify.operators import OPERATORS
from benchmarks.verify.precision import literal_limit
from benchmarks.verify.project import ProjectImplementation, implementations
from benchmarks.verify.rounding import HookedArray, perturbed
from reference.primitives import sigmoid
from tests.candidates import wrong


def test_twice_the_literal_form_s_roundings_and_2_are_the_limit_of_a_precision():
    operator = OPERATORS["static_expansion"]
    cases = [operator.case(Draw(i)) for i in range(20)]
    for dtype in ("float32", "bfloat16", "float16"):
        assert 2.1 < literal_limit(operator.oracle, cases, dtype) < 4
    assert literal_limit(np.negative, [(np.ones(3),)], "bfloat16") == 2


def test_a_case_on_a_jump_decides_nothing_and_does_not_widen_the_limit():
    """Psi of a sum that a rounding makes empty, or not; beside it a sum of any other size."""

    def psi(x, y, z):
        total = np.maximum(x + y, 0.0)
        return total / (total + 1e-9) * z

    near, far = ((np.array([1.0]), np.array([y]), np.ones(1)) for y in (-1 + 2.0**-6, -0.5))
    assert tolerances.near_discontinuity(psi, near, "bfloat16")
    assert not tolerances.near_discontinuity(psi, near, "float32")
    assert not tolerances.near_discontinuity(psi, far, "bfloat16")
    zero = Candidate(lambda x, y, z: z * 0)
    with pytest.raises(properties.UndecidedError):
        properties.equals_oracle(zero, psi, rounded(near, "bfloat16"), limit=3.0)
    with pytest.raises(tolerances.OutOfToleranceError):
        properties.equals_oracle(zero, psi, rounded(far, "bfloat16"), limit=3.0)
    assert literal_limit(psi, [near, far], "bfloat16") < 3


def test_a_bound_is_of_the_terms_and_not_of_what_is_left_of_them():
    """a + x - b, of equal a and b, is off by a rounding of a in another order."""
    x = np.array([2.0**-40])
    case = (np.array([1.0]), x, np.array([1.0]))

    def oracle(a, x, b):
        return a + x - b

    *_, (_, (bound,)) = tolerances.roundings(oracle, case, "float64")
    assert 1e-11 < bound < 1e-9
    tolerances.assert_conforms(x + 1e-12, oracle, case)
    for other in (x + 1e-8, x * np.nan, x + np.inf, np.zeros((1, 1)), (x, x)):
        with pytest.raises(AssertionError):
            tolerances.assert_conforms(other, oracle, case)
    with pytest.raises(tolerances.OutOfToleranceError):  # nothing cancels here
        tolerances.assert_conforms(x * (1 + 1e-8), lambda a, x, b: x, case)


def test_an_error_near_its_bound_is_a_failure_by_many_changes_alone(monkeypatch):
    """The first changes may all be small; an error far beyond the bound needs no others."""
    drawn, perturbed = [], tolerances.perturbed

    def small_at_first(oracle, case, unit, seed, *of):
        drawn.append(seed)
        return perturbed(oracle, case, unit / 50 if seed < tolerances.CHANGES else unit, seed, *of)

    monkeypatch.setattr(tolerances, "perturbed", small_at_first)
    case = (np.array([1.0]), np.array([2.0**-40]), np.array([1.0]))

    def oracle(a, x, b):
        return a + x - b

    tolerances.assert_conforms(oracle(*case) + 4e-11, oracle, case)
    assert len(set(drawn)) == tolerances.MORE_CHANGES
    drawn.clear()
    with pytest.raises(tolerances.OutOfToleranceError):
        tolerances.assert_conforms(oracle(*case) + 1e-6, oracle, case)
    assert len(set(drawn)) == tolerances.CHANGES


def test_several_outputs_are_compared_each():
    def oracle(x):
        return {"h": x, "c": 2 * x}

    case = (np.ones(2),)
    tolerances.assert_conforms({"c": 2 * np.ones(2), "h": np.ones(2)}, oracle, case)
    with pytest.raises(
        tolerances.OutOfToleranceError, match=r"output 'c': .* at \[1\]: 3, expected 2"
    ):
        tolerances.assert_conforms({"h": np.ones(2), "c": np.array([2, 3])}, oracle, case)
    with pytest.raises(AssertionError, match="no output 'c' among 'h', 'b'"):
        tolerances.assert_conforms({"h": np.ones(2), "b": np.ones(2)}, oracle, case)
    with pytest.raises(AssertionError, match="a ndarray, expected a mapping of 2"):
        tolerances.assert_conforms(np.ones(2), oracle, case)


@given(st.integers(0, 2**64 - 1))
def test_autograd_and_differences_agree_on_a_known_derivative(seed):
    """d/dt of sum w (x + t a)^2 is 2 sum w x a, and a kink has none."""
    chance.set_seed(seed)
    case = (np.array([0.5, -2.0, 3.0]),)
    along = derivatives.directions(np.square, case, by=(0,))
    weighted = derivatives.output_weights((3,)) * along[0, None]
    sums = [weighted * case[0], weighted, weighted[1:]]
    # terms that cancel have a derivative within the rounding error of its smallest step
    assume(all(abs(terms.sum()) > np.abs(terms).sum() / 32 for terms in sums))
    expected = 2 * sums[0].sum()
    square = Candidate(lambda x: x * x, "torch")
    slopes = derivatives.differences(lambda x: x * x, case, along)
    tolerances.assert_derivative(slopes, expected, "square")
    tolerances.assert_close(derivative(square, np.square, case, along), expected)
    with pytest.raises(properties.UndecidedError):
        derivatives.differences(lambda x: np.maximum(x, 0), (np.array([0.0, 1.0, 1.0]),), along)
    for nearby in (2.0**-21, -(2.0**-21)):  # on either side of the point
        of = np.array([nearby, 1.0, 1.0])
        found = derivatives.differences(lambda x: np.maximum(x, 0), (of,), along)
        tolerances.assert_derivative(found, (weighted * (of > 0)).sum(), "beside a kink")
    flat = Candidate(lambda x: (x * 0) + 1, "torch")
    assert derivative(flat, np.ones_like, case, along) == 0


@pytest.mark.parametrize("found", [[1.0, 2.0, 3.0, 4.0], [1.0, 2.0], [1.0, 2.0, 4.0]])
def test_a_gradient_of_another_length_or_number_is_wrong(found):
    case, expected = (np.ones(3),), np.array([1.0, 2.0, 3.0])
    with pytest.raises(tolerances.OutOfToleranceError):
        differentiation.assert_gradients(np.array(found), expected, np.square, case, [(0, None)])


def derivative(candidate, oracle, case, along):
    """The derivative along directions, by the candidate's gradient."""
    upstream = derivatives.output_weights(np.shape(oracle(*case)))
    return derivatives.total(candidate.gradient(case, upstream, list(along))[0], along)


class Known(differentiation.Gradients):
    """Gradients of one number that ``candidate`` computes from a case and the upstream gradient."""

    def __call__(self, case, upstream=None, places=None, **how):
        return [self.candidate(case, upstream)]

    def assert_correct(self, arrays, case, upstream=None):
        """They are the oracle's."""


@given(st.floats(0.1, 1e3), st.floats(0.01, 0.99), st.sampled_from(["float64", "float32"]))
def test_a_float32_gradient_has_the_rounding_errors_of_terms_that_cancel(size, share, dtype):
    """Two outputs whose terms cancel under the upstream gradient, up to a rest of 1e-6."""
    first, second = derivatives.output_weights((2,))
    rows = size * np.array([second, -first]) + np.array([1e-6, 0.0])
    case = (np.ones((), dtype),)

    def measured(case, upstream):
        return upstream @ rows

    def judged(error):
        with Known(measured, lambda x: np.zeros(2), [0]).decidable(case, {(0, None): np.ones(())}):
            raise tolerances.OutOfToleranceError("gradient", [error], [0.0], 1e-9)

    rounding = tolerances.FLOAT32_GRADIENT * 2 * size * abs(first * second)
    undecided = properties.UndecidedError if dtype == "float32" else tolerances.OutOfToleranceError
    with pytest.raises(undecided):
        judged(share * rounding)
    with pytest.raises(tolerances.OutOfToleranceError):
        judged(1.1 * rounding + 1e-8)


@given(st.floats(1e-6, 1e-3), st.floats(1.1, 100))
def test_a_float32_gradient_has_the_rounding_errors_of_what_it_is_sensitive_to(x, times):
    """The gradient of log(x - 1) near 1: rounding x changes it."""
    case = (np.array([1 + x]).astype(np.float32),)

    def measured(case, upstream):
        return upstream / (case[0] - 1)

    def judged(error):
        along = {(0, None): np.ones(1)}
        with Known(measured, lambda x: np.zeros(1), [0]).decidable(case, along):
            raise tolerances.OutOfToleranceError("gradient", [error], [0.0], 1e-9)

    most = tolerances.LITERAL_FACTOR * 2.0**-23 * (1 + x) / (x - 2.0**-22) ** 2
    with pytest.raises(tolerances.OutOfToleranceError):
        judged(times * max(most, tolerances.FLOAT32_GRADIENT / (x - 2.0**-22)))
    with pytest.raises(properties.UndecidedError):
        judged(most / 1e3)


def test_candidates_that_ignore_an_argument_have_no_derivative_by_it():
    first = Candidate(lambda x, y: x, "torch")
    case = np.ones(2), np.ones(2)
    chosen = (derivatives.directions(lambda x, y: x, case, by) for by in ((0, 1), (1,)))
    both, second = (derivative(first, lambda x, y: x, case, along) for along in chosen)
    assert both != 0
    assert second == 0


@pytest.fixture
def in_a_hurry(monkeypatch):
    monkeypatch.setattr(shrink, "SECONDS", 0.1)
    monkeypatch.setattr(conformance, "PATIENCE", math.inf)


def test_a_faulty_implementation_of_ours_fails_its_rows(monkeypatch, in_a_hurry, capsys):
    monkeypatch.setattr(
        table,
        "implementations",
        lambda device: [ProjectImplementation("layer_norm", "off", wrong.layer_norm)],
    )
    assert main(["verify", "--examples", "3", "--json"]) == 1
    rows = {(row["what"], row["dtype"]): row for row in json.loads(capsys.readouterr().out)}
    assert not rows["output", "float64"]["passed"]
    assert not rows["output", "float32"]["passed"]
    assert rows["gradient", "float64"]["passed"]
    (first, *_) = rows["output", "float64"]["failures"]
    assert first["property"] == "equals_oracle"
    assert "error 0.01 exceeds" in first["message"]


def test_failures_of_ours_print_their_case(monkeypatch, in_a_hurry, capsys):
    kept = [ProjectImplementation("layer_norm", "", wrong.raising)]
    monkeypatch.setattr(table, "implementations", lambda device: kept)
    assert main(["verify", "--examples", "1"]) == 1
    printed = capsys.readouterr().out
    assert re.search(r"0 of \d+ passed", printed)
    assert "X = np.array([[" in printed
    assert "assert_equals_oracle(candidate(*case), oracle, case, limit)" in printed


def test_the_command_prints_our_table(monkeypatch, capsys):
    kept = [each for each in implementations("cpu") if each.operator in ("layer_norm", "rouge_l")]
    monkeypatch.setattr(table, "implementations", lambda device: kept)
    assert main(["verify", "--quick"]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"layer_norm .* torch +float64 +cpu .* ok", printed)
    assert "7 of 7 passed" in printed
    assert main(["verify", "--operator", "layer_norm", "--examples", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {row["operator"] for row in found} == {"layer_norm"}
    assert {"equations", "dtype", "device", "worst", "bound", "passed"} <= set(found[0])


def test_an_operator_without_a_form_of_ours_is_said_to_have_none(capsys):
    assert main(["verify", "--operator", "printed_beam_search"]) == 0
    assert "no implementation of printed_beam_search" in capsys.readouterr().out


@pytest.mark.parametrize("name", OPERATORS)
def test_no_oracle_makes_arrays_that_are_not_perturbed(name, monkeypatch):
    """``np.array`` of a list would give arrays whose operations are exact."""
    plain, array = [], np.array

    def noted(x, *args, **kwargs):
        listed = x if isinstance(x, list) else ()
        plain.extend(each for each in listed if isinstance(each, HookedArray))
        return array(x, *args, **kwargs)

    case = OPERATORS[name].case(Draw(0))
    monkeypatch.setattr(np, "array", noted)
    perturbed(OPERATORS[name].oracle, case, 2.0**-23, 0, True)
    assert not plain


@given(n=st.integers(4, 500))
def test_attention_may_add_equal_rows_one_after_the_other(n):
    case = (np.ones(1), np.ones((n, 1)), np.ones((1, 1)))
    oracle = OPERATORS["general_attention"].oracle
    one_by_one = np.full(n, 1 / n, dtype=np.float32).cumsum(dtype=np.float32)[-1:]
    limit = literal_limit(oracle, [case], "float32")
    tolerances.assert_conforms(one_by_one, oracle, case, "float32", limit)


@given(
    n=st.integers(4, 1500),
    term=st.floats(0.5, 1),
    first=st.sampled_from(["equal", "distinct", 1, 2**20, 2**24]),
    zeros=st.integers(0, 50),
)
def test_a_sum_in_float32_may_round_equal_terms_the_same_way(n, term, first, zeros):
    """Equal terms, or terms far below the first: as many roundings one way as there are terms."""
    random = np.random.default_rng(n)
    terms = np.full(n, term)
    if first == "distinct":  # all of them lost
        terms *= random.uniform(2.0**-27, 2.0**-26, n)
    if first != "equal":
        terms = np.append(1.0 if first == "distinct" else first, terms)
    terms = np.append(terms, np.zeros(zeros)).astype(np.float32)
    exact = (terms[None].astype(np.float64),)

    def total(x):
        return x.sum(-1)

    one_by_one = terms.cumsum(dtype=np.float32)[-1:]
    limit = literal_limit(total, [exact], "float32")
    tolerances.assert_conforms(one_by_one, total, exact, "float32", limit)
    product = (exact[0], np.ones((len(terms), 1)))
    limit = literal_limit(np.matmul, [product], "float32")
    tolerances.assert_conforms(one_by_one[:, None], np.matmul, product, "float32", limit)
    with pytest.raises(tolerances.OutOfToleranceError):
        tolerances.assert_conforms(one_by_one * (1 + 1e-3), total, exact, "float32", limit)


@given(n=st.integers(1000, 20_000), seed=st.integers(0, 2**32 - 1))
def test_a_sum_in_float32_may_add_one_term_after_the_other(n, seed):
    """NumPy's own sum, in blocks, has a hundredth of its error."""
    x = np.random.default_rng(seed).uniform(0, 1, (8, n)).astype(np.float32)
    y = np.random.default_rng(seed).uniform(0, 1, (n, 2)).astype(np.float32)
    exact = x.astype(np.float64), y.astype(np.float64)
    one_by_one = (x[:, :, None] * y).cumsum(1, dtype=np.float32)[:, -1]
    limit = literal_limit(np.matmul, [exact], "float32")
    tolerances.assert_conforms(one_by_one, np.matmul, exact, "float32", limit)
    half = (x.astype(np.float16) @ y.astype(np.float16)).astype(np.float32)
    with pytest.raises(tolerances.OutOfToleranceError):
        tolerances.assert_conforms(half, np.matmul, exact, "float32", limit)


@given(x=st.floats(-60, 60), dtype=st.sampled_from(["float64", "float32"]))
def test_a_sigmoid_may_be_computed_by_a_tanh(x, dtype):
    """Which has the rounding error of 1; ``x`` is its argument, and is rounded, too."""
    case = rounded((np.array([x]),), dtype)
    exact = rounded(case, "float64")
    by_tanh = 0.5 * (1 + np.tanh(case[0] / 2))
    tolerances.assert_conforms(by_tanh, sigmoid, exact, dtype, 2.0)
    with pytest.raises(tolerances.OutOfToleranceError):
        tolerances.assert_conforms(by_tanh + 1e-5, sigmoid, exact, dtype, 2.0)


def test_processes_test_the_same_cases(in_a_hurry):
    alone, beside = (list(table.rows("cpu", 1, ("layer_norm",), processes=n)) for n in (1, 2))
    assert alone == beside
    assert len(alone) > 1


def test_ours_are_tested_in_the_same_cases_without_a_process_of_their_own(in_a_hurry):
    """As on a GPU."""
    (ours,) = (each for each in implementations() if each.operator == "layer_norm")
    here = list(table.verdicts(ours, table.called_here(ours), 1))
    with resolve(ours.function, OPERATORS["layer_norm"], "torch", name=ours.name) as candidate:
        apart = list(table.verdicts(ours, candidate, 1))
    for one, other in zip(here, apart, strict=True):
        assert one == replace(other, seconds=one.seconds)
