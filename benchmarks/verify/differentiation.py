"""Differentiate a candidate, and judge its gradients."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.verify.candidate import BaseCandidate
from benchmarks.verify.cases import (
    Case,
    Place,
    argument,
    dtype_of,
    float_arrays,
    get,
    mapped,
    size,
)
from benchmarks.verify.derivatives import (
    Directions,
    derivative,
    differences,
    directions,
    entry_named,
    output_weights,
    total,
)
from benchmarks.verify.oracle import in_float64
from benchmarks.verify.properties import (
    SMALL,
    Function,
    UndecidedError,
    assert_equals_oracle,
)
from benchmarks.verify.tolerances import (
    CHANGES,
    DIFFERENCES,
    FLOAT32_GRADIENT,
    FLOAT64,
    LITERAL_FACTOR,
    UNITS,
    OutOfToleranceError,
    assert_derivative,
    assert_finite,
    error,
    float64_bound,
    scale,
)
from reference.primitives import Array


@dataclass(frozen=True)
class Gradients:
    """The gradients of a candidate by the arrays of arguments ``by``, beside its oracle.

    Attributes:
        limit: of its outputs, see ``assert_equals_oracle``; None for one that has failed before:
            then gradients are compared with each other alone where that is the property.
        uses: how often it is called before a backward pass; the second call has twice the weight.
    """

    candidate: BaseCandidate
    oracle: Function
    by: Sequence[int]
    limit: float | None = 1.0
    uses: int = 1

    def places(self, case: Case) -> list[Place]:
        """The arrays that it is differentiated by."""
        return [place for place in float_arrays(case) if place[0] in self.by]

    def upstream(self, case: Case) -> Array:
        """The ``output_weights`` of a case."""
        return output_weights(np.shape(self.oracle(*in_float64(self.oracle, case))))

    def __call__(
        self,
        case: Case,
        upstream: Array | None = None,
        places: Sequence[Place] | None = None,
        **how: Any,
    ) -> list[Array]:
        """The gradients; with a limit, the output of each of its calls must be the oracle's.

        Of several ``uses``, those of each backward pass in turn.

        ``upstream`` and ``places`` are those above if not given; for ``how`` see
        ``BaseCandidate.gradient``.
        """
        upstream = self.upstream(case) if upstream is None else upstream
        places = self.places(case) if places is None else places
        arrays, outputs = self.candidate.gradient(case, upstream, places, uses=self.uses, **how)
        if self.limit is not None:
            others = case if how.get("then") is None else how["then"]
            for i, output in enumerate(outputs):
                of = case if i < self.uses else others
                assert_output(output, self.oracle, of, self.limit)
        return arrays

    def flat(self, case: Case, upstream: Array | None = None, **how: Any) -> Array:
        """The gradients as one vector."""
        return flat(self(case, upstream, **how))

    def plain(self, case: Case, upstream: Array | None = None) -> list[Array]:
        """The gradients; of a small case, with a limit, they must be the oracle's if decidable."""
        arrays = self(case, upstream)
        if self.limit is not None and size(case) < SMALL:
            with suppress(UndecidedError):
                self.assert_correct(arrays, case, upstream)
        return arrays

    def assert_correct(
        self,
        arrays: Sequence[Array],
        case: Case,
        upstream: Array | None = None,
        least: float = 0.0,
    ) -> None:
        """Assert that the gradients equal central differences of the oracle.

        The tolerance is relative to these, or to ``least`` if that is larger.

        Raises:
            UndecidedError: these are not accurate there.
        """
        dtype, of = dtype_of(case), in_float64(self.oracle, case)
        along = directions(self.oracle, of, self.by)
        factor = sum(range(1, self.uses + 1))
        assert_finite_gradient(arrays, list(along), self.oracle, case, factor)
        expected = factor * differences(self.oracle, of, along, upstream)
        # in float32, a derivative whose terms cancel has the rounding errors of these terms
        least = least if dtype == "float64" else max(least, scale(self.oracle(*of)))
        named = entry_named(arrays, self.oracle, of, along, factor, upstream)
        with named, self.decidable(case, along):
            assert_derivative(total(arrays, along), expected, "gradient", dtype, least)

    def assert_same(
        self, found: Array, expected: Array, case: Case, upstream: Array | None = None
    ) -> None:
        """Assert that two ``flat`` gradients of one output are the same.

        One whose terms cancel has their rounding errors: a rounding of the output counts as one.

        Raises:
            UndecidedError: a kink of ReLU is too near.
        """
        least = FLOAT64 / DIFFERENCES * scale(self.oracle(*case))
        of = self.oracle, case, self.places(case), least, upstream
        with self.decidable(case):
            assert_gradients(found, expected, *of)

    @contextmanager
    def decidable(
        self, case: Case, along: Directions | None = None, is_smooth: bool = False
    ) -> Iterator[None]:
        """Accept a failure of the block only if rounding errors cannot explain it.

        A gradient has the rounding errors of its terms, which may cancel, and of its arguments, to
        which it may be sensitive. Both are measured in float64: with other signs of the upstream
        gradient, and with perturbed arguments; there, too, the gradient must be the oracle's.
        Central differences ``along`` directions in float64 have only the first, but must not
        straddle a kink of ReLU; nor must others if the block ``is_smooth``.

        Raises:
            UndecidedError: a kink of ReLU is too near, or rounding errors are larger than the
                error.
        """
        try:
            yield
        except OutOfToleranceError as failure:
            of, dtype = in_float64(self.oracle, case), dtype_of(case)
            if along or is_smooth:
                differences(self.oracle, of, along or directions(self.oracle, of, self.by))
            if along and dtype == "float64":
                raise

            def measured(case: Case, upstream: Array) -> Array:
                arrays = self(case, upstream)[: len(self.places(case))]
                with suppress(UndecidedError):
                    self.assert_correct(arrays, case, upstream)
                return np.array(total(arrays, along)) if along else flat(arrays)

            relative = DIFFERENCES if dtype == "float64" else FLOAT32_GRADIENT
            upstream, unit = self.upstream(of), UNITS[dtype]
            with suppress(OutOfToleranceError):  # wrong there too: rounding explains nothing
                plain, random = measured(of, upstream), np.random.default_rng(0)
                if error(measured(of, upstream), plain) > float64_bound(plain):
                    raise failure  # another gradient at every call is no rounding error
                for _ in range(CHANGES):
                    signs = random.choice((-1.0, 1.0), upstream.shape)
                    terms = relative * scale(measured(of, upstream * signs))
                    moved = mapped(
                        of,  # as an array: NumPy's product of arrays of no axis is a scalar
                        lambda a: np.asarray(a * random.uniform(1 - unit, 1 + unit, a.shape)),
                    )
                    change = LITERAL_FACTOR * error(measured(moved, upstream), plain)
                    if failure.error <= max(terms, change) < np.inf:
                        raise UndecidedError from None
            raise


