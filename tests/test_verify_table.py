"""``captionbench verify`` of this project's own implementations, and how errors are measured."""

import json
import math
import re
import time

import numpy as np
import pytest

from benchmarks.cli.main import main
from benchmarks.verify import properties, table, tolerances
from benchmarks.verify.candidate import Candidate
from benchmarks.verify.operators import OPERATORS
from benchmarks.verify.own import implementations
from benchmarks.verify.precision import literal_errors, literal_limit, relative_error
from benchmarks.verify.search import drawn
from reference.equations import PAPERS


def test_the_literal_form_gives_the_limit_of_a_precision():
    operator = OPERATORS["static_expansion"]
    cases = drawn(operator.cases, 10)
    limits = {}
    for dtype, ulp in (("float32", 2.0**-23), ("bfloat16", 2.0**-7), ("float16", 2.0**-10)):
        errors = literal_errors(operator.oracle, cases, dtype)
        limits[dtype] = literal_limit(errors, dtype)
        assert all(map(math.isfinite, errors))
        assert 2 * ulp <= limits[dtype] == 2 * max(errors) + 2 * ulp < 100 * ulp
    assert literal_limit([math.inf, math.nan], "float32") == 2 * 2.0**-23
    assert relative_error(np.array([np.nan]), np.array([1.0])) == math.inf


def test_autograd_and_differences_agree_on_a_known_derivative():
    """d/dt of sum w (x + t a)^2 is 2 sum w x a, and a kink has none."""
    x = np.array([0.5, -2.0, 3.0])
    along = properties.direction(x.shape)
    square = Candidate(lambda x: x * x, "square", "torch")
    expected = [2 * (along * along * x).sum()]
    tolerances.assert_derivative(properties.differences(lambda x: x * x, (x,)), expected, "square")
    tolerances.assert_close(properties.autograd(square, (x,)), expected)
    with pytest.raises(properties.UnsatisfiedAssumption):
        properties.differences(lambda x: np.maximum(x, 0), (np.array([0.0, 1.0]),))
    assert properties.autograd(Candidate(lambda x: (x * 0) + 1, "flat", "torch"), (x,)) == [0]


def test_candidates_that_ignore_an_argument_have_no_derivative_by_it():
    first = Candidate(lambda x, y: x, "first", "torch")
    slopes = properties.autograd(first, (np.ones(2), np.ones(2)))
    assert slopes[0] != 0
    assert slopes[1] == 0


@pytest.fixture(scope="module")
def own_rows():
    began = time.process_time()
    rows = list(table.rows(examples=3))
    return rows, time.process_time() - began


def test_every_implementation_of_ours_holds_and_every_oracled_equation_has_a_row(own_rows):
    rows, seconds = own_rows
    assert [row for row in rows if not row.passed] == []
    assert all(row.cases for row in rows)
    covered = {(paper, n) for row in rows for paper, ns in row.equations.items() for n in ns}
    # v2's equation 10 is the image network, which is a parameter of the oracle
    assert covered == {
        (paper, n)
        for paper in ("expansionnet_v1", "expansionnet_v2")
        for n in PAPERS[paper].numbers
    } - {("expansionnet_v2", 10)}
    assert {row.operator for row in rows} == set(OPERATORS)
    assert {row.dtype for row in rows} == {"float64", "float32", "bfloat16", "float16"}
    assert seconds < 30


def test_a_faulty_implementation_of_ours_fails_its_rows(monkeypatch):
    def broken(device):
        (row,) = [row for row in implementations(device) if row[0] == "layer_norm"]
        off = Candidate(lambda X, p: row[2].function(X, p) + 1e-2, "off", "torch", device)
        return [("layer_norm", "off", off)]

    monkeypatch.setattr(table, "implementations", broken)
    verdicts = {(row.what, row.dtype): row.passed for row in table.rows(examples=3)}
    assert not verdicts["output", "float64"]
    assert not verdicts["output", "float32"]
    assert verdicts["gradient", "float64"]

    def raising(X, parameters):
        raise ValueError

    bad = Candidate(raising, "bad", "torch")
    monkeypatch.setattr(table, "implementations", lambda device: [("layer_norm", "bad", bad)])
    assert {row.worst for row in table.rows(examples=3)} == {math.inf}


def test_the_command_prints_our_table(monkeypatch, capsys):
    kept = [row for row in implementations("cpu") if row[0] in ("layer_norm", "rouge_l")]
    monkeypatch.setattr(table, "implementations", lambda device: kept)
    assert main(["verify", "--quick"]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"layer_norm .* torch +float64 +cpu .* ok", printed)
    assert "6 of 6 hold" in printed
    assert main(["verify", "--examples", "2", "--json"]) == 0
    (first, *_) = json.loads(capsys.readouterr().out)
    assert {"operator", "equations", "dtype", "device", "worst", "bound", "passed"} <= set(first)
