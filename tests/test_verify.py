"""``captionbench verify``: right candidates pass, wrong ones are caught, and their cases paste."""

import ast
import dataclasses
import functools
import itertools
import json
import math
import re

import numpy as np
import pytest

from benchmarks.cli.main import main
from benchmarks.errors import InputError
from benchmarks.verify import (
    conformance,
    gradients,
    properties,
    search,
    shrink,
    snippet,
    tolerances,
)
from benchmarks.verify.attempt import Attempt, OracleError
from benchmarks.verify.candidate import Candidate, CandidateError, load
from benchmarks.verify.cases import MODELS, NextLogProbs, other_options
from benchmarks.verify.conformance import FAILED, QUICK_EXAMPLES, conformance_test
from benchmarks.verify.detection import resolve
from benchmarks.verify.draw import Draw
from benchmarks.verify.operators import OPERATORS
from benchmarks.verify.search import draws
from benchmarks.verify.snippet import literal
from tests.candidates import right_torch, right_words
from tests.support.strangers import verdicts, written

RIGHT, WRONG = "tests/candidates/right.py", "tests/candidates/wrong.py"


def verify(*words):
    return main(["verify", *words])


def candidate(path, operator, *words):
    named = ("--candidate", f"{path}:{operator}", "--operator", operator)
    return verify(*named, "--quick", "--seed", "0", *words)


def pasted(code, **scope):
    """What running the printed lines raises."""
    with pytest.raises(AssertionError) as caught:
        exec(compile(code, "<pasted>", "exec"), scope)
    return caught.value


@pytest.mark.parametrize(
    ("operator", "framework"), [("static_expansion", "numpy"), ("multi_head_attention", "torch")]
)
def test_a_right_candidate_passes(operator, framework, capsys):
    assert candidate(RIGHT, operator) == 0
    printed = capsys.readouterr().out
    assert "FAILED" not in printed
    assert f"({framework})" in printed
    *_, last = printed.splitlines()
    assert re.match(r"\d+ of \d+ properties passed(, \d+ not run)?; largest sizes.*\b\d{3}\b", last)
    assert re.search(r"not run, .*: .*gradient", printed) or framework == "torch"


def test_a_wrong_numpy_candidate_fails_where_it_is_wrong_and_its_case_pastes(capsys, monkeypatch):
    """Normalised over all groups: only blocks of several groups show it."""
    monkeypatch.setattr(conformance, "PATIENCE", math.inf)
    assert candidate(WRONG, "static_expansion") == 1
    printed = capsys.readouterr().out
    assert re.search(r"FAILED +block", printed)
    assert re.search(r"ok +one_group", printed)
    code = printed.split("for a test:\n\n")[1].rsplit("\n\n", 1)[0]
    assert re.search(r"X = np.array\(\[\[[01].0\]\]\)", code)
    assert "groups = (1, 1)" in code
    assert isinstance(pasted(code), tolerances.OutOfToleranceError)
    exec(compile(code.replace(WRONG, RIGHT), "<pasted>", "exec"), {})  # once it is right


def test_a_wrong_torch_candidate_fails_where_it_is_wrong_and_its_case_pastes(capsys, monkeypatch):
    """Padded keys hidden by a zero: only padded batches show it."""
    monkeypatch.setattr(conformance, "PATIENCE", math.inf)
    # of few cases, processors differ in how many gradients of extremes are decidable
    words = "--json", "--seed", "1", "--examples", "25"
    assert candidate(WRONG, "multi_head_attention", *words) == 1
    found = json.loads(capsys.readouterr().out)
    assert not found["passed"]
    wrong = {v["name"]: v["code"] for v in found["properties"] if v["status"] == "failed"}
    of_values = {"padded_batch", "padding_content", "large_batch", "padded_no_state"}
    of_values |= {"padded_same_objects"}
    of_values |= {"empty_sequence", "padded_gradient", "padded_float32", "padded_strided"}
    of_values |= {"padded_same_array", "padded_inference", "padded_gradient_used_twice"}
    of_values |= {"padded_inference_state"}
    of_values |= {"padded_huge", "padded_large_scores", "padded_bfloat16", "padded_float16"}
    of_values |= {"padded_gradient_huge", "padded_gradient_large_scores"}
    assert set(wrong) == of_values
    assert "lengths = np.array([1])" in wrong["padded_batch"]
    assert "output: error" in str(pasted(wrong["padded_batch"]))


