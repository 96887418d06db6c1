"""Holding torch modules to the oracle: conversions, parameters, derivatives by differences."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from hypothesis import reject

from benchmarks.verify import tolerances
from benchmarks.verify.derivatives import output_weights, slope
from benchmarks.verify.properties import UndecidedError
from benchmarks.verify.strategies import fill

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
