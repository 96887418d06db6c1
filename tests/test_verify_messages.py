"""What the message of a failure says: the array, the place, how it was called, how often."""

import itertools
import re

import numpy as np
import pytest
import torch

from benchmarks.verify.candidate import Candidate
from benchmarks.verify.conformance import conformance_test
from benchmarks.verify.detection import resolve
from benchmarks.verify.operators import OPERATORS
from benchmarks.verify.process import Limits
from tests.candidates import right_torch
from tests.candidates.right_torch import layer_norm


def infinite_slope(X, parameters):
    return right_torch.feed_forward(X, parameters) + (0 * X).sqrt()


def steeper(X, parameters):
    Y = right_torch.feed_forward(X, parameters)
    return Y + X - X.detach()


def frozen(X, parameters):
    return layer_norm(X, parameters | {"bias": parameters["bias"].detach()})


def frozen_without_input(X, parameters):
    """As a backward pass that returns early where the input needs no gradient."""
    weight = parameters["weight"]
    if torch.is_grad_enabled() and not X.requires_grad:
        weight = weight.detach() + 0 * weight
    return layer_norm(X, parameters | {"weight": weight})


def frozen_gate(X, parameters, groups, lengths):
    names = "selector.weight", "selector.bias"
    gate = {name: parameters[name].detach() for name in names}
    return right_torch.static_expansion(X, parameters | gate, groups, lengths)


ALONG = "; the derivative along random directions of all: error .* exceeds .*, expected .*"
OF_GATE = rf"gradient by argument 2, 'selector\.(weight|bias)' at \[.*\]: -?0, expected .*{ALONG}"


