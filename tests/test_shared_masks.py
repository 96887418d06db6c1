"""Self-critical sampling under shared dropout masks, and without dropout, beside as it was run."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from benchmarks.verify import strategies
from benchmarks.verify.tolerances import assert_close
from tests.support.parity import load, tensor
from tests.support.second_device import SECOND, on_host, on_second, second_device
from tests.support.training import CONFIGURATION, RECIPE
from torch_impl.cider import CiderD
from torch_impl.decoding import Samples, beam_search, sample, teacher_forced
from torch_impl.models import Captioner, Configuration, nic
from torch_impl.training import ImageBatch, SelfCriticalTraining
from torch_impl.training.sampling import (
    SAMPLINGS,
    SamplingComputation,
    SharedMasks,
    WithoutDropout,
)
from torch_impl.training.self_critical import self_critical


@st.composite
def captioners(draw: st.DrawFn) -> tuple[Captioner, Tensor, Tensor]:
    """Any pairing in training mode with dropout, ragged features."""
    fields = draw(strategies.configurations())
    fields["dropout"] = draw(st.sampled_from([0.1, 0.5]))
    fields["dropout_of"] = draw(st.sampled_from(["values", "vectors"]))
    model = Captioner(Configuration(**fields)).train()
    load(model, draw(strategies.generators()))
    images = draw(strategies.tokens(fields["d_feature"], kinds=("normal",)))
    model.implement(draw(st.sampled_from(["auto", "literal", "factored"])))
    return model, tensor(images.x), torch.from_numpy(images.mask)


def drawn(view: Any, features: Tensor, mask: Tensor, T: int, K: int, seed: int = 0) -> Samples:
    generator = torch.Generator().manual_seed(seed)
    return sample(view, features, mask, max_length=T, num_samples=K, generator=generator)


def gradient(loss: Tensor, model: Captioner) -> Tensor:
    """Of all parameters, one after the other."""
    of_each = torch.autograd.grad(loss, list(model.parameters()), materialize_grads=True)
    return torch.cat([part.flatten() for part in of_each])


@given(captioners(), st.integers(2, 6), st.integers(1, 3))
def test_samples_have_the_log_probabilities_that_are_trained(case, T, K):
    """Of one network: the decoder's pass has the masks that each token was drawn under."""
    model, features, mask = case
    view = SharedMasks(model)
    for seed in range(2):
        found = drawn(view, features, mask, T, K, seed)
        log_probs = teacher_forced(view, features, mask, found.tokens)
        assert_close(log_probs.detach().where(found.mask, 0), found.log_probs)


@given(captioners(), st.integers(2, 6), st.integers(1, 3), st.integers(0, 99))
def test_gradients_are_those_of_a_pass_that_draws_the_masks_itself(case, T, K, seed):
    """The memory is encoded once and projected once an image, which changes no gradient."""
    model, features, mask = case
    view = SharedMasks(model)
    torch.manual_seed(seed)
    found = drawn(view, features, mask, T, K)
    log_probs = teacher_forced(view, features, mask, found.tokens)
    torch.manual_seed(seed)
    short = T - found.tokens.shape[-1]
    padded = torch.nn.functional.pad(found.tokens, (0, short), value=model.pad_id)
    expected = teacher_forced(model, features, mask, padded)[..., : T - 1 - short]
    assert_close(log_probs.detach(), expected.detach())
    weights = torch.randn(log_probs.shape, dtype=log_probs.dtype)
    ours, theirs = (gradient((x * weights).sum(), model) for x in (log_probs, expected))
    assert_close(ours, theirs, "gradient")


def test_masks_are_new_in_each_round_and_of_each_sample():
    torch.manual_seed(0)
    view, seen = SharedMasks(Captioner(replace(CONFIGURATION, dropout=0.5)).train()), []
    for _ in range(2):
        cache = view.init_cache(torch.ones(1, 3, CONFIGURATION.d_model), None, 2, 4)
        seen += cache.step(torch.full((1, 2), view.start_id))[0]  # (V,) each
    for i, one in enumerate(seen):
        assert not any(torch.equal(one, other) for other in seen[:i])


@given(captioners(), st.integers(2, 6), st.integers(1, 3))
def test_off_samples_as_in_evaluation_and_trains_with_dropout(case, T, K):
    model, features, mask = case
    view = WithoutDropout(model)
    found = drawn(view, features, mask, T, K)
    assert all(module.training for module in model.modules())
    torch.manual_seed(1)
    log_probs = teacher_forced(view, features, mask, found.tokens)
    torch.manual_seed(1)
    assert torch.equal(log_probs, teacher_forced(model, features, mask, found.tokens))
    expected = drawn(model.eval(), features, mask, T, K)
    assert all(torch.equal(*parts) for parts in zip(found, expected, strict=True))


