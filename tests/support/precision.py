"""The rounding errors of a module in a lower precision, against the literal form's."""

import numpy as np

from benchmarks.verify.rounding import literal
from benchmarks.verify.tolerances import UNITS, error, literal_bound, scale


def in_precision(arrays, precision):
    """The arrays rounded to ``precision``: in float64, and for the oracle to evaluate literally."""
    low = {name: literal(value, precision) for name, value in arrays.items()}
    exact = {name: np.asarray(value, dtype=np.float64) for name, value in low.items()}
    return exact, low


def nudge(x, precision, generator):
    """``x`` with every entry moved by less than one unit of ``precision``, relative."""
    return x * (1 + UNITS[precision] * generator.uniform(-1, 1, x.shape))


class Errors:
    """Errors of a lower precision against the literal form's, over many cases.

    One case says little: either form may be lucky. So the worst and the mean over all cases are
    held to the rule, each error in units of what one rounding of the inputs does to the exact
    result; else the worst-conditioned case would drown the others. A case in which the literal form
    overflows is no yardstick; most must be one.
    """

    def __init__(self, precision):
        self.unit, self.cases = UNITS[precision], 0
        self.actual, self.literal, self.ulps = [], [], []

    def add(self, actual, literal, exact, nudged, size=None):
        """One case.

        Args:
            actual: the form under test.
            literal: the literal form in this precision.
            exact: float64.
            nudged: float64 of ``nudge``-d inputs, several where the result may jump.
            size: the scale of the output, if not its own.
        """
        self.cases += 1
        ulp = self.unit * (size or scale(exact))
        of_inputs = max(error(other, exact) for other in nudged) + ulp
        yardstick = error(literal, exact) / of_inputs
        if np.isfinite(yardstick):
            self.actual.append(error(actual, exact) / of_inputs)
            self.literal.append(yardstick)
            self.ulps.append(ulp / of_inputs)

    def check(self, what, statistics=(np.max, np.mean)):
        """Hold what was added to the rule, its worst and its mean."""
        assert len(self.literal) > self.cases / 2 > 5, f"{len(self.literal)} of {self.cases} cases"
        for how in statistics:
            found = float(how(self.actual))
            bound = literal_bound(float(how(self.literal)), float(how(self.ulps)))
            assert found <= bound, f"{what}: {how.__name__} error {found:.3g} exceeds {bound:.3g}"
