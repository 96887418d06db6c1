"""Which implementation a call gets, what each refuses, and whole models by any of them."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.verify import strategies
from benchmarks.verify.strategies import DynamicCase
from benchmarks.verify.tolerances import assert_close
from tests.support.expansion import CASES, operator
from tests.support.parity import load, tensor
from torch_impl import kernels
from torch_impl.common.dropout import Dropout
from torch_impl.expansion import DynamicExpansion, StaticExpansion
from torch_impl.models import Captioner, Configuration, expansionnet_v2

LAYERS = pytest.mark.parametrize("kind", [StaticExpansion, DynamicExpansion])


@given(CASES)
def test_auto_is_factored_but_for_one_token_or_one_vector_a_token(case):
    a = {name: tensor(x) for name, x in case.arrays.items()}
    one = isinstance(case, DynamicCase) and 1 in (case.K.shape[1], len(case.E_Q))
    form = "literal" if one else "factored"
    assert torch.equal(operator(case, a), operator(case, a, implementation=form))


@LAYERS
def test_a_second_derivative_is_refused_not_wrong(kind):
    layer, x = kind(6, 5).double(), torch.randn(2, 4, 6, dtype=torch.float64, requires_grad=True)
    with pytest.raises(RuntimeError, match="expected implementation='literal'"):
        torch.autograd.grad(layer(x).sum(), x, create_graph=True)
    layer.implementation = "literal"
    (first,) = torch.autograd.grad(layer(x).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), x)
    assert second.abs().max() > 0


@pytest.mark.parametrize(
    "layer", [StaticExpansion(6, 5), StaticExpansion(6, (3, 9, 20)), DynamicExpansion(6, 3)]
)
@pytest.mark.parametrize("implementation", ["literal", "factored"])
def test_layers_are_exported(layer, implementation):
    layer.eval().double().implementation = implementation
    x = torch.randn(2, 4, 6, dtype=torch.float64)
    exported = torch.export.export(layer, (x,)).module()
    assert_close(exported(x).detach(), layer(x).detach())


@settings(max_examples=3)
@given(
    strategies.configurations(),
    st.sampled_from(["static:3", "static:2,1"]),
    strategies.generators(),
)
def test_a_captioner_is_the_same_by_any_implementation(fields, encoder, generator):
    pytest.importorskip("triton")
    model = Captioner(Configuration(**fields | {"encoder": encoder, "decoder": "dynamic:2"})).eval()
    load(model, generator)
    features = tensor(generator.standard_normal((2, 3, fields["d_feature"])))
    words = torch.from_numpy(generator.integers(fields["vocabulary_size"], size=(2, 4)))
    with kernels.interpreted(), torch.no_grad():
        literal, *others = (
            model.implement(name)(features, words, [3, 0])
            for name in ("literal", "factored", "fused", "auto")
        )
    for other in others:
        assert_close(other, literal)


def test_a_captioner_tells_every_expansion_and_every_dropout():
    model = expansionnet_v2(9, 4, d_model=8, num_heads=2, d_ff=8, dropout_of="vectors")
    kinds = (StaticExpansion, DynamicExpansion, Dropout)
    several = [module for module in model.modules() if isinstance(module, kinds)]
    assert len(several) > 6
    assert model.implement("literal") is model
    assert {module.implementation for module in several} == {"literal"}
    expansions = [module for module in several if not isinstance(module, Dropout)]
    assert {module.dropout_of for module in expansions} == {"vectors"}
    with pytest.raises(ValueError, match=r"'quick'.* auto, literal, factored, fused"):
        model.implement("quick")


@LAYERS
def test_fused_says_what_it_has_no_kernel_for(kind):
    pytest.importorskip("triton")
    x = torch.randn(2, 3, 8)
    with kernels.interpreted():
        with pytest.raises(ValueError, match="no kernel for this call: 4097 expansion vectors"):
            kind(8, 4097, implementation="fused")(x)
        layer = kind(8, 3, dropout=0.1, implementation="fused")
        with pytest.raises(ValueError, match="fused implementation has no dropout"):
            layer(x)
        layer.eval()
        layer(x)


@LAYERS
def test_fused_needs_a_gpu_which_auto_does_not(kind, monkeypatch):
    monkeypatch.setattr(kernels.support, "_interpreting", False)
    layer, x = kind(8, 3, implementation="fused"), torch.randn(2, 3, 8)
    with pytest.raises(ValueError, match="no kernel for this call"):
        layer(x)
    layer.implementation = "auto"
    assert layer(x).isfinite().all()
