"""A step in parts, in 16 bits or compiled is the step: its loss, its gradient, its resumption."""

from __future__ import annotations

import copy
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.verify.tolerances import assert_close
from tests.support.parity import flat, gradients
from tests.support.precision import Errors
from tests.support.training import CONFIGURATION, RECIPE, numbers
from torch_impl.checkpoints.checkpoint import CheckpointError, load, save
from torch_impl.cider import CiderD
from torch_impl.models import Captioner
from torch_impl.training import (
    Batch,
    CrossEntropyTraining,
    ImageBatch,
    NonFiniteError,
    SelfCriticalTraining,
    data_generator,
)
from torch_impl.training.computation import Computation
from torch_impl.training.optimisation import Optimisation

PLAIN = replace(RECIPE, dropout=0.0)
STILL = replace(CONFIGURATION, dropout=0.0)
WORDS = CONFIGURATION.vocabulary_size
REFERENCES = [[[3, 4, 5, 2], [4, 3, 2]], [[5, 6, 7, 2]], [[8, 9, 10, 2]], [[4, 2]], [[9, 3, 2]]]


def images_of(random: np.random.Generator, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    features = random.normal(size=(count, 4, CONFIGURATION.d_feature))
    return torch.tensor(features), torch.tensor(random.integers(1, 5, size=count))


def captions_of(random: np.random.Generator, count: int) -> Batch:
    """Images with one to three captions each, of two to seven tokens."""
    images = torch.arange(count).repeat_interleave(torch.tensor(random.integers(1, 4, size=count)))
    tokens = torch.zeros(len(images), 7, dtype=torch.int64)
    for row, size in zip(tokens, random.integers(2, 8, size=len(images)), strict=True):
        row[:size] = torch.tensor(random.integers(3, WORDS, size=size))
        row[0], row[size - 1] = 1, 2
    return Batch(*images_of(random, count), tokens, images)


def places_of(random: np.random.Generator, count: int) -> ImageBatch:
    places = torch.tensor(random.integers(0, len(REFERENCES), size=count))
    return ImageBatch(*images_of(random, count), places)


class Drawn:
    """Batches of one to five images, in float64 or in the model's own precision."""

    def __init__(self, make: Any, seed: int, count: int = 3, dtype: Any = torch.float64) -> None:
        self.make, self.seed, self.count, self.dtype = make, seed, count, dtype

    def __len__(self) -> int:
        return self.count

    def epoch(self, epoch: int, start: int) -> Iterator[Any]:
        random = data_generator(self.seed, epoch)
        for i in range(self.count):
            batch = self.make(random, int(random.integers(1, 6)))
            if i >= start:
                yield batch._replace(features=batch.features.to(self.dtype))


def training(
    objective: str,
    computation: Computation,
    seed: int = 0,
    dtype: Any = torch.float64,
    implementation: str = "auto",
    recipe: Optimisation = PLAIN,
) -> CrossEntropyTraining | SelfCriticalTraining:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = Captioner(replace(STILL, dropout=recipe.dropout)).to(dtype)
    model.implement(implementation)
    given: dict[str, Any] = {"seed": seed, "computation": computation}
    if objective == "cross_entropy":
        return CrossEntropyTraining(model, Drawn(captions_of, seed, dtype=dtype), recipe, **given)
    batches = Drawn(places_of, seed, dtype=dtype)
    reward = CiderD(REFERENCES)
    return SelfCriticalTraining(model, batches, recipe, reward, max_length=7, **given)


OBJECTIVES = ("cross_entropy", "self_critical")


@given(st.integers(0, 99), st.integers(1, 5), st.integers(1, 7))
def test_micro_batches_have_every_image_and_caption_once(seed, count, parts):
    random = np.random.default_rng(seed)
    for batch in (captions_of(random, count), places_of(random, count)):
        divided = batch.micro_batches(parts)
        sizes = [len(part.features) for part in divided]
        assert sum(sizes) == count
        assert len(sizes) == min(parts, count)
        assert max(sizes) - min(sizes) <= 1
        assert torch.equal(torch.cat([part.features for part in divided]), batch.features)
        assert torch.equal(torch.cat([part.lengths for part in divided]), batch.lengths)
        if isinstance(batch, Batch):
            assert torch.equal(torch.cat([part.tokens for part in divided]), batch.tokens)
            starts = np.cumsum([0, *sizes])
            of = [part.image_index + int(s) for part, s in zip(divided, starts, strict=False)]
            assert torch.equal(torch.cat(of), batch.image_index)
        else:
            assert torch.equal(torch.cat([part.image_ids for part in divided]), batch.image_ids)


@pytest.mark.parametrize("objective", OBJECTIVES)
@settings(max_examples=5)
@given(seed=st.integers(0, 999), parts=st.integers(2, 6))
def test_micro_batches_make_the_update_of_the_whole_batch(objective, seed, parts):
    """Words of parts differ in number, and a mean of their means is not the mean."""
    whole = training(objective, Computation(), seed)
    divided = training(objective, Computation(accumulate=parts), seed)
    for one, other in zip(whole.run(1), divided.run(1), strict=True):
        assert_close(other.loss, one.loss, "loss")
        assert_close(other.gradient_norm, one.gradient_norm, "norm")
        if one.reward is not None:
            assert_close(other.reward or 0.0, one.reward, "reward")
        assert one.captions == other.captions
        assert_close(flat(gradients(divided.model)), flat(gradients(whole.model)), "gradient")
    for name, value in whole.model.state_dict().items():
        assert_close(divided.model.state_dict()[name], value, name)


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_a_step_in_16_bits_is_as_good_as_the_literal_form(precision):
    """The gradient of the first step, against float64's: scaled, and scaled back."""
    errors, of_norms = Errors(precision), Errors(precision)

    def step(computation, dtype, seed):
        one = training("cross_entropy", computation, seed, dtype)
        one.model.load_state_dict(training("cross_entropy", Computation(), seed).model.state_dict())
        norm = next(one.run(1)).gradient_norm
        return flat(gradients(one.model)), norm

    def literally(seed):
        """Autocast alone: no loop, no scale."""
        one = training("cross_entropy", Computation(), seed, torch.float32, "literal")
        one.model.load_state_dict(training("cross_entropy", Computation(), seed).model.state_dict())
        with torch.autocast("cpu", getattr(torch, precision)):
            loss = one.terms(next(iter(one.batches.epoch(0, 0)))).loss
        torch.autograd.backward(loss)
        return flat(gradients(one.model))

    for seed in range(12):
        exact, norm = step(Computation(), torch.float64, seed)
        found, of_found = step(Computation(precision=precision), torch.float32, seed)
        literal = literally(seed)
        errors.add(found, literal, exact, [exact])
        of_norms.add(of_found, np.linalg.norm(literal), norm, [norm])
    errors.check("gradient")
    of_norms.check("its norm")


def test_on_overflow_the_step_is_retried_at_a_smaller_loss_scale():
    one = training("cross_entropy", Computation(precision="float16"), dtype=torch.float32)
    again = training("cross_entropy", Computation(precision="float16"), dtype=torch.float32)
    state = one.scaler.state_dict()
    one.scaler.load_state_dict({**state, "scale": 2.0**40})
    step, expected = next(one.run(1)), next(again.run(1))
    assert one.scaler.get_scale() < 2.0**40
    assert step.step == 1
    assert step.loss == expected.loss
    assert np.isfinite(step.gradient_norm)


def test_a_gradient_that_is_nan_at_any_loss_scale_stops():
    one = training("cross_entropy", Computation(precision="float16"), dtype=torch.float32)
    one.model.vocabulary.bias.register_hook(lambda gradient: gradient * torch.nan)
    before = copy.deepcopy(one.model.state_dict())
    with pytest.raises(NonFiniteError, match=r"gradient is nan at step 1 \(epoch 1, batch 1\)"):
        next(one.run(1))
    for name, value in one.model.state_dict().items():
        assert torch.equal(value, before[name])


WITH_COMPILER = pytest.mark.skipif(
    os.environ.get("HYPOTHESIS_PROFILE") != "thorough" or shutil.which("g++") is None,
    reason="minutes of a C++ compiler; with g++ and HYPOTHESIS_PROFILE=thorough",
)


@pytest.mark.parametrize("backend", ["eager", pytest.param("inductor", marks=WITH_COMPILER)])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_compiled_passes_make_the_same_step(objective, backend, monkeypatch):
    called: list[str] = []
    compile_ = torch.compile

    def compiled(function):
        called.append(function.__name__)
        return compile_(function, backend=backend)

    monkeypatch.setattr(torch, "compile", compiled)
    torch.compiler.reset()
    plain, other = (training(objective, Computation(compile=c), seed=3) for c in (False, True))
    expected, found = next(plain.run(1)), next(other.run(1))
    assert called == ["encode", "states", "predict", "decode"]
    assert_close(found.loss, expected.loss, "loss")
    assert_close(flat(gradients(other.model)), flat(gradients(plain.model)), "gradient")
    torch.compiler.reset()


@pytest.mark.parametrize(
    ("objective", "computation"),
    [
        ("self_critical", Computation()),
        ("cross_entropy", Computation(accumulate=2, precision="bfloat16")),
        ("self_critical", Computation(accumulate=3, precision="float16")),
    ],
    ids=str,
)
@settings(max_examples=2)
@given(kill=st.integers(1, 5))
def test_killed_anywhere_each_computation_of_each_objective_resumes_bit_for_bit(
    tmp_path_factory, objective, computation, kill
):
    make = partial(training, objective, computation, dtype=torch.float32, recipe=RECIPE)
    whole = make()
    expected = [numbers(step) for step in whole.run(2)]
    first, actual = make(), []
    for step in first.run(2):
        actual.append(numbers(step))
        if step.step == kill:
            break
    path = tmp_path_factory.mktemp("run") / "last.safetensors"
    save(path, first.model, first.state_dict())
    second, checkpoint = make(), load(path)
    second.load_state_dict(checkpoint.weights, checkpoint.state)
    actual += [numbers(step) for step in second.run(2)]
    assert actual == expected
    assert second.scaler.state_dict() == whole.scaler.state_dict()
    for name, value in whole.model.state_dict().items():
        assert torch.equal(second.model.state_dict()[name], value), name


def test_what_cannot_be_computed_is_named(tmp_path):
    with pytest.raises(ValueError, match="accumulate is 0, expected at least 1"):
        Computation(accumulate=0)
    with pytest.raises(ValueError, match="precision is 'int8', expected float32 or bfloat16"):
        Computation(precision="int8")
    half = training("cross_entropy", Computation(precision="float16"), dtype=torch.float32)
    plain = training("cross_entropy", Computation(), dtype=torch.float32)
    with pytest.raises(CheckpointError, match="of another precision than float32"):
        plain.load_state_dict(half.model.state_dict(), half.state_dict())
