"""The batched expansion operators and the oracle's on the same cases, by the oracle's names."""

import numpy as np
import torch
from hypothesis import strategies as st

from benchmarks.verify import strategies
from benchmarks.verify.precision import SMALLEST
from benchmarks.verify.rounding import literal
from benchmarks.verify.strategies import DynamicCase, StaticCase
from reference import expansion as oracle
from reference import expansion_gradients as vjp
from tests.support.parity import numpy, tensor
from torch_impl.expansion import dynamic_expansion, static_expansion

CASES = st.one_of(strategies.static_cases(), strategies.dynamic_cases())
LEARNED = ("E_Q", "E_B")
FORMS = ("literal", "factored")


def operator(case, arrays, **options):
    """The operator under test on ``arrays``, which have the oracle's names."""
    a, mask = arrays, torch.from_numpy(case.mask)
    if isinstance(case, StaticCase):
        return static_expansion(
            a["E_Q"], a["E_B"], a["K"], a["V_1"], a["V_2"], a["S"], case.groups, mask, **options
        )
    assert isinstance(case, DynamicCase)
    return dynamic_expansion(
        a["E_Q"],
        a["E_B"],
        a["C"],
        a["K"],
        a["V_1"],
        a["V_2"],
        a["S"],
        mask,
        causal=case.causal,
        **options,
    )


def run(case, dtype=torch.float64, **options):
    """The operator's output and its gradients, by the oracle's names."""
    arrays = {name: tensor(x, dtype, grad=name != "dO") for name, x in case.arrays.items()}
    out = operator(case, arrays, **options)
    torch.autograd.backward(out, arrays.pop("dO"))
    return numpy(out), {name: numpy(x.grad) for name, x in arrays.items()}


def expected(case, b, precision=None):
    """The oracle's output and gradients for sequence ``b``, literally in ``precision``."""
    a, epsilon = case.sequence(b), oracle.EPSILON
    if precision is not None:
        a = {name: literal(x, precision) for name, x in a.items()}
        epsilon = max(SMALLEST[precision], epsilon)
    with np.errstate(all="ignore"):
        if isinstance(case, StaticCase):
            args = (a["E_Q"], a["E_B"], a["K"], a["V_1"], a["V_2"], a["S"], case.groups, epsilon)
            static = vjp.static_expansion_vjp(a["dO"], *args)
            return oracle.static_expansion(*args), static._asdict()
        assert isinstance(case, DynamicCase)
        vectors = (a["E_Q"], a["E_B"], a["C"], a["K"], a["V_1"], a["V_2"], a["S"])
        dynamic = vjp.dynamic_expansion_vjp(a["dO"], *vectors, case.causal, epsilon)
        return oracle.dynamic_expansion(*vectors, case.causal, epsilon), dynamic._asdict()


def batched(case, precision=None):
    """The oracle on each sequence alone, put back into the padded batch; gradients zero there."""
    out = np.zeros(case.K.shape)
    dX = {name: np.zeros(x.shape) for name, x in case.arrays.items() if name != "dO"}
    for b in np.flatnonzero(case.mask.any(axis=1)):
        valid = case.mask[b]
        out[b, valid], one = expected(case, int(b), precision)
        for name, gradient in one.items():
            if name in LEARNED:
                dX[name] += gradient
            else:
                dX[name][b, valid] = gradient
    return out, dX
