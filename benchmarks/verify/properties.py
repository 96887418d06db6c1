"""What an implementation must satisfy: each property a few lines that a test could have.

A property's lines are also what a failing case is printed with (see ``snippet``): plain assertions
over ``candidate``, ``oracle`` and ``case``, the tuple of arguments.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.verify.candidate import Calls, all_valid
from benchmarks.verify.cases import (
    Case,
    Place,
    dtype_of,
    float_arrays,
    get,
    mapped,
    replaced,
    rounded,
)
from benchmarks.verify.tolerances import (
    DIFFERENCES,
    FLOAT32_GRADIENT,
    OutOfToleranceError,
    assert_close,
    assert_conforms,
    assert_derivative,
    assert_gated,
    assert_smoothed,
    on_a_jump,
    scale,
)
from reference.metrics import bleu, ngrams
from reference.primitives import Array, Mask

Function = Callable[..., Any]


class UndecidedError(Exception):
    """The property says nothing about this case."""


def assert_right(result: Any, oracle: Function, case: Case, limit: float) -> None:
    """The result is the oracle's, in lower precision within ``limit`` roundings.

    Raises:
        UndecidedError: in that precision the case is on a jump.
    """
    dtype, exact = dtype_of(case), rounded(case, "float64")
    try:
        assert_conforms(result, oracle, exact, dtype, limit if dtype != "float64" else 1.0)
    except OutOfToleranceError:
        if dtype != "float64" and on_a_jump(oracle, exact, dtype):
            raise UndecidedError from None
        raise


def equals_oracle(candidate: Calls, oracle: Function, case: Case, *, limit: float = 1.0) -> None:
    """The result is the oracle's."""
    assert_right(candidate(*case), oracle, case, limit)


def gated(candidate: Calls, oracle: Function, case: Case) -> None:
    """The result is the oracle's to the rounding of its inputs, of which a gate leaves little."""
    assert_gated(candidate(*case), oracle, case)


def strided(candidate: Calls, oracle: Function, case: Case, *, limit: float) -> None:
    """Arrays that are not contiguous in memory give the same result."""
    assert_right(candidate(*case, layout="strided"), oracle, case, limit)


def broadcast(candidate: Calls, oracle: Function, case: Case, *, limit: float) -> None:
    """A row that is expanded to many, with a stride of zero, gives the same result."""
    X, *rest = case
    case = np.broadcast_to(X[:1], X.shape).copy(), *rest
    assert_right(candidate(*case, layout="broadcast"), oracle, case, limit)


def reversed_arrays(case: Case) -> Case:
    """The case with every array in reverse order."""
    reverse = mapped(case, lambda array: array[::-1].copy())
    return tuple(
        x[::-1].copy() if isinstance(x, np.ndarray) and x.dtype.kind not in "fV" else x
        for x in reverse
    )


def no_state(candidate: Calls, oracle: Function, case: Case, *, limit: float) -> None:
    """A call with other arguments of the same shapes changes nothing; the same give the same."""
    other = reversed_arrays(case)
    before, of_other, after = candidate.in_turn([case, other, case])
    assert_right(before, oracle, case, limit)
    assert_right(of_other, oracle, other, limit)
    if pickle.dumps(after) != pickle.dumps(before):
        assert_right(after, oracle, case, limit)


def same_objects(candidate: Calls, oracle: Function, case: Case, *, limit: float) -> None:
    """Other numbers in the same arrays give their result: nothing is cached by identity."""
    other = reversed_arrays(case)
    results = candidate.in_turn([case, other], same_objects=True)
    for one, result in zip((case, other), results, strict=True):
        assert_right(result, oracle, one, limit)