def at_every_call(function):
    """Its results times another factor than at the call before, none of them near 1."""
    factors = itertools.cycle((2, 3, 5))

    @functools.wraps(function)
    def wrong(*arguments, **named):
        result, factor = function(*arguments, **named), next(factors)
        if isinstance(result, list):
            return [(tokens, score * factor) for tokens, score in result]
        return result * factor

    return wrong


@pytest.mark.parametrize(
    ("module", "name"),
    [
        (right_torch, "static_expansion"),
        (right_torch, "dynamic_expansion"),
        (right_torch, "multi_head_attention"),
        (right_torch, "cross_entropy"),
        (right_words, "beam_search"),
        (right_words, "self_bleu"),
    ],
)
@pytest.mark.parametrize("longest", [snippet.LONGEST, 0], ids=["printed", "from its seed"])
def test_the_case_of_every_property_fails_where_it_is_pasted(module, name, longest, monkeypatch):
    monkeypatch.setattr(shrink, "SECONDS", 0.1)
    monkeypatch.setattr(snippet, "LONGEST", longest)
    # of five cases of large scores, it depends on the directions whether one is decidable
    monkeypatch.setattr(conformance.secrets, "token_bytes", bytes)
    operator, wrong = OPERATORS[name], at_every_call(getattr(module, name))
    framework = "torch" if module is right_torch else "numpy"
    candidate = Candidate(wrong, framework, arguments=operator.arguments)
    found = list(conformance_test(operator, candidate, examples=5, large=False))
    # a wrong factor is finite
    finite = {p.name for p in operator.properties if p.check is gradients.finite_in_float32}
    assert {verdict.name for verdict in found if verdict.passed} <= finite
    for verdict in found:
        if verdict.status == FAILED:
            pasted(verdict.code.replace("...", "given", 1), given=wrong)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return X[:, :1] * np.ones((1, 7))", r"output: shape \(1, 7\), expected \(1, 1\)"),
        ("return X * np.nan", r"output: not finite at \[0, 0\]: nan, expected"),
        ("return None", "returned None, expected an array"),
        ("return 'words'", "returned a str, expected an array"),
        ("raise KeyError('weights')", "raised KeyError: 'weights'"),
        ("raise SystemExit(3)", "raised SystemExit: 3"),
        ("raise GeneratorExit", "raised GeneratorExit"),
        ("X += 1; return X", "changed its argument 1 in place"),
        ("X.shape = 1, *X.shape; return X", "changed its argument 1 in place"),
        ("Y = X * 1; X.dtype = 'i8'; return Y", "changed its argument 1 in place"),
        ("parameters.pop('bias'); return X", "changed its argument 2, 'bias', in place"),
        ("return (row for row in X)", "returned a generator, expected an array"),
        ("yield X", "returned a generator, expected an array"),
        ("import os; os._exit(0)", "ended its worker process without a response"),
        ("import os; os.kill(os.getpid(), 9)", "ended its worker process without a response"),
        ("return np.ones(10**10)", "raised .*MemoryError: Unable to allocate"),
    ],
)
def test_a_candidate_that_breaks_is_a_finding_and_not_a_crash(tmp_path, body, said):
    text = f"def f(X, parameters):\n    {body}\n"
    found = verdicts(tmp_path, "layer_norm", text, examples=5, only=("equals_oracle",))
    assert not found["equals_oracle"].passed
    assert re.search(said, found["equals_oracle"].message)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--candidate", "nothing"], "--operator is missing: expected a name of captionbench"),
        (["--candidate", "nothing", "--operator", "x"], "--operator 'x' is unknown"),
        (["--operator", "static_expand"], "did you mean static_expansion"),
        (["--framework", "torch"], "for a --candidate, which is missing"),
        (["--time-limit", "0"], "--time-limit 0: expected more than 0"),
        (["--candidate", "x" * 300, "--operator", "bleu"], "expected package.module:callable"),
        (["--candidate", "nothing", "--operator", "bleu"], "expected package.module:callable"),
        (["--candidate", "no.py:f", "--operator", "bleu"], "no.py: no such file"),
        (["--candidate", "no_such:f", "--operator", "bleu"], "raised ModuleNotFoundError"),
        (["--candidate", "json:nothing", "--operator", "bleu"], "json has no 'nothing'"),
        (["--candidate", "math:pi", "--operator", "bleu"], "a float, expected a callable"),
        (["--candidate", "json:load", "--operator", "bleu"], "expected (candidates, references)"),
        (["--examples", "0"], "--examples 0: expected at least 1"),
        (["--seed", "-1"], "--seed -1: expected at least 0"),
        (["--device", "nonsense"], "--device nonsense: PyTorch cannot use it"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(words, said, capsys):
    assert verify(*words) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_a_module_that_cannot_be_imported_is_bad_input(tmp_path):
    (tmp_path / "broken.py").write_text("def f(:\n")
    (tmp_path / "leaving.py").write_text("raise SystemExit(0)\n")
    for name, said in (("broken", "SyntaxError"), ("leaving", "SystemExit")):
        with pytest.raises(InputError, match=said):
            load(f"{tmp_path / name}.py:f")


def test_the_framework_is_found_out_and_can_be_said(tmp_path):
    path = written(
        tmp_path,
        "def numpy_one(X, parameters): return np.asarray(X) * 1\n"
        "def torch_one(X, parameters): return X.clone()\n"
        "def broken(X, parameters): return torch.nonsense\n"
        "def converts(X, parameters): return torch.as_tensor(X) * 1\n",
    )
    (tmp_path / "compiled.py").write_text(  # alone, since whatever loads it loads a compiler
        "import torch\n"
        "@torch.compile(backend='eager', dynamic=True)\n"
        "def f(X, parameters): return X * 1\n"
    )
    operator = OPERATORS["layer_norm"]
    in_torch = [f"{path}:{name}" for name in ("torch_one", "broken", "converts")]
    in_torch.append(f"{tmp_path}/compiled.py:f")
    for where, framework in {
        f"{path}:numpy_one": "numpy",
        **dict.fromkeys(in_torch, "torch"),
    }.items():
        with resolve(where, operator, None, "cpu") as candidate:
            assert candidate.framework == framework, where
    assert resolve(f"{path}:torch_one", operator, "numpy", "cpu").framework == "numpy"


def test_a_candidate_that_is_wrong_in_its_first_call_alone_fails(tmp_path):
    path = written(
        tmp_path,
        "calls = []\n"
        "def f(X, parameters):\n"
        "    calls.append(0)\n"
        "    right = np.asarray(oracle(X, parameters))\n"
        "    return right * (len(calls) > 1)\n"
        "from reference.primitives import layer_norm\n"
        "def oracle(X, parameters): return layer_norm(X, parameters)\n",
    )
    operator = OPERATORS["layer_norm"]
    with resolve(f"{path}:f", operator) as candidate:
        (verdict,) = conformance_test(operator, candidate, examples=3, only=["equals_oracle"])
    assert verdict.status == FAILED and "not deterministic" not in verdict.message


@pytest.mark.parametrize(
    "value",
    [
        np.array([[0.1, -np.inf], [np.nan, 2.0]]),
        np.zeros((2, 3)),
        np.ones(4, np.float32),
        np.array([1, 2]),
        np.array([True, False]),
        {"a.b": np.array([0.5]), "c": (1, "d", None)},
        NextLogProbs(np.array([[[-1.0]]])),
        [["a", "b"], []],
    ],
)
def test_a_literal_is_its_value(value):
    again = eval(literal(value), {"np": np, "NextLogProbs": NextLogProbs})
    if isinstance(value, np.ndarray):
        assert again.dtype == value.dtype
        np.testing.assert_array_equal(again, value)
    else:
        assert repr(again) == repr(value)


def attempt(operator, function, oracle=None):
    """equals_oracle of a function in this process."""
    of = OPERATORS[operator]
    changed = of if oracle is None else dataclasses.replace(of, oracle=oracle)
    return Attempt(changed.properties[0], changed, Candidate(function))


@pytest.mark.parametrize("error", [ZeroDivisionError, ValueError])
def test_an_oracle_that_raises_is_neither_the_candidate_s_fault_nor_a_case_it_passed(error):
    def oracle(*_):
        raise error

    case = OPERATORS["layer_norm"].case(Draw())
    with pytest.raises(OracleError, match=error.__name__):
        attempt("layer_norm", lambda X, parameters: X, oracle).run(case)


def test_a_plain_error_is_not_shrunk_to_one_that_might_be_rounding():
    operator = OPERATORS["layer_norm"]

    def wrong(X, parameters):
        if not X.any():
            raise ValueError
        return operator.oracle(X, parameters) + (X > 0.5) + 1e-9 * (X > 0)

    of = attempt("layer_norm", wrong)
    found = search.search(of, draws(operator.properties[0], operator, 50, seed=0)).failure
    assert found.kind == "far off"
    assert literal(found.case[0]) == "np.array([[1.0]])"


@pytest.mark.parametrize("name", OPERATORS)
def test_large_cases_straddle_tiles_of_16_and_of_32_in_every_size(name):
    operator = OPERATORS[name]
    for prop in operator.properties:
        if prop.name not in ("large", "large_batch", "strided"):
            continue
        of, largest, most = operator.batched() if prop.is_batched else operator, {}, {}
        for draw in draws(prop, of, QUICK_EXAMPLES, seed=0):
            of.sample_case(draw)
            for size, values in draw.large.items():
                if values:
                    most[size] = min(max(values), 33)
                    largest[size] = max(largest.get(size, 0), draw.chosen[size])
        of_some = {"N_E", "groups", "group_0", "group_1", "group_2", "d_x"}
        of_some = of_some if prop.large != "all" else set()
        assert {size for size in most if largest[size] < most[size]} <= of_some


@pytest.mark.parametrize("name", OPERATORS)
def test_of_few_cases_of_a_gradient_and_of_float32_one_is_at_a_largest_size(name):
    operator = OPERATORS[name]
    for prop in operator.properties:
        if prop.name in ("gradient", "float32", "gradient_float32"):
            at_largest = False
            for one in draws(prop, operator, QUICK_EXAMPLES, seed=0):
                operator.sample_case(one)
                sizes = one.large.items()
                at_largest |= any(
                    one.chosen[size] == max(values) for size, values in sizes if values
                )
            assert at_largest


def test_the_operators_are_listed_with_their_signatures_and_conventions(capsys):
    assert verify("--list") == 0
    printed = capsys.readouterr().out
    for operator in OPERATORS.values():
        assert operator.signature in printed
    assert "Psi divides each row by its sum plus an epsilon of 1e-9" in printed
    assert re.search(
        rf"^directional derivative +float64 +{tolerances.DIFFERENCES:g} +itself$", printed, re.M
    )
    assert verify("--list", "--json") == 0
    listed = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)}
    assert "block" in listed["static_expansion"]["properties"]
    assert verify("--list", "--operator", "lstm_cell", "--json") == 0
    assert [one["name"] for one in json.loads(capsys.readouterr().out)] == ["lstm_cell"]
    assert verify("--list", "--operator", "lstm_sell") == 2


