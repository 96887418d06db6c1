"""Dropout: its random masks, and where an expansion applies it."""

from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.verify import strategies
from benchmarks.verify.strategies import DynamicCase, StaticCase
from benchmarks.verify.tolerances import DROPOUT_RATE, assert_close
from reference import expansion as oracle
from tests.support.expansion import CASES, FORMS, operator
from tests.support.parity import flat, numpy, tensor
from tests.support.tolerances import DEVIATIONS
from torch_impl.common.dropout import Dropout, keep_mask, keep_scale
from torch_impl.expansion import DynamicExpansion, StaticExpansion, factored, literal
from torch_impl.expansion.functional import DROPOUTS

PROBABILITIES = st.sampled_from((0.1, 0.3, 0.5, 0.9))
CHUNKS = (1, 60, factored.CHUNK)


def chunks_of(size):
    """Factored computes in chunks of ``size`` within."""
    return mock.patch.object(factored, "CHUNK", size)


class Masks:
    """The masks of an expansion, for both implementations."""

    def __init__(self, case, p, dropout_of, seed):
        generator, self.p = np.random.default_rng(seed), p
        (B, L, d), N = case.K.shape, len(case.E_Q)
        N = N * L if isinstance(case, DynamicCase) else N
        self.M = generator.random((B, N, L)) >= p
        self.F = generator.random((2, B, N, d if dropout_of == "values" else 1)) >= p
        self.B = generator.random((2, B, L, d)) >= p

    def in_turn(self):
        """In the order of the literal form."""
        yield self.M
        for k in range(2):
            yield from (self.F[k], self.B[k])

    def run(self, implementation, *arguments, **options):
        """The operator with these masks."""
        masks = self.in_turn()

        def drop(x, p):
            keep = torch.from_numpy(next(masks))
            assert keep.shape == x.shape
            return x * keep * keep_scale(p)

        of_factored = iter((self.M.swapaxes(1, 2), *self.F, *self.B))

        def chosen(shape, p, device):
            keep = torch.from_numpy(next(of_factored).copy())
            assert keep.shape == tuple(shape)
            return keep

        with (
            mock.patch.object(literal.F, "dropout", drop),
            mock.patch.object(factored, "keep_factors", chosen),
        ):
            out = operator(*arguments, dropout=self.p, implementation=implementation, **options)
        assert next(masks if implementation == "literal" else of_factored, None) is None
        return out


@pytest.mark.parametrize("implementation", FORMS)
@pytest.mark.parametrize("chunk", CHUNKS)
@given(CASES, PROBABILITIES, st.sampled_from(DROPOUTS), st.integers(0, 99))
def test_dropout_falls_on_m_and_on_forward_and_backward_values(
    implementation, chunk, case, p, dropout_of, seed
):
    """M is dropped once, with its sign, before the streams part."""
    masks = Masks(case, p, dropout_of, seed)
    arrays = {name: tensor(x) for name, x in case.arrays.items()}
    with chunks_of(chunk):
        out = numpy(masks.run(implementation, case, arrays, dropout_of=dropout_of))
    for b in np.flatnonzero(case.mask.any(axis=1)):
        a, valid = case.sequence(int(b)), case.mask[b]
        rows = np.ones(len(case.E_Q), dtype=bool)
        forward_mask = None
        backward_mask = None
        queries, biases, groups = a["E_Q"], a["E_B"], None
        if isinstance(case, StaticCase):
            groups = case.groups
        else:
            rows = np.repeat(valid, len(rows))
            queries, biases = oracle.dynamic_expansion_vectors(a["C"], queries, biases)
            if case.causal:
                forward_mask, backward_mask = oracle.causal_masks(int(valid.sum()), len(case.E_Q))
        M = oracle.length_transformation(queries, a["K"])
        M = M * masks.M[b][rows][:, valid] * keep_scale(p)
        B = []
        for i, V in ((1, a["V_1"]), (2, a["V_2"])):
            F_fw = oracle.forward_expansion(oracle.forward_weights(M, i, forward_mask), V, biases)
            F_fw = F_fw * masks.F[i - 1, b][rows] * keep_scale(p)
            R_bw = oracle.backward_weights(M, i, groups, backward_mask)
            kept = masks.B[i - 1, b][valid]
            B.append(oracle.backward_expansion(R_bw, F_fw) * kept * keep_scale(p))
        assert_close(out[b, valid], oracle.selection(a["S"], *B))


