"""The only place with tolerances.

float64: 1e-10 relative to the largest entry. Lower precision: the error against the float64 oracle
is at most twice the error of the literal form in that precision, plus 2 ulp of the output's scale.
NaN and Inf never pass.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.floating]

FLOAT64 = 1e-10
"""Relative to the largest entry: float64 forms of one function, gradients included."""

METRIC = 1e-12
"""Absolute: caption metrics against the published implementation."""

SMOOTHED = 1e-8
"""Absolute: BLEU, whose published form adds 1e-9 and 1e-15 to its counts, by its definition."""

PERCENT = {"abs": 100 * SMOOTHED}
"""Of `pytest.approx`: the same times 100, as scores are printed."""

KEPT = {"abs": 1e-6}
"""Of `pytest.approx`: means of what is kept to six decimals, half of the last and as much again."""

KEPT_PERCENT = {"abs": 1e-4}
"""Of `pytest.approx`: the same times 100, as scores are printed."""

PROCESSES = 1e-6
"""Absolute: float32 weights and losses of several processes against those of one."""

JPEG = 2
"""Of 255: how far the best quality of JPEG may be from an even colour."""

SUMS = 1e-12
"""Relative: sums and means of operations, in another order."""

PRINTED_FLOPS = 1e-3
"""Relative: operations against the three or four digits that Table VI prints."""

COUNTED = {"abs": 0.02}
"""Of `pytest.approx`: counted bytes against the power of a size that they grow with."""

SAME_WORK = 1e-4
"""Absolute: float32 forms that are timed against each other; a wrong argument shows beyond it."""

TIMES = {"rel": 1e-9}
"""Of `pytest.approx`: ratios of times by logarithms and exponentials, in another order."""

EXPONENTS = {"abs": 1e-9}
"""Of `pytest.approx`: slopes of logarithms against the power that they are of."""

QUANTILES = {"rel": 0.01}
"""Of `pytest.approx`: Student's quantiles by draws, against the three decimals of tables."""

SIMULATED = {"rel": 0.02}
"""Of `pytest.approx`: times of simulated processes against what they stand for."""

CHAINED = {"rel": 0.05}
"""Of `pytest.approx`: products of some such ratios."""

SCHEDULED = {"rel": 1e-4}
"""Of `pytest.approx`: training times whose steps round to whole numbers."""

SCHEDULED_TWICE = {"rel": 1e-3}
"""Of `pytest.approx`: the same of two stages."""

DEVIATIONS = 6
"""Standard deviations: what is drawn against its expectation."""

DIFFERENCES = 1e-6
"""Relative to the largest entry: a derivative against central differences in float64."""

LITERAL_FACTOR = 2.0
ULPS = 2.0


def scale(expected: npt.ArrayLike) -> float:
    """The largest magnitude of ``expected``; 1 where it is all zeros or empty."""
    magnitudes = np.abs(np.asarray(expected, dtype=np.float64))
    return float(magnitudes.max(initial=0.0)) or 1.0


def error(actual: npt.ArrayLike, expected: npt.ArrayLike) -> float:
    """The largest absolute difference; infinite for a wrong shape, a NaN or an Inf."""
    a, e = np.asarray(actual, dtype=np.float64), np.asarray(expected, dtype=np.float64)
    if a.shape != e.shape or not np.isfinite(a).all():
        return float("inf")
    return float(np.abs(a - e).max(initial=0.0))


def float64_bound(expected: npt.ArrayLike) -> float:
    """The largest error that a float64 form may have."""
    return FLOAT64 * scale(expected)


def literal_bound(literal_error: float, expected: npt.ArrayLike, epsilon: float) -> float:
    """The largest error of a lower precision with machine ``epsilon``, given the literal form's."""
    return LITERAL_FACTOR * literal_error + ULPS * epsilon * scale(expected)


class OutOfToleranceError(AssertionError):
    """A result that is too far off: ``excess`` is its error over the bound, above 1."""

    def __init__(
        self, what: str, actual: npt.ArrayLike, expected: npt.ArrayLike, bound: float
    ) -> None:
        """Say what is wrong: the shape, a value that is not finite, or the error."""
        worst, shape, wanted = error(actual, expected), np.shape(actual), np.shape(expected)
        self.excess = worst / bound
        if shape != wanted:
            message = f"shape {shape}, expected {wanted}"
        elif np.isinf(worst):
            message = "not finite"
        else:
            message = f"error {worst:.3g} exceeds {bound:.3g}"
        super().__init__(f"{what}: {message}")


def _assert_within(actual: npt.ArrayLike, expected: npt.ArrayLike, bound: float, what: str) -> None:
    if not error(actual, expected) <= bound:
        raise OutOfToleranceError(what, actual, expected, bound)


def assert_close(actual: npt.ArrayLike, expected: npt.ArrayLike, what: str = "output") -> None:
    """Hold a float64 result to the float64 rule."""
    _assert_within(actual, expected, float64_bound(expected), what)


def assert_derivative(actual: npt.ArrayLike, differences: npt.ArrayLike, what: str) -> None:
    """Hold a derivative to central differences."""
    _assert_within(actual, differences, DIFFERENCES * scale(differences), what)


def assert_low_precision(
    actual: npt.ArrayLike, expected: npt.ArrayLike, limit: float, what: str = "output"
) -> None:
    """Hold a result to ``limit``, an error relative to the largest entry of ``expected``."""
    _assert_within(actual, expected, limit * scale(expected), what)