@pytest.mark.parametrize("name", OPERATORS)
def test_a_case_has_an_operators_arguments_and_can_be_printed(name):
    operator = OPERATORS[name]
    for seed in range(3):
        case = operator.case(Draw(seed))
        assert len(case) == len(operator.arguments)
        ast.parse("\n".join(f"x = {literal(value)}" for value in case))


def test_a_candidate_error_says_what_was_raised():
    with pytest.raises(CandidateError, match="raised ZeroDivisionError: division") as caught:
        Candidate(lambda x: 1 / x)(0)
    assert caught.value.kind == "raised ZeroDivisionError"


def test_changed_cases_that_the_oracle_is_not_defined_on_are_left_out():
    """Where all words have become padding there is no mean."""
    operator = OPERATORS["cross_entropy"]
    candidate = Candidate(right_torch.cross_entropy, "torch", arguments=operator.arguments)
    undefined = 0
    for seed in range(300):
        case = operator.case(Draw(seed, padding=True))
        changed = properties.reversed_arrays(case), properties.other_values(case)
        if len(properties.defined(operator.oracle, changed)) < len(changed):
            undefined += 1
            properties.same_objects(candidate, operator.oracle, case, limit=1.0, of_modules=True)
            properties.no_state(candidate, operator.oracle, case, limit=1.0)
    assert undefined


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=[*OPERATORS])
def test_another_option_is_no_length_of_zero(operator):
    for seed in range(50):
        case = operator.case(Draw(seed))
        for other in other_options(case):
            ((i, now, before),) = (
                (i, *pair)
                for i, pair in enumerate(zip(other, case, strict=True))
                if pair[0] is not pair[1]
            )
            is_word = isinstance(case[0], MODELS) and i < 3
            assert type(before) is not int or is_word or 1 <= now < before
