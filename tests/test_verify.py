"""``captionbench verify``: right candidates pass, wrong ones are caught, and their cases paste."""

import ast
import dataclasses
import json
import re

import numpy as np
import pytest

from benchmarks.cli.main import main
from benchmarks.errors import InputError
from benchmarks.verify import properties, tolerances
from benchmarks.verify.candidate import Candidate, CandidateError, load
from benchmarks.verify.cases import NextLogProbs
from benchmarks.verify.conformance import resolve
from benchmarks.verify.draw import Draw
from benchmarks.verify.operators import OPERATORS
from benchmarks.verify.operators.operator import BATCHES
from benchmarks.verify.search import OracleError, Trial, draws, search
from benchmarks.verify.snippet import literal
from tests.support.strangers import failed, verdicts, written

RIGHT, WRONG = "tests/candidates/right.py", "tests/candidates/wrong.py"


def verify(*words):
    return main(["verify", *words])


def candidate(path, operator, *words):
    return verify("--candidate", f"{path}:{operator}", "--operator", operator, "--quick", *words)


def pasted(code):
    """What running the printed lines raises."""
    with pytest.raises(AssertionError) as caught:
        exec(compile(code, "<pasted>", "exec"), {})
    return caught.value


@pytest.mark.parametrize(
    ("function", "operator", "framework"),
    [
        ("static_expansion", "static_expansion", "numpy"),
        ("static_expansion_torch", "static_expansion", "torch"),
        ("multi_head_attention", "multi_head_attention", "torch"),
    ],
)
def test_a_right_candidate_passes(function, operator, framework, capsys):
    where = f"{RIGHT}:{function}"
    assert verify("--candidate", where, "--operator", operator, "--quick") == 0
    printed = capsys.readouterr().out
    assert "FAILED" not in printed
    assert f"({framework})" in printed
    (passed, of) = re.search(r"(\d+) of (\d+) properties passed", printed).groups()
    assert passed == of
    assert re.search(r"not run, .*: .*gradient", printed) or framework == "torch"


def test_a_wrong_numpy_candidate_fails_where_it_is_wrong_and_its_case_pastes(capsys):
    """Normalised over all groups: only blocks of several groups show it."""
    assert candidate(WRONG, "static_expansion") == 1
    printed = capsys.readouterr().out
    assert re.search(r"FAILED +block", printed)
    assert re.search(r"ok +one_group", printed)
    code = printed.split("for a test:\n\n")[1].rsplit("\n\n", 1)[0]
    assert re.search(r"X = np.array\(\[\[[01].0\]\]\)", code)
    assert "groups = (1, 1)" in code
    assert isinstance(pasted(code), tolerances.OutOfToleranceError)


def test_a_wrong_torch_candidate_fails_where_it_is_wrong_and_its_case_pastes(capsys):
    """Padded keys hidden by a zero: only padded batches show it."""
    assert candidate(WRONG, "multi_head_attention", "--json") == 1
    found = json.loads(capsys.readouterr().out)
    assert not found["passed"]
    wrong = {v["name"]: v["code"] for v in found["properties"] if v["status"] == "failed"}
    of_values = {"padded_batch", "padding_content", "large_batch", "padded_no_state"}
    assert set(wrong) == {*of_values, "empty_sequence", "padded_gradient"}
    assert "lengths = np.array([1])" in wrong["padded_batch"]
    assert "output: error" in str(pasted(wrong["padded_batch"]))


def test_a_pasted_case_passes_once_the_candidate_is_right(capsys):
    candidate(WRONG, "static_expansion", "--json")
    found = json.loads(capsys.readouterr().out)["properties"]
    code = next(v["code"] for v in found if v["code"])
    exec(compile(code.replace(WRONG, RIGHT), "<pasted>", "exec"), {})


DYNAMIC = """
def f(X, parameters, causal):
    def linear(name):
        return X @ parameters[name + ".weight"].T + parameters[name + ".bias"]
    C, N = linear("condition"), len(parameters["query_vectors"])
    Q, B = ((C[:, None] + parameters[n]).reshape(-1, X.shape[1])
            for n in ("query_vectors", "bias_vectors"))
    M = Q @ linear("key").T / X.shape[1] ** 0.5
    see = np.tri(len(X), k={k}) if causal else np.ones((len(X), len(X)))
    gate, out = 1 / (1 + np.exp(-np.clip(linear("selector"), -700, 700))), 0
    for sign, V, g in ((1, "value_1", gate), (-1, "value_2", 1 - gate)):
        P = np.maximum(sign * M, 0)
        there, back = P * np.repeat(see, N, axis=0), P.T * np.repeat(see, N, axis=1)
        F = there / (there.sum(1, keepdims=True) + {epsilon}) @ linear(V) + B
        out = out + g * (back / (back.sum(1, keepdims=True) + 1e-9) @ F)
    return out
"""


def test_a_right_dynamic_expansion_passes(tmp_path):
    assert not failed(verdicts(tmp_path, "dynamic_expansion", DYNAMIC.format(k=0, epsilon=1e-9)))


