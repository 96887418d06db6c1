"""What must hold of the expansion operators and layers, beyond their conformance."""

from collections import defaultdict
from dataclasses import replace
from functools import partial
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.verify import strategies
from benchmarks.verify.cases import numpy_dtype
from benchmarks.verify.precision import SMALLEST
from benchmarks.verify.tolerances import PROMOTED, scale
from tests.support.covers import covers
from tests.support.expansion import FORMS, batched, operator, run
from tests.support.parity import flat, gradients, numpy, tensor
from tests.support.precision import Errors, nudge
from torch_impl.expansion import (
    DynamicExpansion,
    StaticExpansion,
    dynamic_expansion,
    factored,
    static_expansion,
)

MODERATE = st.one_of(
    strategies.static_cases(kinds=strategies.MODERATE),
    strategies.dynamic_cases(kinds=strategies.MODERATE),
)


@pytest.mark.parametrize("precision", SMALLEST)
@covers(expansionnet_v1=[3, 4, 5, 6, 7, 8, 9], expansionnet_v2=[1, 2, 3, 4, 5, 6, 7, 8, 9])
def test_lower_precision_is_as_good_as_the_literal_form(precision):
    errors = defaultdict(lambda: Errors(precision))

    @settings(max_examples=60)
    @given(MODERATE, strategies.generators(), st.sampled_from((8, factored.CHUNK)))
    def collect(case, generator, chunk):
        case = case.astype(numpy_dtype(precision)).astype(np.float64)
        out, dX_exact = batched(case)
        literally, dX_literally = batched(case, precision)
        moved = {name: nudge(x, precision, generator) for name, x in case.arrays.items()}
        nudged, dX_nudged = batched(replace(case, **moved))
        for form in FORMS:
            with mock.patch.object(factored, "CHUNK", chunk):
                actual, dX = run(case, getattr(torch, precision), implementation=form)
            errors[form, "output"].add(actual, literally, out, [nudged])
            for name in dX:
                forms = (dX[name], dX_literally[name], dX_exact[name], [dX_nudged[name]])
                for found in (errors[form, name], errors[form, "any gradient"]):
                    found.add(*forms, scale(flat(dX_exact)))

    collect()
    statistics = {"output": (np.max, np.mean), "any gradient": (np.max,)}
    for (form, name), found in errors.items():
        found.check(f"{name}, {form}", statistics.get(name, (np.mean,)))


@st.composite
def layers(draw):
    """A layer of each kind."""
    d_model, static = draw(strategies.widths()), draw(st.booleans())
    if static:
        return StaticExpansion(d_model, draw(strategies.groups())).double()
    return DynamicExpansion(d_model, draw(st.integers(1, 4)), causal=draw(st.booleans())).double()


@given(st.data(), layers(), st.sampled_from(strategies.FILLINGS))
def test_padded_rows_come_out_zero(data, layer, filling):
    """As do their gradients, whatever padding holds."""
    case = data.draw(strategies.tokens(layer.d_model, empty=True))
    x = tensor(case.filled(filling), grad=True)
    out = layer(x, torch.from_numpy(case.mask))
    torch.autograd.backward(out.sum())
    assert (numpy(out)[~case.mask] == 0).all()
    assert (numpy(x.grad)[~case.mask] == 0).all()


@given(st.lists(st.integers(0, 5), min_size=1, max_size=4))
def test_lengths_are_the_mask_they_mean(lengths):
    layer, x = StaticExpansion(4, (2, 3)), torch.randn(len(lengths), 5, 4)
    mask = torch.arange(5) < torch.tensor(lengths)[:, None]
    assert torch.equal(layer(x, lengths), layer(x, mask))
    assert torch.equal(layer(x, torch.tensor(lengths)), layer(x, mask))
    assert torch.equal(layer(x, [5] * len(lengths)), layer(x))


LAYERS = [StaticExpansion(6, (2, 3)), StaticExpansion(6, (8, 16)), DynamicExpansion(6, 3)]
"""Of few vectors a token, of many, and with vectors for each."""


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_layers_follow_autocast_and_keep_their_dtype(layer, dtype):
    """Wherever the backward is called."""
    x = torch.randn(2, 4, 6)
    for inside in (False, True):
        layer.zero_grad()
        with torch.autocast("cpu", dtype):
            out = layer(x, [4, 0])
            if inside:
                torch.autograd.backward(out.float().sum())
        if not inside:
            torch.autograd.backward(out.float().sum())
        assert out.dtype == dtype
        assert all(np.isfinite(gradient).all() for gradient in gradients(layer).values())


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: StaticExpansion(4, ()), "groups must name at least one"),
        (lambda: StaticExpansion(4, 0), "coefficient of groups must be at least 1, not 0"),
        (lambda: StaticExpansion(4, (3, -2)), "coefficient of groups must be at least 1, not -2"),
        (lambda: StaticExpansion(0, 3), "d_model must be at least 1"),
        (lambda: StaticExpansion(4, 3, implementation="fast"), "'fast'.* auto, literal, factored"),
        (lambda: StaticExpansion(4, 3, dropout=1.5), r"dropout is 1.5, expected in \[0, 1\]"),
        (lambda: DynamicExpansion(4, 3, dropout_of="rows"), "'rows'.* values, vectors"),
        (lambda: DynamicExpansion(4, 0), "num_expansions must be at least 1, not 0"),
        (lambda: DynamicExpansion(4, -1), "num_expansions must be at least 1, not -1"),
        (lambda: DynamicExpansion(4, 2, implementation="fast"), "'fast'.* auto, literal, factored"),
    ],
)
def test_bad_settings_are_named(build, message):
    with pytest.raises(ValueError, match=message):
        build()