def gradient(
    candidate: Calls,
    oracle: Function,
    case: Case,
    *,
    by: Sequence[int],
    uses: int = 1,
    every: int = 1,
) -> None:
    """Derivatives by the candidate's framework are central differences of the oracle."""
    dtype, exact = dtype_of(case), rounded(case, "float64")
    expected = uses * differences(oracle, exact, by, every)
    found = derivative(candidate, oracle, case, by, uses, every)
    # in float32 a derivative of which little is left has the rounding of what cancelled
    least = 0.0 if dtype == "float64" else scale(oracle(*exact))
    assert_derivative([found, least], [expected, least], "gradient", dtype)


def gradient_float32(
    candidate: Calls, oracle: Function, case: Case, *, by: Sequence[int], dtype: str
) -> None:
    """Derivatives in float32 are those in float64."""
    low = rounded(case, dtype)
    exact = rounded(low, "float64")
    places = [place for place in float_arrays(case) if place[0] in by]
    output = oracle(*exact)
    weights = direction(np.shape(output))
    found, expected = (
        np.concatenate([array.ravel() for array in candidate.gradient(of, weights, places)])
        for of in (low, exact)
    )
    if np.abs(expected).max(initial=0.0) < FLOAT32_GRADIENT * scale(output):
        raise UndecidedError  # derivatives that cancel
    try:
        assert_derivative(found, expected, "gradient", dtype)
    except OutOfToleranceError:
        differences(oracle, case, by)  # near a kink nothing is decided
        raise


def causality(candidate: Calls, oracle: Function, case: Case) -> None:
    """Another last token leaves the earlier outputs alone."""
    X, *rest = case
    changed = X.copy()
    changed[-1] = 1 - changed[-1]
    assert_close(candidate(changed, *rest)[:-1], candidate(X, *rest)[:-1], "earlier outputs")


def causal_keys(candidate: Calls, oracle: Function, case: Case) -> None:
    """Another last key leaves the outputs alone that do not see it."""
    X, Y, *rest = case
    changed = Y.copy()
    changed[-1] = 1 - changed[-1]
    blind = len(Y) - 1
    before, after = candidate(X, Y, *rest), candidate(X, changed, *rest)
    assert_close(after[:blind], before[:blind], "earlier outputs")


def token_order(candidate: Calls, oracle: Function, case: Case) -> None:
    """Tokens in another order give the same outputs in that order."""
    X, *rest = case

    def reordered(X: Array, *rest: Any) -> Any:
        return oracle(X[::-1], *rest)[::-1]

    assert_conforms(candidate(X[::-1], *rest)[::-1], reordered, case)


def finite(candidate: Batched, oracle: Function, case: Case, *, limit: float) -> None:
    """An empty sequence gives finite numbers, and leaves the others of its batch alone."""
    everything = candidate.candidate(*case, by_name=candidate.padding)
    assert np.isfinite(everything).all(), "not finite"
    assert_right(candidate(*case), oracle, case, limit)


def same_hypotheses(candidate: Calls, oracle: Function, case: Case) -> None:
    """The hypotheses are the oracle's, in its order, and so are their scores."""
    found, expected = candidate(*case), oracle(*case)
    tokens, wanted = (
        [list(map(int, tokens)) for tokens, _ in found],
        [words for words, _ in expected],
    )
    assert tokens == wanted, f"tokens {tokens}, expected {wanted}"
    assert_close([score for _, score in found], [score for _, score in expected], "scores")


def same_words(candidate: Calls, oracle: Function, case: Case) -> None:
    """The words are the oracle's."""
    found, expected = candidate(*case), oracle(*case)
    assert list(map(int, found)) == expected, f"words {list(found)}, expected {expected}"


def same_bleu(candidate: Calls, oracle: Function, case: Case) -> None:
    """BLEU is the oracle's, with or without its smoothing."""
    found, smoothed = np.asarray(candidate(*case)), oracle(*case)
    textbook = np.where(matched(*case), smoothed, 0.0)
    nearer = np.abs(found - textbook) < np.abs(found - smoothed)
    assert_smoothed(found, np.where(nearer, textbook, smoothed))


