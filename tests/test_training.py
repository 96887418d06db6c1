"""Training: stopped anywhere and resumed it gives the same numbers; it learns; NaN stops it."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.verify.tolerances import assert_close
from tests.support.training import CONFIGURATION, RECIPE, RandomBatches, numbers
from torch_impl.checkpoints.checkpoint import CheckpointError, load, save
from torch_impl.models import Captioner
from torch_impl.training import CrossEntropyTraining, NonFiniteError, data_generator
from torch_impl.training.optimisation import ALGORITHMS


def training(recipe=RECIPE, batches=None, seed=0, configuration=CONFIGURATION):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = Captioner(configuration)
    return CrossEntropyTraining(model, batches or RandomBatches(4), recipe, seed=seed)


class DoubleBatches(RandomBatches):
    def _batch(self, random):
        batch = super()._batch(random)
        return batch._replace(features=batch.features.double())


@cache
def uninterrupted(algorithm):
    """The numbers of every step, and the weights."""
    whole = training(replace(RECIPE, algorithm=algorithm))
    return [numbers(step) for step in whole.run(3)], whole.model.state_dict()


@pytest.mark.parametrize("algorithm", list(ALGORITHMS))
@settings(max_examples=5)
@given(kills=st.lists(st.integers(1, 11), min_size=1, max_size=3), disturbed=st.booleans())
def test_a_training_killed_anywhere_and_resumed_gives_the_same_numbers_bit_for_bit(
    tmp_path_factory, algorithm, kills, disturbed
):
    recipe = replace(RECIPE, algorithm=algorithm)
    expected, weights = uninterrupted(algorithm)
    assert len(expected) == 12

    path = tmp_path_factory.mktemp("run") / "last.safetensors"
    actual = []
    current = training(recipe)
    for kill in sorted(kills):
        for step in current.run(3):
            actual.append(numbers(step))
            if disturbed:
                # somebody else's random numbers, and an evaluation, between two steps
                torch.rand(7)
                current.model.eval()
            if step.step >= kill:
                break
        save(path, current.model, current.state_dict())
        current = training(recipe)
        checkpoint = load(path)
        current.load_state_dict(checkpoint.weights, checkpoint.state)
    actual += [numbers(step) for step in current.run(3)]

    assert actual == expected
    for name, tensor in weights.items():
        assert torch.equal(current.model.state_dict()[name], tensor), name


def test_a_step_of_descent_is_no_longer_than_its_clipped_gradient():
    for clip in (None, 0.1):
        recipe = replace(RECIPE, algorithm="sgd", warmup=0, lr=1.0, clip=clip)
        run = training(recipe, DoubleBatches(4))
        run.model.double()
        before = {name: t.clone() for name, t in run.model.state_dict().items()}
        step = next(run.run(1))
        moved = [before[name] - t for name, t in run.model.state_dict().items()]
        length = torch.nn.utils.get_total_norm(moved)
        assert step.gradient_norm > 0.1
        assert_close(length, step.gradient_norm if clip is None else clip)


def test_training_leaves_the_random_numbers_of_its_caller_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    for _ in training().run(1):
        pass
    assert torch.equal(torch.rand(3), expected)


@given(seed=st.integers(0, 2**32), epoch=st.integers(0, 10**6), count=st.integers(2, 50))
def test_the_order_of_the_data_is_a_function_of_seed_and_epoch(seed, epoch, count):
    order = data_generator(seed, epoch).permutation(count)
    assert sorted(order) == list(range(count))
    assert np.array_equal(order, data_generator(seed, epoch).permutation(count))


def test_seeds_and_epochs_have_orders_of_their_own():
    orders = {
        tuple(data_generator(seed, epoch).permutation(30))
        for seed in range(5)
        for epoch in range(5)
    }
    assert len(orders) == 25


def test_dropout_differs_from_step_to_step_and_from_seed_to_seed():
    class OneBatch(RandomBatches):
        def epoch(self, epoch, start):
            return iter([self._batch(data_generator(0, 0))] * (self.count - start))

    # a rate too small to change a weight: what differs is dropout alone
    still = replace(RECIPE, lr=1e-30)
    runs = []
    for seed in (0, 1):
        one = training(still, OneBatch(4))
        one.seed = seed
        runs.append([step.loss for step in one.run(1)])
    assert len({loss for losses in runs for loss in losses}) == 8


def test_a_tiny_set_is_overfitted():
    recipe = replace(RECIPE, lr=1e-2, dropout=0.0, label_smoothing=0.0, anneal=1.0)

    class Fixed(RandomBatches):
        def epoch(self, epoch, start):
            return super().epoch(0, start)

    one = training(
        recipe, Fixed(2, images=2), configuration=replace(CONFIGURATION, d_model=32, dropout=0.0)
    )
    losses = [step.loss for step in one.run(60)]
    assert losses[0] > 1.5
    assert max(losses[-2:]) < 0.1
    batch = next(one.batches.epoch(0, 0))
    one.model.eval()
    # captions 0 and 1 describe the same image: their common first word aside, 2 is told apart
    memory = one.model.encode(batch.features, batch.lengths).index_select(0, batch.image_index)
    log_probs = one.model.decode(batch.tokens[:, :-1], memory, batch.lengths[batch.image_index])
    right = log_probs.argmax(-1) == batch.tokens[:, 1:]
    assert right[:, 1:].all()


def test_the_learning_rate_of_a_step_is_the_schedules():
    rates = [step.learning_rate for step in training().run(3)]
    assert rates == [RECIPE.learning_rate(iteration, 4) for iteration in range(12)]


@settings(max_examples=10)
@given(shared=st.permutations([0, 0, 1, 2]))
def test_captions_that_share_an_encoding_train_as_captions_with_their_own(shared):
    """The batch with each image once, and the batch with an image a caption, have one gradient."""
    recipe = replace(RECIPE, dropout=0.0)
    configuration = replace(CONFIGURATION, dropout=0.0)
    batch = next(RandomBatches(1).epoch(0, 0))._replace(image_index=torch.tensor(shared))
    own = batch._replace(
        features=batch.features[batch.image_index],
        lengths=batch.lengths[batch.image_index],
        image_index=torch.arange(4),
    )
    one = training(recipe, configuration=configuration)
    one.model.double()
    gradients = []
    for b in (batch, own):
        one.model.zero_grad()
        one.loss(b._replace(features=b.features.double())).backward()
        gradients.append([p.grad.clone() for p in one.model.parameters()])
    for shared_gradient, own_gradient in zip(*gradients, strict=True):
        assert_close(shared_gradient, own_gradient, "gradient")


@settings(max_examples=10)
@given(st.lists(st.integers(1, 4), min_size=4, max_size=4))
def test_the_loss_of_a_batch_is_that_of_its_captions_alone(lengths):
    """Weighted by their words; an image alone has no padding."""
    one = training(configuration=replace(CONFIGURATION, dropout=0.0))
    one.model.double()
    batch = next(RandomBatches(1).epoch(0, 0))
    batch = batch._replace(
        features=batch.features[batch.image_index].double(),
        lengths=torch.tensor(lengths),
        image_index=torch.arange(4),
    )
    alone = [
        batch._replace(
            features=batch.features[i : i + 1, :length],
            lengths=batch.lengths[i : i + 1],
            tokens=batch.tokens[i : i + 1],
            image_index=torch.zeros(1, dtype=torch.int64),
        )
        for i, length in enumerate(lengths)
    ]
    with torch.no_grad():
        expected = sum(one.num_targets(each) * one.loss(each) for each in alone)
        assert_close(one.num_targets(batch) * one.loss(batch), expected, "loss")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_stops_before_the_weights_change(value):
    class Poisoned(RandomBatches):
        def epoch(self, epoch, start):
            batches = list(super().epoch(epoch, start))
            if epoch == 1:
                batches[2 - start].features[0, 0] = value
            return iter(batches)

    one = training(batches=Poisoned(4))
    steps = []
    before = {}
    with pytest.raises(NonFiniteError, match=r"loss is nan at step 7 \(epoch 2, batch 3\)"):
        for step in one.run(2):
            steps.append(step)
            before = {name: t.clone() for name, t in one.model.state_dict().items()}
    assert len(steps) == 6
    for name, tensor in one.model.state_dict().items():
        assert torch.equal(tensor, before[name])


def test_state_of_another_seed_or_model_or_none_is_refused_and_nothing_changes():
    one, other = training(), training()
    for _ in one.run(1):
        pass
    weights, state = one.model.state_dict(), one.state_dict()
    before = {name: t.clone() for name, t in other.model.state_dict().items()}
    with pytest.raises(CheckpointError, match="seed 3, expected 0"):
        other.load_state_dict(weights, state | {"seed": 3})
    with pytest.raises(CheckpointError, match="no training state"):
        other.load_state_dict(weights, {})
    with pytest.raises(CheckpointError, match=r"optimiser state of unknown nobody\.weight"):
        other.load_state_dict(weights, state | {"optimiser": {"nobody.weight": {}}})
    with pytest.raises(CheckpointError, match=r"missing input\.weight 8x5"):
        other.load_state_dict({k: v for k, v in weights.items() if k != "input.weight"}, state)
    assert (other.step, other.epoch, other.position) == (0, 0, 0)
    for name, tensor in other.model.state_dict().items():
        assert torch.equal(tensor, before[name])