def flat(arrays: Iterable[Array]) -> Array:
    """Arrays as one vector."""
    return np.concatenate([array.ravel() for array in arrays])


def assert_output(output: Any, oracle: Function, case: Case, limit: float) -> None:
    """Assert that a differentiated call's output is the oracle's, where that is decidable."""
    try:
        assert_equals_oracle(output, oracle, case, limit)
    except UndecidedError:
        return
    except AssertionError as failure:
        failure.args = (f"with a gradient, {failure}",)
        raise


def assert_finite_gradient(
    arrays: Sequence[Array], places: Sequence[Place], oracle: Function, case: Case, factor: int = 1
) -> None:
    """Assert that gradients are finite; the message has the oracle's derivative."""
    for place, array in zip(places, arrays, strict=True):
        try:
            assert_finite(array, f"gradient by {argument(place)}")
        except AssertionError as failure:
            entry = int(np.argmin(np.isfinite(array)))
            expected = factor * derivative(oracle, in_float64(oracle, case), place, entry)
            raise AssertionError(f"{failure}, expected {expected:.6g}") from None


def assert_gradients(
    found: Array,
    expected: Array,
    oracle: Function,
    case: Case,
    places: Sequence[Place],
    least: float = 0.0,
    upstream: Array | None = None,
) -> None:
    """``assert_derivative`` of two flat gradients of a candidate.

    The message names the array and the entry, and has the oracle's derivative by it beside both.
    """
    dtype = dtype_of(case)
    try:
        assert_derivative(found, expected, "gradient", dtype, least)
        return
    except OutOfToleranceError as error_of_all:
        failure = error_of_all
    if found.shape != expected.shape:
        raise failure
    actual, wanted = (_by_place(flat, case, places) for flat in (found, expected))
    for place, array in wanted.items():
        assert_finite(array, f"gradient by {argument(place)}")
    worst = max(places, key=lambda place: error(actual[place], wanted[place]))
    least = scale([*expected, least])
    try:
        of = f"gradient by {argument(worst)}"
        assert_derivative(actual[worst], wanted[worst], of, dtype, least)
    except OutOfToleranceError as of_worst:
        failure = of_worst
        if np.isfinite(failure.error):
            entry = int(np.argmax(np.abs(actual[worst] - wanted[worst])))
            of_oracle = derivative(oracle, in_float64(oracle, case), worst, entry, upstream)
            both = str(failure).replace(", expected ", ", but otherwise ")
            failure.args = (f"{both}; the oracle's is {of_oracle:.6g}",)
    raise failure


def _by_place(flat: Array, case: Case, places: Sequence[Place]) -> dict[Place, Array]:
    """The arrays of a flat gradient."""
    found, at = dict[Place, Array](), 0
    for place in places:
        array = get(case, place)
        found[place] = flat[at : at + array.size].reshape(array.shape)
        at += array.size
    return found