def same_self_bleu(candidate: Calls, oracle: Function, case: Case) -> None:
    """Self-BLEU is the oracle's, with or without BLEU's smoothing."""
    found, smoothed, (captions,) = np.asarray(candidate(*case)), oracle(*case), case
    corpora = [([one], [[*captions[:i], *captions[i + 1 :]]]) for i, one in enumerate(captions)]
    textbook = np.mean([np.where(matched(*each), bleu(*each), 0.0) for each in corpora], axis=0)
    nearer = np.abs(found - textbook) < np.abs(found - smoothed)
    assert_smoothed(found, np.where(nearer, textbook, smoothed))


def matched(candidates: list[list[str]], references: list[list[list[str]]]) -> Array:
    """Whether the corpus has a match of each order from 1 to 4 and of all below."""
    pairs = list(zip(candidates, references, strict=True))
    orders = [any(matches(c, of, n) for c, of in pairs) for n in (1, 2, 3, 4)]
    return np.logical_and.accumulate(orders)


def matches(candidate: list[str], references: list[list[str]], n: int) -> bool:
    """Whether an n-gram of the candidate is in a reference."""
    of_references = {ngram for reference in references for ngram in ngrams(reference, n)}
    return any(ngram in of_references for ngram in ngrams(candidate, n))


# padded batches: the same properties, of an oracle and a candidate of batches


def valid_rows(padding: Array, rows: int) -> Mask:
    """(B, L) booleans, of these or of the numbers of valid rows (B,)."""
    if padding.ndim == 2:
        return padding.astype(np.bool_)
    return np.arange(rows) < padding[:, None]


class Batched(Calls):
    """A candidate of padded batches as a function of ``(*arguments, lengths or mask)``.

    What it gives for padded rows, or for a sequence of which nothing is defined, is set to zero, as
    in ``of_batch``.
    """

    def __init__(
        self, candidate: Calls, rows: bool, empty: bool = True, padding: str = "lengths"
    ) -> None:
        """See ``of_batch``; ``padding`` is the name of the last argument."""
        self.candidate, self.rows, self.empty, self.padding = candidate, rows, empty, padding

    def _call(self, case: list[Any], layout: str, _: str, again: bool) -> Any:
        return self._valid(self.candidate._call(case, layout, self.padding, again), case[-1])

    def _gradient(
        self, arguments: list[Any], weights: Any, places: list[Place], uses: int, _: str
    ) -> list[Any]:
        weights = self._valid(weights, arguments[-1])
        return self.candidate._gradient(arguments, weights, places, uses, self.padding)

    def _valid(self, result: Any, padding: Array) -> Any:
        result = np.asarray(result)
        if len(np.shape(result)) < 1 + self.rows or len(result) != len(padding):
            return result
        mask = valid_rows(padding, result.shape[1] if self.rows else 1)
        if not self.rows:
            mask = np.logical_or(mask.any(-1), self.empty)
        return np.where(mask.reshape(*mask.shape, *[1] * (result.ndim - mask.ndim)), result, 0.0)


def of_batch(oracle: Function, sequences: int, rows: bool, empty: bool = True) -> Function:
    """The oracle of each sequence of a padded batch, without its padding; padded rows are zero.

    Args:
        oracle: of one element.
        sequences: how many of its first arguments have a batch axis; the last one of all tells the
            valid rows of the last of these.
        rows: whether the output has a row for each of these rows.
        empty: whether the oracle is defined without a valid row; else it is zero.
    """

    def batch(*arguments: Any) -> Array:
        of, rest = arguments[:sequences], arguments[sequences:-1]
        outputs = []
        for i, valid in enumerate(valid_rows(arguments[-1], of[-1].shape[1])):
            *others, sequence = (array[i] for array in of)
            defined = valid.any() or (empty and not rows)
            output = oracle(*others, sequence[valid] if defined else np.zeros_like(sequence), *rest)
            if rows:
                padded = np.zeros((len(valid), *output.shape[1:]), output.dtype)
                padded[valid] = output[: valid.sum()]
                output = padded
            outputs.append(output if defined else np.zeros_like(output))
        return np.stack(outputs)

    return batch


