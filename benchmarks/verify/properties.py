"""What an implementation is held to: each property a few lines that a test could have.

A property's lines are also what a failing case is printed with (see ``snippet``): they are plain
assertions over ``candidate``, ``oracle`` and the case's arguments; ``rest`` stands for those that a
property has no word for.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from hypothesis.errors import UnsatisfiedAssumption

from benchmarks.verify.candidate import Candidate
from benchmarks.verify.tolerances import (
    DIFFERENCES,
    OutOfToleranceError,
    assert_close,
    assert_derivative,
    assert_low_precision,
    error,
    float64_bound,
    scale,
)
from reference.primitives import Array

Function = Callable[..., Any]
Place = tuple[int, str | None]
"""Where an array of a case is: the argument, and the key if that is a mapping."""


def equals_oracle(candidate: Function, oracle: Function, *rest: Any) -> None:
    """The result is the oracle's."""
    assert_close(candidate(*rest), oracle(*rest))


def equals_at_scale(candidate: Function, oracle: Function, *rest: Any) -> None:
    """The result is the oracle's to the rounding of the largest of the inputs."""
    assert_close_at_scale(candidate(*rest), oracle(*rest), rest)


def gradient(candidate: Any, oracle: Function, *rest: Any) -> None:
    """Autograd's derivatives are the oracle's central differences."""
    assert_derivative(autograd(candidate, rest), differences(oracle, rest), "gradient")


def low_precision(
    candidate: Function, oracle: Function, limit: float, dtype: str, *rest: Any
) -> None:
    """In low precision the error is at most twice the literal form's, plus 2 ulp."""
    inputs = rounded(rest, dtype)
    expected = oracle(*rounded(inputs, "float64"))
    assert_low_precision(candidate(*inputs), expected, limit)


def padded_batch(candidate: Function, oracle: Function, X: Any, *rest: Any, lengths: Any) -> None:
    """Every sequence of a padded batch comes out as it does alone."""
    batch = candidate(X, *rest, lengths=lengths)
    for i, length in enumerate(lengths):
        assert_close(batch[i][:length], oracle(X[i][:length], *rest), f"sequence {i}")


def padded_keys(
    candidate: Function, oracle: Function, X: Any, Y: Any, *rest: Any, lengths: Any
) -> None:
    """Every sequence of a batch sees its own valid keys alone."""
    batch = candidate(X, Y, *rest, lengths=lengths)
    for i, length in enumerate(lengths):
        assert_close(batch[i], oracle(X[i], Y[i][:length], *rest), f"sequence {i}")


def causality(candidate: Function, oracle: Function, X: Any, *rest: Any) -> None:
    """Another last token leaves the earlier outputs alone."""
    changed = X.copy()
    changed[-1] = 1 - changed[-1]
    assert_close(candidate(changed, *rest)[:-1], candidate(X, *rest)[:-1], "earlier outputs")


def causal_keys(candidate: Function, oracle: Function, X: Any, Y: Any, *rest: Any) -> None:
    """Another last key leaves the outputs alone that do not see it."""
    changed = Y.copy()
    changed[-1] = 1 - changed[-1]
    blind = len(Y) - 1
    before, after = candidate(X, Y, *rest), candidate(X, changed, *rest)
    assert_close(after[:blind], before[:blind], "earlier outputs")


def token_order(candidate: Function, oracle: Function, X: Any, *rest: Any) -> None:
    """Tokens in another order give the same outputs in that order."""
    assert_close(candidate(X[::-1], *rest), candidate(X, *rest)[::-1], "outputs reversed")


def same_hypotheses(candidate: Function, oracle: Function, *rest: Any) -> None:
    """The hypotheses are the oracle's, in its order, and so are their scores."""
    found, expected = candidate(*rest), oracle(*rest)
    assert [list(map(int, tokens)) for tokens, _ in found] == [tokens for tokens, _ in expected]
    assert_close([score for _, score in found], [score for _, score in expected], "scores")


# what the properties are written with


def assert_close_at_scale(actual: Any, expected: Any, case: Sequence[Any]) -> None:
    """Hold a float64 result to the float64 rule, its scale that of the case where that is larger.

    Raises:
        OutOfToleranceError: the result is too far off.
    """
    arrays = [get(case, place) for place in float_arrays(case)]
    bound = max(float64_bound(array) for array in (expected, *arrays))
    if not error(actual, expected) <= bound:
        raise OutOfToleranceError("output", actual, expected, bound)