@settings(max_examples=100)
@given(CASES, PROBABILITIES, st.sampled_from(DROPOUTS), st.integers(0, 99))
def test_gradients_under_dropout_are_the_literal_form_s(case, p, dropout_of, seed):
    masks = Masks(case, p, dropout_of, seed)

    def gradients(form, chunk):
        arrays = {name: tensor(x, grad=name != "dO") for name, x in case.arrays.items()}
        dO = arrays.pop("dO")
        with chunks_of(chunk):  # in the backward pass too
            torch.autograd.backward(masks.run(form, case, arrays, dropout_of=dropout_of), dO)
        return flat({name: numpy(x.grad) for name, x in arrays.items()})

    expected = gradients("literal", factored.CHUNK)
    for chunk in CHUNKS:
        assert_close(gradients("factored", chunk), expected, "gradients")


@pytest.mark.parametrize("dropout_of", DROPOUTS)
@pytest.mark.parametrize("implementation", FORMS)
@pytest.mark.parametrize("kind", [StaticExpansion, DynamicExpansion])
def test_dropout_is_for_training_only(kind, implementation, dropout_of):
    layer = kind(6, 5, dropout=0.5, dropout_of=dropout_of, implementation=implementation)
    x = torch.randn(2, 4, 6)
    layer.train()
    assert not torch.equal(layer(x), layer(x))
    layer.eval()
    assert torch.equal(layer(x), layer(x))


@pytest.mark.parametrize("elsewhere", [False, True])
@given(st.floats(0.01, 0.99), strategies.generators())
def test_masks_keep_independently_with_the_probability_s_complement(elsewhere, p, generator):
    """Within six standard deviations: of the mean, and of the agreement of neighbours."""
    torch.manual_seed(int(generator.integers(2**31)))
    count = 40_001
    with mock.patch.object(torch.compiler, "is_compiling", lambda: elsewhere):
        kept = keep_mask((count,), p, torch.device("cpu")).double()
    assert abs(float(kept.mean()) - (1 - p)) < DEVIATIONS * (p * (1 - p) / count) ** 0.5
    for lag in (1, 2, 3, 4, 8):
        both = float((kept[lag:] * kept[:-lag]).mean())
        expected = (1 - p) ** 2
        assert abs(both - expected) < DEVIATIONS * (3 * expected * (1 - expected) / count) ** 0.5


def test_masks_follow_the_seed_and_the_shape():
    torch.manual_seed(5)
    first, second = (keep_mask((3, 5, 7), 0.5, torch.device("cpu")) for _ in range(2))
    assert first.shape == (3, 5, 7) and first.dtype == torch.bool
    assert not torch.equal(first, second)
    torch.manual_seed(5)
    assert torch.equal(keep_mask((3, 5, 7), 0.5, torch.device("cpu")), first)
    assert keep_mask((0, 4), 0.5, torch.device("cpu")).shape == (0, 4)


@given(st.sampled_from((0.0, 0.25, 0.5, 1.0)), st.booleans())
def test_the_module_drops_and_scales_in_training_alone(p, training):
    module, x = Dropout(p).train(training), torch.ones(50, 40, requires_grad=True)
    out = module(x)
    torch.autograd.backward(out.sum())
    if not training:
        assert torch.equal(out, x)
        return
    factor = torch.tensor(1 / (1 - p) if p < 1 else 0.0)
    assert torch.isin(out, torch.stack([torch.zeros(()), factor])).all()
    assert x.grad is not None and torch.equal(x.grad, out.detach())


@given(st.sampled_from((0.0, 0.25, 0.5, 1.0)), st.booleans(), st.sampled_from(("auto", "literal")))
def test_dropout_of_a_relu_is_the_relu_and_then_dropout(p, training, implementation):
    """The same values and gradients under the same masks, zeros and NaN included."""
    module = Dropout(p).train(training)
    module.implementation = implementation
    values = torch.randn(6, 7)
    values[0, :3] = torch.tensor([0.0, -0.0, torch.nan])
    upstream, found = torch.randn(6, 7), []
    for function in (lambda x: module(torch.relu(x)), module.of_relu):
        torch.manual_seed(3)
        x = values.clone().requires_grad_()
        out = function(x)
        torch.autograd.backward(out, upstream)
        found.append(torch.stack([out.detach(), x.grad]))
    assert torch.equal(*(torch.nan_to_num(each, nan=1e9) for each in found))


@pytest.mark.parametrize("p", [1e-6, 0.3, 0.999, 0.99999])
def test_the_scale_preserves_the_mean(p):
    """Within six standard deviations of the mean, whatever the probability is rounded to."""
    count = 2**21
    dropped = 1 - 1 / keep_scale(p)
    mean = float(keep_mask((count,), p, torch.device("cpu")).double().mean()) * keep_scale(p)
    assert abs(dropped - p) <= DROPOUT_RATE
    assert abs(mean - 1) <= DEVIATIONS * (dropped / (1 - dropped) / count) ** 0.5