@given(captioners(), st.booleans(), st.integers(0, 99))
def test_without_dropout_the_samplings_are_one(case, training, seed):
    model, features, mask = case
    model.train(training)
    for module in model.modules():
        for name in ("p", "dropout"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
    model.configuration = replace(model.configuration, dropout=0.0)

    def step(sampling: Callable[[Any], Any]) -> tuple[Tensor, Samples, Tensor]:
        found = self_critical(
            sampling(model),
            features,
            mask,
            torch.arange(len(features)),
            CiderD([[[3, 2]]] * len(features)),
            num_samples=3,
            max_length=5,
            generator=torch.Generator().manual_seed(seed),
        )
        return found.loss, found.samples, gradient(found.loss, model)

    loss, samples, of_loss = step(SAMPLINGS["as-run"])
    for name in ("shared", "off"):
        other_loss, others, of_other = step(SAMPLINGS[name])
        assert torch.equal(others.tokens, samples.tokens)
        assert_close(other_loss.detach(), loss.detach())
        assert_close(of_other, of_loss, "gradient")


REFERENCES = [[[3, 4, 5, 2]], [[5, 6, 2]], [[7, 2]]]


class SameImages:
    """Three images, a few times."""

    def __init__(self, count: int) -> None:
        features = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(1))
        self.batch = ImageBatch(features, torch.tensor([4, 2, 3]), torch.arange(3))
        self.count = count

    def __len__(self) -> int:
        return self.count

    def epoch(self, epoch: int, start: int) -> Any:
        return iter([self.batch] * (self.count - start))


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize(("accumulate", "precision"), [(1, "float32"), (2, "bfloat16")])
def test_a_training_is_a_function_of_its_seed(sampling, accumulate, precision):
    def rewards() -> list[float | None]:
        torch.manual_seed(0)
        training = SelfCriticalTraining(
            Captioner(CONFIGURATION),
            SameImages(4),
            RECIPE,
            CiderD(REFERENCES),
            max_length=6,
            computation=SamplingComputation(accumulate, precision, sampling=sampling),
        )
        return [step.reward for step in training.run(1)]

    first = rewards()
    torch.rand(3)  # whatever was drawn before
    assert rewards() == first


def test_on_another_device_masks_are_shared_and_nothing_is_read_but_whether_samples_ended():
    """Its dropout is the library's, which draws differently from ours on a CPU."""
    torch.manual_seed(0)
    model = Captioner(replace(CONFIGURATION, dropout=0.5, max_length=20)).double().train()
    model.vocabulary.bias.data[model.end_id] = -9.0
    features, lengths = torch.randn(3, 4, 5).double(), torch.tensor([4, 1, 3])
    with second_device() as reads:
        view = SharedMasks(on_second(copy.deepcopy(model)))
        data = on_second((features, lengths))
        found = sample(view, *data, max_length=20, num_samples=2)
        log_probs = teacher_forced(view, *data, found.tokens)
        assert log_probs.device == SECOND
        assert len(reads) == 2, reads.by_place
        assert_close(on_host(log_probs.detach()), on_host(found.log_probs))


def test_what_cannot_be_is_named():
    with pytest.raises(ValueError, match="sampling is 'greedy', expected as-run or shared or off"):
        SamplingComputation(sampling="greedy")
    with pytest.raises(ValueError, match="sampling shared cannot be compiled"):
        SamplingComputation(compile=True, sampling="shared")
    assert SamplingComputation(compile=True, sampling="off").compile
    with pytest.raises(ValueError, match="need a Captioner, not a RecurrentCaptioner"):
        SharedMasks(nic(9, 4, d_embedding=4, hidden_size=4))
    model = Captioner(CONFIGURATION).train()
    view, features = SharedMasks(model), torch.randn(2, 3, 5)
    cache = view.init_cache(view.encode(features), None, 2, 4)
    with pytest.raises(ValueError, match=r"expected \(2, 2\)"):
        cache.step(torch.zeros(2, 1, dtype=torch.int64))
    with pytest.raises(ValueError, match="samples under masks of their own"):
        beam_search(view, features, beam_size=2, max_length=4)
    for _ in range(4):
        cache.step(torch.zeros(2, 2, dtype=torch.int64))
    with pytest.raises(ValueError, match="as many as max_length"):
        cache.step(torch.zeros(2, 2, dtype=torch.int64))