DTYPES = st.sampled_from([torch.float64, torch.float32, torch.bfloat16])


@pytest.mark.parametrize("implementation", FORMS)
@given(case=MODERATE, dtypes=st.tuples(DTYPES, DTYPES, DTYPES))
def test_values_and_selectors_of_several_dtypes_are_promoted(case, implementation, dtypes):
    names = "V_1", "V_2", "S"
    arrays = {name: tensor(x, torch.float32) for name, x in case.arrays.items()}
    mixed = {name: arrays[name].to(dtype) for name, dtype in zip(names, dtypes, strict=True)}
    widest = max(dtypes, key=lambda dtype: torch.finfo(dtype).bits)
    alike = {name: x.to(widest) for name, x in mixed.items()}
    found = operator(case, arrays | mixed, implementation=implementation)
    assert found.dtype == widest
    assert torch.equal(found, operator(case, arrays | alike, implementation=implementation))


@pytest.mark.parametrize("implementation", (*FORMS, "auto"))
@given(case=strategies.static_cases(kinds=strategies.MODERATE), dtypes=st.tuples(*4 * (DTYPES,)))
def test_a_key_projection_of_several_dtypes_is_promoted(case, implementation, dtypes):
    def projected(dtypes):
        a = {name: tensor(x, torch.float32) for name, x in case.arrays.items()}
        d = a["K"].shape[-1]
        weight, bias = torch.linspace(-1, 1, d * d).reshape(d, d), torch.linspace(-1, 1, d)
        pairs = zip((a["E_Q"], a["K"], weight, bias), dtypes, strict=True)
        a["E_Q"], a["K"], *projection = (x.to(dtype) for x, dtype in pairs)
        mask = torch.from_numpy(case.mask)
        operands = (a[name] for name in ("E_Q", "E_B", "K", "V_1", "V_2", "S"))
        options = {"key_projection": tuple(projection), "implementation": implementation}
        return static_expansion(*operands, case.groups, mask, **options)

    found, plain = projected(dtypes), projected(4 * (torch.float32,))
    assert found.dtype == plain.dtype
    if torch.bfloat16 not in dtypes:
        assert (found - plain).abs().max() <= PROMOTED * max(1.0, plain.abs().max())


@pytest.mark.parametrize("layer", [StaticExpansion(4, 3), DynamicExpansion(4, 3)])
@pytest.mark.parametrize(
    ("x", "lengths", "message"),
    [
        ((2, 5, 3), None, r"x has shape \(2, 5, 3\), expected \(B, L, 4\)"),
        ((5, 4), None, r"x has shape \(5, 4\)"),
        ((2, 5, 4), [5, 6], r"lengths \[5, 6\] must lie between 0 and 5"),
        ((2, 5, 4), [-1, 2], r"lengths \[-1, 2\]"),
        ((2, 5, 4), [5], r"lengths has shape \(1,\), expected \(2,\)"),
        ((2, 5, 4), torch.ones(2, 4, dtype=torch.bool), r"mask has shape \(2, 4\)"),
    ],
)
def test_bad_input_is_named(layer, x, lengths, message):
    with pytest.raises(ValueError, match=message):
        layer(torch.zeros(x), lengths)


def test_other_bad_input_is_named():
    layer, x = StaticExpansion(4, (1, 2)), torch.zeros(2, 5, 4)
    with pytest.raises(TypeError, match="integers or booleans"):
        layer(x, torch.tensor([1.0, 2.0]))
    layer.implementation = "fast"
    with pytest.raises(ValueError, match="'fast'"):
        layer(x)
    vectors = torch.zeros(3, 4)
    with pytest.raises(ValueError, match=r"groups \(1, 1\) must add up to 3"):
        static_expansion(vectors, vectors, x, x, x, x, (1, 1))
    with pytest.raises(ValueError, match="groups is 3, expected the coefficients"):
        static_expansion(vectors, vectors, x, x, x, x, 3)


@pytest.mark.parametrize(
    ("wrong", "shape", "message"),
    [
        ("keys", (5, 4), r"keys has shape \(5, 4\), expected \(B, L, d\)"),
        ("query_vectors", (3, 5), r"query_vectors has shape \(3, 5\), expected \(N, 4\)"),
        ("bias_vectors", (1, 4), r"bias_vectors has shape \(1, 4\), expected \(3, 4\)"),
        ("values_1", (1, 5, 4), r"values_1 has shape \(1, 5, 4\), expected \(2, 5, 4\)"),
        ("selectors", (2, 5, 1), r"selectors has shape \(2, 5, 1\)"),
        ("mask", (2, 5), r"mask is torch.float32 of shape \(2, 5\), expected booleans"),
    ],
)
@pytest.mark.parametrize("implementation", ["literal", "factored"])
@pytest.mark.parametrize("operator", [static_expansion, dynamic_expansion])
def test_the_operators_broadcast_nothing(operator, implementation, wrong, shape, message):
    names = ["keys", "values_1", "values_2", "selectors"]
    if operator is dynamic_expansion:
        names.append("conditions")
    inputs = {name: torch.zeros(2, 5, 4) for name in names}
    inputs |= {name: torch.zeros(3, 4) for name in ("query_vectors", "bias_vectors")}
    if operator is static_expansion:
        operator = partial(operator, groups=(3,))
    with pytest.raises(ValueError, match=message):
        operator(**(inputs | {wrong: torch.zeros(shape)}), implementation=implementation)
