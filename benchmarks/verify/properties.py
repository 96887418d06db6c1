"""The checks of properties: plain assertions about ``candidate``, ``oracle`` and ``case``.

The lines of a check, comments included, are printed with a failing case (see ``snippet``). The
first line of its docstring describes the property to the user.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from benchmarks.verify.candidate import BATCH, BaseCandidate, CandidateError
from benchmarks.verify.cases import (
    Case,
    Place,
    dtype_of,
    each_once,
    float_arrays,
    get,
    half_in_the_middle,
    mapped,
    other_options,
    other_values,
    replaced,
    reversed_arrays,
    rounded,
    size,
)
from benchmarks.verify.chance import alike, all_alike, generator
from benchmarks.verify.draw import Draw
from benchmarks.verify.layouts import (
    ACCUMULATED,
    EVALUATION,
    INFERENCE,
    MODULE,
    MOVED,
    OWN,
    REQUIRING,
    ROWS,
    VIEWS,
)
from benchmarks.verify.loading import all_valid
from benchmarks.verify.oracle import in_float64
from benchmarks.verify.precision import case_limit
from benchmarks.verify.tolerances import (
    OutOfToleranceError,
    assert_close,
    assert_conforms,
    assert_finite,
    assert_gated,
    largest_nearby,
)
from reference.primitives import Array, Mask

Function = Callable[..., Any]

JUMP = 4.0
"""On a jump in low precision, the largest error as a multiple of the outputs nearby."""

SMALL, FEW = 4000, 4
"""Entries of a case whose arrays are also tested one by one, and how many of these."""


class UndecidedError(Exception):
    """The property is not defined on this case."""


def assert_equals_oracle(result: Any, oracle: Function, case: Case, limit: float) -> None:
    """Assert that the result equals the oracle's, in lower precision within ``limit`` roundings.

    The limit is of small cases: beyond it, the literal form's roundings in this case count too.

    Raises:
        UndecidedError: the case is on a jump in that precision.
    """
    dtype, of = dtype_of(case), in_float64(oracle, case)
    try:
        assert_conforms(result, oracle, of, dtype, limit if dtype != "float64" else 1.0)
    except OutOfToleranceError as failure:
        if dtype == "float64" or not np.isfinite(failure.error):
            raise
        of_this = case_limit(oracle, of, dtype)
        if of_this is None:
            if failure.error > JUMP * largest_nearby(oracle, of, dtype):
                raise
            raise UndecidedError from None
        if of_this <= limit:
            raise
        assert_conforms(result, oracle, of, dtype, of_this)


def assert_all_equal_oracle(
    results: Iterable[tuple[str, Any]], oracle: Function, case: Case, limit: float
) -> None:
    """``assert_equals_oracle`` of each result, by how it was called; equal ones compared once.

    The message of a failure says how, if not "plain".
    """
    compared = set[bytes]()
    for how, result in results:
        if (same := pickle.dumps(result)) in compared:
            continue
        compared.add(same)
        try:
            assert_equals_oracle(result, oracle, case, limit)
        except AssertionError as failure:
            if how != "plain":
                failure.args = (f"{failure} ({how})",)
            raise


def equals_oracle(
    candidate: BaseCandidate, oracle: Function, case: Case, *, limit: float = 1.0
) -> None:
    """The result equals the oracle's."""
    assert_equals_oracle(candidate(*case), oracle, case, limit)


def gated(candidate: BaseCandidate, oracle: Function, case: Case, *, gates: Sequence[int]) -> None:
    """The result equals the oracle's, up to the rounding of values that a gate suppresses."""
    for layout in ("plain", *gradientless(candidate, case, "")):
        assert_gated(candidate(*case, layout=layout), oracle, case, gates)