def float_arrays(case: Sequence[Any]) -> list[Place]:
    """Where the floating point arrays of a case are."""
    places: list[Place] = []
    for i, value in enumerate(case):
        if isinstance(value, Mapping):
            places += [(i, key) for key, array in value.items() if _is_float(array)]
        elif _is_float(value):
            places.append((i, None))
    return places


def _is_float(value: Any) -> bool:
    # not np.floating: bfloat16 is an extension type, of kind V
    return isinstance(value, np.ndarray) and value.dtype.kind in "fV"


def get(case: Sequence[Any], place: Place) -> Any:
    """The array of a case at one of ``float_arrays``' places."""
    i, key = place
    return case[i] if key is None else case[i][key]


def replaced(case: Sequence[Any], place: Place, array: Any) -> tuple[Any, ...]:
    """The case with another array at that place."""
    i, key = place
    value = array if key is None else {**case[i], key: array}
    return (*case[:i], value, *case[i + 1 :])


def mapped(case: Sequence[Any], function: Callable[[Any], Any]) -> tuple[Any, ...]:
    """The case with ``function`` of each of its floating point arrays."""
    for place in float_arrays(case):
        case = replaced(case, place, function(get(case, place)))
    return tuple(case)


def rounded(case: Sequence[Any], dtype: str) -> tuple[Any, ...]:
    """The case with its floating point arrays in ``dtype``; bfloat16 needs ``ml_dtypes``."""
    if dtype == "bfloat16":
        import ml_dtypes

        return mapped(case, lambda array: array.astype(ml_dtypes.bfloat16))
    return mapped(case, lambda array: array.astype(dtype))


def direction(shape: tuple[int, ...], phase: int = 0) -> Array:
    """A fixed direction: of derivatives, and of the weights of outputs."""
    return np.cos(1.0 + phase + np.arange(np.prod(shape, dtype=int))).reshape(shape)


def differences(oracle: Function, case: Sequence[Any]) -> Array:
    """Derivatives of the weighted sum of outputs, one for each argument that has float arrays.

    An argument's arrays move together, each along its own direction.

    Raises:
        UnsatisfiedAssumption: there is a kink of ReLU nearby, and no derivative.
    """
    slopes, doubts = [], []
    for moving in _by_argument(case):

        def loss(step: float, moving: Any = moving) -> float:
            moved = case
            for phase, place in moving:
                array = get(case, place)
                moved = replaced(moved, place, array + step * direction(array.shape, phase))
            output = np.asarray(oracle(*moved))
            return float((output * direction(output.shape)).sum())

        half, full = 2.0**-19, 2.0**-18
        here = loss(0.0)
        near, far = ([loss(step), loss(-step)] for step in (half, full))
        slope, coarse = (near[0] - near[1]) / (2 * half), (far[0] - far[1]) / (2 * full)
        # the slopes' jump at the point itself, and what a kink within reach makes of the estimate
        bend = (sum(near) - 2 * here) / half - (sum(far) - 2 * here) / full / 2
        doubts.append(max(abs(bend), abs(slope - coarse)))
        slopes.append(slope)
    if max(doubts) > DIFFERENCES / 10 * scale(slopes):
        raise UnsatisfiedAssumption
    return np.array(slopes)


def autograd(candidate: Candidate, case: Sequence[Any]) -> Array:
    """The same derivatives by PyTorch's autograd of the candidate."""
    arguments = [candidate.convert(value) for value in case]
    moving = [
        [(phase, get(arguments, place).requires_grad_()) for phase, place in places]
        for places in _by_argument(case)
    ]
    output = candidate.raw(*arguments)
    (output * torch.tensor(direction(tuple(output.shape))).to(output)).sum().backward()
    return np.array([sum(_slope(*pair) for pair in pairs) for pairs in moving])


def _slope(phase: int, tensor: torch.Tensor) -> float:
    along = torch.tensor(direction(tuple(tensor.shape), phase)).to(tensor)
    return 0.0 if tensor.grad is None else float((tensor.grad * along).sum())


def _by_argument(case: Sequence[Any]) -> list[list[tuple[int, Place]]]:
    """The places of each argument's float arrays, numbered."""
    numbered = enumerate(float_arrays(case))
    return [list(places) for _, places in itertools.groupby(numbered, lambda pair: pair[1][0])]
