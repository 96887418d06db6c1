"""Holding torch modules to the oracle: conversions, parameters, derivatives by differences."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from hypothesis import reject

from benchmarks.verify import tolerances
from benchmarks.verify.gradients import output_weights, slope
from benchmarks.verify.properties import UndecidedError
from benchmarks.verify.rounding import literal
from benchmarks.verify.tolerances import literal_bound
from tests.support.strategies import fill

Array = npt.NDArray[Any]


def tensor(x, dtype=torch.float64, grad=False):
    """``x`` as a leaf of its own."""
    return torch.tensor(np.asarray(x), dtype=dtype).requires_grad_(grad)


def numpy(x):
    """``x`` in float64, whatever its dtype."""
    assert x is not None, "no gradient reached it"
    return x.detach().double().numpy()


def load(module, generator):
    """Fill ``module`` with normal parameters, in float64; they are returned as the oracle's."""
    module.double()
    parameters = {
        name: fill(generator, value.shape) / max(value.shape[-1], 1) ** 0.5
        for name, value in module.state_dict().items()
    }
    module.load_state_dict({name: torch.from_numpy(value) for name, value in parameters.items()})
    return parameters


def flat(arrays):
    """All arrays as one vector, so that one scale holds for all of them."""
    return np.concatenate([arrays[name].ravel() for name in sorted(arrays)])


def gradients(module):
    """Every parameter's gradient."""
    return {name: numpy(parameter.grad) for name, parameter in module.named_parameters()}


def assert_gradients(loss, arrays, gradients, generator, *, directions=4):
    """Hold ``gradients`` to central differences of ``loss`` along directions through all arrays.

    An example with a kink nearby is dropped.
    """
    weight, found, expected = output_weights(()), [], []
    for _ in range(directions):
        along = {name: generator.standard_normal(x.shape) for name, x in arrays.items()}

        def moved(step, along=along):
            return np.asarray(loss({name: x + step * along[name] for name, x in arrays.items()}))

        found.append(weight * sum(float((gradients[n] * along[n]).sum()) for n in arrays))
        try:
            expected.append(slope(moved))
        except UndecidedError:
            reject()
    tolerances.assert_derivative(found, expected, "directional derivatives")


def in_precision(arrays, precision):
    """The arrays rounded to ``precision``: in float64, and for the oracle to evaluate literally."""
    low = {name: literal(value, precision) for name, value in arrays.items()}
    exact = {name: np.asarray(value, dtype=np.float64) for name, value in low.items()}
    return exact, low


def nudge(x, precision, generator):
    """``x`` with every entry moved by less than one unit of ``precision``, relative."""
    return x * (1 + tolerances.UNITS[precision] * generator.uniform(-1, 1, x.shape))


class Errors:
    """Errors of a lower precision against the literal form's, over many cases.

    One case says little: either form may be lucky. So the worst and the mean over all cases are
    held to the rule, each error in units of what one rounding of the inputs does to the exact
    result; else the worst-conditioned case would drown the others. A case in which the literal form
    overflows is no yardstick; most must be one.
    """

    def __init__(self, precision):
        self.unit = tolerances.UNITS[precision]
        self.cases = 0
        self.actual = []
        self.literal = []
        self.ulps = []

    def add(self, actual, literal, exact, nudged, scale=None):
        """One case.

        Args:
            actual: the form under test.
            literal: the literal form in this precision.
            exact: float64.
            nudged: float64 of ``nudge``-d inputs, several where the result may jump.
            scale: of the output, if not its own.
        """
        self.cases += 1
        ulp = self.unit * (scale or tolerances.scale(exact))
        of_inputs = max(tolerances.error(other, exact) for other in nudged) + ulp
        yardstick = tolerances.error(literal, exact) / of_inputs
        if np.isfinite(yardstick):
            self.actual.append(tolerances.error(actual, exact) / of_inputs)
            self.literal.append(yardstick)
            self.ulps.append(ulp / of_inputs)

    def check(self, what, statistics=(np.max, np.mean)):
        """Hold what was added to the rule, its worst and its mean."""
        assert len(self.literal) > self.cases / 2 > 5, f"{len(self.literal)} of {self.cases} cases"
        for how in statistics:
            found = float(how(self.actual))
            bound = literal_bound(float(how(self.literal)), float(how(self.ulps)))
            assert found <= bound, f"{what}: {how.__name__} error {found:.3g} exceeds {bound:.3g}"