class BatchOfOne(Calls):
    """A candidate of padded batches as one of single elements: a batch of one, all of it valid."""

    def __init__(self, candidate: Calls, sequences: int, padding: str = "lengths") -> None:
        """``sequences`` is how many of its first arguments have a batch axis."""
        self.candidate, self.sequences, self.padding = candidate, sequences, padding

    def _batch(self, case: Sequence[Any]) -> list[Any]:
        batch = [array[None] for array in case[: self.sequences]]
        valid = all_valid(self.padding, 1, batch[-1].shape[1])
        return [*batch, *case[self.sequences :], valid]

    def _call(self, case: list[Any], layout: str, _: str, again: bool) -> Any:
        return _first(self.candidate._call(self._batch(case), layout, self.padding, again))

    def _gradient(
        self, arguments: list[Any], weights: Any, places: list[Place], uses: int, _: str
    ) -> list[Any]:
        of = self._batch(arguments), weights[None], places, uses, self.padding
        found = zip(places, self.candidate._gradient(*of), strict=True)
        return [array[0] if i < self.sequences else array for (i, _), array in found]


def _first(result: Any) -> Any:
    if isinstance(result, (tuple, list)):
        return type(result)(_first(item) for item in result)
    return result[0] if np.ndim(result) and len(result) == 1 else np.nan


# the derivative along fixed directions


def direction(shape: tuple[int, ...], phase: int = 0) -> Array:
    """A fixed direction: of derivatives, and of the weights of outputs."""
    return np.cos(1.0 + phase + np.arange(np.prod(shape, dtype=int))).reshape(shape)


def differences(oracle: Function, case: Case, by: Sequence[int], every: int = 1) -> float:
    """The derivative of the weighted sum of outputs.

    All arrays of the arguments ``by``, or ``every`` second of them, move together, each along a
    direction of its own: what is wrong by any of them changes the derivative.

    Raises:
        UndecidedError: there is a kink of ReLU nearby, and no derivative.
    """
    along = _directions(case, by, every)
    output, sums = oracle(*case), list[float]()
    weights = direction(np.shape(output))

    def weighted(output: Array) -> float:
        terms = output * weights
        sums.append(float(np.abs(terms).sum()))
        return float(terms.sum())

    def loss(step: float) -> float:
        moved = {place: get(case, place) + step * array for place, array in along.items()}
        return weighted(oracle(*replaced(case, moved)))

    half, full, here = 2.0**-19, 2.0**-18, weighted(output)
    near, far = ([loss(step), loss(-step)] for step in (half, full))
    slope, coarse = (near[0] - near[1]) / (2 * half), (far[0] - far[1]) / (2 * full)
    # the slopes' jump at the point itself, and what a kink within reach makes of the estimate
    bend = (sum(near) - 2 * here) / half - (sum(far) - 2 * here) / full / 2
    # what the rounding of the sum leaves of a difference is no derivative
    rounding = 2.0**-52 * max(sums) / half
    if max(abs(bend), abs(slope - coarse), rounding) > DIFFERENCES / 10 * scale(slope):
        raise UndecidedError
    return slope


def derivative(
    candidate: Calls,
    oracle: Function,
    case: Case,
    by: Sequence[int],
    uses: int = 1,
    every: int = 1,
) -> float:
    """The same derivative as ``differences`` by the candidate's framework."""
    along = _directions(case, by, every)
    weights = direction(np.shape(oracle(*case)))
    found = candidate.gradient(case, weights, list(along), uses=uses)
    return float(sum((x * to).sum() for x, to in zip(found, along.values(), strict=True)))


def _directions(case: Case, by: Sequence[int], every: int = 1) -> dict[Place, Array]:
    """Those of the float arrays of the arguments ``by``, or of ``every`` second of them."""
    places = [place for place in float_arrays(case) if place[0] in by]
    return {
        place: direction(get(case, place).shape, i) for i, place in [*enumerate(places)][::every]
    }