def gradientless(candidate: BaseCandidate, case: Case, *layouts: str) -> list[str]:
    """The layouts in PyTorch's modes without gradients; of a large case a few of these."""
    if candidate.framework != "torch":
        return []
    found = [f"{layout} {mode}".strip() for layout in layouts for mode in INFERENCE]
    if size(case) < SMALL:
        return found
    return [
        *map(str, np.random.default_rng(size(case)).permutation(found)[: 1 + len(layouts) // 2])
    ]


def strided(candidate: BaseCandidate, oracle: Function, case: Case, *, limit: float) -> None:
    """Arrays that are not contiguous, not aligned, or own their memory give the same result."""
    layouts = *views(candidate), *gradientless(candidate, case, *views(candidate))
    results = ((layout, candidate(*case, layout=layout)) for layout in layouts)
    assert_all_equal_oracle(results, oracle, case, limit)


def views(candidate: BaseCandidate) -> tuple[str, ...]:
    """The layouts of arrays with memory of their own, and of views: of batches one more."""
    return (OWN, *VIEWS, ROWS) if isinstance(candidate, Batched) else (OWN, *VIEWS)


def every_layout(
    candidate: BaseCandidate, oracle: Function, case: Case, *, of_modules: bool, limit: float
) -> None:
    """The result equals the oracle's, of contiguous arrays, of views, and of parameters."""
    layouts = ["plain", *VIEWS, *gradientless(candidate, case, "", "strided")]
    layouts += [REQUIRING] if of_modules else []
    results = ((layout, candidate(*case, layout=layout)) for layout in layouts)
    assert_all_equal_oracle(results, oracle, case, limit)
    again = "plain", *((REQUIRING, MODULE) if of_modules else ())
    for layout in few(case, modes(candidate, *again), 2):
        assert_no_state(candidate, oracle, defined(oracle, some_alike(case)), limit, layout)


def modes(candidate: BaseCandidate, *layouts: str) -> list[str]:
    """The layouts, plainly and in PyTorch's modes without gradients."""
    names = ("", *INFERENCE) if candidate.framework == "torch" else ("",)
    return [f"{layout} {name}".strip() for layout in layouts for name in names]


def few(case: Case, layouts: Sequence[str], most: int) -> list[str]:
    """At most so many of the layouts by chance, or of a large case one."""
    found = generator().permutation(layouts)
    return [*map(str, found[: most if size(case) < SMALL else 1])]


def some_alike(case: Case) -> list[Case]:
    """Cases that are alike in all ways, of a large case itself and one."""
    return [*all_alike(case)] if size(case) < SMALL else [case, alike(case)]


def assert_no_state(
    candidate: BaseCandidate,
    oracle: Function,
    cases: Sequence[Case],
    limit: float,
    layout: str = "plain",
) -> None:
    """Assert that cases, in the same arrays, have each their own result."""
    results = candidate.call_each(cases, layout=layout, reuse_arrays=True)
    for one, found in zip(cases, results, strict=True):
        with suppress(UndecidedError):
            assert_equals_oracle(found, oracle, one, limit)


def low_batch(candidate: Batched, oracle: Function, case: Case, *, limit: float) -> None:
    """Each sequence has the same output as on its own, and an empty one finite numbers."""
    empty = ~valid_rows(case[-1], max(case[-1].max(), 1)).any(1)
    everything = candidate.candidate(*case, keyword=candidate.padding)
    assert_finite(everything[empty], "output of an empty sequence")
    layouts = "strided", *gradientless(candidate, case, "")
    first = "plain", candidate.valid(everything, case[-1])
    results = ((layout, candidate(*case, layout=layout)) for layout in layouts)
    assert_all_equal_oracle([first, *results], oracle, case, limit)
    cases = defined(oracle, [case, reversed_arrays(case), alike(case, padded=True)])
    for layout in few(case, modes(candidate, "plain", REQUIRING, MODULE), 2):
        assert_no_state(candidate, oracle, cases, limit, layout)


def inference(candidate: BaseCandidate, oracle: Function, case: Case, *, limit: float) -> None:
    """Under PyTorch's no_grad and inference_mode the result is the same, of parameters, too."""
    for layout in few(case, (*INFERENCE, f"{REQUIRING} no_grad"), 3):
        first, again = candidate.call_each([case, case], layout=layout)
        assert_all_equal_oracle([(layout, first), (f"{layout}, again", again)], oracle, case, limit)
    both = case, *defined(oracle, [alike(case, isinstance(candidate, Batched))])
    for layout in few(case, modes(candidate, REQUIRING), 3):
        assert_no_state(candidate, oracle, both, limit, layout)


def every_mode(
    candidate: BaseCandidate, oracle: Function, case: Case, *, limit: float = 1.0
) -> None:
    """The result equals the oracle's, also under PyTorch's no_grad and inference_mode."""
    layouts = "plain", *gradientless(candidate, case, "")
    results = ((layout, candidate(*case, layout=layout)) for layout in layouts)
    assert_all_equal_oracle(results, oracle, case, limit)


def same_array(candidate: BaseCandidate, oracle: Function, case: Case, *, limit: float) -> None:
    """One array for the first two arguments gives the same result as two equal ones."""
    _, Y, *rest = case
    case = Y, Y, *rest
    every_mode(candidate, oracle, case, limit=limit)
    Z, *others = alike((Y, *rest))
    assert_no_state(candidate, oracle, defined(oracle, [case, (Z, Z, *others)]), limit)


def broadcast(candidate: BaseCandidate, oracle: Function, case: Case, *, limit: float) -> None:
    """A row that is expanded with stride zero gives the same result."""
    X, *rest = case
    case = np.broadcast_to(X[:1], X.shape).copy(), *rest
    assert_equals_oracle(candidate(*case, layout="broadcast"), oracle, case, limit)


def defined(oracle: Function, cases: Iterable[Case]) -> list[Case]:
    """Those cases that the oracle is defined on: there is no mean where all words are padding."""
    found = []
    for case in cases:
        with suppress(Exception):
            oracle(*case)
            found.append(case)
    return found


def no_state(candidate: BaseCandidate, oracle: Function, case: Case, *, limit: float) -> None:
    """Results do not depend on earlier calls with other arguments of the same shapes."""
    padded = isinstance(candidate, Batched)
    others = [reversed_arrays(case), mapped(case, half_in_the_middle), *all_alike(case, padded)]
    others += [*other_options(case)][: None if size(case) < SMALL else 1]
    places = float_arrays(case) if size(case) < SMALL else []
    every = max(1, -(-len(places) // FEW))
    for place in places[size(case) % every :: every]:  # another of these arrays alone
        others.append(replaced(case, {place: half_in_the_middle(get(case, place))}))
    others = defined(oracle, others)
    before, *of_others, after = candidate.call_each([case, *others, case])
    assert_all_equal_oracle([("plain", before), ("after others", after)], oracle, case, limit)
    for found, other in zip(of_others, others, strict=True):
        assert_equals_oracle(found, oracle, other, limit)


def unseen(case: Case, another: Callable[[Draw], Case], beyond: int) -> Case:
    """Another case, of sizes that no other property has: ``beyond`` those of small cases."""
    draw = Draw(size(case))
    another(draw)
    names = [name for name, large in draw.large.items() if large]
    # odd, so that their inverses and roots are rounded
    sizes = {name: draw.options[name][-1] + beyond | 1 for name in names}
    return another(Draw(size(case), **sizes))


def precision_state(
    candidate: BaseCandidate,
    oracle: Function,
    case: Case,
    *,
    another: Callable[[Draw], Case],
    dtype: str,
    limit: float,
) -> None:
    """A call in float32, the first of its sizes, changes no later result in float64."""
    first = unseen(case, another, 1)
    low = rounded(first, dtype)
    with suppress(UndecidedError):
        assert_equals_oracle(candidate(*low), oracle, low, limit)
    assert_equals_oracle(candidate(*first), oracle, first, 1.0)


def same_objects(
    candidate: BaseCandidate, oracle: Function, case: Case, *, of_modules: bool, limit: float
) -> None:
    """New numbers in the same arrays give a new result: nothing is cached by identity."""
    padded = isinstance(candidate, Batched)
    options = [*other_options(case)]
    option = [options[size(case) % len(options)]] if options else []
    others = *option, reversed_arrays(case), other_values(case), alike(case, padded)
    cases = case, *defined(oracle, others)
    of_modules = of_modules and candidate.framework == "torch"
    layouts = [*modes(candidate, "plain"), *((ACCUMULATED, *EVALUATION) if of_modules else ())]
    some = modes(candidate, OWN, *VIEWS, *((REQUIRING, MODULE) if of_modules else ()))
    layouts += few(case, some, 3)
    calls = [candidate.call_each(cases, layout=one, reuse_arrays=True) for one in layouts]
    for one, results in zip(cases, zip(*calls, strict=True), strict=True):
        assert_all_equal_oracle(zip(layouts, results, strict=True), oracle, one, limit)
    # beside the same parameters, too; what is padding others say
    inputs = [] if padded else [replaced(case, inputs_of(one)) for one in cases[1:]]
    for layout in few(case, modes(candidate, *MOVED), 2):
        assert_no_state(candidate, oracle, [*defined(oracle, inputs), *cases], limit, layout)


def inputs_of(case: Case) -> dict[Place, Array]:
    """Its floating point arrays, but those in a mapping."""
    return {place: get(case, place) for place in float_arrays(case) if place[1] is None}


def same_lists(
    candidate: BaseCandidate, oracle: Function, case: Case, *, compare: Callable[..., None]
) -> None:
    """Other words in the same lists, or other numbers of the same model, give a new result."""
    others = reversed_arrays(case), other_values(case), *all_alike(case), *other_options(case)
    cases = case, *defined(oracle, others)
    results = [candidate(*one) for one in cases]
    again = candidate.call_each(cases, reuse_arrays=True)
    for one, result in zip(cases * 2, (*results, *again), strict=True):
        compare(lambda *_, result=result: result, oracle, one)


def causality(candidate: BaseCandidate, oracle: Function, case: Case) -> None:
    """Changing the last token does not change earlier outputs."""
    X, *rest = case
    changed = X.copy()
    changed[-1] = 1 - changed[-1]
    before, after = candidate(X, *rest), candidate(changed, *rest)
    assert_close(after[:-1], before[:-1], "earlier outputs")
    for of, result in ((X, before), (changed, after)):
        assert_equals_oracle(result, oracle, (of, *rest), 1.0)


def causal_keys(candidate: BaseCandidate, oracle: Function, case: Case) -> None:
    """Changing the last key does not change outputs that do not attend to it."""
    X, Y, *rest = case
    changed = Y.copy()
    changed[-1] = 1 - changed[-1]
    blind = len(Y) - 1
    before, after = candidate(X, Y, *rest), candidate(X, changed, *rest)
    assert_close(after[:blind], before[:blind], "earlier outputs")
    for of, result in ((Y, before), (changed, after)):
        assert_equals_oracle(result, oracle, (X, of, *rest), 1.0)


def token_order(candidate: BaseCandidate, oracle: Function, case: Case) -> None:
    """Reordering the tokens reorders the outputs."""
    X, *rest = case

    def reordered(X: Array, *rest: Any) -> Any:
        return oracle(X[::-1], *rest)[::-1]

    assert_conforms(candidate(X[::-1], *rest)[::-1], reordered, case)


def finite(candidate: Batched, oracle: Function, case: Case, *, limit: float) -> None:
    """An empty sequence gives finite numbers, and does not change the others of its batch."""
    results = []
    for layout in ("plain", *gradientless(candidate, case, "")):
        everything = candidate.candidate(*case, keyword=candidate.padding, layout=layout)
        assert_finite(everything)
        results.append((layout, candidate.valid(everything, case[-1])))
    assert_all_equal_oracle(results, oracle, case, limit)


# padded batches: the same properties, with a batched oracle and candidate


def valid_rows(padding: Array, rows: int) -> Mask:
    """The padding mask (B, L), from a mask or lengths (B,)."""
    if padding.ndim == 2:
        return padding.astype(np.bool_)
    return np.arange(rows) < padding[:, None]


class Batched(BaseCandidate):
    """A candidate on padded batches as a function of ``(*arguments, lengths or mask)``.

    Its outputs for padded rows, or for a sequence whose output is undefined, are set to zero, as in
    ``batched_oracle``.
    """

    def __init__(
        self, candidate: BaseCandidate, rows: bool, empty: bool = True, padding: str = "lengths"
    ) -> None:
        """See ``batched_oracle``; ``padding`` is the name of the last argument."""
        self.candidate, self.rows, self.empty, self.padding = candidate, rows, empty, padding
        self.framework = candidate.framework

    def _call(self, case: list[Any], layout: str, _: str, reuse: bool) -> Any:
        return self.valid(self.candidate._call(case, layout, self.padding, reuse), case[-1])

    def _gradient(
        self, arguments: list[Any], weights: Any, places: list[Place], _: str, *how: Any
    ) -> list[Any]:
        uses, _, then = how
        weights = self.valid(weights, arguments[-1])
        of = arguments, weights, places, self.padding, *how
        *gradients, outputs = self.candidate._gradient(*of)
        others = arguments if then is None else then
        of_each = [arguments] * uses + [others] * (len(outputs) - uses)
        valid = [self.valid(x, case[-1]) for x, case in zip(outputs, of_each, strict=True)]
        return [*gradients, valid]

    def valid(self, result: Any, padding: Array) -> Any:
        result = np.asarray(result)
        if len(np.shape(result)) < 1 + self.rows or len(result) != len(padding):
            return result
        mask = valid_rows(padding, result.shape[1] if self.rows else 1)
        if not self.rows:
            mask = np.logical_or(mask.any(-1), self.empty)
        return np.where(mask.reshape(*mask.shape, *[1] * (result.ndim - mask.ndim)), result, 0.0)


def batched_oracle(oracle: Function, sequences: int, rows: bool, empty: bool = True) -> Function:
    """A batched oracle: runs ``oracle`` on each sequence without padding; padded rows are zero.

    Args:
        oracle: of a single sequence.
        sequences: how many leading arguments have a batch axis; the last of them is padded, and the
            last argument of the batched oracle is its mask or lengths.
        rows: whether the output has a row for each row of that argument.
        empty: whether the oracle is defined for an empty sequence; else the output is zero.
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


class BatchOfOne(BaseCandidate):
    """A candidate on padded batches, called with a single sequence as a batch of one."""

    def __init__(self, candidate: BaseCandidate, sequences: int, padding: str = "lengths") -> None:
        """See ``batched_oracle``."""
        self.candidate, self.sequences, self.padding = candidate, sequences, padding
        self.framework = candidate.framework

    def _batch(self, case: Sequence[Any]) -> list[Any]:
        batch = each_once(lambda array: array[None], case[: self.sequences])
        valid = all_valid(self.padding, 1, batch[-1].shape[1])
        return [*batch, *case[self.sequences :], valid]

    def _call(self, case: list[Any], layout: str, _: str, reuse: bool) -> Any:
        return _first(self.candidate._call(self._batch(case), layout, self.padding, reuse))

    def _gradient(
        self,
        arguments: list[Any],
        weights: Any,
        places: list[Place],
        _: str,
        uses: int,
        layout: str,
        then: list[Any] | None,
    ) -> list[Any]:
        also = None if then is None else self._batch(then)
        of = self._batch(arguments), weights[None], places, self.padding, uses, layout, also
        *gradients, outputs = self.candidate._gradient(*of)
        found = zip([*places] * uses, gradients, strict=True)
        single = [array[0] if i < self.sequences else array for (i, _), array in found]
        return [*single, [_first(output) for output in outputs]]


def _first(result: Any) -> Any:
    if isinstance(result, (tuple, list)):
        return type(result)(_first(item) for item in result)
    if np.shape(result)[:1] != (1,):
        shape = np.shape(result)
        raise CandidateError(f"returned shape {shape} of a batch of one, expected (1, ...)", BATCH)
    return result[0]