@pytest.mark.parametrize(
    ("function", "operator", "only", "said"),
    [
        (
            infinite_slope,
            "feed_forward",
            "gradient_huge",
            r"gradient by argument 1: not finite at \[0, 0\]: nan, expected .*",
        ),
        (
            infinite_slope,
            "feed_forward",
            "gradient_strided",
            r"gradient by argument 1: not finite at \[0, 0\]: nan, expected .*",
        ),
        (
            steeper,
            "feed_forward",
            "gradient_huge",
            rf"gradient by argument 1 at \[\d+, \d+\]: .*, expected .*{ALONG}",
        ),
        (
            frozen,
            "layer_norm",
            "gradient",
            rf"gradient by argument 2, 'bias' at \[\d+\]: -?0, expected .*{ALONG}",
        ),
        (
            frozen_without_input,
            "layer_norm",
            "gradient_of_some",
            r"gradient by argument 2, 'weight': error .* at \[\d+\]: -?0, but otherwise (.*); "
            r"the oracle's is \1",
        ),
        (frozen_gate, "static_expansion", "gradient", OF_GATE),
        (frozen_gate, "static_expansion", "gradient_used_twice", OF_GATE),
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_a_wrong_gradient_names_the_array_that_it_is_by(function, operator, only, said, seed):
    of, padding = OPERATORS[operator], "lengths" if operator == "static_expansion" else ""
    candidate = Candidate(function, "torch", arguments=[*of.arguments, *[padding] * bool(padding)])
    candidate.padding = padding
    (found,) = conformance_test(of, candidate, examples=20, seed=seed, only=(only,))
    assert re.fullmatch(said, found.message), found.message


def test_the_message_says_how_it_was_called():
    def wrong_without_gradients(X, parameters):
        return layer_norm(X, parameters) + 1.0 * (not torch.is_grad_enabled())

    candidate = Candidate(wrong_without_gradients, "torch")
    (found,) = conformance_test(OPERATORS["layer_norm"], candidate, only=("shifted",))
    assert found.message.endswith(" (no_grad)")


def test_a_changed_parameter_is_named():
    def adds(X, parameters):
        parameters["bias"] += 1
        return X

    (found,) = conformance_test(
        OPERATORS["layer_norm"], Candidate(adds, "numpy"), only=("equals_oracle",)
    )
    assert found.message == "changed its argument 2, 'bias', in place"


def test_the_case_of_a_hang_runs_its_check_as_often_as_needed():
    """Not as often as the process had been called before."""

    def hangs(X, parameters):
        while len(X) > 32:
            pass
        return X * 0 + layer_norm(X, parameters)

    limits, only = Limits(seconds=2.0), ("equals_oracle", "large")
    operator = OPERATORS["layer_norm"]
    with resolve(hangs, operator, "torch", limits=limits) as candidate:
        first, large = conformance_test(operator, candidate, examples=30, only=only)
    assert (first.passed, large.message) == (True, "did not answer within 2 seconds")
    assert "for _ in range" not in large.code


def test_a_case_on_which_the_oracle_raises_is_not_a_smaller_one():
    """A candidate that raises first would hide that, and the right function raise there too."""

    def raises(captions):
        raise ZeroDivisionError

    candidate = Candidate(raises, "numpy")
    (found,) = conformance_test(OPERATORS["self_bleu"], candidate, only=("equals_oracle",))
    assert "captions = [['a'], ['a']]" in found.code


class Hangs(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, upstream):
        while True:
            pass


def test_a_hang_of_every_backward_pass_is_said_of_gradients():
    def hangs(y_hat, y):
        return Hangs.apply((y_hat - y).square().mean())

    operator, limits = OPERATORS["mse"], Limits(seconds=1.0)
    with resolve(hangs, operator, "torch", limits=limits) as candidate:
        assert not candidate.once
        outputs, gradient = conformance_test(
            operator, candidate, examples=2, only=("large", "gradient")
        )
    assert (outputs.passed, gradient.message) == (True, "did not answer within 1 seconds")


def test_a_hang_that_does_not_come_again_is_not_deterministic(tmp_path):
    marker = tmp_path / "has hung"

    def hangs(X, parameters, calls=itertools.count()):  # noqa: B008
        if next(calls) == 20 and not marker.exists():
            marker.touch()
            while True:
                pass
        return layer_norm(X, parameters)

    operator, limits = OPERATORS["layer_norm"], Limits(seconds=1.0)
    with resolve(hangs, operator, "torch", limits=limits) as candidate:
        (found,) = conformance_test(operator, candidate, examples=50, only=("equals_oracle",))
    assert found.message.startswith("not deterministic, or dependent on many earlier calls: ")
    assert "in none of 60 runs and none of 60 runs: did not answer within 1" in found.message


def test_a_candidate_with_sets_is_printed_for_a_worker_process(tmp_path):
    """A set of words has another order in another process: there the case might pass."""
    text = "def {0}(candidates, references):\n    return [0.0 for _ in {1}]\n"
    for name, of in (("ordered", "candidates"), ("unordered", "{*map(tuple, candidates)}")):
        where = tmp_path / f"{name}.py"
        where.write_text(text.format(name, of))
        with resolve(f"{where}:{name}", OPERATORS["cider_d"], "numpy") as candidate:
            (found,) = conformance_test(OPERATORS["cider_d"], candidate, only=("equals_oracle",))
        assert ("candidate = resolve(" in found.code) == (name == "unordered")


def test_of_several_outputs_the_one_with_the_largest_error_is_named():
    def halves(gradients, threshold):
        right = right_torch.clip_gradients(gradients, threshold)
        return {name: x * (0.5 if name == "bias" else 1 + 1e-6) for name, x in right.items()}

    operator = OPERATORS["clip_gradients"]
    for seed in range(3):
        (found,) = conformance_test(
            operator, Candidate(halves, "torch"), seed=seed, only=("equals_oracle",)
        )
        assert found.message.startswith("output 'bias': error"), found.message


def test_a_result_without_a_batch_axis_is_said_to_be_one():
    def mean(X, parameters, groups, lengths):
        return right_torch.static_expansion(X, parameters, groups, lengths).mean()

    with resolve(mean, OPERATORS["static_expansion"]) as candidate:
        assert candidate.framework == "torch"
        run = conformance_test(
            OPERATORS["static_expansion"], candidate, examples=3, only=("equals_oracle",)
        )
        (found,) = run
    assert found.message == "returned shape () of a batch of one, expected (1, ...)"


def test_a_tuple_for_an_array_is_said_to_be_one():
    def pair(X, parameters):
        return layer_norm(X, parameters), X[:0]

    (found,) = conformance_test(
        OPERATORS["layer_norm"], Candidate(pair, "torch"), only=("equals_oracle",)
    )
    assert re.fullmatch(r"a tuple of 2, expected an array of shape \(\d, \d\)", found.message)


@pytest.mark.parametrize(
    ("operator", "result", "said"),
    [
        ("bleu", lambda *_: np.ones((1, 4)), r"output: shape \(1, 4\), expected \(4,\)"),
        ("self_bleu", lambda _: [1.0, 1.0, 1.0], r"output: shape \(3,\), expected \(4,\)"),
        ("layer_norm", lambda X, _: {"X": X}, r"a dict of 1, expected an array of shape \(.*\)"),
        (
            "lstm_cell",
            lambda *_: {"h": 1.0, "c": 1.0},
            r"a dict of 2, expected an array of shape \(.*\)",
        ),
    ],
)
def test_another_shape_or_kind_is_said_to_be_one(operator, result, said):
    (found,) = conformance_test(
        OPERATORS[operator], Candidate(result), examples=3, only=("equals_oracle",)
    )
    assert re.fullmatch(said, found.message), found.message


def test_of_a_small_case_the_gradient_s_entry_that_is_the_farthest_off_is_named():
    def slipped(X, parameters):
        p = {name: array * 1 for name, array in parameters.items()}
        if p["weight"].requires_grad:
            p["weight"].register_hook(lambda g: g + 0.2)
            p["bias"].register_hook(lambda g: g + 0.3 * (torch.arange(len(g)) == len(g) - 1))
        return layer_norm(X, p)

    operator = OPERATORS["layer_norm"]
    for seed in range(10):
        (found,) = conformance_test(
            operator, Candidate(slipped, "torch"), seed=seed, examples=2, only=("gradient",)
        )
        place = re.match(r"gradient by argument 2, 'bias' at \[(\d)\]: (.*), exp", found.message)
        assert place, found.message


def test_the_case_makes_no_call_after_the_one_that_fails():
    calls = []

    def wrong(X, parameters):
        calls.append(X)
        return layer_norm(X, parameters) + 1

    (found,) = conformance_test(
        OPERATORS["layer_norm"], Candidate(wrong, "torch"), only=("shifted",)
    )
    calls.clear()
    with pytest.raises(AssertionError):
        exec(re.sub("(?m)^function = .*", "", found.code), {"function": wrong})
    assert len(calls) == 1