def test_a_mask_off_by_one_is_no_causality_but_fine_in_both_directions(tmp_path):
    found = verdicts(tmp_path, "dynamic_expansion", DYNAMIC.format(k=1, epsilon=1e-9))
    assert not found["causality"].passed
    assert found["bidirectional"].passed
    assert found["one_token"].passed
    assert "earlier outputs" in str(pasted(found["causality"].code))


def test_another_epsilon_shows_where_sums_are_as_small(tmp_path):
    found = verdicts(tmp_path, "dynamic_expansion", DYNAMIC.format(k=0, epsilon=1e-8))
    assert not found["tiny"].passed
    assert found["causality"].passed
    pasted(found["tiny"].code)


def test_a_wrong_gradient_of_a_right_output_is_found(tmp_path):
    text = """
def f(X, parameters):
    def linear(x, name):
        return x @ parameters[name + ".weight"].T + parameters[name + ".bias"]
    hidden = linear(X, "linear_1")
    return linear(hidden.relu() + 0.5 * (hidden - hidden.detach()), "linear_2")
"""
    found = verdicts(tmp_path, "feed_forward", text)
    assert failed(found) == ["gradient", "gradient_used_twice", "gradient_of_some"]
    assert "gradient: error" in str(pasted(found["gradient"].code))


def test_half_precision_inside_shows_in_float32_and_before(tmp_path):
    text = """
def f(X, parameters):
    X = X.astype(np.float16).astype(X.dtype) if X.dtype == np.float32 else X
    X = X - X.mean(-1, keepdims=True)
    Y = X / np.sqrt((X * X).mean(-1, keepdims=True) + 1e-5)
    Y = Y.astype(np.float16).astype(X.dtype) if X.dtype == np.float32 else Y
    return Y * parameters["weight"] + parameters["bias"]
"""
    found = verdicts(tmp_path, "layer_norm", text)
    assert failed(found) == ["float32"]
    assert "limit = " in found["float32"].code
    pasted(found["float32"].code)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return X[:, :1] * np.ones((1, 7))", r"output: shape \(1, 7\), expected \(1, 1\)"),
        ("return X * np.nan", r"output: not finite at \[0, 0\]: nan, expected"),
        ("return None", r"output: shape \(\), expected \(1, 1\)"),
        ("return 'words'", "gave what cannot be compared"),
        ("raise KeyError('weights')", "raised KeyError: 'weights'"),
        ("raise SystemExit(3)", "raised SystemExit: 3"),
        ("raise GeneratorExit", "raised GeneratorExit"),
        ("X += 1; return X", "changed its argument 1 in place"),
        ("parameters.pop('bias'); return X", "changed its argument 2 in place"),
        ("return (row for row in X)", "returned a generator, expected an array"),
        ("yield X", "returned a generator, expected an array"),
        ("import os; os._exit(0)", "ended its process without an answer"),
        ("import os; os.kill(os.getpid(), 9)", "ended its process without an answer"),
        ("return np.ones(10**10)", "raised .*MemoryError: Unable to allocate"),
    ],
)
def test_a_candidate_that_breaks_is_a_finding_and_not_a_crash(tmp_path, body, said):
    found = verdicts(tmp_path, "layer_norm", f"def f(X, parameters):\n    {body}\n", examples=5)
    assert not found["equals_oracle"].passed
    assert re.search(said, found["equals_oracle"].message)


BEAM = """
def f(next_log_probs, start, end, beam_size, max_length, num_return):
    beams = [((start,), 0.0)]
    for _ in range(max_length - 1):
        grown = []
        for tokens, total in beams:
            if len(tokens) > 1 and tokens[-1] == end:
                grown.append((tokens, total))
                continue
            for token, p in enumerate(next_log_probs(tokens)):
                if p > -np.inf:
                    grown.append(((*tokens, token), total + p))
        beams = sorted(grown, key=lambda beam: {key})[:beam_size]
    best = sorted(beams, key=lambda beam: -beam[1] / len(beam[0]))[:num_return]
    return [(tokens, total / len(tokens)) for tokens, total in best]
"""


def test_beam_searches_right_and_wrong(tmp_path):
    """In the search hypotheses compete by their sums, ties in order."""
    right = verdicts(tmp_path, "beam_search", BEAM.format(key="-beam[1]"))
    assert not failed(right)
    by_score = verdicts(tmp_path, "beam_search", BEAM.format(key="-beam[1] / len(beam[0])"), 100)
    assert "distinct" in failed(by_score)
    assert "greedy" not in failed(by_score)
    assert "NextLogProbs(np.array(" in by_score["distinct"].code
    pasted(by_score["distinct"].code)
    backwards = verdicts(
        tmp_path, "beam_search", BEAM.format(key="(-beam[1], [-t for t in beam[0]])")
    )
    assert "ties" in failed(backwards)
    assert "distinct" not in failed(backwards)


def test_metrics_right_and_wrong(tmp_path):
    text = """
from reference import metrics
def f(candidates, references):
    return metrics.rouge_l(candidates, references, beta={beta})
"""
    assert not failed(verdicts(tmp_path, "rouge_l", text.format(beta=1.2)))
    found = verdicts(tmp_path, "rouge_l", text.format(beta=1.0), 200)
    assert not found["equals_oracle"].passed
    pasted(found["equals_oracle"].code)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--candidate", "nothing"], "--operator is missing: expected one of static_expansion"),
        (["--candidate", "nothing", "--operator", "x"], "--operator 'x' is unknown"),
        (["--framework", "torch"], "for a --candidate, which is missing"),
        (["--time-limit", "0"], "--time-limit 0: expected more than 0"),
        (["--candidate", "nothing", "--operator", "bleu"], "expected package.module:callable"),
        (["--candidate", "no.py:f", "--operator", "bleu"], "no.py: no such file"),
        (["--candidate", "no_such:f", "--operator", "bleu"], "raised ModuleNotFoundError"),
        (["--candidate", "json:nothing", "--operator", "bleu"], "json has no 'nothing'"),
        (["--candidate", "math:pi", "--operator", "bleu"], "a float, expected a callable"),
        (["--candidate", "json:load", "--operator", "bleu"], "expected (candidates, references)"),
        (["--examples", "0"], "--examples 0: expected at least 1"),
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


def test_a_candidate_may_import_its_neighbours(tmp_path):
    (tmp_path / "beside_the_stranger.py").write_text("def f(X, parameters): return X\n")
    (tmp_path / "stranger_with_friends.py").write_text("from beside_the_stranger import f\n")
    found = load(f"{tmp_path / 'stranger_with_friends.py'}:f")
    assert found(np.ones(2), {}).tolist() == [1, 1]


def test_the_framework_is_found_out_and_can_be_said(tmp_path):
    path = written(
        tmp_path,
        "def numpy_one(X, parameters): return np.asarray(X) * 1\n"
        "def torch_one(X, parameters): return X.clone()\n"
        "def broken(X, parameters): return torch.nonsense\n",
    )
    operator = OPERATORS["layer_norm"]
    for name, framework in (("numpy_one", "numpy"), ("torch_one", "torch"), ("broken", "torch")):
        assert resolve(f"{path}:{name}", operator, None, "cpu").framework == framework
    assert resolve(f"{path}:torch_one", operator, "numpy", "cpu").framework == "numpy"


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


def trial(operator, function, oracle=None):
    """equals_oracle of a function in this process."""
    of = OPERATORS[operator]
    changed = of if oracle is None else dataclasses.replace(of, oracle=oracle)
    return Trial(properties.equals_oracle, {}, changed, Candidate(function))


@pytest.mark.parametrize("error", [ZeroDivisionError, ValueError])
def test_an_oracle_that_raises_is_neither_the_candidate_s_fault_nor_a_case_it_passed(error):
    def oracle(*_):
        raise error

    case = OPERATORS["layer_norm"].case(Draw())
    with pytest.raises(OracleError, match=error.__name__):
        trial("layer_norm", lambda X, parameters: X, oracle).attempt(case)


def test_a_plain_error_is_not_shrunk_to_one_that_might_be_rounding():
    operator = OPERATORS["layer_norm"]

    def wrong(X, parameters):
        if not X.any():
            raise ValueError
        return operator.oracle(X, parameters) + (X > 0.5) + 1e-9 * (X > 0)

    of = trial("layer_norm", wrong)
    _, found = search(of, draws(operator.properties[0], operator, 50, seed=0))
    assert found.kind == "far off"
    assert literal(found.case[0]) == "np.array([[1.0]])"


def test_the_operators_are_listed_with_their_signatures_and_conventions(capsys):
    assert verify("--list") == 0
    printed = capsys.readouterr().out
    for operator in OPERATORS.values():
        assert operator.signature in printed
    assert "Psi divides each row by its sum plus an epsilon of 1e-9" in printed
    assert verify("--list", "--json") == 0
    listed = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)}
    assert "block" in listed["static_expansion"]["properties"]


@pytest.mark.parametrize("name", OPERATORS)
def test_every_operators_oracle_passes_as_a_candidate_on_small_cases(name):
    """The oracle equals itself, and a case is as many arguments as the operator has."""
    operator = OPERATORS[name]
    for prop in operator.properties:
        batched = BATCHES in prop.needs
        if prop.large or prop.needs not in ((), (BATCHES,)) or prop.settings:
            continue
        of = operator.of_batch() if batched else operator
        calls = Candidate(of.oracle if batched else operator.oracle)
        if batched:
            calls = properties.Batched(
                Candidate(_by_lengths(of.oracle)), operator.rows, operator.empty
            )
        for draw in draws(prop, of, 3, seed=1):
            case = of.case(draw)
            assert len(case) == len(of.arguments)
            assert Trial(prop.check, {}, of, calls).attempt(case) is None
            ast.parse("\n".join(f"x = {literal(value)}" for value in case))


def _by_lengths(oracle):
    return lambda *arguments, lengths: oracle(*arguments, lengths)


def test_a_candidate_error_says_what_was_raised():
    with pytest.raises(CandidateError, match="raised ZeroDivisionError: division") as caught:
        Candidate(lambda x: 1 / x)(0)
    assert caught.value.kind == "ZeroDivisionError"
